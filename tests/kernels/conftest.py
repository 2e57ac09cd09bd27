"""A fixture for plain and for streaming stores, for arrays of any size."""

import pytest

from layoutkit.kernels.cpu import launch, tiling


@pytest.fixture(params=[1 << 40, 0], ids=["plain", "streaming"])
def streaming(request, monkeypatch):
    monkeypatch.setattr(launch, "STREAM_BYTES", request.param)
    monkeypatch.setattr(tiling, "STREAMED_BYTES", dict.fromkeys(tiling.STREAMED_BYTES, 0))
    if request.param == 0:
        monkeypatch.setattr(launch, "l2_cache_bytes", lambda: 0)  # all sources are prefetched
