"""Wrong calls of every kind: a table of calls, messages and cures, and generated calls.

A row of `TABLE` is a wrong call, its exception, words that the message contains, and the call that
follows the advice. The generated calls give each option of each public function values of other
types; their messages are short, and are errors of layoutkit.
"""

import glob
import re

import numpy as np
import pytest

import layoutkit
from layoutkit import (
    ArgumentError,
    Collator,
    Converter,
    DataError,
    DeviceError,
    DtypeError,
    ImageView,
    LayoutkitError,
    PatternError,
    ShapeError,
    accumulate,
    collate,
    convert,
    images,
    plan,
)
from layoutkit.data import mix, open_index, sampled_batcher, sampler

X = np.random.default_rng(0).integers(0, 256, (2, 40, 50, 3), dtype=np.uint8)
PHOTOS = [X[0], X[1, :30]]
WINDOW = {"h": 20, "w": 24}


class Items:
    """A map-style data set."""

    def __init__(self, read):
        self.read = read

    def __len__(self):
        return 4

    def __getitem__(self, place):
        return self.read(place)


class Loader:
    """An iterable over batches of a data set, as the DataLoader of torch."""

    dataset = Items(lambda place: (X[0], place))

    def __len__(self):
        return 2

    def __iter__(self):
        return iter([(X, [0, 1])] * 2)


class Unsized:
    """A map-style data set without a length."""

    def __getitem__(self, place):
        return X[place]


class Gray:
    """A gray image, as Pillow makes them."""

    mode = "L"

    def getbands(self):
        return ("L",)

    def convert(self, mode):
        return X[0]

    def __array__(self, dtype=None, copy=None):
        return X[0, ..., 0]


def first_batch(source, collate=None, **options):
    """Return the first batch of two records."""
    with sampled_batcher(source, batch_size=2, collate=collate, **options) as batches:
        return next(iter(batches))


MASKED = Items(lambda place: (X[0], X[0, ..., 0]))
FIELDS = Items(lambda place: {"image": X[0], "mask": X[0, ..., 0]})
NAMED = Items(lambda place: {"labels": place, "pixel_values": X[0]})
NAMESPACE = {
    "glob": glob, "Items": Items, "Loader": Loader, "Unsized": Unsized, "first_batch": first_batch,
    "masked": MASKED, "gray": Gray(), "png": b"\x89PNG",
    "fields": FIELDS, "named": NAMED, "mask": Collator("hw->bhw", **WINDOW), "mix": mix,
    "np": np, "x": X, "photos": PHOTOS, "accumulate": accumulate, "collate": collate,
    "convert": convert, "plan": plan, "images": images, "view": ImageView("bhwc", X),
    "open_index": open_index, "sampler": sampler, "sampled_batcher": sampled_batcher,
    "converter": Converter("bhwc->bchw"), "Converter": Converter, "Collator": Collator,
    "collator": Collator("hwc->bchw", **WINDOW), "layoutkit": layoutkit,
}  # fmt: skip


@pytest.fixture(autouse=True)
def _in_temporary_folder(tmp_path, monkeypatch):
    """Run every call in a folder of its own: a wrong value may be the name of a file to write."""
    monkeypatch.chdir(tmp_path)
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "0.png").touch()


CONVERT = 'convert(x, "bhwc->bchw", {})'
BATCH = 'Collator("hwc->bchw", {})(photos)'
WINDOWS = 'Collator("hwc->bchw", h=20, w=24, {})(photos)'
RESIZED = 'Collator("hwc->bchw", h=20, w=24, resize="bilinear", {})(photos)'
SOUNDS = 'collate([np.ones((9, 4)), np.ones((8, 4))], "tf->bft", {})'
GRID = 'Collator("(hp)(wq)c->b(hw)(pqc)", p=8, q=5, {})(photos)'
PATCHES = 'Collator("(hp)(wq)c->(bhw)(pqc)", {})(photos)'
LOOP = "sampled_batcher(x, batch_size=2, {})"
OPEN = "open_index(x, {})"

