"""A page of some twenty lines that loads a bundle and runs it: ``serve`` shows it, and ``compile --page`` writes it."""

from __future__ import annotations

import html
import json
from collections.abc import Mapping
from typing import Any

from ..runtime.bundle.manifest import Manifest
from ..runtime.plan.size_range import SizeRange

#: Typed arrays of JavaScript by element type; halves are bits, and whatever is not here is a byte
ARRAYS = {
    "float32": "Float32Array",
    "float16": "Uint16Array",
    "bfloat16": "Uint16Array",
    "int64": "BigInt64Array",
    "uint64": "BigUint64Array",
    "int32": "Int32Array",
    "uint32": "Uint32Array",
    "int16": "Int16Array",
    "uint16": "Uint16Array",
    "int8": "Int8Array",
}

_PAGE = """<!doctype html>
<meta charset="utf-8">
<title>@title@</title>
<link rel="icon" href="data:,">
<button id="run">Run</button>
<pre id="result"></pre>
<script type="module">
import { load } from "./shaderloom.js";

const feeds = {
@feeds@
};
const show = (text) => { document.querySelector("#result").textContent = text; };
const onProgress = ({ what, done, total }) => show(`${what}: ${done} of ${total}`);
const loading = load(@url@, { onProgress });
loading.then(() => show("Ready"), (error) => show(error.message));
document.querySelector("#run").onclick = () => {
  const text = ([name, { dtype, dims, data }]) => `${name}: ${dtype} [${dims}] ${data.slice(0, 8).join(", ")}`;
  loading.then((session) => session.run(feeds))
    .then((outputs) => show(Object.entries(outputs).map(text).join("\\n")), (error) => show(error.message));
};
</script>
"""


def starter_page(manifest: Manifest, name: str, url: str) -> str:
    """Return the HTML of a page that runs the bundle at ``url`` on zeros in the shapes of its first plan or program.

    ``name`` is the title.  The page expects the runner, ``shaderloom.js``, beside it.
    """
    ports = {port.name: port for port in (*manifest.inputs, *manifest.overridable)}
    feeds = []
    for port_name, dims in manifest.shapes[0].items():
        sizes = [_size(dim, manifest.dynamic) for dim in dims]
        array = ARRAYS.get(ports[port_name].dtype or "", "Uint8Array")
        count = " * ".join(map(str, sizes)) or "1"
        feeds.append(f"  {_literal(port_name)}: {{ data: new {array}({count}), dims: {sizes} }},")
    text = _PAGE.replace("@title@", html.escape(name)).replace("@url@", _literal(url))
    return text.replace("@feeds@", "\n".join(feeds))


def _size(dim: int | str, ranges: Mapping[str, SizeRange]) -> int:
    """Return a dimension, of a dynamic one the smallest size that has elements."""
    if isinstance(dim, int):
        return dim
    allowed = ranges[dim]
    return allowed.low if allowed.low > 0 or allowed.high == 0 else allowed.low + allowed.step


def _literal(value: Any) -> str:
    """Return a text as JavaScript that also stands inside of HTML."""
    return json.dumps(value).replace("<", "\\u003c")
