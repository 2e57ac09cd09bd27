"""Two calls for every keyword of every public function, class and method: without it, and with it.

`TABLE` has a row for each keyword of a signature: a legal value that is not the default, and the
other keywords of both calls. `tests/project/test_keywords.py` compares the outcomes. A new keyword
needs a row here: `rows["name"] = Case(value, other=...)`.
"""

import atexit
import inspect
import io
import logging
import os
import shutil
import tempfile
import threading
import time
from contextlib import contextmanager, redirect_stderr, suppress
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

import layoutkit.keras
import layoutkit.sklearn
import layoutkit.torch
from layoutkit import Collator, Converter, data, images
from layoutkit.data import recordio
from layoutkit.threads.pool import Job

from .loopback import Site, serving
from .photographs import encoded, make_profiles
from .record_files import image, tar, write_rec

PIXELS = np.random.default_rng(0).integers(0, 256, (6, 9, 11, 3), dtype=np.uint8)
FLOATS = PIXELS.astype(np.float32)
LABELS = np.array([2, 0, 1, 1, 0, 2])
NAMES = ["cat", "dog", "cat", "dog", "cat", "cow"]
PHOTOS = [PIXELS[0], np.vstack([PIXELS[1], PIXELS[2]])]
FOLDED = PIXELS.reshape(6, 99, 3)
ANY = object()  # as the value of a case: the keyword is left out of the first call only


class Case(NamedTuple):
    """The value of a keyword, and the other keywords of both calls.

    refused     True: the value is an error here, such as a GPU that does not exist
    instead     the value of the first call, if the keyword has no default
    """

    value: Any
    others: dict[str, Any]
    refused: bool = False
    instead: Any = ANY


def case(value, *, refused=False, instead=ANY, **others):
    return Case(value, others, refused, instead)


class Calls(NamedTuple):
    """A call that takes keywords and returns an outcome, and the rows of its keywords."""

    call: Any
    rows: dict[str, Case]


TABLE: dict[str, Calls] = {}
# Keywords that do nothing, because a protocol passes them.
IGNORED = {
    "sklearn.Convert.fit: y": "scikit-learn passes the targets to every estimator",
    "sklearn.Collate.fit: y": "scikit-learn passes the targets to every estimator",
    "sklearn.Collate.get_feature_names_out: input_features": "names of images are no names of rows",
    "data.Batch.to: non_blocking": "only copies to a GPU can be non-blocking",
    "data.Sampler.order: marks": "the state of an order; its tests are in tests/data/samplers",
}


