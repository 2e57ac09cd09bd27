"""Streaming stores for results and rows of any size."""

from layoutkit.kernels.cpu import launch, tiling


def stream_rows(monkeypatch, nbytes=0):
    """Stream the rows of results of `nbytes` and more, however short the rows are."""
    monkeypatch.setattr(launch, "STREAM_BYTES", nbytes)
    monkeypatch.setattr(tiling, "STREAMED_BYTES", dict.fromkeys(tiling.STREAMED_BYTES, 0))
