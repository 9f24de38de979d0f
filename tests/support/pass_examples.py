"""Graphs that passes rewrite, and what exporters write for one operation."""

from __future__ import annotations

import numpy as np

from .graphs import Example, ints, weights

BATCH_NORM = {
    "scale": weights(5, low=0.5),
    "bias": weights(5, seed=2),
    "mean": weights(5, seed=3),
    "variance": weights(5, seed=4, low=0.5),
}

EXAMPLES = {
    "conv_batch_norm_relu": Example(
        """g (float[1, 3, 7, 9] x) => (float[1, 5, 7, 9] y) {
            c = Conv <pads = [1, 1, 1, 1]> (x, w, b)
            n = BatchNormalization (c, scale, bias, mean, variance)
            y = Relu (n)
        }""",
        {"x": (1, 3, 7, 9)},
        {"w": weights(5, 3, 3, 3), "b": weights(5), **BATCH_NORM},
    ),
    "conv_batch_norm_one_dimension": Example(
        """g (float[2, 3, 11] x) => (float[2, 5, K] y) {
            c = Conv <strides = [2]> (x, w, b)
            y = BatchNormalization (c, scale, bias, mean, variance)
        }""",
        {"x": (2, 3, 11)},
        {"w": weights(5, 3, 3), "b": weights(5), **BATCH_NORM},
    ),
    "conv_scale_written_out": Example(
        """g (float[1, 3, 7, 9] x) => (float[1, 4, 7, 9] y) {
            c = Conv (x, w)
            s = Sub (c, mean)
            d = Div (s, deviation)
            m = Mul (gamma, d)
            y = Add (m, beta)
        }""",
        {"x": (1, 3, 7, 9)},
        {
            "w": weights(4, 3, 1, 1),
            "mean": weights(1, 4, 1, 1),
            "deviation": weights(4, 1, 1, low=0.5),
            "gamma": weights(1, 4, 1, 1, seed=5),
            "beta": np.float32(0.25),
        },
    ),
    "transposed_conv_scale_groups": Example(
        """g (float[1, 4, 5, 6] x) => (float[1, 6, H, W] y) {
            c = ConvTranspose <strides = [2, 2], group = 2> (x, w)
            m = Mul (c, s)
            y = Add (m, b)
        }""",
        {"x": (1, 4, 5, 6)},
        {"w": weights(4, 3, 2, 2), "s": weights(6, 1, 1, low=0.5), "b": weights(6, 1, 1)},
    ),
    "scaled_operand": Example(
        """g (float[1, 3, 7, 9] x) => (float[1, 4, 7, 9] y) {
            s = Mul (x, f)
            d = Div (s, t)
            y = Conv <pads = [1, 1, 1, 1]> (d, w)
        }""",
        {"x": (1, 3, 7, 9)},
        {"w": weights(4, 3, 3, 3), "f": weights(3, 1, 1, low=0.5), "t": np.float32(3.0)},
    ),
    "matmul_scale_and_rows": Example(
        """g (float[2, 5, 7] x) => (float[2, 5, 4] y) {
            p = MatMul (x, w)
            s = Mul (p, f)
            b = Add (s, bias)
            y = Relu (b)
        }""",
        {"x": (2, 5, 7)},
        {"w": weights(7, 4), "f": weights(4, low=0.5), "bias": weights(4)},
    ),
    "matmul_of_matrices_in_batches": Example(
        "g (float[2, 3, 5, 7] x, float[1, 1, 7, 4] w) => (float[2, 3, 5, 4] y) { y = MatMul (x, w) }",
        {"x": (2, 3, 5, 7), "w": (1, 1, 7, 4)},
    ),
    "matmul_rows_dynamic": Example(
        "g (float[N, S, 7] x) => (float[N, S, 4] y) { p = MatMul (x, w) y = Add (p, b) }",
        {"x": (2, 3, 7)},
        {"w": weights(7, 4), "b": weights(4)},
        dynamic={"N": (1, 8), "S": (1, 64)},
    ),
    "pad_into_conv": Example(
        """g (float[1, 3, 7, 9] x) => (float[1, 4, H, W] y) {
            p = Pad (x, pads)
            y = Conv <pads = [0, 1, 0, 0]> (p, w)
        }""",
        {"x": (1, 3, 7, 9)},
        {"w": weights(4, 3, 3, 3), "pads": ints(0, 0, 1, 2, 0, 0, 1, 0)},
    ),
    "pad_into_average_pool": Example(
        """g (float[1, 3, 7, 9] x) => (float[1, 3, H, W] y) {
            p = Pad (x, pads)
            y = AveragePool <kernel_shape = [3, 3]> (p)
        }""",
        {"x": (1, 3, 7, 9)},
        {"pads": ints(0, 0, 1, 1, 0, 0, 1, 1)},
    ),
    "pad_into_max_pool": Example(
        """g (float[1, 3, 8, 8] x) => (float[1, 3, H, W] y) {
            r = Relu (x)
            p = Pad (r, pads)
            y = MaxPool <kernel_shape = [3, 3], strides = [2, 2]> (p)
        }""",
        {"x": (1, 3, 8, 8)},
        {"pads": ints(0, 0, 1, 1, 0, 0, 0, 0)},
    ),
    "pad_that_could_win": Example(
        """g (float[1, 3, 8, 8] x) => (float[1, 3, H, W] y) {
            p = Pad (x, pads)
            y = MaxPool <kernel_shape = [3, 3]> (p)
        }""",
        {"x": (1, 3, 8, 8)},
        {"pads": ints(0, 0, 1, 1, 0, 0, 1, 1)},
    ),
    "changes_of_shape": Example(
        """g (float[2, 3, 4] x) => (float[24] y, float[4, 6] z) {
            a = Unsqueeze (x, axis)
            b = Flatten <axis = 2> (a)
            c = Squeeze (b)
            y = Reshape (c, all)
            t = Transpose <perm = [2, 0, 1]> (x)
            u = Transpose <perm = [1, 2, 0]> (t)
            v = Transpose <perm = [2, 0, 1]> (u)
            z = Reshape (v, two)
        }""",
        {"x": (2, 3, 4)},
        {"axis": ints(0), "all": ints(-1), "two": ints(4, 6)},
    ),
    "slices": Example(
        """g (float[6, 8] x) => (float[4, 8] y, float[2, 3] z, float[6, 8] s) {
            a = Slice (x, c1, c5, axis0)
            b = Slice (a, c0, c4, axis0)
            y = Identity (b)
            left, right = Split <axis = 1> (x, halves)
            s = Concat <axis = 1> (left, right)
            j = Concat <axis = 0> (x, x)
            k = Slice (j, from, to)
            z = Neg (k)
        }""",
        {"x": (6, 8)},
        {
            "c0": ints(0),
            "c1": ints(1),
            "c4": ints(4),
            "c5": ints(5),
            "axis0": ints(0),
            "halves": ints(3, 5),
            "from": ints(7, 2),
            "to": ints(9, 5),
        },
    ),
    "expanded_operands": Example(
        """g (float[2, 1, 4] x, float[2, 3, 4] y, bool[4] m) => (float[2, 3, 4] z, float[2, 3, 4] o) {
            e = Expand (x, shape)
            n = Expand (m, shape)
            a = Add (e, y)
            z = Where (n, a, e)
            o = Neg (e)
        }""",
        {"x": (2, 1, 4), "y": (2, 3, 4), "m": (4,)},
        {"shape": ints(2, 3, 4)},
    ),
    "equal_nodes": Example(
        """g (float[3, 4] x, float[3, 4] z) => (float[3, 4] y) {
            a = Add (x, z)
            b = Add (z, x)
            c = Mul (a, two)
            d = Mul (b, deux)
            e = Sub (c, d)
            y = Abs (e)
        }""",
        {"x": (3, 4), "z": (3, 4)},
        {"two": np.float32(2.0), "deux": np.float32(2.0)},
    ),
    "neutral_elements": Example(
        """g (float[3, 4] x, int32[3] i) => (float[3, 4] y, int32[3] j, float[3, 4] k) {
            a = Mul (x, one)
            b = Div (a, one)
            c = Sub (b, zero)
            d = Pow (c, one)
            e = Neg (d)
            f = Neg (e)
            r = Relu (f)
            s = Relu (r)
            y = Div (s, eight)
            h = Cast <to = 7> (i)
            j = Cast <to = 6> (h)
            k = Add (x, zero)
        }""",
        {"x": (3, 4), "i": (3,)},
        {"one": np.float32(1.0), "zero": np.float32(0.0), "eight": np.float32(8.0)},
    ),
    "constants_of_a_chain": Example(
        """g (float[3, 4] x) => (float[3, 4] y, float[3, 4] z) {
            a = Add (x, p)
            b = Sub (a, q)
            c = Mul (b, q)
            y = Mul (c, p)
            d = Mul (x, column)
            z = Mul (d, row)
        }""",
        {"x": (3, 4)},
        {"p": weights(4, low=1.0), "q": np.float32(3.0), "column": weights(3, 1), "row": weights(4, seed=7)},
    ),
}

