"""Operands of matrix products, transforms of signals and recurrent layers."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx

from .node import NodeDraw, rule
from .source import Unsuitable

Found = dict[str, Any]
FLOAT = onnx.TensorProto.FLOAT


def factors(d: NodeDraw, left: str, right: str, *, empty: bool = True) -> Found:
    """Two operands of a product, of rank 1 and more, with batches that broadcast."""
    first = d.ranked(left, 1, 5, empty=empty)
    inner, columns = first.shape[-1], d.choose(1, 2, 4, 5, 8, 17)
    batch = first.shape[:-2] if d.flip() else ()
    batch = tuple(1 if d.rarely() else size for size in batch)
    shape = (*batch, inner, columns) if d.integer(0, 4) else (inner,)
    return {left: first, right: d.leaf(right, shape)}


@rule("MatMul")
def matmul(d: NodeDraw) -> Found:
    return factors(d, "A", "B")


@rule("MatMulInteger")
def integer_matmul(d: NodeDraw) -> Found:
    found = factors(d, "A", "B", empty=False)  # onnxruntime leaves sums of nothing undefined
    for operand, name in (("A", "a_zero_point"), ("B", "b_zero_point")):
        found[name] = np.asarray(d.integer(0, 5), found[operand].dtype) if d.flip() else None
    return found


@rule("FusedMatMul", domain="com.microsoft")
def fused_matmul(d: NodeDraw) -> Found:
    first = d.ranked("A", 2, 4)
    flipped, other = d.integer(0, 1), d.integer(0, 1)
    inner, columns = first.shape[-2 if flipped else -1], d.choose(1, 3, 4, 8)
    shape = (columns, inner) if other else (inner, columns)
    found: Found = {"A": first, "B": d.leaf("B", (*first.shape[:-2], *shape)), "transA": flipped, "transB": other}
    return {**found, "transBatchA": 0, "transBatchB": 0}


@rule("Gemm")
@rule("FusedGemm", domain="com.microsoft")
def gemm(d: NodeDraw) -> Found:
    left = d.ranked("A", 2, 2)
    flipped, other = d.integer(0, 1), d.integer(0, 1)
    rows, inner = left.shape[::-1] if flipped else left.shape
    columns = d.choose(1, 3, 4, 16)
    found: Found = {"A": left, "B": d.leaf("B", (columns, inner) if other else (inner, columns)), "C": None}
    if d.growth.opset < 11 or d.flip():
        found["C"] = d.leaf("C", d.choose((columns,), (rows, 1), (), (rows, columns), (1, columns)))
    if d.form.name == "FusedGemm":
        found["activation"] = d.choose("Relu", "LeakyRelu", "Sigmoid")
    if not left.dtype.startswith(("float", "bfloat")):
        found.update(alpha=1.0, beta=1.0)
    return {**found, "transA": flipped, "transB": other}


@rule("Einsum")
def einsum(d: NodeDraw) -> Found:
    sizes = {letter: d.integer(1, 5) for letter in "abcd"}
    equation = d.choose(
        "ab,bc->ac", "abc,abd->acd", "ab->ba", "aab->ab", "ab->a", "abc,cd->abd", "a,b->ab", "ab,ab->", "...a,ab->...b"
    )
    operands = []
    for term in equation.split("->")[0].split(","):
        batch = [2, 3] if "..." in term else []
        operands.append(d.leaf("Inputs", [*batch, *(sizes[letter] for letter in term.replace(".", ""))]))
    return {"Inputs": operands, "equation": equation}


@rule("Det")
def determinant(d: NodeDraw) -> Found:
    size = d.integer(1, 4)
    batch = d.shape(0, 2)
    array = d.growth.data("float32", (*batch, size, size), -2, 2) + np.eye(size, dtype=np.float32) * 5
    return {"X": d.given("X", array)}


@rule("DFT")
def fourier(d: NodeDraw) -> Found:
    inverse = d.integer(0, 1)
    parts = 2 if inverse else d.choose(1, 2)
    value = d.leaf("input", (d.integer(1, 2), d.integer(1, 9), d.integer(1, 4), parts))
    onesided = 0 if parts == 2 else d.integer(0, 1)
    found: Found = {"input": value, "inverse": inverse, "onesided": onesided}
    axis = d.integer(1, 2)
    return {**found, "axis": axis if "axis" in d.form.attributes else np.array(axis, np.int64)}


@rule("STFT")
def short_fourier(d: NodeDraw) -> Found:
    length = d.choose(4, 8, 5)
    signal = d.leaf("signal", (d.integer(1, 2), d.integer(length, 24), 1))
    window = d.leaf("window", (length,), 0, 1) if d.flip() else None
    return {
        "signal": signal,
        "frame_step": np.array(d.integer(1, 4), np.int64),
        "window": window,
        "frame_length": np.array(length, np.int64),
    }


@rule("MelWeightMatrix")
def mel(d: NodeDraw) -> Found:
    numbers = {"num_mel_bins": d.choose(4, 8), "dft_length": d.choose(16, 32), "sample_rate": 8192}
    found: Found = {name: np.array(number, np.int64) for name, number in numbers.items()}
    return {
        **found,
        "lower_edge_hertz": np.array(0, np.float32),
        "upper_edge_hertz": np.array(4096, np.float32),
        "output_datatype": FLOAT,
    }


GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
ACTIVATIONS = {"RNN": 1, "GRU": 2, "LSTM": 3}


def recurrent_operands(d: NodeDraw, gates: int, *, weights: bool = True, most_rows: int = 3) -> Found:
    """Operands of one layer: batch, sequence and sizes of 1 to 5; some lengths shorter than the sequence."""
    # onnxruntime lacks the other layout, and onnx's evaluator has little besides it
    layout = int(d.rarely() and d.has("layout"))
    steps, batch, size, hidden = d.integer(1, 5), d.integer(1, most_rows), d.integer(1, 5), d.integer(1, 4)
    direction = "forward" if layout else d.choose("forward", "reverse", "bidirectional")
    ways = 2 if direction == "bidirectional" else 1
    value = d.leaf("X", (batch, steps, size) if layout else (steps, batch, size))
    state = (batch, ways, hidden) if layout else (ways, batch, hidden)
    found: Found = {"X": value, "hidden_size": hidden, "direction": direction}
    if d.has("layout"):
        found["layout"] = layout
    if weights:
        found["W"] = d.leaf("W", (ways, gates * hidden, size), -0.5, 0.5)
        found["R"] = d.leaf("R", (ways, gates * hidden, hidden), -0.5, 0.5)
    found["B"] = d.leaf("B", (ways, 2 * gates * hidden), -0.5, 0.5) if d.flip() else None
    if d.rarely() and not layout:
        lengths = d.growth.generator.integers(1, steps + 1, (batch,)).astype(np.int32)
        found["sequence_lens"] = lengths
    found["initial_h"] = d.leaf("initial_h", state) if d.flip() else None
    if d.has("initial_c"):
        found["initial_c"] = d.leaf("initial_c", state) if d.flip() else None
        found["P"] = d.leaf("P", (ways, 3 * hidden), -0.5, 0.5) if d.rarely() else None
    for name in ("activations", "activation_alpha", "activation_beta", "input_forget", "output_sequence"):
        if d.has(name):
            found[name] = None
    found["clip"] = 1.0 if d.rarely() and not layout else None
    found["_outputs"] = d.integer(1, len(d.form.outputs))
    return found


@rule("RNN", "GRU", "LSTM")
def recurrent(d: NodeDraw) -> Found:
    found = recurrent_operands(d, GATES[d.form.name])
    if d.rarely() and not found.get("layout"):
        ways = 2 if found["direction"] == "bidirectional" else 1
        names = [d.choose("Tanh", "Sigmoid", "Relu") for _ in range(ACTIVATIONS[d.form.name])]
        found["activations"] = names * ways
    return found


@rule("DynamicQuantizeLSTM", domain="com.microsoft")
def quantized_recurrent(d: NodeDraw) -> Found:
    """One row: onnxruntime takes the range of as many rows of the state as a thread happens to have."""
    found = recurrent_operands(d, 4, weights=False, most_rows=1)
    found["X"] = value = d.uneven("X", found["X"].shape)
    hidden = found["hidden_size"]
    ways = 2 if found["direction"] == "bidirectional" else 1
    if found["clip"] is not None:
        raise Unsuitable
    kind = d.type("W")
    for name, rows in (("W", value.shape[2]), ("R", hidden)):
        weights = d.growth.data(kind, (ways, rows, 4 * hidden), None, None)
        found[name] = d.given(name, weights, constant=True)
        found[f"{name}_scale"] = d.given(f"{name}_scale", np.full((ways,), 0.05, np.float32), constant=True)
        found[f"{name}_zero_point"] = d.given(f"{name}_zero_point", np.zeros((ways,), weights.dtype), constant=True)
    return found
