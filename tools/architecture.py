"""Draw the pictures of docs/architecture.md from the imports of the code: ``python -m tools.architecture``.

``docs/images/folders.svg`` has every folder of the product; an arrow leads from one that imports to one that is
imported, unless others lead there anyway (the transitive reduction). ``docs/images/run.svg`` has the folders that the
first and the repeated run of a session go through, in order.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from html import escape
from pathlib import Path

import networkx

ROOT = Path(__file__).resolve().parents[1]
IMAGES = ROOT / "docs" / "images"
PACKAGES = {"shaderloom.compiler": "compiler", "shaderloom.runtime": "runtime", "shaderloom": "shaderloom"}
COLOURS = {"shaderloom": "#e8f0fe", "compiler": "#fef3e2", "runtime": "#e6f4ea"}

#: The way of a run: folder, what happens there, and whether a repeated run with the same shapes passes it
RUN = (
    ("shaderloom/session", "checks names and feeds", True),
    ("shaderloom/execution", "finds the plan of the shapes, or the step of the program", True),
    ("shaderloom/model", "reads the plan from the disk cache, or has it compiled", False),
    ("compiler/frontend", "ONNX file to typed model", False),
    ("compiler/binding", "shapes in: every size is known or a polynomial", False),
    ("compiler/passes", "the pass manager: expand, rewrite, lay out", False),
    ("compiler/fusion", "nodes to groups", False),
    ("compiler/kernels", "groups to kernel specifications", False),
    ("compiler/codegen", "specifications and templates to WGSL", False),
    ("compiler/planning", "memory, weights and calls: the plan", False),
    ("runtime/device", "pipelines", False),
    ("runtime/memory", "weights from the mapped file to the device", False),
    ("runtime/execution", "binds, encodes and submits one compute pass", True),
)

WIDTH, HEIGHT, GAP_X, GAP_Y = 142, 30, 14, 34


def folder_of(path: Path) -> str:
    """Return the folder of a module as the pictures name it: two levels, files at the top of a package apart."""
    parts = path.relative_to(ROOT).parts
    return "/".join(parts[:2]) if len(parts) > 2 else parts[0]


def modules() -> dict[str, Path]:
    """Return the product's modules by dotted name."""
    paths: dict[str, Path] = {}
    for package, folder in PACKAGES.items():
        for path in sorted((ROOT / folder).rglob("*.py")):
            parts = path.relative_to(ROOT / folder).with_suffix("").parts
            if folder == "shaderloom" and parts[0] in ("compiler", "runtime", "templates"):  # reached by links
                continue
            paths[".".join((package, *(parts[:-1] if parts[-1] == "__init__" else parts)))] = path
    return paths


def imported(name: str, path: Path) -> Iterator[str]:
    """Yield what a module imports, as dotted names."""
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parts = package.split(".")
            base = parts[: len(parts) - node.level + 1] if node.level else []
            target = ".".join((*base, *([node.module] if node.module else [])))
            yield from (target, *(f"{target}.{alias.name}" for alias in node.names))


def folder_graph() -> networkx.DiGraph:
    """Return which folder imports which."""
    names = modules()
    graph = networkx.DiGraph()
    for name, path in names.items():
        graph.add_node(folder_of(path))
        if path.parent == ROOT / "shaderloom":  # the public names and what is small: every folder may have them
            continue
        for other in imported(name, path):
            if other in names and folder_of(names[other]) != folder_of(path):
                graph.add_edge(folder_of(path), folder_of(names[other]))
    graph.remove_nodes_from(["shaderloom", "compiler", "runtime"])
    return graph


