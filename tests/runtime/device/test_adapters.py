"""Listing adapters leaves the process as it was, and prints nothing.

Covers: shaderloom/runtime/device/adapters.
"""

import os
import subprocess
import sys

import pytest

LIST = """
import os
from shaderloom.runtime.device import adapters
before = dict(os.environ)
print(len(adapters.list_adapters()))
assert dict(os.environ) == before
"""


@pytest.mark.parametrize("folder", [None, "/tmp"])
def test_listing_adapters_prints_nothing_where_a_user_has_no_session(device, folder):
    """Takes the fixture ``device`` so that the test is skipped where there is no adapter."""
    variables = {name: value for name, value in os.environ.items() if name != "XDG_RUNTIME_DIR"}
    variables |= {} if folder is None else {"XDG_RUNTIME_DIR": folder}
    done = subprocess.run([sys.executable, "-c", LIST], env=variables, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    assert int(done.stdout) >= 1
