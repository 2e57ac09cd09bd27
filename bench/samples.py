"""`--collate` and `--resize`: many samples into one batch, compared with other libraries.

A measured call is one call of a training loop: new crops and flips each time, a batch in reused
memory. The limit of a batch that is not resized reads the bytes inside the windows and writes the
batch. Batches are checked before they are timed: crops against NumPy's slices, bit for bit, and
resized samples against torch's in float32, if torch is installed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import cycle
from typing import Any, NamedTuple

import numpy as np

import layoutkit

from ..buffers import empty
from ..memory import Array
from .host import Call, limit_pass, set_passive_wait_policy, streaming_is_faster
from .protocol import Budget, Times, Variant, measure, paired_ratio, percentile
from .report import Column, Table, describe_run
from .results import environment
from .rows import MEAN, SCALE, STD
from .sample_cases import FORMULA, PackedCase, SampleCase, Turn, collate_cases, resize_cases
from .sample_peers import PEERS, WITHOUT_ANTIALIAS, interpolate, pack_by_torch

LIMIT = "limit"
OURS = "layoutkit"
PLAIN = "layoutkit, no antialias"
NUMPY_AND_CONVERT = "slices, stack, convert"
FULL = Budget(2.5, 0.1)
QUICK = Budget(0.6, 0.05, min_rounds=3)


# ---- layoutkit and the limit ---------------------------------------------------------------


def variants(case: SampleCase) -> list[Variant]:
    """Return all variants of a case; raise AssertionError if layoutkit's result is wrong."""
    if isinstance(case, PackedCase):
        return packed_variants(case)
    batch = layoutkit.Collator(case.pattern, **case.keywords)(case.samples, **case.turns[0])
    result = [_collator(OURS, case)]
    if "resize" in case.keywords:
        check_resized(case, batch, antialias=True)
        result.append(_collator(PLAIN, case, antialias=False))
    else:
        np.testing.assert_array_equal(batch, stack_and_convert(case, case.turns[0]))
        result.append(_rotating(NUMPY_AND_CONVERT, case, partial(stack_and_convert, case)))
        result.append(Variant(LIMIT, [_limit(case, batch)]))
    for name, make in PEERS.items():
        try:
            function = make(case, batch)
        except ImportError:
            continue
        if function is not None:
            result.append(_rotating(name, case, function, spin_seconds=0.01))
    return result


def packed_variants(case: PackedCase) -> list[Variant]:
    """Return layoutkit, torch, and the limit of samples that are not resized.

    Raise AssertionError unless layoutkit's patches equal torch's, if torch is installed.
    """
    collator = layoutkit.Collator(case.pattern, **case.keywords)
    batch, sizes, _ = collator(case.samples)
    result = [_rotating(OURS, case, lambda turn: collator(case.samples, out=batch))]
    is_resized = "resize" in case.keywords
    if not is_resized:
        result.append(Variant(LIMIT, [_limit(case, batch)]))
    try:
        pack = pack_by_torch(case, sizes)
    except ImportError:
        return result
    # torch rounds and clips bytes between rows and columns, but not floats.
    floats = replace(case, samples=[x.astype(np.float32) for x in case.samples])
    expected = pack_by_torch(floats if is_resized else case, sizes)({})
    np.testing.assert_allclose(batch, expected, atol=1e-3)
    return [*result, _rotating("torch", case, pack, spin_seconds=0.01)]


def _rotating(
    name: str, case: SampleCase, function: Callable[[Turn], Any], spin_seconds: float = 0.0
) -> Variant:
    turns = cycle(case.turns)
    return Variant(name, [lambda: function(next(turns))], spin_seconds)


def _collator(name: str, case: SampleCase, **options: Any) -> Variant:
    collator = layoutkit.Collator(case.pattern, **case.keywords, **options)
    out = collator(case.samples, **case.turns[0])
    if options:
        check_resized(case, out, **options)
    return _rotating(name, case, lambda turn: collator(case.samples, out=out, **turn))


def _limit(case: SampleCase, batch: Array) -> Call:
    """Return a pass over the number of bytes of the windows and the batch."""
    source = np.zeros(batch.size, case.samples[0].dtype)
    target = empty(batch.shape, batch.dtype)  # `empty` aligns it to a cache line
    return limit_pass([source], target, streaming_is_faster([source], target))


