"""The main job of each program: ``run()`` does what a user of the program does, and returns as JSON what a user sees.

A job runs in the environment of its program, so it imports nothing of this repository but ``inputs``.
"""
