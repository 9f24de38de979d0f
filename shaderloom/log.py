"""The logger ``shaderloom``: what is compiled, cached, opened and handed on, for a program that asks for it.

Its children are ``shaderloom.compile``, ``shaderloom.cache``, ``shaderloom.device`` and ``shaderloom.notices``.
Nothing is printed unless the program configures :mod:`logging`; what a user must know is a warning besides
(:mod:`.notices`).
"""

from __future__ import annotations

import logging

logging.getLogger("shaderloom").addHandler(logging.NullHandler())

COMPILE = logging.getLogger("shaderloom.compile")
CACHE = logging.getLogger("shaderloom.cache")
NOTICES = logging.getLogger("shaderloom.notices")
