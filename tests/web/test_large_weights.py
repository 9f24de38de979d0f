"""Weights in parts, in a page.

Covers: runtime/web/shaderloom.
"""

from __future__ import annotations

import numpy as np
import pytest

from shaderloom.bundles.compile import compile_bundle

from ..support.comparison import reference, relative_error
from ..support.large_weights import packed, tied

LIMIT = 1 << 14

RUN = """async (numbers, dims) => {
  const { load } = await import("/shaderloom.js");
  const session = await load("/bundle/");
  const { y } = await session.run({ i: { data: BigInt64Array.from(numbers, BigInt), dims } });
  return { dims: y.dims, data: Array.from(y.data) };
}"""


@pytest.mark.parametrize("build", [tied, packed], ids=["floats", "codes"])
def test_weights_are_read_in_parts(open_bundle, tmp_path, build):
    model, feeds = build(1003, 1)
    limits = {"maxStorageBufferBindingSize": LIMIT, "maxBufferSize": LIMIT}
    compile_bundle(model, tmp_path / "b", shapes=[{"i": feeds["i"].shape}], limits=limits)
    y = open_bundle(tmp_path / "b").call(RUN, feeds["i"].ravel().tolist(), list(feeds["i"].shape))
    found = np.array(y["data"], np.float32).reshape(y["dims"])
    assert relative_error(found, reference(model, feeds)[0]) <= 2e-5
