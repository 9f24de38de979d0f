"""The error family: one readable line, whatever a file put into a name."""

from __future__ import annotations

import errno
import pickle

import pytest

from shaderloom.runtime.plan.errors import (
    DECLARED,
    BundleError,
    InputError,
    MissingBundleError,
    MissingFileError,
    MissingInputError,
    ModelError,
    NotKnownError,
    Origin,
    ShaderloomError,
    ShapeError,
    UnsupportedError,
    merge_refusals,
    unwritable,
)


def test_an_error_says_where_what_and_what_to_do():
    origin = Origin("main", 3, "Conv", "first")
    error = ModelError("it is broken", origin=origin, tensor="x", hint="mend it")
    assert str(error) == "model at Conv 'first' (main node 3), tensor 'x': it is broken [mend it]"
    assert str(ModelError("it is broken")).endswith("[onnx.checker.check_model tells more; export the model again]")


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("a\nb\r\nc", "a b c"),
        ("\x1b[31mred\x07", "\\x1b[31mred\\x07"),
        ("nul\0", "nul\\x00"),
        ("right\u202eleft", "right\\u202eleft"),
        ("größe/层 1", "größe/层 1"),
    ],
)
def test_names_do_not_act_on_a_terminal(name, shown):
    assert str(ModelError(f"no '{name}'", tensor=name, hint="h")) == f"model, tensor '{shown}': no '{shown}' [h]"


@pytest.mark.parametrize(
    ("second", "kind", "reason"),
    [
        (ShapeError("b"), ShapeError, "2 nodes do not fit their inputs: Add (main node 1): a; Mul (main node 2): b"),
        (UnsupportedError("b"), UnsupportedError, "the model asks 2 times for what wgpu cannot do: Add"),
        (NotKnownError("b"), UnsupportedError, "the model asks 2 times for what wgpu cannot do: Add"),
    ],
)
def test_shapes_that_do_not_fit_are_no_matter_of_providers(second: ShaderloomError, kind: type, reason: str):
    first = ShapeError("a", origin=Origin("main", 1, "Add"))
    second.origin = Origin("main", 2, "Mul")
    merged = merge_refusals([first, second])
    assert type(merged) is kind and merged.reason.startswith(reason)
    assert (merged.parts, merged.origin, merge_refusals([first])) == ((first, second), first.origin, first)


def test_an_error_points_to_what_a_model_declares_where_a_tensor_is_at_fault():
    assert str(InputError("it has rank 3", tensor="x")) == f"input, tensor 'x': it has rank 3 [{DECLARED}]"
    assert str(InputError("tune is True or False")) == "input: tune is True or False"
    assert str(unwritable("a/b", OSError(28, "No space left on device"))) == (
        "input: cannot write 'a/b': No space left on device [name another file or folder]"
    )


@pytest.mark.parametrize(
    ("missing", "family", "text"),
    [
        (MissingFileError("a/b", tensor="w"), ModelError, "model, tensor 'w': there is no file 'a/b' [check the path]"),
        (MissingFileError("b", hint="mend it"), ModelError, "model: there is no file 'b' [mend it]"),
        (MissingBundleError("a/b"), BundleError, "bundle: there is no bundle 'a/b' [check the path]"),
        (MissingInputError("a/b"), InputError, "input: there is no file 'a/b' [check the path]"),
    ],
)
def test_what_is_missing_is_also_a_missing_file_of_python(missing, family, text):
    for error in (missing, pickle.loads(pickle.dumps(missing))):
        assert isinstance(error, FileNotFoundError) and isinstance(error, family)
        assert (str(error), error.errno, error.filename[-1]) == (text, errno.ENOENT, "b")
