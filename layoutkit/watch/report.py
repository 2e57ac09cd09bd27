"""The copies that a program made because of layouts: grouped by place, with what replaces them."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

from .._utils.validation import escape_controls
from .naming import Conversion

MIN_BYTES = 1 << 16
_SHOWN_ERRORS = 10  # different reasons why operations were not recorded
_COLORS = ("#2f62b5", "#c8443c", "#2e7d4f", "#7a4fa3", "#8a6420", "#59636e")


class Place(NamedTuple):
    """A line of a program; `inside` is what it called: a library's function, torch's module."""

    path: str
    line: int
    function: str
    is_backward: bool = False
    inside: str = ""

    def relative_to(self, folder: Path | None) -> str:
        """Return the place as text, with a path relative to a folder that contains it."""
        path = Path(self.path)
        if folder is not None and path.is_relative_to(folder):
            path = path.relative_to(folder)
        note = " (backward)" if self.is_backward else f" (inside {self.inside})" * bool(self.inside)
        return f"{path}:{self.line} in {self.function}{note}"


@dataclass(frozen=True)
class Chain:
    """Casts and arithmetic from one tensor to another, which one conversion computes."""

    source: str  # dtype
    dtype: str
    arithmetic: frozenset[Place] = frozenset()
    casts: tuple[Copy, ...] = ()


@dataclass(eq=False)
class Copy:
    """One copy, or a cast before or after one."""

    kind: str
    conversion: Conversion
    chain: Chain
    place: Place
    nbytes: int  # read and written
    begin: float
    seconds: float
    moves: bool = True  # False for a cast
    is_reported: bool = True  # False for a cast until a copy for another layout follows
    function: str = "convert"
    out: bool = False  # True if an existing tensor is written
    # The sizes of the axes in their order in memory, before and after.
    sizes: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())

    def undoes(self, other: Copy) -> bool:
        """Return True if this copy restores the order of axes that `other` changed."""
        return (
            self.place != other.place
            and self.sizes == other.sizes[::-1]
            and self.conversion.undoes(other.conversion)
        )


@dataclass
class Row:
    """The copies of one kind at one line.

    path, line           of the place
    replacement          a call, or advice if `is_code` is False
    undone_by            the place of the copies that restore the order of these
    """

    place: str
    kind: str
    count: int
    nbytes: int
    seconds: float
    share: float
    replacement: str
    path: str
    line: int
    is_code: bool = True
    undone_by: str | None = None


class Report:
    """The copies that `layoutkit.torch.watch()` has recorded; `print` shows it.

    seconds : float    the time that was watched, from `begin` of `time.perf_counter`

    >>> print(Report())
    no copies because of layouts, of 64 KiB or more
    """

    def __init__(self, min_bytes: int = MIN_BYTES) -> None:
        self.copies: list[Copy] = []
        self.begin = time.perf_counter()
        self.seconds = 0.0
        self.errors: Counter[str] = Counter()
        self.workers: Counter[Place] = Counter()  # processes of DataLoaders, which are not seen
        self._min_bytes = min_bytes
        self._folder: Path | None
        try:
            self._folder = Path.cwd()
        except OSError:  # it was removed
            self._folder = None

    def close(self, copies: list[Copy], errors: Counter[str]) -> None:
        """Store the copies that were recorded until now, and what was not recorded."""
        self.seconds = time.perf_counter() - self.begin
        self.copies = copies
        self.errors = errors

    def _name(self, place: Place) -> str:
        return place.relative_to(self._folder)

    def _worker_lines(self) -> list[str]:
        """Return a line for each DataLoader whose worker processes were not watched."""
        return [
            f"not seen: the {count} worker {'process' if count == 1 else 'processes'} of the "
            f"DataLoader at {self._name(place)}; watch it with num_workers=0, too"
            for place, count in self.workers.items()
        ]

    def _note_lines(self) -> list[str]:
        return [*self._worker_lines(), *self._error_lines()]

    def _error_lines(self) -> list[str]:
        return [
            f"not recorded: {count} x {error}"
            for error, count in self.errors.most_common(_SHOWN_ERRORS)
        ]

    def rows(self) -> list[Row]:
        """Return the copies of each place, the slowest first."""
        groups: dict[Any, list[Copy]] = {}
        for copy in self.copies:
            key = copy.place, copy.kind, _suggest(copy)
            groups.setdefault(key, []).append(copy)
        undone = dict(self._pairs())
        rows = []
        for (place, kind, (replacement, is_code)), copies in groups.items():
            seconds = sum(copy.seconds for copy in copies)
            later = [undone[copy] for copy in copies if copy in undone]
            rows.append(
                Row(
                    place=self._name(place),
                    kind=kind,
                    count=len(copies),
                    nbytes=sum(copy.nbytes for copy in copies),
                    seconds=seconds,
                    share=seconds / self.seconds if self.seconds else 0.0,
                    replacement=replacement,
                    path=place.path,
                    line=place.line,
                    is_code=is_code,
                    undone_by=self._name(later[0].place) if later else None,
                )
            )
        return sorted(rows, key=lambda row: -row.seconds)

    def _pairs(self) -> Iterator[tuple[Copy, Copy]]:
        """Yield pairs of copies whose second restores the order of the first."""
        unpaired: dict[Any, list[Copy]] = {}  # by their sizes
        for copy in self.copies:
            if copy.moves:
                candidates = unpaired.get(copy.sizes[::-1])
                if candidates and copy.undoes(candidates[-1]):
                    yield candidates.pop(), copy
                else:
                    unpaired.setdefault(copy.sizes, []).append(copy)

    def __str__(self) -> str:
        rows = self.rows()
        if not rows:
            none = f"no copies because of layouts, of {self._min_bytes >> 10} KiB or more"
            return "\n".join([none, *map(escape_controls, self._note_lines())])
        total = sum(row.seconds for row in rows)
        count = sum(row.count for row in rows)
        lines = [
            f"{count} {'copy' if count == 1 else 'copies'} because of layouts: "
            f"{_megabytes(rows)} MB and {total * 1e3:.1f} ms of {self.seconds * 1e3:.1f} ms, "
            f"{_percent(total / max(self.seconds, 1e-12))}"
        ]
        for row in rows:
            lines += [
                "",
                escape_controls(row.place),
                f"  {row.kind}: {row.count} x, {_megabytes([row])} MB, {row.seconds * 1e3:.1f} ms, "
                f"{_percent(row.share)}",
                f"  {'replace by' if row.is_code else 'instead   '}  {row.replacement}",
            ]
            if row.undone_by:
                place = escape_controls(row.undone_by)
                lines.append(f"  undone by   {place}; keep one layout between the two")
        notes = self._note_lines()
        lines += ["", *map(escape_controls, notes)] if notes else []
        return "\n".join(lines)

    __repr__ = __str__

    def to_json(self) -> str:
        """Return the rows as JSON."""
        rows = [asdict(row) for row in self.rows()]
        notes = {"not_seen": self._worker_lines(), "errors": self._error_lines()}
        return json.dumps({"seconds": self.seconds, "copies": rows, **notes}, indent=2)

    def to_html(self) -> str:
        """Return a page with the table and a timeline."""
        rows = self.rows()
        colors = {
            (row.place, row.kind): _COLORS[min(number, len(_COLORS) - 1)]
            for number, row in enumerate(rows)
        }
        table = "".join(self._table_row(row, colors[row.place, row.kind]) for row in rows)
        heads = "".join(
            f"<th{_NUMBER * (name in _NUMBERS)}>{name}</th>"
            for name in ("where", "copy", *_NUMBERS, "replace by")
        )
        return _PAGE.format(
            summary="<br>".join(map(escape, [str(self).partition("\n")[0], *self._note_lines()])),
            timeline=self._timeline(colors),
            heads=heads,
            rows=table,
            total=self._total_row(rows),
        )

    def _table_row(self, row: Row, color: str) -> str:
        place = escape(row.place)
        folder = self._folder
        if folder is not None:
            uri = (folder / row.path).as_uri()
            place = f'<a href="{escape(uri)}#L{row.line}">{place}</a>'
        call, *rest = escape(row.replacement).partition(_ARITHMETIC)
        text = "".join([f"<code>{call}</code>" if row.is_code else call, *rest])
        text += f"<br>undone by {escape(row.undone_by)}" if row.undone_by else ""
        return (
            f"<tr><td><span style='color:{color}'>&#9632;</span> {place}</td>"
            f"<td>{escape(row.kind)}</td>{_number_cells([row])}<td>{text}</td></tr>"
        )

    @staticmethod
    def _total_row(rows: list[Row]) -> str:
        """Return the last row: what a program without these copies saves."""
        return f"<tr><td>all</td><td></td>{_number_cells(rows)}<td>saved without them</td></tr>"

    def _timeline(self, colors: dict[tuple[str, str], str]) -> str:
        """Return an SVG of the copies over time."""
        scale = 1000 / max(self.seconds, 1e-9)
        bars = ""
        for copy in self.copies:
            place = self._name(copy.place)
            bars += (
                f'<rect x="{(copy.begin - self.begin) * scale:.2f}" y="0" height="40" '
                f'width="{max(copy.seconds * scale, 0.5):.2f}" fill="{colors[place, copy.kind]}">'
                f"<title>{escape(place)}: {copy.seconds * 1e3:.2f} ms</title></rect>"
            )
        return (
            '<svg viewBox="0 0 1000 60" width="100%" role="img" aria-label="copies over time">'
            f'<rect width="1000" height="40" fill="#8884"/>{bars}'
            f'<text y="56" font-size="12" fill="currentColor">0</text>'
            f'<text x="1000" y="56" font-size="12" fill="currentColor" text-anchor="end">'
            f"{self.seconds * 1e3:.0f} ms</text></svg>"
        )


_ARITHMETIC = ", with scale=, mean= and std= for the arithmetic"
_NUMBERS = ("count", "MB", "ms", "share")
_NUMBER = " class=number"

_PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>Copies because of layouts</title><style>
:root {{ color-scheme: light dark }}
body {{ font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 70rem;
  padding: 0 1rem }}
table {{ border-collapse: collapse; width: 100% }}
th, td {{ text-align: left; vertical-align: top; padding: .4rem .6rem;
  border-bottom: 1px solid #8886 }}
.number {{ text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums }}
tfoot {{ font-weight: bold }}
</style></head><body><h1>Copies because of layouts</h1><p>{summary}</p>{timeline}
<table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody><tfoot>{total}</tfoot></table></body></html>
"""