def keywords_of(function):
    """Return the names of the optional and keyword-only parameters; `**name` for others."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:  # a class of C
        return []
    names = []
    for parameter in parameters:
        if parameter.kind is parameter.VAR_KEYWORD:
            # Parameters that exist for an error only.
            names += [] if str(parameter.annotation) == "Never" else [f"**{parameter.name}"]
        elif parameter.default is not parameter.empty or parameter.kind is parameter.KEYWORD_ONLY:
            names.append(parameter.name)
    return names


def shown(value):
    """Return what a caller can see of a result, as a value that can be compared."""
    if isinstance(value, layoutkit.DataView):
        value = [str(value.layout), value.forward_get()]
    if hasattr(value, "detach"):
        value = value.detach().numpy()
    if isinstance(value, np.ndarray) and value.dtype.kind != "O":
        return value.dtype.str, value.shape, value.strides, value.tobytes()
    if isinstance(value, dict):
        return {key: shown(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [shown(item) for item in value]
    return value if isinstance(value, str | bytes | int | float | None) else repr(value)


@contextmanager
def recorded_threads():
    """Yield the set of the numbers of threads of all jobs."""
    run, numbers = Job.run, set()
    Job.run = lambda job, *addresses: (numbers.add(job.threads), run(job, *addresses))[1]
    try:
        yield numbers
    finally:
        Job.run = run


def outcome(name, keywords):
    """Return the outcome of a call of the table, and the exception if it raised one."""
    with recorded_threads() as numbers:
        try:
            return [shown(TABLE[name].call(**keywords)), sorted(map(str, numbers))], None
        except (layoutkit.LayoutkitError, TypeError, ValueError) as error:
            return [type(error).__name__, str(error)], error


def table(name, call, /, **rows):
    """Add a call to the table; a row `sizes` describes `**sizes`."""
    parameters = keywords_of(_named(name))
    TABLE[name] = Calls(
        call, {f"**{n}" if f"**{n}" in parameters else n: c for n, c in rows.items()}
    )


def _named(name):
    target = layoutkit
    for part in name.split("."):
        target = getattr(target, part)
    return target


# ---- conversions and batches -----------------------------------------------------------------

FORMULA = {
    "dtype": case("float32"),
    "scale": case(0.5),
    "mean": case(3.0),
    "std": case((1.0, 2.0, 4.0)),
    "clip": case((3, 200)),
}
CASTING = {"casting": case("saturate", dtype="uint8", scale=300.0)}
GPU = {"device": case("cuda:99", refused=True)}
PADDED = {
    "pad_to": case({"h": 13}),
    "pad_before": case({"h": 1}, pad_to={"h": 13}),
    "fill": case(7, pad_to={"h": 13}),
    "center": case("floor", pad_to={"h": 12}),
}
CONVERSION = {
    **FORMULA,
    **CASTING,
    **GPU,
    **PADDED,
    "copy": case(True, pattern="bhwc->bhwc"),
    "memory": case("bhwc"),
    "threads": case(1),
    "channels": case((2, 1, 0)),
}
SIZES = {"sizes": case({"h": 9}, x=FOLDED, pattern="b(hw)c->bhwc")}


def _convert(x=PIXELS, pattern="bhwc->bchw", sizes=None, **keywords):
    result = layoutkit.convert(x, pattern, **keywords, **(sizes or {}))
    return [result, result is x, result is keywords.get("out")]


def _converter(x=PIXELS, pattern="bhwc->bchw", sizes=None, **keywords):
    result = Converter(pattern, **keywords, **(sizes or {}))(x)
    return [result, result is x]


OUT = np.zeros((6, 3, 9, 11), np.uint8)
table("convert", _convert, **CONVERSION, **SIZES, out=case(OUT))
table("Converter", _converter, **CONVERSION, **SIZES)
table(
    "Converter.__call__",
    lambda out=None: Converter("bhwc->bchw")(PIXELS, out) is out,
    out=case(OUT),
)
GRADIENT = np.ones((6, 3, 9, 11), np.float32)
table(
    "Converter.backward",
    lambda out=None, like=None: (
        y := Converter("bhwc->bchw").backward(GRADIENT, like=like, out=out),
        y is out,
    ),
    like=case(FLOATS.astype(np.float64)),
    out=case(np.zeros_like(FLOATS)),
)
table(
    "Converter.inverse",
    lambda **k: Converter("bhwc->bchw", scale=1 / 255).inverse(**k)(GRADIENT),
    dtype=case("uint8"),
)
table(
    "plan",
    lambda from_dtype="float32", keywords=None, **k: str(
        layoutkit.plan("bhwc->bchw", (2, 4, 5, 3), from_dtype, **k, **(keywords or {}))
    ),
    from_dtype=case("uint8"),
    dtype=case("float64"),
    device=case("cuda:0"),
    keywords=case({"memory": "bhwc"}),
)
table(
    "warmup",
    lambda pattern="bhwc->bchw", shape=(2, 4, 5, 3), keywords=None, **k: layoutkit.warmup(
        pattern, shape, **k, **(keywords or {})
    ),
    pattern=case("bhwc->bhwc", dtype="float32", from_dtype="uint8"),
    shape=case((2, 4, 5, 16)),
    from_dtype=case("uint8"),
    **GPU,
    keywords=case({"dtype": "float64"}),
)
table(
    "accumulate",
    lambda layout="bhwc", sizes=None, out=None, **k: (
        y := layoutkit.accumulate(
            [(FLOATS.reshape(6, 99, 3), "b(hw)c")], layout, out=out, **k, **(sizes or {"h": 9})
        ),
        y is out,
    ),
    dtype=case("float64"),
    out=case(np.zeros_like(FLOATS)),
    sizes=case({"h": 11}),
)
table(
    "ArraySpec",
    lambda **k: str(layoutkit.ArraySpec("bhwc", (2, 4, 5, 3), "uint8", **k)),
    device=case("cuda:0"),
)

RESIZED = {"resize": "bilinear"}
PACKED = {"pattern": "(hp)(wq)c->(bhw)(cpq)", "sizes": {"p": 1, "q": 1}, **RESIZED}
IGNORED_PIXEL = int(PHOTOS[0].flat[0])
BATCH = {
    **FORMULA,
    **CASTING,
    **GPU,
    "offset": case({"h": 0}),
    "flip": case("w"),
    "crop": case({"h": 3}, **RESIZED),
    "fill": case(7, sizes={"h": 30, "w": 5}),
    "channels": case((2, 1, 0)),
    "resize": case("nearest"),
    "antialias": case(False, **RESIZED),
    "ignore": case(IGNORED_PIXEL, **RESIZED),
    "fit": case("cover", **RESIZED),
    "short_side": case(7, **RESIZED),
    "max_side": case(9, short_side=7, **RESIZED),
    "size": case((4, 6), **PACKED),
    "multiple": case(5, **PACKED),
    "min_pixels": case(400, multiple=5, **PACKED),
    "max_pixels": case(60, multiple=5, **PACKED),
    "pad_before": case({"w": 0}, fit="pad", sizes={"h": 4, "w": 9}, **RESIZED),
    "center": case("floor", sizes={"h": 6, "w": 5}),
    "lengths": case(True, sizes={"h": "longest", "w": 5}),
    "memory": case("bhwc"),
    "threads": case(1),
    "sizes": case({"h": 3, "w": 5}),
}
SEVERAL = [{"a": x, "b": x[::-1]} for x in PIXELS[:2]]
DRAWN = {"offset": "random", "positions": [0, 1]}
COLLATOR = {
    **BATCH,
    "seed": case(1, **DRAWN),
    "key": case("b", samples=SEVERAL),
}


def _collate(samples=PHOTOS, pattern="hwc->bchw", sizes=None, **keywords):
    result = layoutkit.collate(samples, pattern, **keywords, **(sizes or {"h": 4, "w": 5}))
    return [result, result is keywords.get("out")]


def _collator(cls, samples=PHOTOS, pattern="hwc->bchw", sizes=None, positions=None, **keywords):
    return cls(pattern, **keywords, **(sizes or {"h": 4, "w": 5}))(samples, positions=positions)


ROWS = {"samples": PIXELS, "pattern": "bhwc->bchw"}
FLIPPED = Collator("hwc->bchw", h=4, w=5).place(PHOTOS, flip="w")
table(
    "collate",
    _collate,
    **BATCH,
    indices=case([3], **ROWS),
    placements=case(FLIPPED),
    out=case(np.zeros((2, 3, 4, 5), np.uint8)),
)
table("Collator", lambda **k: _collator(Collator, **k), **COLLATOR)


def _called(samples=PHOTOS, pattern="hwc->bchw", sizes=None, options=None, **keywords):
    sizes = sizes or {"h": 4, "w": 5}
    result = Collator(pattern, **sizes, **(options or {}))(samples, **keywords)
    return [result, result is keywords.get("out")]


RANDOM = {"options": {"offset": "random"}}
table(
    "Collator.__call__",
    _called,
    indices=case([3], **ROWS),
    offset=case({"h": 0}),
    flip=case("w"),
    crop=case({"h": 3}, options=RESIZED),
    size=case((4, 6), pattern=PACKED["pattern"], sizes=PACKED["sizes"], options=RESIZED),
    placements=case(FLIPPED),
    out=case(np.zeros((2, 3, 4, 5), np.uint8)),
    positions=case([5, 6], **RANDOM),
    epoch=case(3, positions=[5, 6], **RANDOM),
)
table(
    "Collator.plan",
    lambda samples=PHOTOS, pattern="hwc->bchw", options=None, **k: str(
        Collator(pattern, h=4, w=5, **(options or {})).plan(samples, **k)
    ),
    indices=case([3], **ROWS),
    offset=case({"h": 30}, refused=True),  # of a plan, only errors depend on it
    flip=case({"w": [True, False]}),
    crop=case({"h": 30}, options=RESIZED, refused=True),
    placements=case(FLIPPED),
)
table(
    "Collator.place",
    lambda samples=PHOTOS, pattern="hwc->bchw", sizes=None, options=None, **k: Collator(
        pattern, **(sizes or {"h": 4, "w": 5}), **(options or {})
    ).place(samples, **k),
    indices=case([3], **ROWS),
    offset=case({"h": 0}),
    flip=case("w"),
    crop=case({"h": 3}, options=RESIZED),
    size=case((4, 6), pattern=PACKED["pattern"], sizes=PACKED["sizes"], options=RESIZED),
    positions=case([5, 6], **RANDOM),
    epoch=case(3, positions=[5, 6], **RANDOM),
)
table(
    "Collator.warmup",
    lambda **k: Collator("hwc->bchw", h=4, w=5, **RESIZED).warmup([(9, 8, 3)] * 2, **k),
    dtype=case("complex64", refused=True),  # kernels are listed by the first call of a process
)
BOX = [[-1, 2, 3, 4]]  # a part of it is outside
table(
    "Placement.fit_boxes",
    lambda **k: Collator("hw->bhw", h=9, w=9).place([(9, 9)])[0].fit_boxes(BOX, **k),
    clip=case(False),
    min_size=case(4),
    min_visible=case(0.9),
)
table(
    "columns",
    lambda ways=None: layoutkit.columns(**(ways or {"x": Converter("bhwc->bchw")}))(
        {"x": PIXELS, "y": PIXELS}
    ),
    ways=case({"y": Converter("bhwc->bchw")}),
)
table("Columns", TABLE["columns"].call, ways=case({"y": Converter("bhwc->bchw")}))

# ---- views -----------------------------------------------------------------------------------

VIEW = {"layout": case("bchw", array=PIXELS, instead="bhwc"), "array": case(PIXELS, layout="bhwc")}


def _view(cls, **keywords):
    view = cls(**keywords)
    return None if view.is_empty else [view.layout, view.forward_get()]


table("DataView", lambda **k: _view(layoutkit.DataView, **k), **VIEW)
table("ImageView", lambda **k: _view(layoutkit.ImageView, **k), **VIEW)
TEXTS = {
    "layout": case("tb", array=LABELS.reshape(3, 2), instead="bt"),
    "array": case(LABELS.reshape(3, 2), layout="bt"),
}


def _labels(cls, **keywords):
    view = cls(**keywords)
    return None if view.is_empty else [view.forward_get("bt"), view.one_hot()]


table(
    "ClassView",
    lambda **k: _labels(layoutkit.ClassView, **{"classes": 5, **k}),
    **TEXTS,
    classes=case(7, layout="bt", array=LABELS.reshape(3, 2)),
)


def _sequence(**keywords):
    view = layoutkit.SequenceView(**keywords)
    return None if view.is_empty else [view.layout, view.bwc()(view.input), view.max_labels]


CODES, STEPS = LABELS.reshape(3, 2), FLOATS[:, 0]
table(
    "SequenceView",
    _sequence,
    layout=case("bcw", array=STEPS, instead="bwc"),
    array=case(STEPS, layout="bwc"),
    max_labels=case(9, layout="bwc", array=STEPS),
)
GET = {"layout": case("bchw"), "dtype": case("float64"), **GPU}
FORMULA_OF_GET = {name: FORMULA[name] for name in ("scale", "mean", "std", "clip")}


def _new_view():
    return layoutkit.DataView("bhwc", FLOATS)


def _list_view(**k):
    return layoutkit.ListView([_new_view(), layoutkit.DataView("bf", FLOATS[:, 0, 0])])


table(
    "DataView.forward_get",
    lambda **k: _new_view().forward_get(**k),
    **GET,
    **FORMULA_OF_GET,
    memory=case("bchw"),
)
table(
    "ListView.forward_get",
    lambda formula=None, **k: _list_view().forward_get(**k, **(formula or {})),
    layout=case(("bchw", None)),
    dtype=case("float64"),
    **GPU,
    formula=case({"scale": 2.0}, refused=True),
)


def _gradient(first=None, second=None, **keywords):
    """Return the gradient of two results of one layout and dtype; keywords select one."""
    view = _new_view()
    for options in (
        {"scale": 2.0},
        {"scale": 2.0, "mean": 1.0},
        {"scale": 2.0, "std": 4.0},
        {"scale": 2.0, "clip": (0, 9)},
        {"scale": 3.0},
    ):
        view.forward_get("bchw", **options)
    view.backward_put("bchw", GRADIENT, **keywords)
    return view.backward_get()


table(
    "DataView.backward_put",
    _gradient,
    scale=case(3.0, instead=2.0),
    mean=case(1.0, scale=2.0, instead=5.0),  # a formula of no result is an error
    std=case(4.0, scale=2.0),
    clip=case((0, 9), scale=2.0),
)


def _sum(view, layouts, grads, **keywords):
    view.forward_get(layouts)
    view.backward_put(layouts, grads)
    return view.backward_get(**keywords)


SUM = {"dtype": case("float64"), "layout": case("bchw", refused=True)}  # only the base's is allowed
table("DataView.backward_get", lambda **k: _sum(_new_view(), "bchw", GRADIENT, **k), **SUM)
table(
    "ListView.backward_get",
    lambda **k: _sum(_list_view(), ("bchw", "bf"), (GRADIENT, FLOATS[:, 0, 0]), **k),
    **SUM,
)


def _selected(view, method, *arguments, out=False, **keywords):
    target = view() if out is True else None
    found = getattr(view(), method)(*arguments, out=target, **keywords)
    return [found.input, found is target]


def _window(view, copy=True):
    """Return True if a part of a view shares the memory of the view."""
    view = view()
    part = view.sub(0, 2, copy=copy)
    pairs = zip(_arrays_of_view(part), _arrays_of_view(view), strict=True)
    return [np.shares_memory(*pair) for pair in pairs]


def _arrays_of_view(view):
    return view.input if isinstance(view.input, tuple) else (view.input,)


for _name, _make in (("DataView", _new_view), ("ListView", _list_view)):
    table(
        f"{_name}.index",
        lambda make=_make, **k: _selected(make, "index", [1, 0], **k),
        out=case(True),
    )
    table(
        f"{_name}.sub",
        lambda make=_make, out=False, copy=True: (
            _selected(make, "sub", 0, 2, out=out, copy=copy),
            _window(make, copy),
        ),
        out=case(True),
        copy=case(False),
    )
    table(
        f"{_name}.converter",
        lambda make=_make, **k: repr(
            make().converter(
                ("bchw", "bf")[: 1 + (make is _list_view)] if make is _list_view else "bchw", **k
            )
        ),
        dtype=case("float64"),
    )
TYPED = {"dtype": case("float64")}
for _name in ("bf", "b"):
    table(
        f"DataView.{_name}",
        lambda name=_name, **k: getattr(
            layoutkit.DataView(name, FLOATS[(slice(None), 0, 0, 0)[: 4 if name == "b" else 3]]),
            name,
        )(**k),
        **TYPED,
    )
for _name in ("bhwc", "bchw", "chwb", "bdhwc", "bcdhw"):
    table(
        f"ImageView.{_name}",
        lambda name=_name, **k: getattr(
            layoutkit.ImageView(
                "bhwc" if "d" not in name else "bdhwc",
                FLOATS if "d" not in name else FLOATS[:, None],
            ),
            name,
        )(**k),
        **TYPED,
    )
for _name in ("bwc", "bcw"):
    table(
        f"SequenceView.{_name}",
        lambda name=_name, **k: repr(getattr(layoutkit.SequenceView("bwc", STEPS), name)(**k)),
        **TYPED,
    )
for _name in ("bt", "one_hot", "many_hot"):
    table(
        f"ClassView.{_name}",
        lambda name=_name, **k: getattr(layoutkit.ClassView("bt", CODES, classes=3), name)(**k),
        **TYPED,
    )

# ---- spaces ----------------------------------------------------------------------------------


def _space(make, *arguments, **keywords):
    """Return batches of a space, which have its dtype and layout."""
    return make(*arguments, **keywords).get_origin_batch(
        2,
        **(
            {}
            if "dtype" in keywords
            else {"dtype": "float32"}
            if make in FLOATING
            else {"dtype": "int32"}
        ),
    )


FLOATING = (layoutkit.VectorSpace, layoutkit.Conv2DSpace, layoutkit.VectorSequenceSpace)
table(
    "VectorSpace",
    lambda **k: _space(layoutkit.VectorSpace, 3, **k),
    dtype=case("float64"),
    sparse=case(True),
)
table(
    "Conv2DSpace",
    lambda **k: _space(layoutkit.Conv2DSpace, (4, 5), 3, **k),
    dtype=case("float64"),
    axes=case("bchw"),
)
table(
    "VectorSequenceSpace",
    lambda **k: layoutkit.VectorSequenceSpace(3, **k).dtype,
    dtype=case("float64"),
)
table(
    "IndexSpace",
    lambda **k: layoutkit.IndexSpace(3, 2, **k).get_origin_batch(
        2, **({} if k else {"dtype": "int32"})
    ),
    dtype=case("int16"),
)
table(
    "IndexSequenceSpace",
    lambda **k: layoutkit.IndexSequenceSpace(3, 2, **k).dtype,
    dtype=case("int16"),
)
SPACE, FLAT = layoutkit.Conv2DSpace((9, 11), 3, "bhwc"), layoutkit.VectorSpace(297, dtype="uint8")
NARROW = {"casting": case("unsafe")}
for _name in ("format_as", "np_format_as"):
    table(
        f"Space.{_name}", lambda name=_name, **k: getattr(SPACE, name)(FLOATS, FLAT, **k), **NARROW
    )
table("Space.get_origin_batch", lambda **k: SPACE.get_origin_batch(2, **k), dtype=case("float64"))
table(
    "Space.make_symbolic_batch",
    lambda **k: str(SPACE.make_symbolic_batch(**{"dtype": "float32", **k})),
    batch_size=case(7),
    dtype=case("int32"),
    framework=case("torch"),
)
MAPPING = layoutkit.DataSpecsMapping((layoutkit.VectorSpace(3), "x"))
table("DataSpecsMapping.flatten", lambda **k: MAPPING.flatten(3, **k), return_tuple=case(True))

# ---- data ------------------------------------------------------------------------------------

SOURCE = {"x": FLOATS[:, 0, 0], "y": NAMES}
HOLES = {"x": FLOATS[:, 0, 0], "y": [None, *NAMES[1:]]}  # a label is missing
FOLDER = Path(tempfile.mkdtemp(prefix="layoutkit-keywords-"))
atexit.register(shutil.rmtree, FOLDER, ignore_errors=True)
PNGS = [encoded(pixels) for pixels in PIXELS]


def _write_files():
    """Write one source of every kind."""
    packed = [image(png, float(n), n) for n, png in enumerate(PNGS)]
    write_rec(FOLDER / "images.rec", packed)
    lines = (FOLDER / "images.idx").read_text().splitlines(keepends=True)
    (FOLDER / "other.idx").write_text("".join(lines[:2]))
    (FOLDER / "images.lst").write_text("".join(f"{n}\t{n + 5}\t{n}.png\n" for n in range(6)))
    members = [
        (f"{n}.{end}", PNGS[n - i]) for n in range(6) for i, end in enumerate(("jpg", "png"))
    ]
    (FOLDER / "images.tar").write_bytes(tar(members))
    rows = "\n".join(f"{n}.png,{NAMES[n]}" for n in range(6))
    (FOLDER / "files.csv").write_text(f"filename,label\n{rows}\n")
    (FOLDER / "remote.csv").write_text("filename,label\ns3://bucket/a.png,cat\n")
    (FOLDER / "files.txt").write_text(f"filename\tlabel\n{rows}\n".replace(",", "\t"))
    for number, png in enumerate(PNGS):
        (FOLDER / f"{number}.png").write_bytes(png)
    np.savetxt(FOLDER / "rows.csv", np.arange(24).reshape(8, 3), "%d", ",")
    np.savetxt(FOLDER / "labels.csv", np.arange(8)[:, None], "%d", ",")
    (FOLDER / "holes.csv").write_text("nan\n1\n2\n3\n4\n5\n6\n7\n")
    header = bytes([0, 0, 8, 3]) + np.array(PIXELS.shape[:3], ">i4").tobytes()
    for number, name in enumerate(("images-idx3", "others-idx3")):
        (FOLDER / name).write_bytes(header + PIXELS[..., number].tobytes())
    header = bytes([0, 0, 8, 1]) + np.array([6], ">i4").tobytes()
    for number, name in enumerate(("labels-idx1", "others-idx1")):
        (FOLDER / name).write_bytes(header + (LABELS + number).astype("u1").tobytes())


_write_files()


def _opened(source=SOURCE, **keywords):
    index = data.open_index(source, **keywords)
    with data.sampled_batcher(index, **READ) as batches:
        return [(batch.item[0], batch.target, batch.input) for batch in batches]


def _length(x, out=None):
    """Return the length and the sum of the bytes of a record, or a row of numbers."""
    x = np.frombuffer(x, np.uint8) if isinstance(x, bytes) else x
    return np.array([x.size, x.sum()], np.float64)


READ = {"batch_size": 1, "processor": _length, "num_workers": 0, "on_error": "raise"}
table(
    "data.open_index",
    _opened,
    kind=case("raw", source=FOLDER / "images.rec"),
    partition=case(1, partitions=2),
    partitions=case(2),
    schemes=case(("s3",), source=FOLDER / "remote.csv", refused=True),  # s3fs is not installed
    index=case(FOLDER / "other.idx", source=FOLDER / "images.rec"),
    list=case(FOLDER / "images.lst", source=FOLDER / "images.rec"),
    columns=case({"image": "png"}, source=FOLDER / "images.tar"),
    missing=case(-1, source=HOLES),
    classes=case(["cow", "dog", "cat"]),
)
INDEX = data.open_index(SOURCE)
table(
    "data.mix",
    lambda **k: len(data.sampler("shuffle", data.mix([(INDEX, 1), (INDEX[:2], 5)], **k))),
    on_end=case("drop", instead="stop"),
)
MANY = data.open_index({"x": np.arange(60), "y": NAMES * 10})
DIVIDED = {"seed": case(1), "stratify": case(True)}


def _positions(parts):
    """Return the positions of the records of parts, or of pairs of parts."""
    is_index = isinstance(parts, data.Index)
    return [r.position for r in parts] if is_index else [*map(_positions, parts)]


table("data.Index.split", lambda **k: _positions(MANY.split(0.5, **k)), **DIVIDED)
table("data.Index.folds", lambda **k: _positions(MANY.folds(3, **k)), **DIVIDED)
table("data.Index.item_count", lambda **k: INDEX.item_count(**k), label=case("cat"))
table("data.Index.item_at", lambda **k: INDEX.item_at(1, **k), label=case("cat"))
RECORD = {
    "url": "u",
    "offset": 3,
    "length": 4,
    "array": LABELS,
    "label": "x",
    "labels": ("x",),
    "position": 5,
}
table(
    "data.Record",
    lambda **k: tuple(data.Record(**k)),
    **{name: case(value) for name, value in RECORD.items()},
)
table(
    "data.LoaderStats",
    lambda **k: vars(data.LoaderStats(**k)),
    **{name: case(7) for name in keywords_of(data.LoaderStats)},
)


def _sampler(kind="shuffle", plain=False, **keywords):
    sampler = data.sampler(kind, INDEX, **keywords)
    batches = sampler.batches() if sampler.batch_size else [sampler]
    return [[record.position for record in islice(batch, 9)] for batch in islice(batches, 9)]


table(
    "data.sampler",
    _sampler,
    batch_size=case(2),
    num_batches=case(1, batch_size=2),
    label=case("dog", instead="cat"),
    weights=case(
        {"cat": 1, "dog": 0, "cow": 0},
        kind="weighted",
        batch_size=2,
        instead={"cat": 0, "dog": 1, "cow": 0},
    ),
    seed=case(1),
    epoch=case(1),
)
SHUFFLE = data.sampler("shuffle", INDEX)
table(
    "data.Sampler.with_plan",
    lambda changes=None: [record.position for record in SHUFFLE.with_plan(**(changes or {}))],
    changes=case({"seed": 5}),
)


def _batches(sources=SOURCE, after=None, stop=None, **keywords):
    """Return the batches of a loop, its dropped records, what it printed and the records read."""
    asked = {"batch_size": 4, "num_workers": 0, **keywords}
    printed, found = io.StringIO(), []
    with redirect_stderr(printed), data.sampled_batcher(sources, **asked) as batches:
        for batch in islice(batches, stop):
            found.append([batch.input, batch.target, batch.index])
    return found, printed.getvalue()[:5], None if after is None else after()


def _pairs(x, out=None):
    """A processor of rows; odd ones are refused."""
    return None if int(x[0]) % 2 else x[:2]


def _slow(x, out=None):
    time.sleep(0.05)
    return x


def _fails(x, out=None):
    raise ValueError("refused")


class _Count:
    """A processor that counts its calls: records that are read ahead."""

    def __init__(self):
        self.calls = 0

    def __call__(self, x, out=None):
        self.calls += 1
        return x


def _ahead(prefetch=2):
    """Return True if a loop reads records before it is asked for them."""
    count = _Count()
    with data.sampled_batcher(
        FLOATS[:, 0, 0].repeat(9, 0),
        batch_size=4,
        num_workers=1,
        processor=count,
        prefetch=prefetch,
    ) as batches:
        loop = iter(batches)
        next(loop)
        deadline = time.monotonic() + (5 if prefetch else 0.1)
        while count.calls == 4 and time.monotonic() < deadline:
            time.sleep(0.001)
    return count.calls > 4


IMAGES = sorted(map(str, FOLDER.glob("?.png")))
SIZED = {"sources": IMAGES, "size": (4, 9)}
FLOAT_FORMULA = {**FORMULA_OF_GET, "std": case(2.0)}


def _reads_of_epochs(**asked):
    """Return the number of records that two epochs read."""
    numbers = []

    def get(record):
        numbers.append(record.position)
        return np.zeros(99)

    with data.sampled_batcher({"x": range(9)}, get=get, batch_size=3, **asked) as batches:
        for _ in range(2):
            list(batches)
    return len(numbers)


def _remote(cache_dir=False, **asked):
    """Return the requests and batches of two epochs of remote files; one file fails once."""
    site = Site()
    site.files.update({f"/{n}": bytes([n]) * 1000 for n in range(3)})
    site.script["/1"] = [503]
    with serving(site) as home, tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "index.csv")
        path.write_text("filename\n" + "".join(f"{home}/{n}\n" for n in range(3)))
        asked |= {"cache_dir": Path(folder, "cache")} if cache_dir is True else {}
        found = []
        with data.sampled_batcher(path, batch_size=3, num_workers=0, **asked) as batches:
            for _ in range(2):
                with suppress(layoutkit.DataError):
                    found += [batch.index.tolist() for batch in batches]
    return len(site.asked), found


def _threads_of_processor(num_workers=0):
    """Return True if records are processed by the caller's thread."""
    threads = set()

    def note(x, out=None):
        threads.add(threading.get_ident())
        return x

    with data.sampled_batcher(
        FLOATS[:, 0, 0], batch_size=4, num_workers=num_workers, processor=note
    ) as batches:
        list(batches)
    return threads == {threading.get_ident()}


