"""Where in a run of a model a tensor is: names of nested graphs are not unique, and one graph may run many times."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Place:
    """A graph of the model as it runs once.

    ``graph`` is the path that origins have; ``steps`` has the step, from 0, of each Loop and Scan around its nodes, the
    outermost first.
    """

    graph: str = "main"
    steps: tuple[int, ...] = ()

    def __str__(self) -> str:
        return self.graph if not self.steps else f"{self.graph}, step {', '.join(map(str, self.steps))}"


MAIN = Place()