def _number_cells(rows: list[Row]) -> str:
    """Return the cells of the columns _NUMBERS, for the sum of rows."""
    milliseconds = sum(row.seconds for row in rows) * 1e3
    values = (
        str(sum(row.count for row in rows)),
        _megabytes(rows),
        f"{milliseconds:.1f}",
        _percent(sum(row.share for row in rows)),
    )
    return "".join(f"<td{_NUMBER}>{value}</td>" for value in values)


def _suggest(copy: Copy) -> tuple[str, bool]:
    """Return what replaces a copy, and whether it is code, rather than advice."""
    if not copy.moves:
        return "omit it: the conversion of this tensor casts in the same pass (dtype=)", False
    if copy.place.is_backward:
        advice = "keep one layout in the forward pass; for convolutions, call "
        return advice + "model.to(memory_format=torch.channels_last)", False
    return _replacement(copy), True


def _replacement(copy: Copy) -> str:
    """Return the call that replaces a copy, and all passes of its chain."""
    words = [f'"{copy.conversion.pattern}"']
    words += [f"{axis}={size}" for axis, size in copy.conversion.sizes]
    if copy.conversion.memory is not None:
        words.append(f'memory="{copy.conversion.memory}"')
    if copy.chain.source != copy.chain.dtype:
        words.append(f'dtype="{copy.chain.dtype}"')
    words += ["out=..."] * copy.out
    argument = "samples" if copy.function == "collate" else "x"
    text = f"layoutkit.{copy.function}({argument}, {', '.join(words)})"
    if copy.chain.arithmetic:
        lines = ", ".join(str(line) for line in sorted({p.line for p in copy.chain.arithmetic}))
        plural = "s" * ("," in lines)
        text += f"{_ARITHMETIC} of line{plural} {lines}"
    return text


def _megabytes(rows: list[Row]) -> str:
    return f"{sum(row.nbytes for row in rows) / 1e6:,.1f}"


def _percent(share: float) -> str:
    return f"{share * 100:.1f} %"
