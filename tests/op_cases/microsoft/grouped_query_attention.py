"""Cases of the operators in ``compiler/ops/microsoft/grouped_query_attention.py``."""

from __future__ import annotations

import numpy as np

from ..case import Case, Cases, Tensor


def _case(
    *,
    heads: int = 4,
    shared: int = 2,
    queries: int = 1,
    past: int = 5,
    lengths: tuple[int, ...] = (5, 5),
    total: int | None = None,
    joined: bool = False,
    rotary: bool = False,
    first: int | None = None,
    bias: int | None = None,
    outputs: int = 3,
    **attributes: object,
) -> Case:
    """``first``: the position of the first token; ``bias``: for how many keys."""
    batch, size = len(lengths), 16
    cache = _cache(shared, past, size, lengths)
    widths = (heads + 2 * shared,) if joined else (heads, shared, shared)
    operands: list[Tensor | None] = [Tensor((batch, queries, count * size)) for count in widths]
    operands += [None] * (3 - len(operands))
    operands += [cache, cache]
    operands.append(Tensor((batch,), "int32", data=list(lengths)))
    operands.append(Tensor((), "int32", data=total or max(lengths) + 1, constant=True))
    if rotary:
        operands += [Tensor((16, size // 2), low=-1.0, high=1.0)] * 2
    operands += [None] * (9 - len(operands))
    operands.append(None if first is None else Tensor((batch, queries), "int64", first, first))
    operands.append(None if bias is None else Tensor((batch, 1, queries, bias)))
    fields = {"num_heads": heads, "kv_num_heads": shared, "do_rotary": int(rotary), **attributes}
    return Case(tuple(operands), fields, outputs=outputs)


def _cache(shared: int, past: int, size: int, lengths: tuple[int, ...]) -> Tensor:
    """Return a cache with zeros behind the longest sequences: onnxruntime gives those back, we what the cache had."""
    shape = (len(lengths), shared, past, size)
    if past <= min(lengths) + 1:
        return Tensor(shape)
    rows = np.random.default_rng(past).uniform(-2, 2, shape).astype(np.float32)
    for sequence, length in zip(rows, lengths):
        sequence[:, length + 1 :] = 0
    return Tensor(shape, data=rows.tolist())


CASES: Cases = {
    "GroupQueryAttention": (
        _case(),
        _case(queries=4, past=0, lengths=(3, 3)),
        _case(rotary=True),
        _case(rotary=True, rotary_interleaved=1, joined=True),
        _case(queries=4, past=0, lengths=(3, 3), rotary=True),
        _case(local_window_size=3, lengths=(5, 5)),
        # rows of the cache that hold no position are unspecified: there are none here
        _case(past=4, local_window_size=4, sliding_window_cache=1, lengths=(9, 4), rotary=True),
        _case(past=6, local_window_size=4, sliding_window_cache=1, lengths=(11, 8)),
        _case(past=4, queries=5, local_window_size=4, sliding_window_cache=1, lengths=(9,), rotary=True),
        _case(past=4, queries=6, local_window_size=3, sliding_window_cache=1, lengths=(5, 5)),
        _case(softcap=2.0, scale=0.3),
        _case(smooth_softmax=1),
        _case(joined=True, heads=3, shared=1),
        _case(queries=2, past=5, lengths=(6,)),
        _case(past=9, lengths=(5, 3), total=6),
        _case(past=5, lengths=(5, 3)),
        _case(queries=4, past=0, lengths=(2, 3), total=4),
        _case(queries=4, past=9, lengths=(2, 3), total=4),
        _case(queries=4, past=0, lengths=(3, 3), rotary=True, first=5),
        _case(rotary=True, first=5),
        _case(causal=0, queries=3, lengths=(7,)),
        _case(causal=0, queries=4, past=0, lengths=(2, 3), total=4),
        _case(past=9, lengths=(5, 3), total=6, bias=6),
        _case(past=9, lengths=(5, 3), total=6, outputs=4, qk_output=1, softcap=2.0, local_window_size=3),
        _case(queries=2, past=5, lengths=(6,), outputs=4, qk_output=2),
    ),
}
