"""`layoutkit bench --resize`: variants, printed table, and rejected options."""

import numpy as np
import pytest

from layoutkit import ArgumentError
from layoutkit.bench import main, resizing
from layoutkit.bench.protocol import Budget

RNG = np.random.default_rng(0)
SHORT = Budget(0.02, 0.001, min_rounds=1, max_rounds=2)


def small():
    """Return random crops, a letterbox, and pixels of 12 bands."""
    photos = resizing._images(RNG, 3, 40, 50)
    turns = [resizing._random_crops(RNG, photos) for _ in range(2)]
    bands = [RNG.integers(0, 4096, (16, 16, 12), np.uint16)]
    return [
        resizing.ResizeCase("crops", photos, (24, 24), filter="bicubic", turns=turns),
        resizing.ResizeCase("letterbox", photos, (50, 50), box=(5, 0, 40, 50)),
        resizing.ResizeCase("bands", bands, (8, 8), normalized=False),
        resizing.ResizeCase("bytes", photos, (20, 25), "bhwc", normalized=False),
    ]


@pytest.fixture(autouse=True)
def quickly(monkeypatch):
    monkeypatch.setattr(resizing, "resize_cases", small)
    monkeypatch.setattr(resizing, "QUICK", SHORT)
    monkeypatch.setattr(resizing, "set_passive_wait_policy", lambda: "")


def test_each_line_is_right_and_compared(capsys):
    pytest.importorskip("torch")
    pytest.importorskip("cv2")
    assert main(resize=True, quick=True) == 0
    lines = capsys.readouterr().out.splitlines()[-8:]
    assert [line.split()[0] for line in lines[::2]] == ["crops", "letterbox", "bands", "bytes"]
    assert all("torch" in line and "OpenCV INTER_AREA" in line for line in lines[::2])
    assert all(line.startswith("  without antialias") for line in lines[1::2])
    assert "Pillow" in lines[0]
    assert "Pillow" not in lines[4]  # the samples are uint16


def test_crops_lie_inside_and_have_many_sizes():
    photos = resizing._images(RNG, 64, 40, 50)
    top, left, height, width = resizing._random_crops(RNG, photos).T
    assert (top >= 0).all()
    assert (left >= 0).all()
    assert (top + height <= 40).all()
    assert (left + width <= 50).all()
    assert len(set(height.tolist())) > 10


@pytest.mark.parametrize("number", range(4))
def test_peers_make_the_same_batch(number):
    pytest.importorskip("torch")
    pytest.importorskip("cv2")
    case = small()[number]
    turn = case.turns[0]
    out = resizing._ours("layoutkit", case, antialias=True).calls[0]()
    case = small()[number]
    peers = [resizing._by_torch(case, out), resizing._by_opencv(case, out, "INTER_AREA")]
    for peer in peers:
        made = peer(turn)
        made = made.numpy() if hasattr(made, "numpy") else made
        if made.shape != out.shape:  # torch keeps the channels in front
            made = made.transpose(0, 2, 3, 1)
        assert made.shape == out.shape
        assert np.abs(np.mean(made, dtype=float) - np.mean(out, dtype=float)) < 0.05 * np.std(out)


def test_a_wrong_batch_is_told(capsys, monkeypatch):
    pytest.importorskip("torch")

    def wrong(*_):
        raise AssertionError

    monkeypatch.setattr(resizing, "_check", wrong)
    assert main(resize=True, quick=True) == 1
    assert capsys.readouterr().out.count("WRONG") == 4


def test_options_of_other_tables_are_refused():
    for option in ({"loop": True}, {"json": "x.json"}, {"device": "cuda"}, {"only": "hw"}):
        with pytest.raises(ArgumentError, match="only be combined with --quick"):
            main(resize=True, **option)
    with pytest.raises(ArgumentError, match="--collate: prints one table; omit --resize"):
        main(resize=True, collate=True)
    with pytest.raises(ArgumentError, match="--runs"):
        main(resize=True, sweep="runs")
