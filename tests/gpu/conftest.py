"""What holds for all tests on a GPU."""

import os

import pytest


@pytest.fixture(scope="session", autouse=True)
def _allocator() -> None:
    """With LAYOUTKIT_TEST_POOL=off, each array has memory of its own.

    Tools that watch memory see what CUDA is asked for, which is a pool's blocks and not the arrays
    in them: beyond the end of an array is the next one, and what was once written looks written.
    """
    if os.environ.get("LAYOUTKIT_TEST_POOL") == "off":
        import cupy

        cupy.cuda.set_allocator(None)
        cupy.cuda.set_pinned_memory_allocator(None)
