"""The API of text generation that clients of OpenAI's speak.

``parameters.py`` reads and checks the fields of requests; ``answers.py`` waits for texts of a scheduler;
``objects.py`` is what clients are sent; ``routes.py`` puts them together.
"""