#: what exporters write for one operation; each is one kernel
FUSED = {
    "scale_mask_softmax": Example(
        """g (float[2, 4, 8, 8] x, float[2, 1, 1, 8] mask) => (float[2, 4, 8, 8] y) {
            s = Div (x, root)
            m = Add (s, mask)
            y = Softmax <axis = -1> (m)
        }""",
        {"x": (2, 4, 8, 8), "mask": (2, 1, 1, 8)},
        {"root": np.float32(5.65)},
    ),
    "where_mask_softmax": Example(
        """g (float[2, 4, 8, 8] x, bool[2, 1, 1, 8] mask) => (float[2, 4, 8, 8] y) {
            s = Mul (x, scale)
            e = Expand (mask, shape)
            m = Where (e, s, low)
            y = Softmax <axis = -1> (m)
        }""",
        {"x": (2, 4, 8, 8), "mask": (2, 1, 1, 8)},
        {"scale": np.float32(0.125), "low": np.float32(-1e4), "shape": ints(2, 1, 8, 8)},
    ),
    "transpose_reshape_add": Example(
        """g (float[2, 3, 4] x) => (float[8, 3] y) {
            t = Transpose <perm = [0, 2, 1]> (x)
            r = Reshape (t, rows)
            y = Add (r, b)
        }""",
        {"x": (2, 3, 4)},
        {"rows": ints(8, 3), "b": weights(3)},
    ),
    "conv_residual_relu": Example(
        """g (float[1, 4, 6, 6] x) => (float[1, 4, 6, 6] y) {
            c = Conv <pads = [1, 1, 1, 1]> (x, w, b)
            s = Add (c, x)
            y = Relu (s)
        }""",
        {"x": (1, 4, 6, 6)},
        {"w": weights(4, 4, 3, 3), "b": weights(4)},
    ),
    "conv_to_tokens": Example(
        """g (float[1, 3, 8, 8] x) => (float[1, 16, 5] y) {
            c = Conv <strides = [2, 2]> (x, w, b)
            r = Reshape (c, flat)
            t = Transpose <perm = [0, 2, 1]> (r)
            y = Add (t, position)
        }""",
        {"x": (1, 3, 8, 8)},
        {"w": weights(5, 3, 2, 2), "b": weights(5), "flat": ints(1, 5, -1), "position": weights(1, 16, 5)},
    ),
    "heads": Example(
        """g (float[1, 6, 8] x) => (float[1, 2, 6, 4] y) {
            p = MatMul (x, w)
            a = Add (p, b)
            r = Reshape (a, split)
            y = Transpose <perm = [0, 2, 1, 3]> (r)
        }""",
        {"x": (1, 6, 8)},
        {"w": weights(8, 8), "b": weights(8), "split": ints(0, 0, 2, 4)},
    ),
    "gelu_with_erf": Example(
        """g (float[2, 6] x) => (float[2, 8] y) {
            p = MatMul (x, w)
            d = Div (p, root)
            e = Erf (d)
            a = Add (e, one)
            m = Mul (p, a)
            y = Mul (m, half)
        }""",
        {"x": (2, 6)},
        {"w": weights(6, 8), "root": np.float32(2**0.5), "one": np.float32(1.0), "half": np.float32(0.5)},
    ),
    "gelu_with_tanh": Example(
        """g (float[2, 6] x) => (float[2, 6] y) {
            c = Pow (x, three)
            s = Mul (c, small)
            a = Add (x, s)
            m = Mul (a, root)
            t = Tanh (m)
            o = Add (t, one)
            h = Mul (x, half)
            y = Mul (h, o)
        }""",
        {"x": (2, 6)},
        {
            "three": np.float32(3.0),
            "small": np.float32(0.044715),
            "root": np.float32(0.7978845608),
            "one": np.float32(1.0),
            "half": np.float32(0.5),
        },
    ),
    "hard_swish_written_out": Example(
        """g (float[1, 3, 4, 4] x) => (float[1, 5, 4, 4] y) {
            c = Conv (x, w)
            n = BatchNormalization (c, scale, bias, mean, variance)
            a = Add (n, three)
            k = Clip (a, zero, six)
            m = Mul (n, k)
            y = Div (m, six)
        }""",
        {"x": (1, 3, 4, 4)},
        {
            "w": weights(5, 3, 1, 1),
            "three": np.float32(3.0),
            "zero": np.float32(0.0),
            "six": np.float32(6.0),
            **BATCH_NORM,
        },
    ),
    "root_mean_square_norm": Example(
        """g (float[2, 5, 16] x) => (float[2, 5, 16] y) {
            s = Pow (x, two)
            m = ReduceMean <axes = [-1]> (s)
            e = Add (m, epsilon)
            r = Sqrt (e)
            i = Reciprocal (r)
            n = Mul (x, i)
            y = Mul (gamma, n)
        }""",
        {"x": (2, 5, 16)},
        {"two": np.float32(2.0), "epsilon": np.float32(1e-6), "gamma": weights(16)},
    ),
    "group_norm_written_out": Example(
        """g (float[1, 6, 4, 4] x) => (float[1, 6, 4, 4] y) {
            r = Reshape (x, groups)
            n = InstanceNormalization (r, ones, zeros)
            u = Reshape (n, whole)
            m = Mul (u, gamma)
            y = Add (m, beta)
        }""",
        {"x": (1, 6, 4, 4)},
        {
            "groups": ints(0, 2, -1),
            "whole": ints(1, 6, 4, 4),
            "ones": np.ones(2, np.float32),
            "zeros": np.zeros(2, np.float32),
            "gamma": weights(6, 1, 1),
            "beta": weights(6, 1, 1, seed=2),
        },
    ),
}

