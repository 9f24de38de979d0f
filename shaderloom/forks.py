"""Forks of this process: one has neither the threads nor the processes that its parent's objects work with."""

from __future__ import annotations

import os

#: How many forks lie between this process and the one that has imported this module
number = 0


def _count_fork() -> None:
    global number
    number += 1


if hasattr(os, "register_at_fork"):  # the id of the process would be asked for with every item
    os.register_at_fork(after_in_child=_count_fork)