# call, its arguments, the exception, words of the message, the arguments that the advice leads to
TABLE = [
    # ---- dtypes, devices, memory ------------------------------------------------------------
    (CONVERT, 'dtype="FLOAT32"', DtypeError, 'did you mean "float32"?', 'dtype="float32"'),
    (CONVERT, 'dtype="torch.half"', DtypeError, 'did you mean "float16"?', 'dtype="float16"'),
    (CONVERT, 'dtype="bf16"', DtypeError, 'did you mean "bfloat16"?', 'dtype="bfloat16"'),
    (CONVERT, 'dtype="category"', DtypeError, "'category' is not a dtype", 'dtype="int64"'),
    (WINDOWS, "dtype=32", DtypeError, "32 is not a dtype", 'dtype="float32"'),
    (CONVERT, 'device="CPU"', DeviceError, 'did you mean "cpu"?', 'device="cpu"'),
    (CONVERT, 'device="GPU:1"', DeviceError, 'did you mean "cuda:1"?', None),
    (CONVERT, "device=0", DeviceError, 'did you mean "cuda:0"?', None),
    (CONVERT, 'device="mps"', DeviceError, 'it must be "cpu", "cuda"', 'device="cpu"'),
    (CONVERT, 'memory="channels_last"', PatternError, 'memory="bhwc"', 'memory="bhwc"'),
    (CONVERT, 'memory="nhwc"', PatternError, 'did you mean memory="bhwc"?', 'memory="bhwc"'),
    (CONVERT, 'memory="F"', PatternError, 'did you mean memory="whcb"?', 'memory="whcb"'),
    (CONVERT, 'memory="C"', PatternError, "omit it for C order", ""),
    (CONVERT, 'memory="bhw"', PatternError, "name each of them once", 'memory="bhwc"'),
    # ---- formula ----------------------------------------------------------------------------
    (CONVERT, 'mean="imagenet"', ArgumentError, "mean=(0.485, 0.456, 0.406)",
     "scale=1 / 255, mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225)"),
    (CONVERT, 'scale="1/255"', ArgumentError, "scale=1 / 255", "scale=1 / 255"),
    (CONVERT, "scale=True", ArgumentError, "scale=1 / 255", "scale=1 / 255"),
    (CONVERT, "scale=[1, 2, 3]", ArgumentError, "std accepts several", "std=[1, 2, 3]"),
    (CONVERT, "mean=[1, 2]", ShapeError, "give 3 values, or one number", "mean=[1, 2, 3]"),
    (CONVERT, "mean=np.zeros((3, 1, 1))", ShapeError, "a flat list", "mean=np.zeros(3)"),
    (CONVERT, "std=0", ArgumentError, "divide by zero", "std=1"),
    (CONVERT, 'mean={"f": [1, 2]}', ShapeError, "axis f, which neither layout has", "mean=1"),
    (CONVERT, "clip=255", ArgumentError, "give (lo, hi)", "clip=(None, 255)"),
    (CONVERT, "clip=(2, 1)", ArgumentError, "give lo <= hi", "clip=(1, 2)"),
    (CONVERT, "clip=(300, 400)", ArgumentError, "values are 0 to 255", "clip=(30, 40)"),
    (CONVERT, 'casting="round"', ArgumentError, "did you mean 'saturate'?", 'casting="saturate"'),
    (CONVERT, 'casting="exact"', ArgumentError, "one of 'safe'", 'casting="safe"'),
    (CONVERT, "threads=0", ArgumentError, "at least 1", "threads=1"),
    (CONVERT, 'threads="all"', ArgumentError, "a whole number", ""),
    (CONVERT, 'copy="never"', ArgumentError, "None, True or False", "copy=None"),
    (CONVERT, 'channels="bgr"', ArgumentError, "(2, 1, 0)", "channels=(2, 1, 0)"),
    (CONVERT, "channels=3", ArgumentError, "(2, 1, 0)", "channels=(0, 1, 2)"),
    (CONVERT, "channels=(0, 3)", ShapeError, "selects channel 3", "channels=(0, 2)"),
    (WINDOWS, "channels=(0, 3)", ShapeError, "sample 0 has 3 channels", "channels=(0, 2)"),
    (CONVERT, "pad_to=640", ArgumentError, "a dict of whole numbers", 'pad_to={"h": 640}'),
    (CONVERT, 'pad_to={"h": 8}', ShapeError, "a larger size", 'pad_to={"h": 80}'),
    (CONVERT, "fill=0", ArgumentError, "pad_to=", 'pad_to={"h": 64, "w": 64}, fill=0'),
    # ---- keywords of other libraries --------------------------------------------------------
    (CONVERT, "code=4", ShapeError, "channels=(2, 1, 0) swaps red and blue", "channels=(2, 1, 0)"),
    (CONVERT, "div=255", ShapeError, "as in scale=1 / 255", "scale=1 / 255"),
    (CONVERT, "like=x", ShapeError, "like=array([[[[", ""),
    (CONVERT, "rotate_limit=10", ShapeError, "images.Augmenter", ""),
    (CONVERT, "size=(8, 9)", ShapeError, "collate and Collator do", ""),
    (CONVERT, "height=40", ShapeError, "did you mean h=?", "h=40"),
    (CONVERT, "axes=(0, 3, 1, 2)", ShapeError, '"bhwc->bchw"', ""),
    (BATCH, "size=(20, 24)", ArgumentError, "as in h=20, w=24", 'h=20, w=24, resize="bilinear"'),
    (BATCH, "dsize=(20, 24)", ShapeError, "h=20, w=24", 'h=20, w=24, resize="bilinear"'),
    (WINDOWS, "mask_interpolation=0", ShapeError, "resize= is the filter", 'resize="nearest"'),
    (SOUNDS, "return_lengths=True", ShapeError, 't="longest", lengths=True',
     't="longest", lengths=True'),
    (SOUNDS, 'padding="longest"', ShapeError, 't="longest", lengths=True',
     't="longest", lengths=True'),
    (SOUNDS, "pad=True", ShapeError, 't=640, offset={"t": 0}, fill=0',
     't=640, offset={"t": 0}, fill=0'),
    (SOUNDS, "batch_first=True", ShapeError, "the right side of the pattern", None),
    (SOUNDS, "t=15", ShapeError, 'fill=0 to pad (at the end with offset={"t": 0})',
     't=15, offset={"t": 0}, fill=0'),
    (WINDOWS, "out=x", ShapeError, "a call of the Collator", ""),
    # ---- windows and resize -----------------------------------------------------------------
    (WINDOWS, "resize=2", ArgumentError, '"bilinear" for that number of Pillow',
     'resize="bilinear"'),
    (WINDOWS, 'resize="INTER_AREA"', ArgumentError, 'give resize="area"', 'resize="area"'),
    (WINDOWS, "short_side=26", ArgumentError, "needs a filter", 'resize="area", short_side=26'),
    (BATCH, 'resize="area", short_side=26', ArgumentError, 'h="longest", w="longest" to pad',
     'resize="area", short_side=26, h="longest", w="longest"'),
    (BATCH, 'resize="area", short_side=26, channels=(0,)', ArgumentError, "give h=26, w=26 to crop",
     'resize="area", short_side=26, channels=(0,), h=26, w=26'),
    (BATCH, 'resize="area", h="longest", w="longest"', ArgumentError, "give short_side=224 too",
     'resize="area", h="longest", w="longest", short_side=224'),
    (RESIZED, 'fit="contain"', ArgumentError, "did you mean 'pad'?", 'fit="pad"'),
    (RESIZED, 'fit="crop"', ArgumentError, "did you mean 'cover'?", 'fit="cover"'),
    (RESIZED, 'crop="center"', ArgumentError, 'fit="cover"', 'fit="cover"'),
    (RESIZED, "crop=(10, 11)", ArgumentError, '{"h": 10, "w": 11}', 'crop={"h": 10, "w": 11}'),
    (RESIZED, "crop=0.5", ArgumentError, "a dict of scale and ratio",
     'crop={"scale": (0.5, 1)}, seed=0'),
    (WINDOWS, 'crop="random"', ArgumentError, 'offset="random"', 'offset="random"'),
    (WINDOWS, 'offset="center"', ArgumentError, "windows are centered by default", ""),
    (WINDOWS, "offset=(5, 5)", ArgumentError, "a dict such as", 'offset={"h": 5, "w": 5}'),
    (WINDOWS, 'offset={"y": 5}', ArgumentError, "their axes are h, w, c", 'offset={"h": 5}'),
    (WINDOWS, 'flip="horizontal"', ArgumentError, 'did you mean "w"?', 'flip="w"'),
    (WINDOWS, 'flip="hw"', ArgumentError, '{"h": True, "w": True}',
     'flip={"h": True, "w": True}'),
    (WINDOWS, "flip=True", ArgumentError, 'an axis such as "w"', 'flip="w"'),
    (WINDOWS, 'flip="randon"', ArgumentError, 'did you mean "random"?', 'flip="random"'),
    (WINDOWS, "seed=1.5", ArgumentError, "a whole number", "seed=1"),
    (WINDOWS, 'fill="white"', ArgumentError, "give a number", "fill=255"),
    (BATCH, "h=100, w=24", ShapeError, "fill=0 to pad", "h=100, w=24, fill=0"),
    (BATCH, "h=100, w=25", ShapeError, 'resize="bilinear"', 'h=100, w=25, resize="bilinear"'),
    (BATCH, 'h="20", w=24', ShapeError, "a size is an int", "h=20, w=24"),
    (BATCH, "h=20, w=24, c=4", ShapeError, "4 goes from 0 to 4; give a smaller size, or fill=0",
     "h=20, w=24, c=4, fill=0"),
    (SOUNDS, 't="longest", f=5', ShapeError, "fill=0 to pad", 't="longest", f=5, fill=0'),
    (SOUNDS, 't="longest", offset={"t": 0}', ArgumentError, "no offset along 't'; the axes are f",
     't="longest"'),
    # ---- patches ----------------------------------------------------------------------------
    (GRID, 'size=(20, 24), resize="area"', ArgumentError,
     'pack patches, as in p=16, q=16, size=(224, 224) of "(hp)(wq)c->(bhw)(pqc)"', None),
    (GRID, 'h=5, w=6, resize="area"', ArgumentError, "not folded; pack patches, as in p=16", None),
    (PATCHES, "p=7, q=5", ShapeError, 'resize="bicubic", multiple=35',
     'p=7, q=5, resize="bicubic", multiple=35'),
    (PATCHES, 'p=7, q=5, resize="area", multiple=6', ShapeError, "multiple=35 alone",
     'p=7, q=5, resize="area", multiple=35'),
    (PATCHES, 'p=7, q=5, resize="area", size=(8, 10)', ShapeError, "multiple=35 alone",
     'p=7, q=5, resize="area", multiple=35'),
    (PATCHES, 'p=7, q=5, resize="area"', ArgumentError, "give size=(280, 280), one",
     'p=7, q=5, resize="area", size=(280, 280)'),
    (RESIZED, 'center="ceil"', ArgumentError, "'round', 'floor'", 'center="floor"'),
    # ---- calls ------------------------------------------------------------------------------
    ("collator({})", '"photo.png"', ArgumentError, "samples is a str", "photos"),
    ("collator({})", "None", ArgumentError, "samples is None", "photos"),
    ("collator({})", '{"a": x[0]}', ArgumentError, "[*samples.values()]", "[x[0]]"),
    ("collator(photos, {})", "offset=[0, 1]", ArgumentError, "a dict", 'offset={"h": [0, 1]}'),
    ("collator(photos, {})", 'flip="random"', ArgumentError, "option of a Collator", 'flip="w"'),
    ("collator.place({})", "(50, 70, 3)", ArgumentError, "[(50, 70, 3)] * 64",
     "[(50, 70, 3)] * 64"),
    ("collator.warmup({})", "(50, 70, 3)", ArgumentError, "[(50, 70, 3)] * 64",
     "[(50, 70, 3)] * 8"),
    ("layoutkit.warmup({})", "collator, (50, 70, 3)", ArgumentError,
     "collator.warmup([shape] * 64)", None),
    ("collator({})", "(50, 70, 3)", ArgumentError, "pass a numpy.ndarray", "photos"),
    ("collator({})", "[x[0], x[1, ..., :1]]", ShapeError, "numpy.take(x, [0, 0, 0], axis=2)",
     "[x[0], np.take(x[1, ..., :1], [0, 0, 0], axis=2)]"),
    ("collator({})", "[x[0, ..., 0], x[1]]", ShapeError, "numpy.stack([x] * 3, axis=2)",
     "[np.stack([x[0, ..., 0]] * 3, axis=2), x[1]]"),
    ("collator(photos, {})", "[0]", ArgumentError, "collator([a, b])", None),
    ("collator(photos, {})", "placements=collator.place(photos)[0]", ArgumentError,
     "a part of it, such as placements[:1]", "placements=collator.place(photos)[:2]"),
    ("collator.place(photos)[0].fit_boxes([[1, 1, 3, 4]], {})", 'format="xywh"', ArgumentError,
     "boxes are x1, y1, x2, y2 in pixels; a box of x, y, width and height", ""),
    ("collator.place(photos)[0].to_fitted([[1, 1, 3, 4]], {})", "clip=True", ArgumentError,
     "fit_boxes clips boxes", ""),
    ("collator.place(photos)[0].to_image([[1, 1, 3, 4]], {})", "format='xyxy'", ArgumentError,
     "boxes are x1, y1, x2, y2 in pixels", ""),
    ("collator.place(photos, {})", "position=[0, 1]", ArgumentError, "did you mean positions=?",
     "positions=[0, 1]"),
    ("converter(x, {})", '"bchw"', ArgumentError, "the pattern has the layout of the result", ""),
    ("convert({})", 'x, "bhwc"', PatternError, 'both layouts: "bhwc->bchw"', 'x, "bhwc->bchw"'),
    ("convert({})", 'x, ["bhwc", "bchw"]', PatternError, "a pattern is text", 'x, "bhwc->bchw"'),
    ("convert({})", '"a.png", "hwc->chw"', ArgumentError, "images.read", 'x[0], "hwc->chw"'),
    ("convert({})", 'None, "hwc->chw"', ArgumentError, "x is None", 'x[0], "hwc->chw"'),
    ("convert({})", '{"a": x}, "bhwc->bchw"', ArgumentError, "x['a']", 'x, "bhwc->bchw"'),
    ("accumulate({})", '[("bhwc", x)], "bhwc"', ArgumentError, '(array, "bhwc")',
     '[(x, "bhwc")], "bhwc"'),
    ("accumulate({})", '[(x, "bhwc->bchw")], "bchw"', PatternError, "one side of a pattern",
     '[(x, "bhwc")], "bchw"'),
    ("view.forward_get({})", '"bhwc->bchw"', PatternError, 'such as "bchw"', '"bchw"'),
    # ---- arguments in other places ----------------------------------------------------------
    ("convert({})", 'x, "bhwc", "bchw"', ArgumentError, 'convert(x, "bhwc->bchw")',
     'x, "bhwc->bchw"'),
    ("collate({})", 'photos, "hwc->bchw", 20, 24', ArgumentError, "give options by name", None),
    ("Converter({})", 'x, "bhwc->bchw"', ArgumentError, 'Converter("bhwc->bchw")(x)',
     '"bhwc->bchw"'),
    ("Collator({})", '"hwc", "bchw"', ArgumentError, 'Collator("hwc->bchw")', '"hwc->bchw"'),
    ("converter(x, {})", 'dtype="float32"', ArgumentError, "Converter(pattern, dtype=...)", ""),
    ("converter(x, {})", "output=x", ArgumentError, "out= is an array of the shape", None),
    ("converter(x, {})", "zzz=1", ArgumentError, "it has x, out", ""),
    ("collator(photos, {})", "return_placements=True", ArgumentError, "place(samples)",
     "placements=collator.place(photos)"),
    ("collator(photos, {})", "h=4", ArgumentError, "Collator(pattern, h=...)", ""),
    ("collator(photos, {})", "indexes=[0]", ArgumentError, "did you mean indices=?", None),
    ("converter.{}", 'to("cuda")', AttributeError, 'Converter(pattern, device="cuda")',
     "device"),
    ("collator.{}", "placement", AttributeError, "use place(samples)", "place"),
    ("collator.{}", "draw", AttributeError, "use place(samples)", "place"),
    ("view.{}", 'permute("bchw")', AttributeError, 'forward_get("bchw")', 'forward_get("bchw")'),
    ("open_index(x).{}", "random_split([1, 1])", AttributeError, "split(0.8, seed=0)",
     "split(0.5, seed=0)"),
    ("sampled_batcher(x, batch_size=2).{}", "shuffle()", AttributeError, 'sampler="shuffle"', None),
    ("images.{}", "imread", AttributeError, "use read(path)", "read"),
    ("images.{}", "letterbox", AttributeError, "use fit(image, size, 'pad')", "fit"),
    ("converter.{}", "eval()", AttributeError, "omit it: a conversion is the same", "device"),
    ("layoutkit.{}", "resize", AttributeError, "use collate(images,", "collate"),
    ("layoutkit.data.{}", "DataLoader", AttributeError, "use sampled_batcher(source,",
     "sampled_batcher"),
    ("images.read({})", '"x.png", grayscale=True', ArgumentError, 'give mode="gray"', None),
    ("images.fit(x[0], (5, 5), {})", "interpolation=2", ArgumentError, 'resize="bilinear"',
     'resize="bilinear"'),
    (CONVERT, 'out="y.npy"', ArgumentError, 'numpy.load("y.npy", mmap_mode="r+")', None),
    (CONVERT, 'pad_before={"h": 1}', ArgumentError, "pad_before={'h': 1} needs pad_to=",
     'pad_before={"h": 1}, pad_to={"h": 90}'),
    ("open_index({})", '""', DataError, "'' is not an index: there is no such file", None),
    ("Collator({})([np.zeros((3, 40, 50))])", '"hwc->bchw", h=20, w=24', ShapeError,
     "are its channels first? Then the pattern begins with chw->", '"chw->bchw", h=20, w=24'),
    ("sampled_batcher(np.zeros((2, 3, 9, 9)), batch_size=2, {})", "input_dims=(3, 9, 9)",
     PatternError, 'layout="bchw"', 'layout="bchw"'),
    # ---- samples that are None -----------------------------------------------------------------
    ("collator({})", "[x[0], None]", ArgumentError, "sample 1 is None; omit it", "[x[0]]"),
    ("collator({})", "[None, x[0]]", ArgumentError, "sample 0 is None; omit it", "[x[0]]"),
    ("collator.place({})", "[x[0], None]", ArgumentError, "sample 1 is None", "[x[0]]"),
    ("collator({})", "[(x[0], 1), None]", ArgumentError, "sample 1 is None", "[(x[0], 1)]"),
    ("collator({})", "[(x[0], 1), (None, 2)]", ArgumentError, "item 0 of sample 1 is None",
     "[(x[0], 1)]"),
    ("collator({})", "[(None, 1), (x[0], 2)]", ArgumentError, "sample 0 has no item of rank 3",
     "[(x[0], 2)]"),
    ("collator({})", "[(x[0], 1), (x[1], None)]", ArgumentError,
     "an item of sample 1 is None, but a number in other samples; give a number, such as -1",
     "[(x[0], 1), (x[1], -1)]"),
    ("collate({}, 't->bt', t='longest')", "[[1, 2], [3]]", ArgumentError,
     "pass numpy.asarray(sample)", "[np.asarray([1, 2]), np.asarray([3])]"),
    # ---- samples that are not pixels -----------------------------------------------------------
    ("collator({})", "[png]", ShapeError, "pass layoutkit.images.read(sample)", None),
    ("collator({})", "[x[0], gray]", ShapeError, 'mode "L" has no axis of channels: pass '
     'sample.convert("RGB")', '[x[0], gray.convert("RGB")]'),
    ("collator({})", "[(gray, 1)]", ArgumentError, 'pass item.convert("RGB")',
     '[(gray.convert("RGB"), 1)]'),
    ("convert({}, 'hwc->chw')", "png", ShapeError, "pass layoutkit.images.read(x)", None),
    # ---- data -------------------------------------------------------------------------------
    (LOOP, 'layout="bhwc->bchw"', DataError, 'layout="bhwc", convert=Converter("bhwc->bchw")',
     'layout="bhwc", convert=Converter("bhwc->bchw")'),
    (LOOP, "copy=True", DataError, "omit it: every batch has memory of its own", ""),
    (LOOP, "persistent_workers=True", DataError, "omit it: threads live until close()", ""),
    (LOOP, "prefetch_size=2", DataError, "give prefetch=", "prefetch=2"),
    (LOOP, "world=2", DataError, "shard=(rank, world)", "shard=(0, 2)"),
    (LOOP, "max_workers=1", DataError, "give num_workers=", "num_workers=1"),
    (LOOP, 'on_error="skip"', DataError, "did you mean 'drop'?", 'on_error="drop"'),
    (LOOP, 'framework="np"', ArgumentError, "did you mean 'numpy'?", 'framework="numpy"'),
    (LOOP, "shuffle=True", DataError, 'sampler="shuffle"', 'sampler="shuffle"'),
    ("open_index(x).split({})", "test_size=0.5", DataError, "as in split(0.8)", "0.5"),
    ("open_index(x).split({})", "0.5, random_state=0", DataError, "give seed=", "0.5, seed=0"),
    (OPEN, "labels=[0, 1]", DataError, '{"x": ..., "y": labels}', None),
    (OPEN, "transform=abs", DataError, "processor=transform", ""),
    (OPEN, 'split="train"', DataError, "train, val = index.split(0.8, seed=0)", ""),
    (OPEN, "rank=0", DataError, "partition=0, partitions=4", "partition=0, partitions=2"),
    (OPEN, 'kind="numpy"', DataError, "did you mean 'tensor'?", 'kind="tensor"'),
    ("open_index({})", "None", DataError, "the source is None", "x"),
    ("open_index({})", "3", DataError, "the source is 3", "x"),
    ("first_batch(masked, collator, {})", "", PatternError, 'as in layout=(None, "bhw"); a mask',
     'layout=(None, "bhw")'),
    ("first_batch(fields, {})", "collator", DataError,
     "open_index(source, columns={'label': 'mask'}), or None for no labels; for a batch of each "
     "field, give get=lambda record: source[record.position] and a dict of Collators",
     '{"image": collator, "mask": mask}, get=lambda record: fields[record.position]'),
    ("first_batch(masked, {})", '{"image": collator, "mask": mask}', DataError,
     "get=lambda record: dict(zip(('image', 'mask'), source[record.position]))",
     '{"image": collator, "mask": mask}, '
     'get=lambda record: dict(zip(("image", "mask"), masked[record.position]))'),
    ("first_batch({}, collator)", "named", DataError,
     "open_index(source, columns={'image': 'pixel_values', 'label': 'labels'})",
     'open_index(named, columns={"image": "pixel_values", "label": "labels"})'),
    ("first_batch({}, collator)", 'open_index(named, columns={"image": "pixel_values"})', DataError,
     "open_index(source, columns={'image': 'pixel_values', 'label': 'labels'})", None),
    (LOOP, 'columns={"image": "a"}', DataError, "give open_index(source, columns=", None),
    ("first_batch({}, collator)", "Loader()", DataError, "sampled_batcher(loader.dataset,",
     "Loader().dataset"),
    ("open_index({})", "Unsized()", DataError, "has [i], but no length; give its class a method",
     "named"),
    ("first_batch({}, collator)", "photos", DataError, "arrays of one source are {'x': arrays}",
     '{"x": photos}'),
    ("open_index({})", "(x, [0, 1])", DataError, "with labels {'x': arrays, 'y': labels}",
     '{"x": x, "y": [0, 1]}'),
    ("first_batch({})", "Items(lambda place: (x[0], None))", DataError,
     "a number, such as -1 for no label", "Items(lambda place: (x[0], -1)), layout='bhwc'"),
    ("sampled_batcher({}, batch_size=2, size=(8, 8))", '["a", "b"]', DataError,
     'mix([(source, 1) for source in sources], on_end="drop")',
     'mix([(source, 1) for source in ["a", "b"]], on_end="drop")'),
    ("sampled_batcher({}, batch_size=2, size=(8, 8))", '["a/*.png", "b/*.png"]', DataError,
     "file 0 is the pattern 'a/*.png', but a list has files; give those of each pattern, as in "
     "sorted(glob.glob('a/*.png'))", 'sorted(glob.glob("a/*.png")) + sorted(glob.glob("b/*.png"))'),
    ("open_index({})", '{"x": "a"}', DataError, "a source by itself, as in open_index('a')", '"a"'),
    ("open_index({})", '"[ab]"', DataError, "with their suffix; give '[ab]/*.png'", '"[ab]/*.png"'),
    ("images.fit(x[0], {})", '(5, 5), "contain"', ArgumentError, "did you mean 'pad'?",
     '(5, 5), "pad"'),
    ("images.fit(x[0], {})", "224", ShapeError, "(height, width)", "(224, 224)"),
    ("images.Reader({})", 'mode="L"', ArgumentError, "did you mean 'gray'?", 'mode="gray"'),
]  # fmt: skip