def draw_folders(graph: networkx.DiGraph) -> str:
    """Return the picture of the folders as SVG: what is imported is below what imports it."""
    reduced = networkx.transitive_reduction(graph)
    level: dict[str, int] = {}
    for folder in reversed(list(networkx.lexicographical_topological_sort(graph))):
        level[folder] = 1 + max((level[other] for other in graph.successors(folder)), default=-1)
    rows: list[list[str]] = [[] for _ in range(max(level.values()) + 1)]
    for folder in sorted(level):
        rows[level[folder]].append(folder)
    place: dict[str, float] = {}
    for row in rows:  # from the bottom: each folder stands above the middle of what it imports
        row.sort(key=lambda folder: (_middle(place, reduced.successors(folder)), folder))
        for column, folder in enumerate(row):
            place[folder] = column - (len(row) - 1) / 2
    span = max(map(len, rows)) * (WIDTH + GAP_X) + 2 * GAP_X
    height = len(rows) * (HEIGHT + GAP_Y) + GAP_Y
    corner = {
        folder: (span / 2 + place[folder] * (WIDTH + GAP_X), height - GAP_Y - HEIGHT - level[folder] * (HEIGHT + GAP_Y))
        for folder in level
    }
    arrows = [_arrow(corner[source], corner[target]) for source, target in sorted(reduced.edges)]
    return _svg(span, height, [*arrows, *(_box(*corner[folder], folder, folder) for folder in sorted(corner))])


def _middle(place: dict[str, float], folders: Iterator[str]) -> float:
    positions = [place[folder] for folder in folders if folder in place]
    return sum(positions) / len(positions) if positions else 0.0


def draw_run(graph: networkx.DiGraph) -> str:
    """Return the picture of a run as SVG.  Raises ValueError for a folder that does not exist any more."""
    missing = [folder for folder, _, _ in RUN if folder not in graph]
    if missing:
        raise ValueError(f"the way of a run names {', '.join(missing)}, which are no folders")
    parts = []
    left, text_left = 100, 100 + WIDTH / 2 + 90
    for row, (folder, what, repeated) in enumerate(RUN):
        y = GAP_Y / 2 + row * (HEIGHT + 12)
        parts.append(_box(left + 24, y, folder, folder))
        mark = "every run" if repeated else "first run"
        parts.append(f'<text x="{text_left}" y="{y + 20}" class="what">{escape(what)}</text>')
        parts.append(f'<text x="{text_left + 400}" y="{y + 20}" class="{mark.split()[0]}">{mark}</text>')
        if row:
            parts.append(f'<path d="M {left + 24} {y - 12} V {y - 1}" marker-end="url(#tip)"/>')
    return _svg(760, GAP_Y + len(RUN) * (HEIGHT + 12), parts)


def _box(x: float, y: float, folder: str, label: str) -> str:
    colour = COLOURS[folder.split("/")[0]]
    return (
        f'<g><title>{escape(label)}</title><rect x="{x - WIDTH / 2:.0f}" y="{y:.0f}" width="{WIDTH}" height="{HEIGHT}" '
        f'rx="4" fill="{colour}"/><text x="{x:.0f}" y="{y + 19:.0f}" text-anchor="middle">{escape(label)}</text></g>'
    )


def _arrow(source: tuple[float, float], target: tuple[float, float]) -> str:
    (x, y), (to_x, to_y) = source, target
    middle = (y + HEIGHT + to_y) / 2
    curve = f"{x:.0f} {middle:.0f} {to_x:.0f} {middle:.0f} {to_x:.0f} {to_y - 2:.0f}"
    return f'<path d="M {x:.0f} {y + HEIGHT:.0f} C {curve}" marker-end="url(#tip)"/>'


def _svg(width: float, height: float, parts: list[str]) -> str:
    style = (
        "text{font:12px system-ui,sans-serif;fill:#202124}rect{stroke:#5f6368}path{stroke:#9aa0a6;fill:none}"
        ".what{fill:#3c4043}.every{fill:#137333;font-weight:600}.first{fill:#80868b}"
    )
    tip = (
        '<defs><marker id="tip" viewBox="0 0 6 6" refX="5" refY="3" markerWidth="6" markerHeight="6" orient="auto">'
        '<path d="M0 0 6 3 0 6z" style="fill:#9aa0a6;stroke:none"/></marker></defs>'
    )
    body = "\n".join(['<rect width="100%" height="100%" fill="white" style="stroke:none"/>', *parts])
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}">\n'
        f"<style>{style}</style>\n{tip}\n{body}\n</svg>\n"
    )


def main() -> None:
    graph = folder_graph()
    IMAGES.mkdir(exist_ok=True)
    (IMAGES / "folders.svg").write_text(draw_folders(graph), encoding="utf-8")
    (IMAGES / "run.svg").write_text(draw_run(graph), encoding="utf-8")


if __name__ == "__main__":
    main()
