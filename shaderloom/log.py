"""The logger ``shaderloom``: records of compilation, caching, devices and fallbacks, for programs that enable it.

Its children are ``shaderloom.compile``, ``shaderloom.cache``, ``shaderloom.device`` and ``shaderloom.notices``.
Nothing is printed unless the program configures :mod:`logging`; what a user must know is also a warning
(:mod:`.notices`).  docs/guide/logging.md lists the messages by level.
"""

from __future__ import annotations

import logging

logging.getLogger("shaderloom").addHandler(logging.NullHandler())

COMPILE = logging.getLogger("shaderloom.compile")
CACHE = logging.getLogger("shaderloom.cache")
NOTICES = logging.getLogger("shaderloom.notices")
GENERATE = logging.getLogger("shaderloom.generate")
SERVER = logging.getLogger("shaderloom.server")
