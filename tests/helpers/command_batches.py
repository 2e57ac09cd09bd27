"""The batches that `layoutkit batches` makes, and measures without writing them."""

from __future__ import annotations

import numpy as np

from layoutkit.cli import main
from layoutkit.cli.batches import StageTimes


def run_batches(monkeypatch, source, *words):
    """Run the command; return its images, targets, classes and file names."""
    batches = []
    count = StageTimes.add
    monkeypatch.setattr(
        StageTimes, "add", lambda self, batch: (count(self, batch), batches.append(_kept(batch)))
    )
    assert main(["batches", str(source), *map(str, words)]) == 0
    monkeypatch.setattr(StageTimes, "add", count)
    images, targets, classes, names = zip(*batches, strict=True)
    return {
        "input": np.concatenate(images),
        "target": [target for part in targets for target in part],
        "classes": classes[0],
        "name": [name for part in names for name in part],
    }


def _kept(batch):
    """Copy a batch, as its memory is reused."""
    target = batch.target
    layout = "bhwc" if "c" in batch.input.layout else "bhw"
    return (
        batch.input.forward_get(layout).copy(),
        [] if target is None else target.input.tolist(),
        None if target is None else list(getattr(target, "classes", None) or ()),
        [(str(record.url), record.position) for record in batch.item],
    )
