"""One execution of a graph: names in nested graphs are not unique, and one graph may run many times."""

from __future__ import annotations

from ..runtime.plan.record import record


@record
class GraphInstance:
    """An execution of a graph of the model.

    ``graph`` is its path in origins; ``iterations`` has the iteration, from 0, of each enclosing Loop and Scan, the
    outermost first.
    """

    graph: str = "main"
    iterations: tuple[int, ...] = ()

    def __str__(self) -> str:
        return self.graph if not self.iterations else f"{self.graph}, iteration {', '.join(map(str, self.iterations))}"


MAIN_GRAPH = GraphInstance()