def _sampled_batcher(special=None, **keywords):
    return special(**keywords) if special else _batches(**keywords)


table(
    "data.sampled_batcher",
    _sampled_batcher,
    batch_size=case(3),
    sampler=case("shuffle"),
    weights=case([0, 0, 1, 0, 0, 0], seed=1),
    shuffle=case(3, sources=lambda: iter(FLOATS[:, 0, 0])),
    num_batches=case(1),
    drop_last=case(True),
    seed=case(1, sampler="shuffle"),
    epoch=case(1, sampler="shuffle"),
    shard=case((1, 2), batch_size=1),
    get=case(lambda record: record.array[:2]),
    processor=case(_pairs),
    size=case((4, 5), sources=IMAGES),
    fit=case("pad", **SIZED),
    input_dims=case((3,), processor=lambda x, out=None: np.float64(x)),
    dtype=case("float64"),
    layout=case("bt"),
    convert=case(Converter("bf->fb")),
    collate=case(Collator("hwc->bchw", h=4, w=5), sources=PIXELS),
    framework=case("numpy"),
    pin_memory=case(True, refused=True),  # batches are Views
    on_error=case("raise", refused=True, processor=_fails),
    refill=case(True, processor=_pairs),
    timeout=case(0.02, num_workers=1, processor=_slow, refused=True),
    progress=case(True),
    prefetch=case(0, special=_ahead),
    num_workers=case(1, special=_threads_of_processor),
    retries=case(0, special=_remote),
    cache_dir=case(True, special=_remote),
    cache_size=case(1500, special=_remote, cache_dir=True),
    max_record_bytes=case(10, special=_remote),
    cache=case("ram", special=_reads_of_epochs),
    cache_bytes=case(8300, special=_reads_of_epochs, cache="ram"),
    missing=case(-1, sources=HOLES),
)
table("data.RamCache", lambda **k: data.RamCache(**k).use.limit, limit=case("1 MiB"))
table(
    "data.Batcher.repeated",
    lambda **k: len([*data.sampled_batcher(SOURCE, batch_size=4, num_workers=0).repeated(**k)]),
    count=case(5),
)


