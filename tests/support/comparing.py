"""Models of which a run alone knows whether sizes agree, or which of two ways they go, with inputs that they take."""

from __future__ import annotations

import numpy as np

from .deciding import Deciding, flag, floats, ints, number


def _matching(seed: int) -> dict[str, np.ndarray]:
    """Two inputs with as many elements above zero as below."""
    return {"x": floats(8, seed=seed), "z": -floats(8, seed=seed)}


def _above(seed: int) -> dict[str, np.ndarray]:
    """A matrix, and a value for each of its elements above zero."""
    x = floats(4, 5, seed=seed)
    return {"x": x, "v": floats(int((x > 0).sum()))}


COMPARING = {
    "shapes that are fed": Deciding(
        "g (float[2, 12] x, int64[2] shape) => (float[a, b] y) { z = Exp(x)  y = Reshape(z, shape) }",
        [{"x": floats(2, 12), "shape": ints(*shape)} for shape in ((4, 6), (3, -1), (-1, 6), (0, 12), (24, 1))],
    ),
    "what remains beside a size": Deciding(
        """g (float[2, 12] x, int64[1] k) => (float[a, b] y) <int64[1] rest = {-1}> {
            shape = Concat<axis = 0>(k, rest)  y = Reshape(x, shape) }""",
        [{"x": floats(2, 12), "k": ints(k)} for k in (2, 3, 24, 1)],
    ),
    "heads": Deciding(
        """g (float[1, 6, 8] x, int64 h) => (float[a, b, c, d] y) <int64[1] zero = {0}, int64[1] eight = {8}> {
            heads = Unsqueeze(h, zero)  size = Div(eight, heads)  shape = Concat<axis = 0>(zero, zero, heads, size)
            parts = Reshape(x, shape)  y = Transpose<perm = [0, 2, 1, 3]>(parts) }""",
        [{"x": floats(1, 6, 8), "h": number(h)} for h in (2, 4, 1, 8)],
    ),
    "parts that are fed": Deciding(
        """g (float[n, 3] x, int64[3] split) => (float[a, 3] y, float[b, 3] z, float[c, 3] w) {
            p, z, w = Split<axis = 0>(x, split)  y = Exp(p) }""",
        [{"x": floats(sum(split), 3), "split": ints(*split)} for split in ((3, 5, 1), (4, 0, 2), (1, 7, 1))],
        {"dynamic": {"n": (1, 16)}},
    ),
    "Expand to what is fed": Deciding(
        "g (float[n, 3] x, int64[2] shape) => (float[a, b] y) { z = Exp(x)  y = Expand(z, shape) }",
        [{"x": floats(n, 3), "shape": ints(*shape)}
         for n, shape in ((1, (4, 3)), (4, (1, 1)), (5, (5, 3)), (1, (1, 1)))],
        {"dynamic": {"n": (1, 8)}},
    ),
    "one row or as many": Deciding(
        """g (bool[8] c, float[8] x, float[8] z, int64[1] k, int64[1] m) => (float[a] y, float[b] w)
            <int64[1] zero = {0}> {
            s = Slice(x, zero, k)  t = Slice(z, zero, m)  d = Slice(c, zero, k)  y = Where(d, s, t)  w = Add(t, s) }""",
        [{"c": np.arange(8) % 3 == 0, "x": floats(8), "z": floats(8, seed=4), "k": ints(k), "m": ints(m)}
         for k, m in ((1, 4), (4, 1), (3, 3), (1, 1))],
    ),
    "masks of one size": Deciding(
        """g (float[8] x, float[8] z) => (float[n] y) <float zero = {0}> {
            above = Greater(x, zero)  below = Less(z, zero)  p = Compress<axis = 0>(x, above)
            q = Compress<axis = 0>(z, below)  y = Add(p, q) }""",
        [_matching(1), _matching(2)],
    ),
    "sizes of products": Deciding(
        """g (float[3, 8] x, float[8, 3] z, int64[1] k, int64[1] m) => (float[3, 3] y, float[6, n] w)
            <int64[1] zero = {0}, int64[1] one = {1}> {
            s = Slice(x, zero, k, one)  t = Slice(z, zero, m, zero)  y = MatMul(s, t)
            u = Transpose(t)  w = Concat<axis = 0>(s, u) }""",
        [{"x": floats(3, 8), "z": floats(8, 3), "k": ints(k), "m": ints(k)} for k in (1, 4, 8)],
    ),
    "a fraction of what there is": Deciding(
        """g (float[20] x, float share) => (float[n] y, int64[n] places) <float zero = {0}, float half = {0.5}> {
            above = Greater(x, zero)  some = Compress<axis = 0>(x, above)  size = Shape(some)  f = Cast<to = 1>(size)
            part = Mul(f, share)  whole = Ceil(part)  k = Cast<to = 7>(whole)  y, places = TopK(some, k) }""",
        [{"x": floats(20, seed=seed), "share": np.array(share, np.float32)}
         for seed, share in ((1, 0.5), (2, 1), (1, 0))],
    ),
    "a value for each that is selected": Deciding(
        """g (float[4, 5] x, float[k] v) => (float[4, 5] y) <float zero = {0}> {
            above = Greater(x, zero)  places = NonZero(above)  tuples = Transpose(places)
            y = ScatterND(x, tuples, v) }""",
        [_above(1), _above(2)],
        {"dynamic": {"k": (1, 20)}},
    ),
    "steps": Deciding(
        """g (float[n, 7] x, int64[2] begin, int64[2] end, int64[2] step, int64 low, int64 limit, int64 by)
            => (float[a, b] y, int64[c] r) { y = Slice(x, begin, end, , step)  r = Range(low, limit, by) }""",
        [{"x": floats(9, 7), "begin": ints(*begin), "end": ints(*end), "step": ints(*step),
          **{name: number(each) for name, each in zip(("low", "limit", "by"), ends)}}
         for begin, end, step, ends in (
             ((0, 0), (2**63 - 1, 7), (2, 3), (0, 10, 3)),
             ((-1, 5), (-(2**63), -6), (-1, -2), (10, 0, -4)),
             ((8, -9), (-20, 99), (-3, 12), (5, 5, 1)),
             ((4, 2), (2, 2), (1, 1), (-3, 4, 7)))],
        {"dynamic": {"n": (1, 16)}},
    ),
    "a side in a Loop": Deciding(
        """g (float[8] x, float[4] z, int64 k, int64[1] m) => (float[4] y) <int64[1] zero = {0}> {
            y = Loop(k, , z) < body = b (int64 i, bool go, float[4] v) => (bool on, float[4] w) {
                on = Identity(go)  s = Slice(x, zero, m)  w = Add(v, s) } > }""",
        [{"x": floats(8), "z": floats(4), "k": number(3), "m": ints(m)} for m in (1, 4)],
        {"ranges": {"k": (0, 9)}},
    ),
    "a side of an If": Deciding(
        """g (float[8] x, float[4] z, bool c, int64[1] m) => (float[4] y) <int64[1] zero = {0}> {
            s = Slice(x, zero, m)
            y = If(c) < then_branch = t () => (float[4] p) { p = Add(z, s) },
                        else_branch = e () => (float[4] q) { q = Mul(s, z) } > }""",
        [{"x": floats(8), "z": floats(4), "c": flag(value=taken), "m": ints(m)}
         for taken, m in ((True, 1), (False, 4))],
    ),
    "pads of either sign": Deciding(
        """g (float[n, 7] x, int64[4] pads, int64[2] size) => (float[a, b] y, float[c, d] z) {
            e = Exp(x)  y = Pad(e, pads)  z = CenterCropPad(x, size) }""",
        [{"x": floats(n, 7), "pads": ints(*pads), "size": ints(*size)}
         for n, pads, size in (
             (6, (0, 1, 2, 0), (4, 4)), (3, (-1, 1, 0, -2), (8, 9)), (5, (-2, -1, 0, -2), (2, 10)),
             (1, (0, -3, 1, -4), (5, 6)))],
        {"dynamic": {"n": (1, 9)}},
    ),
    "bounds beyond any size": Deciding(
        """g (float[n, 5] x, int64[1] begin, int64[1] end, float far) => (float[a, 5] y, float[b, 5] z, float[c, 5] w)
            <int64[1] zero = {0}, int64[1] back = {-1}> {
            y = Slice(x, begin, end, zero)  z = Slice(x, back, begin, zero, back)
            k = Cast<to = 7>(far)  last = Unsqueeze(k, zero)  w = Slice(x, zero, last, zero) }""",
        [{"x": floats(n, 5), "begin": ints(begin), "end": ints(end), "far": np.array(far, np.float32)}
         for n, begin, end, far in (
             (9, 0, 2**63 - 1, 3.7), (5, -(2**63), 3, 9e18), (9, 2, -2, -9e18), (1, -1, 2**31 - 1, 5e9),
             (7, 2**40, -(2**31), -2.5))],
        {"dynamic": {"n": (1, 16)}},
    ),
}  # fmt: skip
