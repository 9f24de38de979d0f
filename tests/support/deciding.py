"""Models whose integers and conditions decide shapes, axes and nodes, with inputs and the ranges of their bundles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

Feeds = Mapping[str, np.ndarray]


class Deciding(NamedTuple):
    """A model as text, feeds that it takes, and options of its bundle."""

    text: str
    feeds: Sequence[Feeds]
    options: Mapping[str, Any] = {}


def floats(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def ints(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)


def number(value: int) -> np.ndarray:
    return np.array(value, np.int64)


def flag(*, value: bool) -> np.ndarray:
    return np.array(value)


DECIDING = {
    "If on an input in a Loop": Deciding(
        """g (float[4] x, bool c, int64 k) => (float[4] y, float[k, 4] rows) {
            y, rows = Loop(k, , x) < body = b (int64 i, bool go, float[4] v) => (bool on, float[4] w, float[4] r) {
                on = Identity(go)  w = If(c) < then_branch = t () => (float[4] p) { p = Add(v, x) },
                                               else_branch = e () => (float[4] q) { q = Mul(v, x) } >
                r = Neg(w) } > }""",
        [{"x": floats(4), "c": flag(value=taken), "k": number(k)} for taken, k in ((True, 3), (False, 5))],
        {"ranges": {"k": (0, 9)}},
    ),
    "If on what a Loop carries": Deciding(
        """g (float[4] x, int64 k) => (float[4] y) <float one = {1.0}> {
            y = Loop(k, , x) < body = b (int64 i, bool go, float[4] v) => (bool on, float[4] w) {
                on = Identity(go)  s = ReduceSum<keepdims = 0>(v)  c = Greater(s, one)
                w = If(c) < then_branch = t () => (float[4] p) { p = Sub(v, x) },
                            else_branch = e () => (float[4] q) { q = Add(v, x) } > } > }""",
        [{"x": floats(4, seed=3), "k": number(k)} for k in (3, 7)],
        {"ranges": {"k": (0, 9)}},
    ),
    "a Loop as long as the iteration around it": Deciding(
        """g (float[4] x, int64 k) => (float[4] y) {
            y = Loop(k, , x) < body = b (int64 i, bool go, float[4] v) => (bool on, float[4] w) {
                on = Identity(go)
                w = Loop(i, , v) < body = c (int64 j, bool yes, float[4] p) => (bool still, float[4] q) {
                    still = Identity(yes)  q = Add(p, x) } > } > }""",
        [{"x": floats(4), "k": number(k)} for k in (3, 4)],
        {"ranges": {"k": (0, 9)}},
    ),
    "counts in a Loop": Deciding(
        """g (float[8] x, int64 k) => (float[8] y, float[k] sums) <float zero = {0}> {
            y, sums = Loop(k, , x) < body = b (int64 i, bool go, float[8] v) => (bool on, float[8] w, float s) {
                on = Identity(go)  above = Greater(v, zero)  places = NonZero(above)  turned = Transpose(places)
                some = GatherND(v, turned)  s = ReduceSum<keepdims = 0>(some)  w = Neg(v) } > }""",
        [{"x": floats(8), "k": number(k)} for k in (3, 1)],
        {"ranges": {"k": (0, 9)}},
    ),
    "Ifs in an If": Deciding(
        """g (float[4] x, bool c, bool d) => (float[4] y, float[n] z) {
            y, z = If(c) <
                then_branch = t () => (float[4] r, float[p] s) {
                    r = If(d) < then_branch = f () => (float[4] u) { u = Exp(x) },
                                else_branch = h () => (float[4] v) { a = Abs(x)  v = Neg(a) } >
                    s = Concat<axis = 0>(r, x) },
                else_branch = e () => (float[4] r, float[q] s) { r = Identity(x)  s = Identity(x) } > }""",
        [{"x": floats(4), "c": flag(value=c), "d": flag(value=d)} for c in (True, False) for d in (True, False)],
    ),
    "two selections by one mask": Deciding(
        """g (float[8] x, float[8] z) => (float[n] y) <float zero = {0}> {
            above = Greater(x, zero)  a = Compress<axis = 0>(x, above)  first = Exp(a)
            b = Compress<axis = 0>(z, above)  y = Add(first, b) }""",
        [{"x": floats(8, seed=seed), "z": floats(8)} for seed in (1, 2)],
    ),
    "a number of elements that is not 0": Deciding(
        """g (float[20] x) => (float[n] y, int64[n] first, int64[20] inverse, int64[n] counts) {
            y, first, inverse, counts = Unique<sorted = 1>(x) }""",
        [{"x": np.round(floats(20))}, {"x": np.zeros(20, np.float32)}],
    ),
    "sizes that are fed": Deciding(
        """g (float[1, 1, 4, 4] x, int64[4] sizes) => (float[a, b, c, d] y) {
            y = Resize<mode = "linear">(x, , , sizes) }""",
        [{"x": floats(1, 1, 4, 4), "sizes": ints(1, 1, *rest)} for rest in ((8, 6), (3, 4))],
        {"ranges": {"a": (1, 1), "b": (1, 1), "c": (1, 16), "d": (1, 16)}},
    ),
    "rows of elements narrower than a word": Deciding(
        """g (float[4] x, int64 k) => (float[4] y, bool[k, 4] signs, float16[k, 4] halves) <float zero = {0}> {
            y, signs, halves = Loop(k, , x) <
                body = b (int64 i, bool go, float[4] v) => (bool on, float[4] w, bool[4] r, float16[4] h) {
                    on = Identity(go)  w = Neg(v)  r = Greater(v, zero)  h = Cast<to = 10>(v) } > }""",
        [{"x": floats(4), "k": number(k)} for k in (3, 1)],
        {"ranges": {"k": (0, 9)}},
    ),
    "a Loop that never runs": Deciding(
        """g (float[4] x, int64 k) => (float[4] y) <bool never = {0}> {
            y = Loop(k, never, x) < body = b (int64 i, bool go, float[4] v) => (bool on, float[4] w) {
                on = Identity(go)  w = Neg(v) } > }""",
        [{"x": floats(4), "k": number(3)}],
    ),
    "as many of the largest as are above a number": Deciding(
        """g (float[20] x, float low) => (float[n] y) <int64[1] axis = {0}> {
            above = Greater(x, low)  ones = Cast<to = 7>(above)  k = ReduceSum<keepdims = 1>(ones, axis)
            y, places = TopK(x, k) }""",
        [{"x": floats(20), "low": np.array(low, np.float32)} for low in (0, 9)],
    ),
    "an axis": Deciding(
        "g (float[4, 5] x, int64 axis) => (float[4, 5] y) { y = CumSum(x, axis) }",
        [{"x": floats(4, 5), "axis": number(axis)} for axis in (0, 1)],
        {"ranges": {"axis": (0, 1)}},
    ),
    "an axis less in the result": Deciding(
        "g (float[4, 5] x, int64[1] axis) => (float[n] y) { y = ReduceSum<keepdims = 0>(x, axis) }",
        [{"x": floats(4, 5), "axis": ints(axis)} for axis in (0, 1)],
        {"ranges": {"axis": (0, 1)}},
    ),
    "a Range of floats": Deciding(
        "g (float a, float b, float d) => (float[n] y) { y = Range(a, b, d) }",
        [{name: np.array(end, np.float32) for name, end in zip("abd", ends)}
         for ends in ((0, 0.3, 0.1), (0.1, 0.7, 0.1), (2, -3, -0.7), (1, 0, 1))],
    ),
    "scales that floats decide": Deciding(
        """g (float[1, 2, 7, 6] x, float[2] s, float depth, int64[2] i) => (float[1, 2, h, w] y, float[1, 2, a, b] z,
                float[2, n] hot) <float[2] ones = {1, 1}, int64[2] begin = {7, 6}, float[2] values = {0, 1}> {
            scales = Concat<axis = 0>(ones, s)  y = Resize<mode = "linear">(x, , scales)
            z = Resize<coordinate_transformation_mode = "asymmetric", nearest_mode = "floor">(x, , scales)
            hot = OneHot(i, depth, values) }""",
        [{"x": floats(1, 2, 7, 6), "s": np.array(scales, np.float32), "depth": np.array(depth, np.float32),
          "i": ints(0, -1)} for *scales, depth in ((3, 0.5, 4), (1.3, 0.7, 1), (1 / 3, 2.5, 2))],
        {"ranges": {"h": (0, 40), "w": (0, 40), "a": (0, 40), "b": (0, 40)}},
    ),
    "a region that floats decide": Deciding(
        """g (float[1, 2, 7, 6] x, float[8] roi) => (float[1, 2, 4, 5] y) <int64[4] sizes = {1, 2, 4, 5}> {
            y = Resize<mode = "cubic", coordinate_transformation_mode = "tf_crop_and_resize",
                       extrapolation_value = 7.0>(x, roi, , sizes) }""",
        [{"x": floats(1, 2, 7, 6), "roi": np.array([0, 0, *start, 1, 1, *end], np.float32)}
         for start, end in (((0.1, 0.2), (0.9, 0.8)), ((0.3, -0.2), (1.2, 0.6)))],
    ),
    "axes from either end": Deciding(
        """g (float[2, 3, 4] x, int64[2] axes, int64[1] axis, int64 along)
                => (float[a, b, c] y, float[d, e, f, h] z, float[2, 3, 4] w) {
            y = ReduceSum(x, axes)  z = Unsqueeze(x, axis)  w = CumSum(x, along) }""",
        [{"x": floats(2, 3, 4), "axes": ints(*axes), "axis": ints(axis), "along": number(along)}
         for axes, axis, along in (((0, 2), 0, 1), ((-1, -2), -1, -3), ((1, -3), -3, -1))],
    ),
    "the largest of at most as many": Deciding(
        """g (float[20] x) => (float[n] y) <int64[1] most = {5}, float zero = {0}> {
            above = Greater(x, zero)  some = Compress(x, above)  count = Shape(some)  k = Min(count, most)
            y, places = TopK(some, k) }""",
        [{"x": floats(20)}, {"x": -np.abs(floats(20))}, {"x": np.abs(floats(20))}],
    ),
    "sizes beside known ones": Deciding(
        """g (float[1, 1, n] x, float[1, 3] v) => (float[1, 1, m] y, float[rows, 3] z)
            <float stride = {4}, float[1, 1, 3] w = {1, 2, 3}, int64[5] none = {0, 0, 0, 0, 0}, int64[1] three = {3}> {
            size = Shape<start = 2, end = 3>(x)  f = Cast<to = 1>(size)  d = Div(f, stride)  c = Ceil(d)
            e = Mul(c, stride)  missing = Sub(e, f)  k = Cast<to = 7>(missing)  pads = Concat<axis = 0>(none, k)
            padded = Pad(x, pads)  y = Conv<strides = [4]>(padded, w)
            shape = Concat<axis = 0>(k, three)  z = Expand(v, shape) }""",
        [{"x": floats(1, 1, size), "v": floats(1, 3)} for size in (9, 12, 31)],
        {"dynamic": {"n": (4, 40)}},
    ),
    "bounds from either end": Deciding(
        """g (float[n, 5] x, int64[2] begin, int64[2] end, int64 k, int32 low)
                => (float[a, b] y, float[c, 5] z, float[n, 5] w, int32[d] r, float[n, 5] u)
            <int64[1] axis = {0}, int64[1] step = {-2}, int32 three = {3}, int32 back = {-1}> {
            y = Slice(x, begin, end)  row = Constant<value = int64[1] {0}>()  two = Constant<value = int64[1] {1}>()
            first = Slice(begin, row, two)  last = Slice(end, row, two)  z = Slice(x, first, last, axis, step)
            w = Trilu(x, k)  r = Range(low, three, back)
            u = Loop(k, , x) < body = b (int64 i, bool go, float[n, 5] v) => (bool on, float[n, 5] s) {
                on = Identity(go)  s = Neg(v) } > }""",
        [{"x": floats(7, 5), "begin": ints(*begin), "end": ints(*end), "k": number(k), "low": np.array(low, np.int32)}
         for begin, end, k, low in (((2, 1), (5, 4), 1, 5), ((-3, -5), (-1, -1), -2, -4), ((-9, 4), (99, -4), 3, 4))],
        {"dynamic": {"n": (1, 9)}},
    ),
    "transforms of lengths that runs decide": Deciding(
        """g (float[1, n, 1] s, int64 size) => (float[1, f, 9, 2] frames, float[1, size, 2] z, float[1, size, 2] back)
            <int64 step = {4}, int64 length = {16}> {
            frames = STFT(s, step, , length)  z = DFT<axis = 1>(s, size)  back = DFT<axis = 1, inverse = 1>(z) }""",
        [{"s": floats(1, n, 1), "size": number(size)} for n, size in ((40, 64), (90, 16))],
        {"dynamic": {"n": (16, 200)}},
    ),
    "frames of lengths that runs decide": Deciding(
        """g (float[200] x, int64 length, float low) => (float[1, f, c, 2] y)
            <int64 step = {8}, int64[2] axes = {0, 2}> {
            above = Greater(x, low)  some = Compress(x, above)  s = Unsqueeze(some, axes)
            y = STFT(s, step, , length) }""",
        [{"x": floats(200), "length": number(length), "low": np.array(low, np.float32)}
         for length, low in ((16, 0), (64, -9))],
    ),
    "steps of frames": Deciding(
        """g (float[2, n, 1] s, float[2, 20] r, float[20] x, float[6] w, int64 step, int32 hop, int32 length,
                float low) => (float[2, f, 4, 2] y, float[2, g, h, 2] z, float[1, a, 6, 2] part)
            <int64[2] axes = {0, 2}> {
            y = STFT(s, step, w)  z = STFT<onesided = 0>(r, hop, , length)  above = Greater(x, low)
            some = Compress(x, above)  signal = Unsqueeze(some, axes)  part = STFT<onesided = 0>(signal, step, w) }""",
        [{"s": floats(2, n, 1), "r": floats(2, 20, seed=1), "x": floats(20), "w": floats(6, seed=2),
          "step": number(step), "hop": np.array(hop, np.int32), "length": np.array(length, np.int32),
          "low": np.array(low, np.float32)}
         for n, step, hop, length, low in ((40, 3, 7, 6, -9), (6, 1 << 40, 1, 12, -9), (90, 25, 11, 9, -0.5))],
        {"dynamic": {"n": (6, 90)}},
    ),
    "filters of numbers that runs decide": Deciding(
        """g (int64 bins, float[1, n] x, float low, float high) => (float[1, m] y, float[c, 6] z)
            <int64 six = {6}, int64 rate = {8000}, int64 two = {2}, int64 one = {1}> {
            shape = Shape<start = 1>(x)  rest = Sub(shape, one)  size = Mul(rest, two)
            w = MelWeightMatrix(bins, size, rate, low, high)  y = MatMul(x, w)
            half = Div(high, high)  none = Sub(low, low)
            z = MelWeightMatrix(six, bins, bins, none, half) }""",
        [{"bins": number(bins), "x": floats(1, n), "low": np.array(low, np.float32), "high": np.array(high, np.float32)}
         for bins, n, low, high in ((8, 17, 0, 4000), (20, 65, 62.5, 3500))],
        {"dynamic": {"n": (2, 99)}},
    ),
    "filters that runs stretch": Deciding(
        """g (float[1, 2, n, 12] x, int64[2] sizes, float[2] s)
                => (float[1, 2, a, b] y, float[1, 2, c, d] z, float[1, 2, e, f] part)
            <float[4] roi = {0.1, 0.2, 0.8, 0.9}, int64[2] half = {0, 4}> {
            y = Resize<axes = [2, 3], mode = "linear", antialias = 1>(x, , , sizes)
            z = Resize<axes = [2, 3], mode = "cubic", antialias = 1, exclude_outside = 1>(x, , s)  w = Add(sizes, half)
            part = Resize<axes = [2, 3], mode = "linear", coordinate_transformation_mode = "tf_crop_and_resize">(
                x, roi, , w) }""",
        [{"x": floats(1, 2, n, 12), "sizes": ints(*sizes), "s": np.array(scales, np.float32)}
         for n, sizes, scales in ((17, (5, 9), (0.5, 0.7)), (3, (11, 2), (0.4, 1.5)))],
        {"dynamic": {"n": (1, 40)}},
    ),
    "aspect ratios of sizes that runs decide": Deciding(
        """g (float[1, 2, n, 5] x, int64[2] sizes) => (float[1, 2, a, b] y, float[1, 2, c, d] z, float[1, 2, e, f] s)
            <int64[2] fixed = {20, 9}> {
            y = Resize<axes = [2, 3], mode = "linear", keep_aspect_ratio_policy = "not_larger">(x, , , sizes)
            z = Resize<axes = [3, 2], mode = "cubic", keep_aspect_ratio_policy = "not_smaller",
                       coordinate_transformation_mode = "asymmetric">(x, , , sizes)
            s = Resize<axes = [2, 3], keep_aspect_ratio_policy = "not_larger", nearest_mode = "floor",
                       coordinate_transformation_mode = "align_corners">(x, , , fixed) }""",
        [{"x": floats(1, 2, n, 5), "sizes": ints(*sizes)} for n, *sizes in ((5, 4, 2), (3, 11, 40), (4, 4, 7))],
        {"dynamic": {"n": (1, 40)}, "ranges": dict.fromkeys("abcd", (0, 300))},
    ),
    "as many integers as a step reads": Deciding(
        """g (float[512] x, int64[256] split) => (float[a] p0, float[b] p77, float[c] p255) { PARTS = Split(x, split) }
        """.replace("PARTS", ", ".join(f"p{part}" for part in range(256))),
        [{"x": floats(512), "split": ints(*sizes)} for sizes in ([2] * 256, [0] * 77 + [300, 50] + [0] * 176 + [162])],
    ),
    "windows of what runs decide": Deciding(
        """g (float[1, 18, c] columns, int64[2] image, float[20] x, float low, float[1, 1, 5] w)
                => (float[1, 2, a, b] y, float[1, 1, m] z) <int64[2] block = {3, 3}, int64[2] axes = {0, 1}> {
            y = Col2Im(columns, image, block)  above = Greater(x, low)  some = Compress(x, above)
            s = Unsqueeze(some, axes)  z = Conv(s, w) }""",
        [{"columns": floats(1, 18, (height - 2) * (width - 2)), "image": ints(height, width), "x": floats(20),
          "low": np.array(low, np.float32), "w": floats(1, 1, 5)} for height, width, low in ((6, 7, -9), (9, 3, 0))],
        {"dynamic": {"c": (1, 400)}},
    ),
    "shapes of which few fit": Deciding(
        "g (float[12] x, int64[2] shape) => (float[a, b] y) { y = Reshape(x, shape) }",
        [{"x": floats(12), "shape": ints(*shape)} for shape in ((3, 4), (2, 6))],
        {"ranges": {"shape[0]": (2, 4), "shape[1]": (3, 6)}},
    ),
}  # fmt: skip