def _dataset(cls, source=None, **keywords):
    made = cls({"input": FLOATS, "target": LABELS} if source is None else source, **keywords)
    field = made if source is not None else made.input
    return [repr(made), field(), field._layout(), field().flags.writeable, made._meta()]


MISSING = {
    data.Dataset: {"source": {"input": FLOATS, "target": np.array([None, 1, 2, 0, 1, 2])}},
    data.Sample: {"source": FLOATS, "refused": True},  # a Sample has no targets
}
for _class in (data.Dataset, data.Sample):
    table(
        f"data.{_class.__name__}",
        lambda cls=_class, **k: _dataset(cls, **k),
        fields=case({"first": np.s_[:, 0]}, source=FLOATS),
        layout=case("bhwc", source=FLOATS),
        meta=case({"a": 1}, source=FLOATS),
        read_only=case(True, source=FLOATS),
        missing=case(-1, **MISSING[_class]),
    )
VECTORS = data.Dataset({"input": FLOATS[:, 0, 0]}, layout={"input": "bf"})
table(
    "data.Dataset.iterator",
    lambda batch_size=4, **k: [
        *VECTORS.iterator((layoutkit.VectorSpace(3), "input"), batch_size=batch_size, **k)
    ],
    mode=case("shuffle"),
    batch_size=case(3),
    num_batches=case(1),
    seed=case(1, mode="shuffle"),
    epoch=case(1, mode="shuffle"),
)


