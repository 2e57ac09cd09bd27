"""A fixture for plain and for streaming stores, for arrays of any size."""

import pytest

from layoutkit.kernels.cpu import launch
from tests.helpers.streaming import stream_rows


@pytest.fixture(params=[1 << 40, 0], ids=["plain", "streaming"])
def streaming(request, monkeypatch):
    stream_rows(monkeypatch, request.param)
    if request.param == 0:
        monkeypatch.setattr(launch, "l2_cache_bytes", lambda: 0)  # all sources are prefetched
