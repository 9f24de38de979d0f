"""The node cases of the ONNX backend suite on the default device, against the list of what is expected of them.

Cases that a device refuses run with cpu behind it.  An unexpected pass is an error, too.
"""

from __future__ import annotations

from collections import Counter

import pytest

from . import expected
from .cases import node_cases
from .running import run_case

pytestmark = pytest.mark.slow

PARTS = 16
#: As many pass at least: on a device alone, and with the host behind it
LEAST_WGPU, LEAST = 1_400, 1_855


@pytest.mark.parametrize("number", range(PARTS))
def test_node_cases(number: int, device):
    outcomes = [run_case(case, device) for case in node_cases()[number::PARTS]]
    print(dict(Counter(outcome.kind for outcome in outcomes)))
    unexpected = [text for outcome in outcomes if (text := expected.unexpected(outcome)) is not None]
    assert not unexpected, "\n".join(unexpected)


def test_most_cases_pass():
    """As :func:`test_node_cases` holds, the list says how many pass."""
    kinds = Counter(group.kind for key, group in expected.by_case().items() if key.startswith("node/"))
    on_device = len(node_cases()) - kinds.total()
    assert on_device >= LEAST_WGPU
    assert on_device + kinds["on_cpu"] >= LEAST


def test_the_list_names_cases_that_exist():
    names = {case.key for case in node_cases()}
    listed = {key for key in expected.by_case() if key.startswith("node/")}
    assert listed <= names
