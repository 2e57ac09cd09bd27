"""Fixtures of all tests on a GPU."""

import os

import pytest


@pytest.fixture(scope="session", autouse=True)
def _allocator() -> None:
    """Allocate memory for each array without a pool if LAYOUTKIT_TEST_POOL=off.

    Memory checkers see the allocations of CUDA. With a pool these are blocks that hold several
    arrays: after the end of an array is the next one, and reused memory looks initialized.
    """
    if os.environ.get("LAYOUTKIT_TEST_POOL") == "off":
        import cupy

        cupy.cuda.set_allocator(None)
        cupy.cuda.set_pinned_memory_allocator(None)