def _provided(provider):
    """Return what a provider gives, in two epochs, and its names."""
    with provider:
        batches = [[*batch.data, *batch.label, batch.count] for _ in range(2) for batch in provider]
        return [batches, provider.provide_data, provider.provide_label]


def _array_provider(x=FLOATS[:, 0, 0], **keywords):
    return _provided(data.ArrayProvider(x, **{"batch_size": 4, **keywords}))


ORDER = {
    "batch_size": case(3),
    "shuffle": case(True, instead=False),
    "seed": case(1, shuffle=True),
    "tail": case("drop"),
}
table(
    "data.ArrayProvider",
    _array_provider,
    label=case(LABELS),
    missing=case(-1, label=np.array([np.nan, 1, 2, 0, 1, 2])),
    **ORDER,
    padding=case(7),
    layout=case("bt"),
    convert=case(Converter("bf->fb")),
    **FLOAT_FORMULA,
)
PARTS = {
    "part_index": case(1, num_parts=2),
    "num_parts": case(2),
    "data_name": case("x"),
    "label_name": case("y"),
}


def _logged(make):
    """Return what a provider gives and logs."""
    handler, logger = _Lines(), logging.getLogger("layoutkit.data")
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        return _provided(make()), handler.lines
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


class _Lines(logging.Handler):
    def __init__(self):
        super().__init__()
        self.lines = 0

    def emit(self, record):
        self.lines += "open" not in record.levelname


