"""External data: found beside the model, checked against the declared tensor, and never outside the model's folder.

Covers: compiler/frontend/tensors.
"""

import os
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from shaderloom.compiler.frontend import load_model
from shaderloom.runtime.plan.errors import ModelError

DATA = np.arange(64, dtype=np.float32)


def _model(entries: dict[str, str], shape=(64,), dtype=TensorProto.FLOAT) -> onnx.ModelProto:
    tensor = TensorProto(name="weight", data_type=dtype, dims=shape, data_location=TensorProto.EXTERNAL)
    for key, value in entries.items():
        tensor.external_data.add(key=key, value=value)
    graph = helper.make_graph(
        [helper.make_node("Identity", ["weight"], ["y"])],
        "g",
        [],
        [helper.make_tensor_value_info("y", dtype, shape)],
        initializer=[tensor],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "secret.bin").write_bytes(DATA.tobytes())
    inside = tmp_path / "model"
    (inside / "sub").mkdir(parents=True)
    (inside / "data.bin").write_bytes(b"\0" * 16 + DATA.tobytes() + b"\0" * 16)
    (inside / "sub" / "exact.bin").write_bytes(DATA.tobytes())
    return inside


def _load(folder: Path, entries: dict[str, str], **options):
    path = folder / "model.onnx"
    path.write_bytes(_model(entries, **options).SerializeToString())
    return load_model(path)


@pytest.mark.parametrize(
    "entries",
    [
        {"location": "data.bin", "offset": "16", "length": "256"},
        {"location": "data.bin", "offset": "16"},
        {"location": "sub/exact.bin"},
        {"location": "./sub/exact.bin", "checksum": "0" * 40},
    ],
)
def test_ranges_of_files_beside_the_model(folder, entries):
    model = _load(folder, entries)
    source = model.graph.constants["weight"]
    np.testing.assert_array_equal(source.read(), DATA)
    assert not source.read().flags.writeable
    ref = source.to_ref()
    assert (folder / ref.path).read_bytes()[ref.offset : ref.offset + ref.length] == DATA.tobytes()


def test_the_key_changes_when_the_file_does(folder):
    entries = {"location": "sub/exact.bin"}
    before = _load(folder, entries).graph.constants["weight"].key
    assert _load(folder, entries).graph.constants["weight"].key == before
    os.utime(folder / "sub" / "exact.bin", ns=(1, 1))
    assert _load(folder, entries).graph.constants["weight"].key != before


def test_one_file_is_mapped_once(folder):
    tensors = [{"location": "data.bin", "offset": "16"}, {"location": "data.bin", "offset": "0"}]
    model = _model(tensors[0])
    second = model.graph.initializer.add()
    second.CopyFrom(_model(tensors[1]).graph.initializer[0])
    second.name = "other"
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    assert [file.relative for file in load_model(folder / "model.onnx").files] == ["", "data.bin"]


@pytest.mark.parametrize(
    ("entries", "reason"),
    [
        ({"location": "missing.bin"}, "there is no file"),
        ({"location": "../secret.bin"}, "outside"),
        ({"location": "sub/../../secret.bin"}, "outside"),
        ({"location": "sub/.."}, "outside"),
        ({"location": "."}, "not a regular file"),
        ({"location": "sub"}, "not a regular file"),
        ({"location": ""}, "not a portable"),
        ({"location": "a\0b"}, "not a portable"),
        ({"location": "..\\secret.bin"}, "not a portable"),
        ({"location": "C:data.bin"}, "not a portable"),
        ({"location": "x" * 5000}, "cannot read the data file"),
        ({}, "without a location"),
        ({"location": "data.bin", "basepath": "/"}, "unknown key"),
        ({"location": "data.bin", "offset": "-4"}, "not a number"),
        ({"location": "data.bin", "offset": "0x10"}, "not a number"),
        ({"location": "data.bin", "offset": "٣"}, "not a number"),
        ({"location": "data.bin", "offset": "9" * 30}, "not a number"),
        ({"location": "data.bin", "offset": "9223372036854775807"}, "the file has 288"),
        ({"location": "data.bin", "offset": "36"}, "the file has 288"),
        ({"location": "data.bin", "length": "128"}, "needs 256 bytes"),
        ({"location": "data.bin", "length": "0"}, "needs 256 bytes"),
        ({"location": "data.bin", "length": ""}, "not a number"),
    ],
)
def test_wrong_references_are_refused(folder, entries, reason):
    with pytest.raises(ModelError, match=reason) as caught:
        _load(folder, entries)
    assert caught.value.tensor == "weight"


