"""The report of ``inspect --html``: one file that is readable without a network and without this project.

``data`` collects the content as JSON values, ``placement`` lays out the graph, ``annotate`` writes the comments of
shaders, ``page`` assembles the parts.  The page itself is HTML, CSS and JavaScript in this folder.
"""