def _files_provider(make, first, others=None, special=None, **keywords):
    if special:
        return special(**keywords)
    return _logged(lambda: make(*first, **{"batch_size": 5, **keywords}, **(others or {})))


def _num_threads(make, first):
    """Return a function that counts the threads of a loop over a provider."""

    def count(**keywords):
        with make(*first, batch_size=1, **keywords) as provider:
            loop = iter(provider)
            next(loop)
            return sum("layoutkit-data" in thread.name for thread in threading.enumerate())

    return count


CSV = (FOLDER / "rows.csv", (3,))
table(
    "data.CSVProvider",
    lambda **k: _files_provider(data.CSVProvider, CSV, **k),
    label_csv=case(FOLDER / "labels.csv"),
    label_shape=case((1, 1), label_csv=FOLDER / "labels.csv", refused=True),
    missing=case(-1, label_csv=FOLDER / "holes.csv"),
    layout=case("bt"),
    dtype=case("float64"),
    **ORDER,
    **PARTS | {"label_name": case("y", label_csv=FOLDER / "labels.csv")},
    prefetch=case(2, special=_num_threads(data.CSVProvider, CSV)),
    others=case({"round_batch": True}),
)
IDX = (FOLDER / "images-idx3", FOLDER / "labels-idx1")


def _mnist(image=IDX[0], label=IDX[1], **keywords):
    return _files_provider(data.MNISTProvider, (image, label), **{"shuffle": False, **keywords})