def test_an_absolute_path_is_refused(folder):
    with pytest.raises(ModelError, match=r"outside|portable"):
        _load(folder, {"location": str(folder.parent / "secret.bin")})


def test_a_link_out_of_the_folder_is_refused(folder):
    (folder / "link.bin").symlink_to(folder.parent / "secret.bin")
    (folder / "linked").symlink_to(folder.parent)
    for location in ("link.bin", "linked/secret.bin"):
        with pytest.raises(ModelError, match="link out of"):
            _load(folder, {"location": location})


def test_a_link_that_loops_is_refused(folder):
    (folder / "loop.bin").symlink_to("loop.bin")
    with pytest.raises(ModelError, match="cannot read the data file"):
        _load(folder, {"location": "loop.bin"})


def test_a_hard_link_is_refused(folder):
    """Whether its other name is in the folder is unknown."""
    os.link(folder.parent / "secret.bin", folder / "hard.bin")
    with pytest.raises(ModelError, match="has other names"):
        _load(folder, {"location": "hard.bin"})


def test_a_link_inside_the_folder_is_followed(folder):
    (folder / "alias.bin").symlink_to("sub/exact.bin")
    np.testing.assert_array_equal(_load(folder, {"location": "alias.bin"}).graph.constants["weight"].read(), DATA)


@pytest.mark.skipif(not os.path.exists("/dev/zero"), reason="the system has no such device")
def test_a_device_is_refused(folder):
    (folder / "zero.bin").symlink_to("/dev/zero")
    with pytest.raises(ModelError, match="link out of"):
        _load(folder, {"location": "zero.bin"})


def test_a_file_replaced_while_it_is_opened_is_refused(folder, monkeypatch):
    from shaderloom.compiler.ir.constants import MappedFile

    inner = MappedFile.open.__func__

    def swap(cls, path, relative=""):
        if relative:
            path.unlink()
            path.write_bytes(DATA.tobytes() + b"more")
        return inner(cls, path, relative)

    monkeypatch.setattr(MappedFile, "open", classmethod(swap))
    with pytest.raises(ModelError, match="was replaced"):
        _load(folder, {"location": "sub/exact.bin"})


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no named pipes")
def test_a_pipe_is_refused_without_opening_it(folder):
    os.mkfifo(folder / "pipe.bin")
    with pytest.raises(ModelError, match="not a regular file"):
        _load(folder, {"location": "pipe.bin"})


def test_a_key_given_twice_is_refused(folder):
    model = _model({"location": "data.bin", "offset": "16"})
    model.graph.initializer[0].external_data.add(key="offset", value="0")
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(ModelError, match="twice"):
        load_model(folder / "model.onnx")


def test_a_model_given_as_bytes_has_no_folder():
    with pytest.raises(ModelError, match="given as bytes") as caught:
        load_model(_model({"location": "data.bin"}).SerializeToString())
    assert "path" in caught.value.hint


def test_a_model_reached_through_a_link_finds_its_data_where_it_really_lies(folder, tmp_path):
    _load(folder, {"location": "sub/exact.bin"})
    link = tmp_path / "link.onnx"
    link.symlink_to(folder / "model.onnx")
    np.testing.assert_array_equal(load_model(link).graph.constants["weight"].read(), DATA)
