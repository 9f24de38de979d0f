"""Messages and schemas without the package onnx: the same ones, whatever is imported first.

Covers: compiler/frontend/messages, compiler/frontend/schemas.
"""

from __future__ import annotations

import marshal
import subprocess
import sys
from pathlib import Path
from typing import Any

import onnx.defs
import pytest

from shaderloom.compiler.frontend import schemas
from shaderloom.runtime.plan import bytecode_file
from shaderloom.runtime.plan.errors import ModelError

SAME = """
import marshal, sys
{first}
from shaderloom.compiler.frontend import messages, load_model, schemas
standard = marshal.load(open({table!r}, "rb"))
schemas._standard = lambda: standard
data = bytes.fromhex({data!r})
model = load_model(data)
assert [node.definition.name for node in model.graph.nodes] == ["Transpose", "Add", "Relu"]
assert ("onnx" in sys.modules) == {imported}, "onnx"
import onnx, pickle
for name in ("ModelProto", "TensorProto", "GraphProto", "NodeProto", "AttributeProto", "TypeProto"):
    assert getattr(messages, name) is getattr(onnx, name), name
assert pickle.loads(pickle.dumps(model.proto)) == model.proto
onnx.checker.check_model(model.proto)
assert len(load_model(onnx.ModelProto.FromString(data)).graph.nodes) == 3
"""

#: What a program may do before, and whether it has imported the package then
BEFORE = {
    "": False,
    "import onnx": True,
    "import onnx.onnx_ml_pb2": True,
    "import google.protobuf.json_format": False,
    "import os; os.environ['PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION'] = 'python'": False,
    "import os; is_file = os.path.isfile; os.path.isfile = lambda path: not path.endswith('pb2.py')": True,  # elsewhere
}


@pytest.mark.parametrize("first", BEFORE)
def test_messages_are_those_of_the_package_which_is_not_imported(first: str, tmp_path: Path) -> None:
    (tmp_path / "table").write_bytes(marshal.dumps(schemas.read_standard()))
    text = (
        '<ir_version: 8, opset_import: ["" : 18]> g (float[2,3] x) => (float[3,2] y) '
        "{ t = Transpose(x) one = Constant <value_float = 1.0> () u = Add(t, one) y = Relu(u) }"
    )
    data = onnx.parser.parse_model(text).SerializeToString().hex()
    program = SAME.format(first=first, imported=BEFORE[first], data=data, table=str(tmp_path / "table"))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]


def all_versions() -> list[tuple[str, str]]:
    return sorted({(schema.name, schema.domain) for schema in onnx.defs.get_all_schemas_with_history()})


def test_signatures_are_those_of_the_schemas() -> None:
    newest = onnx.defs.onnx_opset_version()
    assert len(all_versions()) > 200
    for op, domain in all_versions():
        for opset in range(1, newest + 1):
            try:
                schema: Any = onnx.defs.get_schema(op, opset, domain)
            except onnx.defs.SchemaError:
                continue
            has_body = schema.has_function or schema.has_context_dependent_function
            assert schemas.has_body(op, domain, opset) == has_body, (op, opset)
            own = schemas.signature(op, domain, opset)
            if (op in schemas._OF_ANY_OPSET) and domain == "":
                continue
            assert own is not None
            assert (own.version, own.deprecated) == (schema.since_version, schema.deprecated), (op, opset)
            assert (own.min_inputs, own.max_inputs, own.max_outputs) == (
                schema.min_input,
                schema.max_input,
                schema.max_output,
            )
            assert own.names == tuple(item.name for item in schema.inputs)
            assert dict(own.kinds) == {
                name: onnx.AttributeProto.AttributeType.Value(item.type.name)
                for name, item in schema.attributes.items()
            }


def test_an_operator_of_a_later_opset_is_refused() -> None:
    with pytest.raises(ModelError, match="'Gelu' is not part of opset 19"):
        schemas.signature("Gelu", "", 19)
    assert schemas.signature("Anything", "my.domain", 1) is None


def test_the_table_is_kept_for_one_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.setattr(bytecode_file, "path_of", lambda folder, name: str(tmp_path / name))
    reads = []
    read = schemas.read_standard
    monkeypatch.setattr(schemas, "read_standard", lambda: reads.append(1) or read())

    def standard() -> Any:
        schemas._standard.cache_clear()
        return schemas._standard()

    try:
        assert standard() == standard() == read()
        assert len(reads) == 1
        monkeypatch.setattr(schemas, "_library", lambda: "another")
        assert standard() == read()
        assert len(reads) == 2
        monkeypatch.setattr(schemas, "_library", lambda: None)
        assert standard() == standard() == read()
        assert len(reads) == 4
    finally:
        schemas._standard.cache_clear()
