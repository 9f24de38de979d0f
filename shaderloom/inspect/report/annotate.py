"""Comments that name ONNX nodes and tensors in a kernel's WGSL.

A shader's text is shared by all calls that run it, so it has no names.  Comments belong to one call.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ...runtime.plan.dimension import shape_text
from ...runtime.plan.facts import TensorFacts
from ...runtime.plan.notes import CallNotes
from ...runtime.plan.plan import Plan

#: (line that it precedes, comment)
Comment = tuple[int, str]

_BINDING = re.compile(r"@binding\((\d+)\) var<(storage|uniform)")
_FUNCTION = re.compile(r"fn (\w+)\(")
_LOAD = re.compile(r"\bx(\d+)\[")


def comments(plan: Plan, number: int) -> list[Comment]:
    """Return the comments of call ``number`` in the text of its kernel."""
    kernel = plan.calls[number].kernel
    lines = next(item.wgsl for item in plan.kernels if item.key == kernel).splitlines()
    operands = [plan.facts.tensors[tensor] for tensor in plan.facts.calls[number].operands]
    functions = {match[1]: number for number, line in enumerate(lines) if (match := _FUNCTION.match(line))}
    read = {name: _read(_body(lines, number), operands) for name, number in functions.items()}
    computes_in_stores = not any(names for name, names in read.items() if not _is_store(name))
    listed: list[Comment] = []
    for line_number, line in enumerate(lines):
        binding = _BINDING.search(line)
        if " problem: Problem;" in line:
            listed.append((line_number, f"// {problem_text(plan, number)}"))
        if binding is not None and binding[2] == "storage" and int(binding[1]) < len(operands):
            listed.append((line_number, f"// {plain(tensor_text(operands[int(binding[1])]))}"))
        function = _FUNCTION.match(line)
        if function is not None:
            name, notes = function[1], plan.notes.calls[number]
            if _is_store(name):
                text = _of_store(notes, computes_in_stores)
            else:
                text = _of_function(name, read[name], notes)
            start = line_number
            while start and lines[start - 1].startswith("@compute"):
                start -= 1
            listed += [(start, f"// {plain(part)}") for part in text]
    return listed


def problem_text(plan: Plan, number: int) -> str:
    """Return the numbers that a shared kernel reads in call ``number``, by the names of their fields."""
    names = [item.buffer for item in plan.calls[number].ranges if item.buffer.startswith("problem:")]
    values = plan.problems[int(names[0].partition(":")[2])] if names else ()
    return ", ".join(f"n{place} = {value}" for place, value in enumerate(values))


def plain(text: str) -> str:
    """Return text of a model as one line that cannot end a comment or a string of the surrounding language."""
    printable = "".join(letter if letter.isprintable() else "?" for letter in text)
    return printable.replace("\\", "/").replace('"""', "'''")


def annotated(wgsl: str, notes: Sequence[Comment]) -> str:
    """Insert the comments into the text, each indented like the line that follows."""
    lines = wgsl.splitlines()
    by_line: dict[int, list[str]] = {}
    for number, text in notes:
        by_line.setdefault(number, []).append(text)
    result = []
    for number, line in enumerate(lines):
        indent = line[: len(line) - len(line.lstrip())]
        result += [indent + text for text in by_line.get(number, ())]
        result.append(line)
    return "\n".join(result) + "\n"


def tensor_text(tensor: TensorFacts) -> str:
    """Return a tensor in one line: name, type, shape, layout, kind."""
    name = tensor.name or "(without a name)"
    return f"{name}: {tensor.dtype} {shape_text(tensor.shape)}, {tensor.layout.text or '-'}, {tensor.kind}"


def _body(lines: Sequence[str], start: int) -> list[str]:
    """Return the lines of a function, up to the next line that closes a block at the margin."""
    for number in range(start, len(lines)):
        if lines[number].startswith("}") or (number == start and lines[number].rstrip().endswith("}")):
            return list(lines[start : number + 1])
    return list(lines[start:])


def _read(body: Sequence[str], operands: Sequence[TensorFacts]) -> list[str]:
    """Return the names of the tensors that a function loads; operand names for tensors without one."""
    numbers = sorted({int(number) for line in body for number in _LOAD.findall(line)})
    return [operands[number].name or f"x{number}" for number in numbers if number < len(operands)]


def parts_of(notes: CallNotes) -> tuple[list[str], list[str], list[str]]:
    """Return the ONNX nodes of the prologue, the anchor and the epilogue, each in one part only.

    A node may have IR nodes in several parts, such as a product with a view of its operand: it is then listed with the
    anchor.
    """
    anchor = list(notes.anchor)
    epilogue = [node for node in notes.epilogue if node not in anchor]
    prologue = [node for node in notes.prologue if node not in anchor and node not in epilogue]
    return prologue, anchor, epilogue


def _is_store(name: str) -> bool:
    return name.startswith("store")


def _of_store(notes: CallNotes, computes: bool) -> list[str]:
    """Describe what a function that stores applies to its operands; ``computes``: all that the kernel computes."""
    prologue, anchor, epilogue = parts_of(notes)
    nodes = [*prologue, *anchor] if computes else epilogue
    return [f"applies {', '.join(nodes)}"] if nodes else ["stores the result as it is"]


def _of_function(name: str, read: Sequence[str], notes: CallNotes) -> list[str]:
    """Describe what a function computes of the ONNX graph, from its name and the tensors it loads."""
    prologue, anchor, _ = parts_of(notes)
    if name == "main":
        return [f"computes {', '.join(anchor)}"] if anchor else []
    if not read:
        return []
    through = f" through {', '.join(prologue)}" if prologue else ""
    return [f"reads {', '.join(read)}{through}"]
