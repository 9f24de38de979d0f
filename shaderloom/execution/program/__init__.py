"""Models that are not one plan: stages on the device, segments on the cpu, branches and loops over them.

``values`` holds the values that cross between steps, ``steps`` are the kinds of steps, ``build`` decides which step
comes next, ``loops`` runs a Loop or Scan, ``interpreter`` walks the program.
"""

from .interpreter import Program

__all__ = ["Program"]
