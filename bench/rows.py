"""The rows of the benchmark table, and the share of the limit that each must reach.

The twelve pairs are all ordered pairs of the standard layouts: six of `bhwc`, `bchw` and `chwb` for
images, six of `bwc`, `bcw` and `cwb` for sequences of shape (256, 512, 64). Each of three dtypes
represents all dtypes of its item size, because a pure move does not interpret values.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import cycle, islice, permutations
from math import prod
from typing import Any

from ..spec import as_dtype

IMAGE_LAYOUTS = ("bhwc", "bchw", "chwb")
SEQUENCE_LAYOUTS = ("bwc", "bcw", "cwb")
IMAGE_SIZES = ((64, 224, 224, 3), (64, 56, 56, 64), (128, 32, 32, 3))
SEQUENCE_SIZES = (256, 512, 64)
DTYPES = ("uint8", "int16", "float32")  # items of 1, 2 and 4 bytes
SCALE = 1 / 255
MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)
GRADIENTS = ("bchw", "chwb", "bhwc", "bchw", "chwb", "bhwc", "bchw", "chwb")
REVERSALS = {frozenset(("bhwc", "chwb")), frozenset(("bwc", "cwb"))}


@dataclass(frozen=True)
class Row:
    """One line of the table: a conversion of arrays of one shape.

    `sources` has the layout of each source; only a sum of gradients has several. `sizes` has the
    size of each axis in `letters`. `at_least` is the goal, as a share of the limit. `options` are
    other keywords of the call, such as window sizes.
    """

    group: str
    # "move", "fused", "accumulate" or "call"; with a GPU "upload", "download", "options" (of
    # `convert`) and "collate" too.
    kind: str
    sources: tuple[str, ...]
    target: str
    letters: str
    sizes: tuple[int, ...]
    dtype: str
    to_dtype: str
    at_least: float | None = None
    options: tuple[tuple[str, Any], ...] = ()

    @property
    def pattern(self) -> str:
        """The pattern as for `convert`, with plus signs between several sources."""
        counts = {source: self.sources.count(source) for source in self.sources}
        if len(self.sources) > 4:  # layouts in the order of their first appearance
            return f"{'+'.join(f'{n} {layout}' for layout, n in counts.items())}->{self.target}"
        return f"{'+'.join(self.sources)}->{self.target}"

    @property
    def name(self) -> str:
        """The unique name: pattern, dtypes and sizes."""
        dtypes = self.dtype if self.dtype == self.to_dtype else f"{self.dtype}->{self.to_dtype}"
        options = "".join(f", {name}={value}" for name, value in self.options)
        return f"{self.pattern} {dtypes} ({', '.join(map(str, self.sizes))}){options}"

    def shape(self, layout: str) -> tuple[int, ...]:
        """Return the shape of an array in this layout."""
        return tuple(self.sizes[self.letters.index(letter)] for letter in layout)

    @property
    def result_shape(self) -> tuple[int, ...]:
        options = dict(self.options)
        sizes = dict(zip(self.letters, self.sizes, strict=True)) | dict(options.get("pad_to", ()))
        sizes |= {name: size for name, size in options.items() if name in sizes}
        if "channels" in options:
            sizes["c"] = len(options["channels"])
        return tuple(sizes[letter] for letter in self.target)

    def order(self, source: str) -> tuple[int, ...]:
        """Return the axes for `numpy.transpose` from a source's layout to the target's."""
        return tuple(source.index(letter) for letter in self.target)

    @property
    def bytes_read(self) -> int:
        """The number of bytes that are read: of all sources, or of windows that are cropped."""
        if self.kind == "collate" and "resize" not in dict(self.options):
            return prod(self.result_shape) * as_dtype(self.dtype).itemsize
        return len(self.sources) * prod(self.sizes) * as_dtype(self.dtype).itemsize

    @property
    def bytes_written(self) -> int:
        """The number of bytes of the result."""
        return prod(self.result_shape) * as_dtype(self.to_dtype).itemsize

    @property
    def traffic(self) -> int:
        """The bytes that the limit moves: read and written, or transferred to or from a GPU."""
        transfers = {"upload": self.bytes_read, "download": self.bytes_written}
        return transfers.get(self.kind, self.bytes_read + self.bytes_written)

    @property
    def formula(self) -> dict[str, Any]:
        """The keywords of the formula, for any number of channels; {} for a row without one."""
        if (
            self.kind not in ("fused", "upload", "collate", "options")
            or self.dtype == self.to_dtype
        ):
            return {}
        (channels,) = (
            n for name, n in zip(self.target, self.result_shape, strict=True) if name == "c"
        )
        mean, std = ([*islice(cycle(values), channels)] for values in (MEAN, STD))
        return {"scale": SCALE, "mean": mean, "std": std}

    @property
    def keywords(self) -> dict[str, Any]:
        """The keywords of the call of layoutkit."""
        dtype = {"dtype": self.to_dtype} if self.dtype != self.to_dtype else {}
        options = {name: dict(v) if name == "pad_to" else v for name, v in self.options}
        return self.formula | dtype | options

    @property
    def is_exact(self) -> bool:
        """True for a pure move, whose results must be equal bit for bit."""
        return self.kind != "accumulate" and not self.formula


def all_rows(quick: bool = False) -> list[Row]:
    """Return all rows, in the order of the table. `quick` keeps some rows of each group."""
    rows = [*_pairs(), *_fused(), *_accumulate(), *_hostile(), *_calls()]
    return [row for row in rows if not quick or _in_quick(row)]


def _in_quick(row: Row) -> bool:
    if row.group == "pairs":
        large = row.sizes in (IMAGE_SIZES[1], SEQUENCE_SIZES) and row.dtype == "float32"
        small = row.sizes == IMAGE_SIZES[2] and row.dtype == "uint8"
        return large or (small and row.sources[0] == "bhwc")
    if row.group == "accumulate":
        return row.at_least is not None
    return row.group != "hostile" or row.letters == "hw"


def _pairs() -> Iterator[Row]:
    shapes = [(IMAGE_LAYOUTS, "bhwc", sizes) for sizes in IMAGE_SIZES]
    for layouts, letters, sizes in [*shapes, (SEQUENCE_LAYOUTS, "bwc", SEQUENCE_SIZES)]:
        for dtype in reversed(DTYPES):
            for source, target in permutations(layouts, 2):
                goal = _at_least(source, target, sizes[-1], dtype)
                yield Row("pairs", "move", (source,), target, letters, sizes, dtype, dtype, goal)


def _at_least(source: str, target: str, channels: int, dtype: str) -> float:
    """Return the share of the limit that a pure move must reach."""
    if as_dtype(dtype).itemsize < 4:
        return 0.45
    if channels <= 4:
        return 0.55
    return 0.60 if frozenset((source, target)) in REVERSALS else 0.85


def _fused() -> Iterator[Row]:
    for sizes in (IMAGE_SIZES[0], IMAGE_SIZES[2]):
        for to_dtype, large_goal in (("float32", 0.85), ("bfloat16", 0.60)):
            # The small size measures latency, not bandwidth, so it has no goal.
            goal = large_goal if sizes == IMAGE_SIZES[0] else None
            yield Row("fused", "fused", ("bhwc",), "bchw", "bhwc", sizes, "uint8", to_dtype, goal)


def _accumulate() -> Iterator[Row]:
    """Yield sums of 2, 4 and 8 gradients, in one layout or in several."""
    sizes = IMAGE_SIZES[1]
    for dtype in ("float32", "bfloat16"):
        for count in (2, 4, 8):
            for sources in (("bchw",) * count, GRADIENTS[:count]):
                goal = 0.60 if (dtype, sources) == ("float32", GRADIENTS[:4]) else None
                layouts = sources, "bhwc", "bhwc"
                yield Row("accumulate", "accumulate", *layouts, sizes, dtype, dtype, goal)


def _hostile() -> Iterator[Row]:
    """Yield difficult shapes: powers of two, odd sizes, batches of 1 and 255, odd channels."""
    image_moves = ("bhwc", "bchw"), ("bchw", "bhwc"), ("bhwc", "chwb")
    shapes: list[tuple[str, str, str, tuple[int, ...], str]] = [
        ("hw", "wh", "hw", (4096, 4096), "float32"),
        ("hw", "wh", "hw", (4096, 4096), "uint8"),
        ("bwc", "bcw", "bwc", (16, 1024, 1024), "float32"),  # strides of 4 KiB in source and result
        ("bwc", "cwb", "bwc", (1024, 16, 1024), "float32"),
        ("bhwc", "bchw", "bhwc", (64, 55, 57, 64), "float32"),
        ("bhwc", "bchw", "bhwc", (64, 223, 225, 3), "uint8"),
        ("bhwc", "bchw", "bhwc", (1, 512, 512, 64), "float32"),
        ("bhwc", "chwb", "bhwc", (255, 32, 32, 64), "float32"),
    ]
    for channels in (5, 17):
        shapes += [(*pair, "bhwc", (64, 112, 112, channels), "float32") for pair in image_moves]
    for source, target, letters, sizes, dtype in shapes:
        yield Row("hostile", "move", (source,), target, letters, sizes, dtype, dtype)


def _calls() -> Iterator[Row]:
    sizes = (2, 4, 4, 3)
    yield Row("call cost", "call", ("bhwc",), "bchw", "bhwc", sizes, "float32", "float32")