LAYER_NORMS = {
    "power": """d = Sub (x, m) s = Pow (d, two) v = ReduceMean <axes = [-1]> (s)""",
    "product": """d = Sub (x, m) s = Mul (d, d) v = ReduceMean <axes = [-1]> (s)""",
    "two differences": """d = Sub (x, m) d2 = Sub (x, m) s = Pow (d2, two) v = ReduceMean <axes = [-1]> (s)""",
}
LAYER_NORM_ENDS = {
    "quotient": "q = Sqrt (w) n = Div (d, q)",
    "reciprocal": "q = Sqrt (w) i = Reciprocal (q) n = Mul (d, i)",
    "power": "i = Pow (w, minus) n = Mul (d, i)",
}


def layer_norm(middle: str, end: str) -> Example:
    text = f"""g (float[2, 5, 16] x) => (float[2, 5, 16] y) {{
        m = ReduceMean <axes = [-1]> (x)
        {LAYER_NORMS[middle]}
        w = Add (v, epsilon)
        {LAYER_NORM_ENDS[end]}
        g = Mul (n, gamma)
        y = Add (g, beta)
    }}"""
    constants = {
        "two": np.float32(2.0),
        "minus": np.float32(-0.5),
        "epsilon": np.float32(1e-5),
        "gamma": weights(16),
        "beta": weights(16, seed=2),
    }
    return Example(text, {"x": (2, 5, 16)}, constants)
