"""`layoutkit bench --collate`: variants, printed table, and rejected options."""

import numpy as np
import pytest

from layoutkit import ArgumentError
from layoutkit.bench import collating, main
from layoutkit.bench.protocol import Budget

RNG = np.random.default_rng(0)
SHORT = Budget(0.02, 0.001, min_rounds=1, max_rounds=2)


def small():
    """Return two cases: filled windows, and rows of one array."""
    photos = [RNG.integers(0, 256, (size, 230, 3), np.uint8) for size in (220, 230)]
    turns = [collating._turn(RNG, photos)]
    window = {"h": collating.SIZE, "w": collating.SIZE}
    fill = {"fill": 7}
    rows = [{"indices": np.array([3, 0])}]
    images = RNG.integers(0, 256, (4, 8, 8, 3), np.uint8)
    normalised = collating.NORMALISED
    return [
        collating.CollateCase("filled", "bchw", normalised, photos, window, turns, 0.7, more=fill),
        collating.CollateCase("rows", "chwb", {}, images, {}, rows, most_us=12),
    ]


@pytest.fixture(autouse=True)
def quickly(monkeypatch):
    monkeypatch.setattr(collating, "collate_cases", small)
    monkeypatch.setattr(collating, "QUICK", SHORT)
    monkeypatch.setattr(collating, "set_passive_wait_policy", lambda: "")


def test_each_line_is_right_and_compared(capsys):
    assert main(collate=True, quick=True) == 0
    filled, rows = capsys.readouterr().out.splitlines()[-2:]
    assert filled.startswith("filled ")
    assert "(goal 0.70)" in filled
    assert collating.NUMPY_AND_CONVERT in filled
    assert "(goal 12 us)" in rows


def test_a_wrong_batch_is_told(capsys, monkeypatch):
    monkeypatch.setattr(collating, "_collate_by_numpy", lambda *_: np.zeros(1))
    assert main(collate=True, quick=True) == 1
    assert capsys.readouterr().out.count("WRONG") == 2


def test_options_of_other_tables_are_refused():
    for option in ({"loop": True}, {"json": "x.json"}, {"device": "cuda"}, {"others": True}):
        with pytest.raises(ArgumentError, match="--collate"):
            main(collate=True, **option)
