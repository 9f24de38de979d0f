"""The report of ``inspect --html``: one file that needs neither a network nor this project to be read.

``data`` collects what is shown as JSON values, ``placement`` places the graph, ``annotate`` writes the comments of
shaders, ``page`` puts the parts together.  The page itself is HTML, CSS and JavaScript in this folder.
"""