def stack_and_convert(case: SampleCase, turn: Turn) -> Array:
    """Slice with NumPy, stack, and convert once."""
    windows: list[Array] = []
    for pixels, is_flipped, (top, bottom, left, right) in case.parts(turn):
        window = pixels[:, ::-1] if is_flipped else pixels
        if "fill" in case.keywords:
            sides = (top, bottom), (right, left) if is_flipped else (left, right), (0, 0)
            window = np.pad(window, sides, constant_values=case.keywords["fill"])
        windows.append(window)
    formula = {name: value for name, value in case.keywords.items() if name in FORMULA}
    return layoutkit.convert(np.stack(windows), f"bhwc->{case.to}", **formula)


def check_resized(case: SampleCase, batch: Array, antialias: bool) -> None:
    """Raise AssertionError unless the first sample equals torch's, if torch is installed."""
    part = next(case.parts(case.turns[0]))
    try:
        planes = interpolate(case, part.pixels.astype(np.float32), antialias).numpy()
    except ImportError:
        return
    first = batch[0] if case.to == "bchw" else batch[0].transpose(2, 0, 1)
    top, bottom, left, right = part.borders
    first = first[:, top : case.size[0] - bottom, left : case.size[1] - right]
    if case.is_normalized:
        planes = (planes * SCALE - np.reshape(MEAN, (3, 1, 1))) / np.reshape(STD, (3, 1, 1))
    tolerance = 1e-3 if case.is_normalized else 0.51
    np.testing.assert_allclose(first, planes, atol=tolerance)


# ---- the table -----------------------------------------------------------------------------


class _Line(NamedTuple):
    """The times of a case, and the variants that a line compares."""

    case: SampleCase
    times: Mapping[str, Times]
    ours: str
    rivals: Sequence[str]

    @property
    def share(self) -> str | None:
        """The share of the limit, and the goal."""
        if LIMIT not in self.times:
            return None
        share = f"{paired_ratio(self.times[LIMIT], self.times[self.ours]):.2f}"
        if self.case.most_us is not None:
            return f"{share} ({self.case.most_us:.0f} us)"
        return share if self.case.at_least is None else f"{share} ({self.case.at_least:.2f})"

    @property
    def faster(self) -> str:
        """The multiples of layoutkit's time that the rivals need."""
        ours = self.times[self.ours]
        return "  " + ", ".join(
            f"{paired_ratio(self.times[name], ours):.1f} {name}" for name in self.rivals
        )


COLUMNS = (
    Column("p50 us", 10, lambda line: f"{line.times[line.ours].median * 1e6:.1f}"),
    Column("p99", 10, lambda line: f"{_p99(line.times[line.ours]) * 1e6:.1f}"),
    Column("of limit (goal)", 17, lambda line: line.share),
)


def _p99(times: Times) -> float:
    return percentile(times.rounds.values(), 99)


def run_samples(table: str, quick: bool) -> int:
    """Measure all lines and print them; return 1 if a batch of layoutkit is wrong."""
    printer = Table(74, COLUMNS)
    printer.write_line(describe_run(environment([], quick) | {"openmp": set_passive_wait_policy()}))
    printer.write_line("Medians; ratios are paired.")
    printer.write_line()
    printer.write_headings("samples -> batch; right: times faster than")
    exit_code = 0
    for case in collate_cases() if table == "collate" else resize_cases():
        try:
            candidates = variants(case)
        except AssertionError:
            printer.write_line(f"{case.name:<74}  WRONG")
            exit_code = 1
            continue
        for line in _lines(case, measure(candidates, QUICK if quick else FULL)):
            name = case.name if line.ours == OURS else "  without antialias"
            printer.write_row(name, line, line.faster)
    return exit_code


def _lines(case: SampleCase, times: Mapping[str, Times]) -> Iterator[_Line]:
    """Yield layoutkit compared with libraries that filter, and with libraries that do not."""
    rivals = [name for name in times if name not in (OURS, PLAIN, LIMIT)]
    if PLAIN not in times:
        yield _Line(case, times, OURS, rivals)
        return
    yield _Line(case, times, OURS, [name for name in rivals if name not in WITHOUT_ANTIALIAS])
    yield _Line(case, times, PLAIN, [name for name in rivals if name in WITHOUT_ANTIALIAS])