table(
    "data.MNISTProvider",
    _mnist,
    image=case(FOLDER / "others-idx3"),
    label=case(FOLDER / "others-idx1"),
    flat=case(True),
    scale=case(0.5),
    dtype=case("float64"),
    layout=case("bhwc"),
    **ORDER,
    **PARTS,
    prefetch=case(2, special=_num_threads(data.MNISTProvider, IDX)),
    others=case({"round_batch": True}),
)


# ---- images ----------------------------------------------------------------------------------

LARGE = np.random.default_rng(1).integers(0, 256, (40, 60, 3), dtype=np.uint8)


def _fitted(out=None, size=(8, 8), how="cover", **keywords):
    result = images.fit(LARGE, size, how, out=out, **keywords)
    return [result, result is out]


FITTED = {
    "how": case("pad"),
    "fill": case(7, how="pad"),
    "short_side": case(16),
    "resize": case("nearest"),
    "library": case("pillow"),
    "center": case("floor", how="pad"),
}
table("images.fit", _fitted, **FITTED, out=case(np.empty((8, 8, 3), np.uint8)))
table(
    "images.placement",
    lambda **k: images.placement((40, 60), (8, 8), **k),
    how=case("pad"),
    short_side=case(16),
    center=case("floor", how="pad"),
)
TRANSPARENT = encoded(
    np.concatenate([LARGE, LARGE[..., :1]], 2), icc_profile=make_profiles()[1]
)  # a PNG
MODES = {"mode": case("gray"), "background": case(255), "to_srgb": case(True)}
FRAMES = case("all")
table("images.read", lambda **k: images.read(TRANSPARENT, **k), **MODES, frames=FRAMES)
table("images.Decoder", lambda **k: images.Decoder((8, 8), **k)(TRANSPARENT), **FITTED, **MODES)
JPEG = encoded(np.repeat(np.repeat(LARGE, 8, 0), 8, 1), "JPEG")
table(
    "images.Reader",
    lambda **k: [images.Reader(**k)(file) for file in (JPEG, TRANSPARENT)],
    min_size=case((40, 60)),
    **MODES,
    frames=FRAMES,
)
for _name, _make in (("Decoder", lambda: images.Decoder((8, 8))), ("Reader", images.Reader)):
    table(
        f"images.{_name}.__call__",
        lambda out=None, make=_make: (made := make()(LARGE, out)) is out or made.shape,
        out=case(np.empty((8, 8, 3) if _name == "Decoder" else LARGE.shape, np.uint8)),
    )


def _rgb(v=LARGE[:20, :30, 2], matrix="bt601", **keywords):
    u = np.stack([LARGE[:20, :30, 0]] * 2, -1) if v is None else LARGE[:20, :30, 0]
    planes = LARGE[..., 0], u, v
    if keywords.get("ten_bits") is not None:
        planes = [x.astype(np.uint16) for x in planes]
    return np.asarray(images.YUVFrames(*planes, matrix=matrix, **keywords))


table(
    "images.YUVFrames",
    _rgb,
    v=case(None),
    matrix=case("bt709"),
    color_range=case("full"),
    ten_bits=case("low"),
    chroma=case("bilinear"),
    siting=case("center", chroma="bilinear"),
)


def _augmented(data=LARGE, shape=(3, 12, 12), **keywords):
    augment = images.Augmenter(shape, **keywords)
    return [augment(data, epoch=1, position=n) for n in range(4)]


AUGMENTER = {
    "resize": case(20),
    "random_resized_crop": case(True, min_random_area=0.2),
    "min_random_area": case(0.2, random_resized_crop=True),
    "max_random_area": case(0.5, random_resized_crop=True, min_random_area=0.2),
    "rotate": case(90),
    "max_rotate_angle": case(30),
    "max_shear_ratio": case(0.3),
    "min_random_scale": case(0.5),
    "max_random_scale": case(1.5),
    "min_aspect_ratio": case(0.5, max_aspect_ratio=0.9),
    "max_aspect_ratio": case(0.4),
    "min_img_size": case(70.0, min_random_scale=0.5),
    "max_img_size": case(50.0, max_random_scale=1.5),
    "inter_method": case(0, resize=20),
    "fill_value": case(7, pad=20, crop_y_start=0, crop_x_start=0),
    "fill": case(7, pad=20, crop_y_start=0, crop_x_start=0),
    "pad": case(3, crop_y_start=0, crop_x_start=0),
    "rand_crop": case(True),
    "crop_y_start": case(0),
    "crop_x_start": case(0),
    "min_crop_size": case(14, max_crop_size=30),
    "max_crop_size": case(30, min_crop_size=14),
    "brightness": case(0.4),
    "contrast": case(0.4),
    "saturation": case(0.4),
    "random_h": case(30),
    "random_s": case(30),
    "random_l": case(30),
    "pca_noise": case(0.3),
    "mirror": case(True),
    "rand_mirror": case(True),
    "mean_img": case(np.full((3, 12, 12), 7.0)),
    "mean_r": case(3.0),
    "mean_g": case(3.0),
    "mean_b": case(3.0),
    "mean_a": case(3.0, data=np.dstack([LARGE, LARGE[..., :1]]), shape=(4, 12, 12)),
    "mean": case(3.0),
    "max_random_contrast": case(0.4),
    "max_random_illumination": case(9.0),
    "scale": case(0.5),
    "std_r": case(3.0),
    "std_g": case(3.0),
    "std_b": case(3.0),
    "std_a": case(3.0, data=np.dstack([LARGE, LARGE[..., :1]]), shape=(4, 12, 12)),
    "std": case(3.0),
}
FINISH = {
    "max_pixels": case(9, data=encoded(LARGE), refused=True),
    "layout": case("hwc"),
    "dtype": case("float64"),
    "seed": case(1, rand_crop=True),
}
table("images.Augmenter", _augmented, **AUGMENTER, **FINISH)


def _augmenter_call(out=None, **keywords):
    made = images.Augmenter((3, 12, 12), rand_crop=True)(LARGE, out, **keywords)
    return [made, made is out]


