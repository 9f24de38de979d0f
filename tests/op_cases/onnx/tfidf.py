"""Cases of the operators in ``compiler/ops/onnx/tfidf.py``."""

from __future__ import annotations

from ..case import Case, Cases, Tensor

_POOL = {
    "ngram_counts": [0, 4],
    "ngram_indexes": [0, 1, 2, 3, 4, 5, 6],
    "pool_int64s": [2, 3, 5, 4, 5, 6, 7, 8, 6, 7],
}


def _case(mode: str, skips: int, low: int, shape: tuple[int, ...], dtype: str = "int32", **more: list[float]) -> Case:
    attributes = {"mode": mode, "max_skip_count": skips, "min_gram_length": low, "max_gram_length": 2, **_POOL, **more}
    return Case((Tensor(shape, dtype, 2, 8),), attributes)


_WEIGHTS = [0.5, 1.0, 2.0, 0.25, 3.0, 4.0, 0.75]

CASES: Cases = {
    "TfIdfVectorizer": (
        _case("TF", 0, 2, (12,)),
        _case("TF", 5, 1, (2, 6)),
        _case("IDF", 5, 1, (3, 17), weights=_WEIGHTS),
        _case("TFIDF", 2, 1, (17,), "int64", weights=_WEIGHTS),
        _case("TF", 0, 2, (1,)),
    ),
}