def ids(rows):
    return [call.format(arguments) for call, arguments, *_ in rows]


def run(call, arguments):
    return eval(call.format(arguments), dict(NAMESPACE))


def check_form(message):
    """Assert that a message is short; a PatternError has five lines, with a caret below a text."""
    assert len(message) <= MAX_LENGTH
    assert message.count("\n") <= 4
    assert "\n" not in message or "^" in message
    assert not re.search(r"\ba (None|int|object|array|ndarray)\b|NoneType", message)


MAX_LENGTH = 600  # the list of the keywords of a Collator, with a value of 80 characters


@pytest.mark.parametrize(("call", "arguments", "error", "words", "_"), TABLE, ids=ids(TABLE))
def test_a_wrong_call_is_explained(call, arguments, error, words, _):
    with pytest.raises(error) as caught:
        run(call, arguments)
    message = str(caught.value)
    assert words in message
    check_form(message)


FOLLOWED = [row for row in TABLE if row[-1] is not None]


@pytest.mark.budget(21)
@pytest.mark.parametrize(("call", "_", "error", "words", "advised"), FOLLOWED, ids=ids(FOLLOWED))
def test_the_advice_works(call, _, error, words, advised):
    run(call, advised)


# ---- each option of each public function, with values of other types ------------------------

VALUES = {
    "an array": np.arange(5000).reshape(50, 100),
    "a long list": list(range(2000)),
    "a dict": {"a": np.arange(5000.0), "b": list(range(900))},
    "arrays": [np.ones((40, 40)), np.ones((40, 40))],
    "an object": object(),
    "a function": abs,
    "a word": "bilinaer",
    "None": None,
    "a bool": True,
    "a number": -1.5,
}
# Calls of the table of keywords that look at the value themselves, or are checked by a framework.
OTHERS = {
    "keras.Convert": "Keras checks name= and trainable=",
    "sklearn.Convert.get_feature_names_out": "scikit-learn checks names",
}


