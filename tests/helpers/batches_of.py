"""The batches of a Batcher as plain values, and a slow reference of the expected batches."""

import threading

import numpy as np


def plain(batch):
    """Return a batch as plain values that can be compared."""
    return {
        "index": batch.index.tolist(),
        "position": [record.position for record in batch.item],
        "input": None if batch.input is None else batch.input.input.tolist(),
        "target": None if batch.target is None else batch.target.input.tolist(),
        "label": batch.label,
        "dropped": [
            (record.position, place, type(error).__name__ if error else None)
            for record, place, error in batch.dropped
        ],
        "count": batch.count,
    }


def plain_all(batches):
    return [plain(batch) for batch in batches]


def expected(order, width, outcome, refill=False):
    """Return batches as (kept places, dropped places) of the records in `order`.

    `outcome(position)` is True if the record is kept.
    """
    batches, place = [], 0
    while place < len(order):
        kept, dropped, stop = [], [], place + width
        while place < len(order) and (len(kept) < width if refill else place < stop):
            (kept if outcome(order[place]) else dropped).append(place)
            place += 1
        if kept or not refill:
            batches.append((kept, dropped))
    return batches


_others = set()  # batcher threads that the tests of other files or pages have left running


def forget_others():
    """Exclude the threads that are running now from the result of `our_threads`."""
    _others.update(threading.enumerate())


def our_threads():
    """Return the batcher threads that began after the last call of `forget_others`."""
    running = [t for t in threading.enumerate() if t.name.startswith("layoutkit-data")]
    return [t for t in running if t not in _others]


def same(one, other):
    """Return True if two lists of plain batches are equal; NaN equals NaN."""
    return len(one) == len(other) and all(
        a.keys() == b.keys()
        and all(
            np.array_equal(a[k], b[k], equal_nan=True) if k == "input" and a[k] else a[k] == b[k]
            for k in a
        )
        for a, b in zip(one, other, strict=True)
    )
