"""Operator cases of a browser runtime's test suite, which are not in the repository: JSON with comments.

The environment variable ``SHADERLOOM_WEB_SUITE`` names the folder, of ``*.jsonc`` files (``js/web/test/data/ops`` of
onnxruntime's sources).

A file holds operators with attributes and cases; a case gives inputs and expected outputs as lists of numbers.  The
numbers of 4-bit types are not packed, an input without data is an omitted one.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

FOLDER = Path(os.environ.get("SHADERLOOM_WEB_SUITE", "no-folder"))

#: Tolerances of that suite
ABSOLUTE, RELATIVE = 1e-3, 1e-5

#: Files whose cases are wrong data, or of operators that no runtime has any more
UNSOUND = frozenset({"image-scaler", "reshape-pack"})
_COMMENT = re.compile(r'("(?:\\.|[^"\\])*")|//[^\n]*|/\*.*?\*/', re.DOTALL)
_TRAILING_COMMA = re.compile(r",(\s*[\]}])")

_TYPES = {"bool": "BOOL", "float16": "FLOAT16", "float32": "FLOAT", "float64": "DOUBLE"}


@dataclass(frozen=True)
class SuiteCase:
    """One case as a model of one node."""

    name: str
    operator: str
    domain: str
    opset: int
    attributes: tuple[tuple[str, Any], ...]
    inputs: tuple[tuple[str, tuple[int, ...], Any] | None, ...]  #: (type, shape, numbers); None: omitted
    outputs: tuple[tuple[str, tuple[int, ...], Any] | None, ...]  #: None: not requested

    def model(self) -> onnx.ModelProto:
        names = ["" if tensor is None else f"x{number}" for number, tensor in enumerate(self.inputs)]
        results = ["" if tensor is None else f"y{number}" for number, tensor in enumerate(self.outputs)]
        node = helper.make_node(self.operator, names, results, domain=self.domain, **dict(self.attributes))
        values = [
            helper.make_tensor_value_info(name, element_type(tensor[0]), tensor[1])
            for name, tensor in zip(names, self.inputs)
            if tensor is not None
        ]
        outputs = [
            helper.make_tensor_value_info(name, element_type(tensor[0]), tensor[1])
            for name, tensor in zip(results, self.outputs)
            if tensor is not None
        ]
        graph = helper.make_graph([node], "case", values, outputs)
        opsets = [helper.make_opsetid(self.domain, self.opset)]
        if self.domain:
            opsets.append(helper.make_opsetid("", 21))
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)

    @property
    def feeds(self) -> dict[str, np.ndarray]:
        return {f"x{number}": array(tensor) for number, tensor in enumerate(self.inputs) if tensor is not None}

    @property
    def expected(self) -> list[np.ndarray]:
        return [array(tensor) for tensor in self.outputs if tensor is not None]


def element_type(name: str) -> int:
    return int(getattr(TensorProto, _TYPES.get(name, name.upper())))


def array(tensor: tuple[str, tuple[int, ...], Any]) -> np.ndarray:
    name, shape, numbers = tensor
    dtype = helper.tensor_dtype_to_np_dtype(element_type(name))
    return np.asarray(numbers, np.float64 if dtype.kind == "f" else np.int64).astype(dtype).reshape(shape)


def read(path: Path) -> Any:
    """JSON with comments and trailing commas."""
    text = _COMMENT.sub(lambda match: match.group(1) or "", path.read_text(encoding="utf-8"))
    return json.loads(_TRAILING_COMMA.sub(r"\1", text))


def _tensor(entry: dict[str, Any]) -> tuple[str, tuple[int, ...], Any] | None:
    return None if entry["data"] is None else (entry["type"], tuple(entry["dims"]), entry["data"])


def cases() -> Iterator[SuiteCase]:
    """Every sound case of the suite; none if the folder is not given."""
    for path in sorted(FOLDER.glob("*.jsonc")):
        if path.stem in UNSOUND:
            continue
        for number, entry in enumerate(read(path)):
            opset = entry.get("opset") or {"domain": "", "version": 13}
            domain = "" if opset["domain"] == "ai.onnx" else opset["domain"]
            attributes = tuple(
                (item["name"], float(item["data"]) if item["type"] == "float" else item["data"])
                for item in entry.get("attributes") or ()
            )
            for position, case in enumerate(entry["cases"]):
                yield SuiteCase(
                    f"{path.stem}-{number}-{position}",
                    entry["operator"],
                    domain,
                    opset["version"],
                    attributes,
                    tuple(_tensor(each) for each in case["inputs"]),
                    tuple(_tensor(each) for each in case["outputs"]),
                )
