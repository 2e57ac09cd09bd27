"""The rows of `make compare`: Python texts, as for timeit, that processes of both trees execute.

They use names that older trees have too. A row that the older tree cannot run is reported as new.
compare_worker.py defines `array`, `new_images`, `cycle` and `tree`; `lk` is layoutkit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from .rows import all_rows
from .sample_cases import FORMULA, SampleCase, collate_cases, resize_cases
from .sweeps import random_rows, sweep_rows

RANDOM_ROWS = 20
QUICK_STEP = 4  # `--quick` has every fourth row
CONVERT = (
    "x = array(shape, dtype); out = lk.convert(x, pattern, **keywords)",
    "lk.convert(x, pattern, out=out, **keywords)",
)
ACCUMULATE = (
    "arrays = [array(shape, dtype) for shape in shapes]; parts = list(zip(arrays, layouts)); "
    "out = lk.accumulate(parts, target)",
    "lk.accumulate(parts, target, out=out)",
)
COLLATE = (
    "samples = [array(shape, dtype) for shape in shapes] if shapes else array(shape, dtype); "
    "turns = cycle(turns); collator = lk.Collator(pattern, **keywords); "
    "out = collator(samples, **next(turns)); "
    "out = out[0] if isinstance(out, tuple) else out",  # the data of a packed batch
    "collator(samples, out=out, **next(turns))",
)
START = (
    "import subprocess; "
    "start = f'import sys; sys.path[0] = {tree!r}; import numpy as np, layoutkit as lk; '",
    "subprocess.run([sys.executable, '-c', start + first], check=True, capture_output=True)",
)
VALUES = {"tiny": (2, 4, 4, 3), "formula": FORMULA}
# Kind, title, setup, call; the names in VALUES are defined.
TEXTS = (
    ("small calls", "convert", "x = array(tiny, 'float32'); out = lk.convert(x, 'bhwc->bchw')",
     "lk.convert(x, 'bhwc->bchw', out=out)"),
    ("small calls", "convert, formula",
     "x = array(tiny, 'uint8'); out = lk.convert(x, 'bhwc->bchw', **formula)",
     "lk.convert(x, 'bhwc->bchw', out=out, **formula)"),
    ("small calls", "Converter",
     "x = array(tiny, 'float32'); convert = lk.Converter('bhwc->bchw'); out = convert(x)",
     "convert(x, out=out)"),
    ("small calls", "accumulate",
     "parts = [(array(tiny, 'float32'), 'bhwc')] * 2; out = lk.accumulate(parts, 'bhwc')",
     "lk.accumulate(parts, 'bhwc', out=out)"),
    ("small calls", "collate 8 images, resize",
     "x = [array((32, 32, 3), 'uint8')] * 8; out = None; "
     "collate = lk.Collator('hwc->bchw', h=24, w=24, resize='bilinear', **formula)",
     "collate(x)"),
    ("small calls", "View, cached get",
     "view = lk.ImageView('bhwc', array(tiny, 'float32'))", "view.forward_get('bchw')"),
    ("small calls", "View, put and get",
     "view = lk.ImageView(); x = array(tiny, 'float32')",
     "(view.forward_put('bhwc', x), view.forward_get('bchw'))"),
    ("small calls", "View, put, get and gradient",
     "view = lk.ImageView(); x = array(tiny, 'float32')",
     "(view.forward_put('bhwc', x), view.backward_put('bchw', view.forward_get('bchw')), "
     "view.backward_get('bhwc'))"),
    ("new shapes", "convert float32", "x = new_images(2, 'float32')",
     "lk.convert(next(x), 'bhwc->bchw')"),
    ("new shapes", "convert uint8, reversal", "x = new_images(2, 'uint8')",
     "lk.convert(next(x), 'bhwc->chwb')"),
    ("new shapes", "convert uint8, formula", "x = new_images(2, 'uint8')",
     "lk.convert(next(x), 'bhwc->bchw', **formula)"),
    ("new shapes", "collate",
     "x = new_images(4, 'uint8'); collate = lk.Collator('hwc->bchw', **formula)",
     "collate(list(next(x)))"),
    ("new shapes", "collate, resize",
     "x = new_images(4, 'uint8'); "
     "collate = lk.Collator('hwc->bchw', h=32, w=32, resize='bilinear', **formula)",
     "collate(list(next(x)))"),
    ("first call", "convert",
     f"{START[0]}; first = f\"lk.convert(np.ones({{tiny}}, 'f4'), 'bhwc->bchw')\"", START[1]),
    ("first call", "collate, resize, formula",
     f"{START[0]}; first = f\"lk.collate([np.ones((64, 64, 3), 'u1')] * 8, 'hwc->bchw', "
     "h=32, w=32, resize='bilinear', **{formula})\"", START[1]),
    ("loops", "sampled_batcher, rows of 64 floats",
     "from layoutkit.data import sampled_batcher; x = {'x': array((20_000, 64), 'float32')}; "
     "options = {'batch_size': 64, 'sampler': 'shuffle', 'num_workers': 0, 'layout': 'bf'}; "
     "batches = sampled_batcher(x, **options)",
     "[batch.input.forward_get('bf') for batch in batches]"),
    ("loops", "sampled_batcher, crops of images",
     "from layoutkit.data import sampled_batcher; x = array((2048, 64, 64, 3), 'uint8'); "
     "collate = lk.Collator('hwc->bchw', h=56, w=56, offset='random', flip='random', **formula); "
     "options = {'batch_size': 64, 'sampler': 'shuffle', 'num_workers': 0, 'collate': collate}; "
     "batches = sampled_batcher({'x': x}, **options)",
     "[batch.input.forward_get('bchw') for batch in batches]"),
    ("loops", "ArrayProvider, images of 28 x 28",
     "from layoutkit.data import ArrayProvider; import numpy as np; "
     "x = {'data': array((20_000, 28, 28, 1), 'uint8')}; y = {'label': np.arange(20_000)}; "
     "options = {'batch_size': 128, 'layout': {'data': 'bhwc'}, 'shuffle': True}; "
     "batches = ArrayProvider(x, y, **options)",
     "[batch.input.forward_get('bhwc') for batch in batches]"),
)  # fmt: skip


class ComparedRow(NamedTuple):
    """A row: text that is executed once, text that is timed, and the values of their names."""

    kind: str
    title: str
    setup: str
    call: str
    values: Mapping[str, Any]

    @property
    def name(self) -> str:
        """The unique name."""
        return f"{self.kind}: {self.title}"


def compared_rows(quick: bool = False) -> list[ComparedRow]:
    """Return all rows, or some of each kind. Kinds alternate, so that the first rows have all."""
    kinds: dict[str, list[ComparedRow]] = {}
    texts = (ComparedRow(*row, VALUES) for row in TEXTS)
    for row in chain(_conversions(), _batches(), texts):
        kinds.setdefault(row.kind, []).append(row)
    kept = [rows[:: QUICK_STEP if quick else 1] for rows in kinds.values()]
    ranked = [(place / len(rows), row) for rows in kept for place, row in enumerate(rows)]
    return [row for _, row in sorted(ranked, key=lambda item: item[0])]


def _conversions() -> Iterator[ComparedRow]:
    """Yield the main table, and rows of the sweeps."""
    sweeps = sweep_rows("channels", quick=True)[::7] + sweep_rows("runs", quick=True)[::3]
    for row in (*all_rows(), *random_rows(RANDOM_ROWS, seed=0), *sweeps):
        shapes = [row.shape(layout) for layout in row.sources]
        values: dict[str, Any] = {"dtype": row.dtype, "pattern": row.pattern}
        values["keywords"] = row.keywords
        if row.kind == "accumulate" and len(row.sources) < 8:
            values |= {"shapes": shapes, "layouts": row.sources, "target": row.target}
            yield ComparedRow("sums", row.name, *ACCUMULATE, values)
        elif row.kind in ("move", "fused"):
            yield ComparedRow(row.group, row.name, *CONVERT, values | {"shape": shapes[0]})


def _batches() -> Iterator[ComparedRow]:
    """Yield the tables `--collate` and `--resize`, with and without antialias, and label maps."""
    for case in collate_cases():
        yield _batch("collate", case)
    for case in resize_cases():
        yield _batch("resize", case)
        yield _batch("resize", case, antialias=False)
    for dtype, count, shape, size in (
        ("int64", 16, (500, 375), 224),
        ("uint8", 16, (500, 375), 224),
        ("float32", 16, (500, 375, 3), 224),
        ("int32", 1, (1080, 1920), 512),
        ("uint8", 1, (1080, 1920), 512),
        ("uint8", 1, (1080, 1920, 3), 512),
    ):
        samples = [np.empty(shape, dtype)] * count
        to = "bhwc"[: 1 + len(shape)]
        options = {"h": size, "w": size, "resize": "nearest"}
        yield _batch(
            "nearest", SampleCase(f"{count} x {shape} {dtype} -> {size}", to, samples, options)
        )


def _batch(kind: str, case: SampleCase, **options: Any) -> ComparedRow:
    is_list = isinstance(case.samples, list)
    values = {
        "pattern": case.pattern if case.samples[0].ndim == 3 else "hw->bhw",
        "shapes": [sample.shape for sample in case.samples] if is_list else [],
        "shape": () if is_list else case.samples.shape,
        "dtype": case.samples[0].dtype.name,
        "keywords": {**case.keywords, **options},
        "turns": case.turns,
    }
    title = f"{case.name}{', no antialias' if options else ''}"
    return ComparedRow(kind, title, *COLLATE, values)
