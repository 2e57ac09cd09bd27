"""`--collate`: many samples into one batch, beside the same work step by step and the limit.

What is measured is a call as a loop makes it: new corners and flips each time, a batch in reused
memory. The limit reads the bytes inside the windows and writes the batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import cycle
from typing import Any

import numpy as np

import layoutkit

from ..buffers import empty
from ..memory import Array
from . import peers
from .host import Call, limit_pass, made_passive, streaming_is_faster
from .protocol import Budget, Variant, measure, paired_ratio
from .rows import MEAN, SCALE, STD

LIMIT = "limit"
OURS = "layoutkit"
CONVERT = "slices, stack, convert"
TORCH = "torch"
OPENCV = "OpenCV"
DALI = "DALI"
NORMALISED = {"dtype": "float32", "scale": SCALE, "mean": MEAN, "std": STD}
SIZE = 224
TURNS = 8  # of corners and flips, which are used in turn
FULL = Budget(2.5, 0.1)
QUICK = Budget(0.6, 0.05, min_rounds=3)


@dataclass(frozen=True)
class Work:
    """One line of the table: samples, the layout of the batch, and what is said of windows."""

    name: str
    to: str
    keywords: dict[str, Any]
    samples: Any
    window: dict[str, int]
    turns: Sequence[dict[str, Any]]
    at_least: float | None = None  # share of the limit
    most_us: float | None = None  # of a call
    more: dict[str, Any] = field(default_factory=dict)

    @property
    def pattern(self) -> str:
        """What is collated to what."""
        return f"{'hwc' if isinstance(self.samples, list) else 'bhwc'}->{self.to}"


def works() -> Iterator[Work]:
    """All lines of the table."""
    rng = np.random.default_rng(0)
    photos = [_photo(rng, 256, 256) for _ in range(64)]
    turns = [_turn(rng, photos) for _ in range(TURNS)]
    window = {"h": SIZE, "w": SIZE}
    text = "64 pictures 256x256, windows 224x224, half flipped"
    for to, dtype, least in (
        ("bchw", "float32", 0.8), ("bchw", "bfloat16", 0.6), ("bchw", "uint8", 0.6),
        ("bhwc", "float32", None), ("chwb", "float32", 0.45),
    ):  # fmt: skip
        keywords = {} if dtype == "uint8" else {**NORMALISED, "dtype": dtype}
        yield Work(f"{text} -> {dtype} {to}", to, keywords, photos, window, turns, least)
    photos = [_photo(rng, int(h), int(w)) for h, w in rng.integers(200, 300, (64, 2))]
    turns = [_turn(rng, photos) for _ in range(TURNS)]
    name = "64 pictures of 64 sizes, filled at some borders -> float32 bchw"
    yield Work(name, "bchw", NORMALISED, photos, window, turns, 0.7, more={"fill": 114})
    images = rng.integers(0, 256, (8192, 64, 64, 3), np.uint8)
    turns = [{"indices": rng.integers(0, len(images), 256)} for _ in range(TURNS)]
    name = "256 rows of (8192, 64, 64, 3) -> float32 bchw"
    yield Work(name, "bchw", NORMALISED, images, {}, turns, 0.7)
    tiny = [_photo(rng, 32, 32) for _ in range(8)]
    yield Work("8 pictures 32x32 -> float32 bchw", "bchw", NORMALISED, tiny, {}, [{}], most_us=12)


def _photo(rng: np.random.Generator, height: int, width: int) -> Array:
    return rng.integers(0, 256, (height, width, 3), np.uint8)


def _turn(rng: np.random.Generator, photos: Sequence[Array]) -> dict[str, Any]:
    """Corners somewhere inside, or around what is smaller than the window, and half flipped."""
    spans = np.array([photo.shape[:2] for photo in photos]) - SIZE
    corners = np.sign(spans) * rng.integers(0, np.abs(spans) + 1)
    flip = {"w": rng.random(len(photos)) < 0.5}
    return {"offset": {"h": corners[:, 0], "w": corners[:, 1]}, "flip": flip}


# ---- who takes part ----------------------------------------------------------------------


def variants(work: Work) -> list[Variant]:
    """Everybody who does this work; ours is right, or AssertionError."""
    asked: dict[str, Any] = {**work.window, **work.keywords, **work.more}
    collator = layoutkit.Collator(work.pattern, **asked)
    out = collator(work.samples, **work.turns[0])
    turns = cycle(work.turns)
    steps = partial(_by_steps, work)
    np.testing.assert_array_equal(collator(work.samples, **work.turns[0]), steps(work.turns[0]))
    found = [
        Variant(OURS, [lambda: collator(work.samples, out=out, **next(turns))]),
        Variant(CONVERT, [_in_turn(steps, turns)]),
        Variant(LIMIT, [_limit(work, out)]),
    ]
    for name, way in (OPENCV, _by_opencv(work, out)), (DALI, peers.collated(work, out)):
        if way is not None:
            found.append(Variant(name, [_in_turn(way, turns)], lingers=0.01))
    try:
        import torch
    except ImportError:
        return found
    torch.set_num_threads(layoutkit.get_num_threads())
    tensors = _tensors(torch, work.samples)
    by_torch = partial(_by_torch, torch, work, tensors)
    found.append(Variant(TORCH, [_in_turn(by_torch, turns)], lingers=0.01))
    return found


def _in_turn(way: Callable[[dict[str, Any]], Any], turns: Iterator[dict[str, Any]]) -> Call:
    return lambda: way(next(turns))


def _limit(work: Work, out: Array) -> Call:
    """A pass over as many bytes as are inside of windows, and the batch."""
    count = len(work.turns[0].get("indices", work.samples))
    height, width = (work.window.get(a, work.samples[0].shape[n]) for n, a in enumerate("hw"))
    source = np.zeros(count * height * width * 3, np.uint8)
    target = empty(out.shape, out.dtype)  # which begins on a cache line
    return limit_pass([source], target, streaming_is_faster([source], target))


def _windows(work: Work, samples: Any, turn: dict[str, Any]) -> Iterator[tuple[Any, bool]]:
    """The part of each window that is inside, with what is filled in, and whether it is flipped."""
    rows = turn.get("indices")
    for number, x in enumerate(samples if rows is None else (samples[row] for row in rows)):
        if not work.window or rows is not None:
            yield x, False
            continue
        y, left = (int(turn["offset"][axis][number]) for axis in "hw")
        flipped = bool(turn["flip"]["w"][number])
        yield x[max(0, y) : y + SIZE, max(0, left) : left + SIZE], flipped


def _by_steps(work: Work, turn: dict[str, Any]) -> Array:
    """Slices of NumPy, a stack, and one conversion."""
    made: list[Any] = []
    for window, flipped in _windows(work, work.samples, turn):
        if work.more:
            window = _padded(work, window, turn, len(made), np.full)
        made.append(window[:, ::-1] if flipped else window)
    batch: Array = layoutkit.convert(np.stack(made), f"bhwc->{work.to}", **work.keywords)
    return batch


def _padded(work: Work, window: Any, turn: dict[str, Any], number: int, full: Any) -> Any:
    """A window with what is outside of its sample."""
    y, x = (max(0, -int(turn["offset"][axis][number])) for axis in "hw")
    whole = full((SIZE, SIZE, 3), work.more["fill"], dtype=window.dtype)
    whole[y : y + window.shape[0], x : x + window.shape[1]] = window
    return whole


def _by_opencv(work: Work, expected: Array) -> Callable[[dict[str, Any]], Any] | None:
    """A flip, a table of 256 floats a channel and a split for each sample; None where it is not."""
    try:
        import cv2
    except ImportError:
        return None
    if work.keywords != NORMALISED or work.to != "bchw" or work.more or not work.window:
        return None
    values = np.arange(256).reshape(256, 1, 1) * SCALE
    table = ((values - np.array(MEAN)) / np.array(STD)).astype(np.float32)
    out = empty(expected.shape, expected.dtype)

    def run(turn: dict[str, Any]) -> Array:
        for planes, (window, flipped) in zip(out, _windows(work, work.samples, turn), strict=True):
            window = cv2.flip(window, 1) if flipped else window
            cv2.split(cv2.LUT(window, table), list(planes))
        return out

    np.testing.assert_allclose(run(work.turns[0]), expected, atol=1e-5)
    return run


def _tensors(torch: Any, samples: Any) -> Any:
    if isinstance(samples, list):
        return [torch.from_numpy(sample) for sample in samples]
    return torch.from_numpy(samples)


def _by_torch(torch: Any, work: Work, tensors: Any, turn: dict[str, Any]) -> Any:
    """Crop, flip, stack, permute, and normalise where the work says so."""
    made: list[Any] = []
    for window, flipped in _windows(work, tensors, turn):
        if work.more:
            window = _padded(work, window, turn, len(made), torch.full)
        made.append(window.flip(1) if flipped else window)
    batch = torch.stack(made).permute(["bhwc".index(axis) for axis in work.to])
    if work.keywords:
        shape = [3 if axis == "c" else 1 for axis in work.to]
        mean, std = (torch.tensor(v).reshape(shape) for v in (MEAN, STD))
        batch = batch.float().mul_(SCALE).sub_(mean).div_(std)
        batch = batch.to(getattr(torch, work.keywords["dtype"]))
    return batch.contiguous()


# ---- the table ---------------------------------------------------------------------------


def run_collate(quick: bool) -> int:
    """Measure all lines and print them; 1 if a batch of ours is wrong."""
    print(f"{made_passive()}\n{layoutkit.get_num_threads()} threads, medians; ratios are paired\n")
    print(f"{'work':<74}{'us':>9}  of the limit  times faster than")
    wrong = 0
    for work in works():
        try:
            taking_part = variants(work)
        except AssertionError:
            print(f"{work.name:<74}  WRONG")
            wrong = 1
            continue
        print(_line(work, taking_part, QUICK if quick else FULL), flush=True)
    return wrong


def _line(work: Work, taking_part: list[Variant], budget: Budget) -> str:
    times = measure(taking_part, budget)
    ours = times[OURS]
    share = paired_ratio(times[LIMIT], ours)
    others = [name for name in (CONVERT, TORCH, OPENCV, DALI) if name in times]
    faster = ", ".join(f"{paired_ratio(times[name], ours):.1f} {name}" for name in others)
    micros = ours.median * 1e6
    asked = "" if work.at_least is None else f" (asked {work.at_least:.2f})"
    if work.most_us is not None:
        asked = f" (asked {work.most_us:.0f} us)"
    return f"{work.name:<74}{micros:>9.1f}  {share:.2f}{asked}  {faster}"
