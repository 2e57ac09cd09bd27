"""`--collate`: collate many samples into one batch, compared with step-by-step code and the limit.

A measured call is one call of a training loop: new offsets and flips each time, a batch in reused
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
from .host import Call, limit_pass, set_passive_wait_policy, streaming_is_faster
from .protocol import Budget, Variant, measure, paired_ratio
from .rows import MEAN, SCALE, STD

LIMIT = "limit"
OURS = "layoutkit"
NUMPY_AND_CONVERT = "slices, stack, convert"
TORCH = "torch"
OPENCV = "OpenCV"
DALI = "DALI"
NORMALISED = {"dtype": "float32", "scale": SCALE, "mean": MEAN, "std": STD}
SIZE = 224
TURNS = 8  # sets of offsets and flips, used in rotation
FULL = Budget(2.5, 0.1)
QUICK = Budget(0.6, 0.05, min_rounds=3)


@dataclass(frozen=True)
class CollateCase:
    """One line of the table: samples, the layout of the batch, and the windows."""

    name: str
    to: str
    keywords: dict[str, Any]
    samples: Any
    window: dict[str, int]
    turns: Sequence[dict[str, Any]]
    at_least: float | None = None  # share of the limit
    most_us: float | None = None  # microseconds of a call
    more: dict[str, Any] = field(default_factory=dict)

    @property
    def pattern(self) -> str:
        """The pattern for `Collator`."""
        return f"{'hwc' if isinstance(self.samples, list) else 'bhwc'}->{self.to}"


def collate_cases() -> Iterator[CollateCase]:
    """Yield all lines of the table."""
    rng = np.random.default_rng(0)
    photos = [_photo(rng, 256, 256) for _ in range(64)]
    turns = [_turn(rng, photos) for _ in range(TURNS)]
    window = {"h": SIZE, "w": SIZE}
    description = "64 images 256x256, windows 224x224, half flipped"
    for to, dtype, least in (
        ("bchw", "float32", 0.8), ("bchw", "bfloat16", 0.6), ("bchw", "uint8", 0.6),
        ("bhwc", "float32", None), ("chwb", "float32", 0.45),
    ):  # fmt: skip
        keywords = {} if dtype == "uint8" else {**NORMALISED, "dtype": dtype}
        yield CollateCase(
            f"{description} -> {dtype} {to}", to, keywords, photos, window, turns, least
        )
    photos = [_photo(rng, int(h), int(w)) for h, w in rng.integers(200, 300, (64, 2))]
    turns = [_turn(rng, photos) for _ in range(TURNS)]
    name = "64 images of 64 sizes, filled at some borders -> float32 bchw"
    yield CollateCase(name, "bchw", NORMALISED, photos, window, turns, 0.7, more={"fill": 114})
    images = rng.integers(0, 256, (8192, 64, 64, 3), np.uint8)
    turns = [{"indices": rng.integers(0, len(images), 256)} for _ in range(TURNS)]
    name = "256 rows of (8192, 64, 64, 3) -> float32 bchw"
    yield CollateCase(name, "bchw", NORMALISED, images, {}, turns, 0.7)
    tiny = [_photo(rng, 32, 32) for _ in range(8)]
    yield CollateCase(
        "8 images 32x32 -> float32 bchw", "bchw", NORMALISED, tiny, {}, [{}], most_us=12
    )


def _photo(rng: np.random.Generator, height: int, width: int) -> Array:
    return rng.integers(0, 256, (height, width, 3), np.uint8)


def _turn(rng: np.random.Generator, photos: Sequence[Array]) -> dict[str, Any]:
    """Return random offsets inside or around the samples, and flips for half of the samples."""
    spans = np.array([photo.shape[:2] for photo in photos]) - SIZE
    corners = np.sign(spans) * rng.integers(0, np.abs(spans) + 1)
    flip = {"w": rng.random(len(photos)) < 0.5}
    return {"offset": {"h": corners[:, 0], "w": corners[:, 1]}, "flip": flip}


# ---- variants ----------------------------------------------------------------------------


def variants(case: CollateCase) -> list[Variant]:
    """Return all variants of a case; raise AssertionError if layoutkit's result is wrong."""
    options: dict[str, Any] = {**case.window, **case.keywords, **case.more}
    collator = layoutkit.Collator(case.pattern, **options)
    out = collator(case.samples, **case.turns[0])
    turns = cycle(case.turns)
    steps = partial(_collate_by_numpy, case)
    np.testing.assert_array_equal(collator(case.samples, **case.turns[0]), steps(case.turns[0]))
    result = [
        Variant(OURS, [lambda: collator(case.samples, out=out, **next(turns))]),
        Variant(NUMPY_AND_CONVERT, [_rotate_turns(steps, turns)]),
        Variant(LIMIT, [_limit(case, out)]),
    ]
    for name, function in (
        (OPENCV, _collate_by_opencv(case, out)),
        (DALI, peers.dali_pipeline(case, out)),
    ):
        if function is not None:
            result.append(Variant(name, [_rotate_turns(function, turns)], spin_seconds=0.01))
    try:
        import torch
    except ImportError:
        return result
    torch.set_num_threads(layoutkit.get_num_threads())
    tensors = _tensors(torch, case.samples)
    by_torch = partial(_collate_by_torch, torch, case, tensors)
    result.append(Variant(TORCH, [_rotate_turns(by_torch, turns)], spin_seconds=0.01))
    return result


def _rotate_turns(
    function: Callable[[dict[str, Any]], Any], turns: Iterator[dict[str, Any]]
) -> Call:
    return lambda: function(next(turns))