table(
    "images.Augmenter.__call__",
    _augmenter_call,
    out=case(np.empty((3, 12, 12), np.float32)),
    epoch=case(1),
    position=case(1),
)
REC = FOLDER / "large.rec"
RGBA = FOLDER / "alpha.rec"
SMALL = FOLDER / "first.idx"
write_rec(REC, [image(encoded(LARGE[n:]), float(n), n) for n in range(6)])
write_rec(RGBA, [image(encoded(np.dstack([LARGE, LARGE[..., :1]])), float(n), n) for n in range(6)])
SMALL.write_text("".join(REC.with_suffix(".idx").read_text().splitlines(keepends=True)[:3]))
BROKEN, PAIRS = FOLDER / "broken.rec", FOLDER / "pairs.rec"
NO_LABEL = FOLDER / "no_label.rec"
write_rec(NO_LABEL, [image(encoded(LARGE), float("nan") if n else 1.0, n) for n in range(6)])
write_rec(PAIRS, [image(encoded(LARGE), [float(n), 9.0], n) for n in range(6)])
write_rec(BROKEN, [image(b"no image", 0.0, 0), image(encoded(LARGE), 1.0, 1)])


def _image_record(data=None, shape=(3, 12, 12), path=REC, special=None, others=None, **keywords):
    path = RGBA if shape[0] == 4 else path
    if special:
        return special(**keywords)
    asked = {"batch_size": 4, "num_workers": 0, **keywords}
    return _logged(
        lambda: layoutkit.data.ImageRecordProvider(path, shape, **asked, **(others or {}))
    )


RECORDS = (REC, (3, 12, 12))


def _images_read_ahead(prefetch=2):
    """Return True if images are read before their batches are requested."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(shutil.copy(REC, folder))
        provider = data.ImageRecordProvider(
            path, RECORDS[1], batch_size=1, num_workers=1, prefetch=prefetch
        )
        with provider:
            loop = iter(provider)
            next(loop)
            time.sleep(1 if prefetch else 0)
            os.truncate(path, 0)
            return len([*loop]) > 0


table(
    "data.ImageRecordProvider",
    _image_record,
    **AUGMENTER,
    max_pixels=case(9, on_error="raise", refused=True),
    layout=case("bhwc"),
    dtype=case("float64"),
    path_imgidx=case(SMALL),
    path_imglist=case(FOLDER / "images.lst"),
    missing=case(-1, path=NO_LABEL),
    label_width=case(2, path=PAIRS),
    **ORDER,
    **PARTS,
    num_workers=case(5, special=_num_threads(data.ImageRecordProvider, RECORDS)),
    prefetch=case(0, special=_images_read_ahead),
    on_error=case("raise", path=BROKEN, refused=True),
    seed_aug=case(1, rand_crop=True),
    others=case({"round_batch": True}),
)

# ---- record files ----------------------------------------------------------------------------


def _written(index=True, key=None):
    """Return the files of a RecordWriter."""
    with tempfile.TemporaryDirectory() as folder:
        with recordio.RecordWriter(Path(folder, "x.rec"), index) as writer:
            writer.write(b"payload", key)
        return {path.name: path.read_bytes() for path in Path(folder).iterdir()}


table("data.recordio.RecordWriter", _written, index=case(False))
table("data.recordio.RecordWriter.write", _written, key=case(7))
table(
    "data.recordio.pack_image",
    lambda **k: recordio.pack_image(b"x", 1.0, **k),
    id=case(3),
    id2=case(4),
)


# ---- frameworks ------------------------------------------------------------------------------


def _torch_convert(x=PIXELS, pattern="bhwc->bchw", **keywords):
    result = layoutkit.torch.Convert(pattern, **keywords)(torch.from_numpy(x))
    return [result, np.shares_memory(result.numpy(), x)]


ONLY_KEYWORDS = {"keywords": case({"scale": 0.5})}
table("torch.Convert", lambda keywords=None: _torch_convert(**(keywords or {})), **ONLY_KEYWORDS)
table("torch.Collator", lambda **k: _collator(layoutkit.torch.Collator, **k), **COLLATOR)
table(
    "torch.FieldCollator.warmup",
    lambda **k: layoutkit.torch.FieldCollator({"x": Collator("hw->bhw")}).warmup(
        [{"x": (9, 8)}] * 2, **k
    ),
    dtype=case({"y": "uint8"}, refused=True),  # kernels are listed by the first call of a process
)
LOADER = [{"a": torch.from_numpy(PIXELS), "b": torch.from_numpy(PIXELS[::-1].copy())}]


def _fed(keywords=None, device=None, **key):
    return [*layoutkit.torch.feed(LOADER, "bhwc->bchw", device=device, **key, **(keywords or {}))]


table("torch.feed", _fed, key=case("b"), **GPU, **ONLY_KEYWORDS)
table(
    "torch.Feed",
    lambda **k: [*layoutkit.torch.Feed(LOADER, Converter("bhwc->bchw"), **k)],
    key=case("b"),
)


def _watched(**keywords):
    with layoutkit.torch.watch(**keywords) as report:
        torch.zeros(2, 20, 20, 3).permute(0, 3, 1, 2).contiguous()
    return len(report.rows())


table("torch.watch", _watched, min_bytes=case(1))


def _keras_convert(keywords=None, **others):
    layer = layoutkit.keras.Convert("bhwc->bchw", **others, **(keywords or {}))
    named = layer.name if "name" in others else None
    return [np.asarray(layer(FLOATS)), named, layer.trainable]


table("keras.Convert", _keras_convert, name=case("x"), trainable=case(True), **ONLY_KEYWORDS)


def _sklearn_convert(x=PIXELS, pattern="bhwc->bchw", **keywords):
    result = layoutkit.sklearn.Convert(pattern, **keywords).fit_transform(x)
    return [result, result is x]


ESTIMATOR = {name: row for name, row in CONVERSION.items() if name != "device"}
table(
    "sklearn.Convert",
    _sklearn_convert,
    **ESTIMATOR,
    pattern=case("bhwc->bwhc", instead="bhwc->bchw"),
    sizes=case({"h": 9}, x=FOLDED, pattern="b(hw)c->bhwc"),
)
TABLE_OF_NUMBERS = FLOATS[:, 0, 0]
NAMED = ["red", "green", "blue"]
table(
    "sklearn.Convert.get_feature_names_out",
    lambda **k: layoutkit.sklearn.Convert().fit(TABLE_OF_NUMBERS).get_feature_names_out(**k),
    input_features=case(NAMED),
)