@pytest.fixture(scope="module")
def table():
    for library in ("PIL", "cv2", "torch", "keras", "sklearn"):
        pytest.importorskip(library, reason=f"{library} is not installed")
    from tests.helpers.keyword_calls import TABLE  # imports these libraries

    return TABLE


@pytest.mark.filterwarnings("ignore")
@pytest.mark.budget(3)
@pytest.mark.parametrize("kind", VALUES)
def test_values_of_other_types_have_short_errors_of_layoutkit(kind, table):
    value = VALUES[kind]
    for name in table.keys() - OTHERS.keys():
        for keyword, case in table[name].rows.items():
            if keyword.startswith("**"):
                continue
            try:
                table[name].call(**{**case.others, keyword: value})
            except (LayoutkitError, OSError) as error:  # OSError: a file that does not exist
                check_form(str(error))
            except Exception as error:
                raise AssertionError(f"{name}({keyword}={kind})") from error


def test_samples_that_are_none_are_explained_in_a_dataloader():
    pytest.importorskip("torch", reason="PyTorch is not installed")
    from layoutkit.backends.items import Positioned
    from layoutkit.torch import Collator as TorchCollator
    from layoutkit.torch import FieldCollator, Positions
    from layoutkit.torch import collate as stack

    photo = X[0]
    fields = FieldCollator({"image": Collator("hwc->bchw", **WINDOW)})
    for function, samples, words in [
        (TorchCollator("hwc->bchw", **WINDOW), [photo, None], "sample 1 is None"),
        (TorchCollator("hwc->bchw", **WINDOW), [Positioned(photo, 0), Positioned(None, 1)],
         "sample 1 is None; omit it before the call.*x.sample is not None"),
        (fields, [{"image": photo}, None], "sample 1 is None"),
        (fields, [{"image": photo}, {"image": None}], "item 'image' of sample 1 is None"),
        (stack, [photo, None], "sample 1 is None"),
        (stack, [(photo, 1), (photo, None)], "item 1 of sample 1 is None"),
        (stack, [{"a": [photo, None]}], "item 'a'.1 of sample 0 is None"),
        (Positions, 3, "dataset is an int; give one with a length"),
        (stack, 3, "samples is an int; give a list of samples"),
        (TorchCollator("hwc->bchw", **WINDOW), [(photo, None), (photo, 2.5)],
         "item of sample 0 is None"),
    ]:  # fmt: skip
        with pytest.raises(ArgumentError, match=words):
            function(samples)


def test_an_attribute_error_inside_of_a_property_is_raised_as_it_is():
    class Own(Converter):
        @property
        def broken(self):
            return self.missing

    with pytest.raises(AttributeError, match="no attribute 'missing'"):
        _ = Own("bhwc->bchw").broken


def test_the_table_has_enough_rows():
    assert len(TABLE) >= 80
    assert len({ids([row])[0] for row in TABLE}) == len(TABLE)
    assert layoutkit.__all__