def _limit(case: CollateCase, out: Array) -> Call:
    """Return a pass over as many bytes as the windows and the batch have."""
    count = len(case.turns[0].get("indices", case.samples))
    height, width = (case.window.get(a, case.samples[0].shape[n]) for n, a in enumerate("hw"))
    source = np.zeros(count * height * width * 3, np.uint8)
    target = empty(out.shape, out.dtype)  # `empty` aligns it to a cache line
    return limit_pass([source], target, streaming_is_faster([source], target))


def _windows(case: CollateCase, samples: Any, turn: dict[str, Any]) -> Iterator[tuple[Any, bool]]:
    """Yield the part of each window that is inside its sample, and whether it is flipped."""
    rows = turn.get("indices")
    for index, x in enumerate(samples if rows is None else (samples[row] for row in rows)):
        if not case.window or rows is not None:
            yield x, False
            continue
        y, left = (int(turn["offset"][axis][index]) for axis in "hw")
        flipped = bool(turn["flip"]["w"][index])
        yield x[max(0, y) : y + SIZE, max(0, left) : left + SIZE], flipped


def _collate_by_numpy(case: CollateCase, turn: dict[str, Any]) -> Array:
    """Slice with NumPy, stack, and convert once."""
    windows: list[Any] = []
    for window, flipped in _windows(case, case.samples, turn):
        if case.more:
            window = _padded(case, window, turn, len(windows), np.full)
        windows.append(window[:, ::-1] if flipped else window)
    batch: Array = layoutkit.convert(np.stack(windows), f"bhwc->{case.to}", **case.keywords)
    return batch


def _padded(case: CollateCase, window: Any, turn: dict[str, Any], index: int, full: Any) -> Any:
    """Return a window with the fill value outside of its sample."""
    y, x = (max(0, -int(turn["offset"][axis][index])) for axis in "hw")
    canvas = full((SIZE, SIZE, 3), case.more["fill"], dtype=window.dtype)
    canvas[y : y + window.shape[0], x : x + window.shape[1]] = window
    return canvas


def _collate_by_opencv(
    case: CollateCase, expected: Array
) -> Callable[[dict[str, Any]], Any] | None:
    """Return a function with cv2.flip, LUT and split per sample, or None if not applicable."""
    try:
        import cv2
    except ImportError:
        return None
    if case.keywords != NORMALISED or case.to != "bchw" or case.more or not case.window:
        return None
    values = np.arange(256).reshape(256, 1, 1) * SCALE
    table = ((values - np.array(MEAN)) / np.array(STD)).astype(np.float32)
    out = empty(expected.shape, expected.dtype)

    def run(turn: dict[str, Any]) -> Array:
        for planes, (window, flipped) in zip(out, _windows(case, case.samples, turn), strict=True):
            window = cv2.flip(window, 1) if flipped else window
            cv2.split(cv2.LUT(window, table), list(planes))
        return out

    np.testing.assert_allclose(run(case.turns[0]), expected, atol=1e-5)
    return run


def _tensors(torch: Any, samples: Any) -> Any:
    if isinstance(samples, list):
        return [torch.from_numpy(sample) for sample in samples]
    return torch.from_numpy(samples)


def _collate_by_torch(torch: Any, case: CollateCase, tensors: Any, turn: dict[str, Any]) -> Any:
    """Crop, flip, stack, permute, and normalise if the case does."""
    windows: list[Any] = []
    for window, flipped in _windows(case, tensors, turn):
        if case.more:
            window = _padded(case, window, turn, len(windows), torch.full)
        windows.append(window.flip(1) if flipped else window)
    batch = torch.stack(windows).permute(["bhwc".index(axis) for axis in case.to])
    if case.keywords:
        shape = [3 if axis == "c" else 1 for axis in case.to]
        mean, std = (torch.tensor(v).reshape(shape) for v in (MEAN, STD))
        batch = batch.float().mul_(SCALE).sub_(mean).div_(std)
        batch = batch.to(getattr(torch, case.keywords["dtype"]))
    return batch.contiguous()


# ---- the table ---------------------------------------------------------------------------


def run_collate(quick: bool) -> int:
    """Measure all lines and print them; return 1 if a batch of layoutkit is wrong."""
    print(
        f"{set_passive_wait_policy()}\n"
        f"{layoutkit.get_num_threads()} threads, medians; ratios are paired\n"
    )
    print(f"{'work':<74}{'us':>9}  of the limit  times faster than")
    exit_code = 0
    for case in collate_cases():
        try:
            candidates = variants(case)
        except AssertionError:
            print(f"{case.name:<74}  WRONG")
            exit_code = 1
            continue
        print(_line(case, candidates, QUICK if quick else FULL), flush=True)
    return exit_code


def _line(case: CollateCase, candidates: list[Variant], budget: Budget) -> str:
    times = measure(candidates, budget)
    ours = times[OURS]
    share = paired_ratio(times[LIMIT], ours)
    rivals = [name for name in (NUMPY_AND_CONVERT, TORCH, OPENCV, DALI) if name in times]
    faster = ", ".join(f"{paired_ratio(times[name], ours):.1f} {name}" for name in rivals)
    microseconds = ours.median * 1e6
    goal = "" if case.at_least is None else f" (goal {case.at_least:.2f})"
    if case.most_us is not None:
        goal = f" (goal {case.most_us:.0f} us)"
    return f"{case.name:<74}{microseconds:>9.1f}  {share:.2f}{goal}  {faster}"
