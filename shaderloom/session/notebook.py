"""What notebooks show of a session: a table, and the graph of kernels that ran last as a drawing in SVG.

Names come from the model, so that all text is escaped; there is no script and no style that could reach the page.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from ..plans.call_graph import CallGraph
from ..runtime.plan.declared_port import DeclaredPort
from ..runtime.plan.dimension import shape_text
from ..runtime.plan.plan import Plan

#: Calls up to which a plan is drawn
LARGEST_GRAPH = 150
#: Characters of a name, and rows of inputs and of outputs
_NAME, _ROWS = 28, 8
_BOX, _BADGE = (200.0, 34.0), (200.0, 20.0)
_MARGIN = 6.0


def session_html(title: str, ports: Sequence[tuple[str, Sequence[DeclaredPort]]], plans: Sequence[Plan]) -> str:
    """Return a session as HTML.

    ``title`` is its line of text, ``ports`` are headings with inputs or outputs, and ``plans`` those that ran last.
    """
    rows = "".join(
        f"<tr><th>{escape(heading)}</th><td>{_listed(map(_declaration, each))}</td></tr>" for heading, each in ports
    )
    drawings = "".join(map(_drawing, plans)) or "<p>The graph of kernels is here after the first run.</p>"
    return f"<div><p>{escape(title)}</p><table>{rows}</table>{drawings}</div>"


def _declaration(port: DeclaredPort) -> str:
    dims = "" if port.dims is None else f"[{', '.join('?' if dim is None else str(dim) for dim in port.dims)}]"
    return f"{port.name}: {port.type_text or port.dtype or 'undefined'}{dims}"


def _listed(texts: Iterable[str]) -> str:
    lines = list(texts)
    rest = [f"and {len(lines) - _ROWS} more"] if len(lines) > _ROWS else []
    return "<br>".join(map(escape, [*lines[:_ROWS], *rest]))


def _drawing(plan: Plan) -> str:
    """Return a plan as SVG: a box for each call, in which the pointer shows its ONNX nodes."""
    count = len(plan.calls)
    if count > LARGEST_GRAPH:
        return f"<p>{count:,} calls of {len(plan.kernels):,} kernels: shaderloom inspect --html draws them.</p>"
    graph = CallGraph.of(plan)
    tensors = plan.facts.tensors
    texts = [(call.label, notes.family, "\n".join(call.origins)) for call, notes in zip(plan.calls, plan.notes.calls)]
    ports = [(tensors[number].name, shape_text(tensors[number].shape)) for number in (*graph.inputs, *graph.outputs)]
    sizes = [_BOX] * count + [_BADGE] * len(ports)
    places = graph.place(sizes)
    shapes = [
        *(_box(place, _BOX, label, family, origins) for place, (label, family, origins) in zip(places, texts)),
        *(_badge(place, name, shape) for place, (name, shape) in zip(places[count:], ports)),
    ]
    lines = [_line(places, sizes, source, target) for source, target, _ in graph.edges]
    width = max((x + size[0] for (x, _), size in zip(places, sizes)), default=0.0) + 2 * _MARGIN
    height = max((y + size[1] for (_, y), size in zip(places, sizes)), default=0.0) + 2 * _MARGIN
    return (
        f'<div style="max-height:30em;overflow:auto"><svg xmlns="http://www.w3.org/2000/svg" width="{width:g}" '
        f'height="{height:g}" viewBox="{-_MARGIN:g} {-_MARGIN:g} {width:g} {height:g}" fill="none" '
        f'stroke="currentColor" font-family="sans-serif" font-size="11">{"".join(lines)}{"".join(shapes)}</svg></div>'
    )


def _box(place: tuple[float, float], size: tuple[float, float], label: str, family: str, origins: str) -> str:
    (x, y), (width, height) = place, size
    return (
        f'<g><title>{escape(origins)}</title><rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="3" '
        f'fill="#8884"/>{_text(x + width / 2, y + 14, label)}{_text(x + width / 2, y + 28, family)}</g>'
    )


def _badge(place: tuple[float, float], name: str, shape: str) -> str:
    (x, y), (width, height) = place, _BADGE
    return (
        f'<g><title>{escape(name)}</title><rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="10"/>'
        f"{_text(x + width / 2, y + 14, f'{name} {shape}')}</g>"
    )


def _text(x: float, y: float, text: str) -> str:
    short = text if len(text) <= _NAME else f"{text[: _NAME - 1]}…"
    return f'<text x="{x:g}" y="{y:g}" text-anchor="middle" fill="currentColor" stroke="none">{escape(short)}</text>'


def _line(places: Sequence[tuple[float, float]], sizes: Sequence[tuple[float, float]], source: int, target: int) -> str:
    """Return the path of an edge, from the lower edge of a box to the upper edge of another."""
    x, y = places[source][0] + sizes[source][0] / 2, places[source][1] + sizes[source][1]
    end, top = places[target][0] + sizes[target][0] / 2, places[target][1]
    middle = (y + top) / 2
    return f'<path d="M{x:g} {y:g}C{x:g} {middle:g} {end:g} {middle:g} {end:g} {top:g}" opacity="0.5"/>'
