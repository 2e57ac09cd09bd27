"""Tests for a machine with a GPU, run by `make test-gpu` and never by `make test`.

They skip nothing: where CuPy or the driver is missing, they fail and say so.
"""

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "helpers"))  # what tests share
# The libraries share the GPU, of which JAX would take three quarters.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")


@pytest.fixture(scope="session", autouse=True)
def _machine():
    from layoutkit import DeviceError
    from layoutkit.devices import check_device, runtime

    try:
        check_device("cuda:0")
    except DeviceError as error:
        pytest.exit(str(error), returncode=1)
    print(f"\n{runtime().describe()}")
