"""A call of every function and class of the reference, with a result that can be compared.

A call makes the objects that belong to one thread, such as a Batcher. Objects that threads may
share are made once, by `Shared`. Calls with different numbers have different inputs and results, if
the objects are shared.
"""

import tempfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

import layoutkit
from layoutkit import buffers, data, images, plugins
from layoutkit.data import recordio

from .photographs import encoded
from .record_files import image, write_rec

PIXELS = np.random.default_rng(0).integers(0, 256, (6, 8, 10, 3), dtype=np.uint8)
FLOATS = PIXELS.astype(np.float32)
LARGE = np.random.default_rng(1).random((4, 96, 96, 16), np.float32)  # for the worker pool
LABELS = np.array([2, 0, 1, 1, 0, 2])
CALLS = {}  # the names of the reference that a call covers -> the call


def covers(*names):
    """Register a call under the names that it covers."""

    def register(call):
        CALLS[names] = call
        return call

    return register


class Shared:
    """The objects that all threads use, and the files that they read."""

    def __init__(self, folder):
        self.folder = Path(folder)
        self.converter = layoutkit.Converter("bhwc->bchw", dtype="float32", scale=1 / 255)
        self.collator = layoutkit.Collator("hwc->bchw", h=4, w=5)
        self.pad = layoutkit.Collator("tf->btf", t="longest", lengths=True)
        self.columns = layoutkit.columns(image=layoutkit.Converter("bhwc->bchw"))
        self.view = layoutkit.ImageView("bhwc", PIXELS)
        self.labels = layoutkit.ClassView("b", LABELS, classes=3)
        self.sequence = layoutkit.SequenceView("tb", LABELS.reshape(3, 2))
        flat = layoutkit.DataView("bf", FLOATS[:2, 0, 0])
        self.list_view = layoutkit.ListView(
            [layoutkit.SequenceView("tb", LABELS[:2, None].T), flat]
        )
        self.space = layoutkit.Conv2DSpace((8, 10), 3, "bhwc")
        self.both = layoutkit.CompositeSpace((self.space, layoutkit.NullSpace()))
        self.label_space = layoutkit.IndexSpace(3, 1)
        self.sequence_space = layoutkit.IndexSequenceSpace(3, 1)
        self.mapping = layoutkit.DataSpecsMapping(
            (
                layoutkit.CompositeSpace((layoutkit.VectorSpace(3), layoutkit.VectorSpace(2))),
                ("x", "y"),
            )
        )
        self.index = data.open_index({"x": np.arange(30), "y": ["even", "odd"] * 15})
        with data.sampled_batcher(FLOATS, batch_size=6, layout="bhwc") as batches:
            (self.batch,) = batches
        self.dataset = data.Dataset({"input": FLOATS, "target": LABELS}, layout={"input": "bhwc"})
        self.decoder = images.Decoder((6, 6), "pad")
        self.augmenter = images.Augmenter((3, 4, 4), rand_crop=True, rand_mirror=True)
        self.png = encoded(PIXELS[0])
        packed = [image(encoded(pixels), float(n), n) for n, pixels in enumerate(PIXELS)]
        write_rec(self.folder / "images.rec", packed)
        np.savetxt(self.folder / "rows.csv", np.arange(24).reshape(8, 3), "%d", ",")
        header = bytes([0, 0, 8, 3]) + np.array([6, 8, 10], ">i4").tobytes()
        (self.folder / "images-idx3").write_bytes(header + PIXELS[..., 0].tobytes())
        header = bytes([0, 0, 8, 1]) + np.array([6], ">i4").tobytes()
        (self.folder / "labels-idx1").write_bytes(header + LABELS.astype("u1").tobytes())
        recordio.write_mean(self.folder / "mean.bin", FLOATS[0].transpose(2, 0, 1).copy())


def comparable(value):
    """Return a value that compares equal if and only if the results are equal."""
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    if isinstance(value, dict):
        return {key: comparable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [comparable(item) for item in value]
    return value


# ---- conversions -----------------------------------------------------------------------------


@covers("convert", "accumulate")
def _convert(_, number=0):
    planes = layoutkit.convert(LARGE + number, "bhwc->bchw")
    total = layoutkit.accumulate([(planes, "bchw"), (LARGE, "bhwc")], "bhwc")
    halves = layoutkit.convert(PIXELS + np.uint8(number), "bhwc->chwb", dtype="float32", scale=0.5)
    return [planes, total, halves]


@covers("Converter", "ArraySpec", "plan")
def _converter(shared, number=0):
    y = shared.converter(PIXELS + np.uint8(number))
    grad = shared.converter.backward(y, like=FLOATS)
    inverse = shared.converter.inverse("uint8")(y)
    spec = shared.converter.infer_spec(layoutkit.ArraySpec("bhwc", (number, 8, 10, 3), "uint8"))
    return [y, grad, inverse, str(spec), str(layoutkit.plan("bhwc->bchw", PIXELS.shape, "uint8"))]


@covers("collate", "Collator")
def _collate(shared, number=0):
    offset = {"h": np.arange(6) % 4, "w": np.arange(6)}
    samples = [*PIXELS + np.uint8(number)]
    return [shared.collator(samples, offset=offset), layoutkit.collate(samples, "hwc->bhwc")]


@covers("Placements", "Placement")
def _place(shared, number=0):
    samples = [*PIXELS + np.uint8(number)]
    placements = shared.collator.place(samples, flip="w")
    boxes, kept = placements[number % 6].fit_boxes([[0, 0, 5, 5]])
    return [shared.collator(samples, placements=placements), boxes, kept, str(placements)]


@covers("Packed", "Padded")
def _collate_different_sizes(shared, number=0):
    clips = [FLOATS[0, : 2 + i, 0] + number for i in range(4)]
    packed = layoutkit.collate(clips, "tf->(bt)f")
    return [*packed, *packed.split(), *shared.pad(clips)]


@covers("from_preprocessor_config")
def _read_preprocessor_config(shared, number=0):
    config = {"image_processor_type": "ViTImageProcessor", "size": 4 + number}
    return layoutkit.from_preprocessor_config(config)([*PIXELS])


@covers("columns", "Columns")
def _columns(shared, number=0):
    return shared.columns({"image": PIXELS + np.uint8(number), "label": [number]})


# ---- views and spaces ------------------------------------------------------------------------


@covers("DataView", "ImageView", "ClassView")
def _shared_views(shared, number=0):
    layouts = ["bchw", "chwb", "bf", "bhwc", "wbhc", "hbwc", "cbhw", "bwhc"]
    turned = layouts[number:] + layouts[:number]
    gets = [shared.view.forward_get(layout, "float32") for layout in turned]
    own = layoutkit.DataView("bhwc", FLOATS)
    own.backward_put("bchw", own.forward_get("bchw"))
    return [*gets, shared.labels.one_hot("int8"), own.backward_get("bhwc")]


@covers("SequenceView", "ListView")
def _sequences_and_lists(shared, number=0):
    dtypes = ["int64", "float32", "float64", "int32"]
    dtype = dtypes[number % 4]
    first, second = shared.list_view.forward_get(["bt", "bf"], [dtype, "float32"])
    return [shared.sequence.forward_get("bt", dtype), first, second]


@covers("Space", "VectorSpace", "Conv2DSpace", "CompositeSpace", "NullSpace")
def _spaces(shared, number=0):
    space = shared.space
    assert isinstance(shared.both, layoutkit.Space)
    batch = FLOATS + number
    flat = space.format_as(batch, layoutkit.VectorSpace(240))
    planes = space.format_as(batch, layoutkit.Conv2DSpace((8, 10), 3, "bchw"))
    pair = layoutkit.CompositeSpace((layoutkit.VectorSpace(240), layoutkit.NullSpace()))
    return [flat, planes, repr(shared.both), shared.both.format_as((batch, None), pair)[0]]


@dataclass(frozen=True)
class Spectrum(layoutkit.ArraySpace):
    """A space of another package."""

    bands: int
    dtype: object = "float32"
    layout = "bf"

    @property
    def sizes(self):
        return {"f": self.bands}


@covers("ArraySpace")
def _own_space(shared, number=0):
    batch = np.full((2, 3), number, np.float32)
    return Spectrum(3).format_as(batch, layoutkit.VectorSpace(3))


@covers(*(f"plugins.{name}" for name in ("register", "list_plugins", "Plugin")))
def _plugins(shared, number=0):
    plugins.register("samplers", "backward-of-calls", lambda count, *_: np.arange(count)[::-1])
    return [str(plugins.list_plugins()), list(data.sampler("backward-of-calls", 4 + number))]


@covers("plugins.Adapter", "plugins.Container")
def _adapters(shared, number=0):
    return issubclass(plugins.Container, plugins.Adapter)


@covers("IndexSpace", "VectorSequenceSpace", "IndexSequenceSpace")
def _label_spaces(shared, number=0):
    labels = np.roll(LABELS, number)[:, None]
    one_hot = shared.label_space.format_as(labels, layoutkit.VectorSpace(3))
    target = layoutkit.VectorSequenceSpace(3)
    return [one_hot, shared.sequence_space.format_as(labels, target)]


@covers("DataSpecsMapping", "is_flat_space", "is_flat_source", "is_flat_specs")
def _data_specs(shared, number=0):
    flat = shared.mapping.flatten((number, 2))
    spaces = layoutkit.CompositeSpace((layoutkit.VectorSpace(3), layoutkit.VectorSpace(2)))
    checks = layoutkit.is_flat_space(spaces), layoutkit.is_flat_source(("x", "y"))
    return [flat, shared.mapping.nest(flat), *checks, layoutkit.is_flat_specs((spaces, ("x", "y")))]


# ---- data ------------------------------------------------------------------------------------


@covers("data.open_index", "data.Index", "data.Record")
def _index(shared, number=0):
    assert isinstance(shared.index, data.Index)
    records = [shared.index[number], shared.index.item_at(number, "odd"), *shared.index[25:]]
    own = data.open_index(shared.folder / "images.rec")
    assert isinstance(own[2], data.Record)
    return [[record.position for record in records], len(own), own[2].offset]


@covers("data.mix")
def _mix(shared, _number=0):
    own = data.mix([(shared.index, 2), (shared.index, 1)])
    return [record.position for record in own][:40:9]


@covers("data.sampler", "data.Sampler")
def _sampler(shared, _number=0):
    own = data.sampler("label-permutation", shared.index, batch_size=4, seed=3)
    assert isinstance(own, data.Sampler)
    return [record.position for record in own]


@covers("data.sampled_batcher", "data.Batcher", "data.Batch")
def _batcher(shared, number=0):
    with data.sampled_batcher(
        shared.index, sampler="shuffle", batch_size=7, num_workers=2
    ) as batches:
        assert isinstance(batches, data.Batcher)
        own = [(batch.input.input, batch.count) for batch in batches]
    assert isinstance(shared.batch, data.Batch)
    planes = shared.batch.input.forward_get(["bchw", "chwb", "bf"][number % 3], "float64")
    positions = [record.position for record in shared.batch.item]
    return [own, planes, positions, shared.batch.index, shared.batch.count]


@covers("data.LoaderStats")
def _loader_stats(shared, _number=0):
    with data.sampled_batcher(FLOATS, batch_size=4, layout="bhwc", num_workers=2) as batches:
        records = sum(batch.count for batch in batches)
        stats = batches.stats()
    assert isinstance(stats, data.LoaderStats)
    return [records, stats.records, stats.batches]


@covers("data.RamCache")
def _ram_cache(shared, _number=0):
    with data.RamCache("1 MiB") as cache:
        batches = data.sampled_batcher(
            {"x": range(9)},
            get=lambda record: np.full(3, record.position),
            batch_size=4,
            num_workers=2,
            cache=cache,
        )
        with batches:
            epochs = [[batch.input.input for batch in batches] for _ in range(2)]
        return [*epochs, cache.use.records]


@covers("data.Ragged")
def _ragged(shared, number=0):
    with data.sampled_batcher(
        FLOATS, sampler="shuffle", batch_size=4, num_workers=2, collate="ragged"
    ) as batches:
        own = [batch.input for batch in batches]
    assert isinstance(own[0], data.Ragged)
    return [(part[number % len(part)], part.data, part.offsets) for part in own]


@covers("data.Sample", "data.Dataset")
def _dataset(shared, number=0):
    sample = shared.dataset[number % 6]
    assert isinstance(sample, data.Sample)
    return [sample.input(), shared.dataset.target(), shared.dataset[1:4].input()]


@covers("data.Provider", "data.ArrayProvider", "data.CSVProvider", "data.MNISTProvider")
def _providers(shared, _number=0):
    folder = shared.folder
    providers = [
        data.ArrayProvider({"data": FLOATS[:, 0, 0]}, {"label": LABELS}, batch_size=4),
        data.CSVProvider(folder / "rows.csv", data_shape=(3,), batch_size=3),
        data.MNISTProvider(folder / "images-idx3", folder / "labels-idx1", batch_size=2),
    ]
    assert all(isinstance(provider, data.Provider) for provider in providers)
    return [[_arrays_of(batch) for batch in provider] for provider in providers]


@covers("data.ImageRecordProvider")
def _image_records(shared, _number=0):
    provider = data.ImageRecordProvider(
        shared.folder / "images.rec", (3, 6, 6), batch_size=3, rand_crop=True
    )
    return [_arrays_of(batch) for batch in provider]


def _arrays_of(batch):
    return [np.array(array) for array in (*batch.data, *batch.label)]


@covers(
    "data.recordio.RecordWriter",
    "data.recordio.read_records",
    "data.recordio.pack_image",
    "data.recordio.unpack_image",
    "data.recordio.ImageHeader",
    "data.recordio.read_mean",
    "data.recordio.write_mean",
)
def _recordio(shared, _number=0):
    header, content = recordio.unpack_image(recordio.pack_image(b"image", [1.0, 2.0], 3))
    assert isinstance(header, recordio.ImageHeader)
    with tempfile.TemporaryDirectory(dir=shared.folder) as name:
        folder = Path(name)
        with recordio.RecordWriter(folder / "own.rec") as writer:
            writer.write(b"payload")
        recordio.write_mean(folder / "own.bin", FLOATS[0])
        own = recordio.read_mean(folder / "own.bin")
        records = list(recordio.read_records(folder / "own.rec"))
    return [header.id, content, own, records, recordio.read_mean(shared.folder / "mean.bin")]


# ---- images ----------------------------------------------------------------------------------


@covers(
    *(f"images.{name}" for name in ("read", "fit", "placement", "Decoder", "Reader")),
    "images.Augmenter",
    "images.YUVFrames",
)
def _images(shared, number=0):
    where = images.placement((8, 10), (6, 6), "pad")
    assert isinstance(where, layoutkit.Placement)
    augmented = [shared.augmenter(PIXELS[n], epoch=number, position=n) for n in range(3)]
    decoded = shared.decoder(PIXELS[number % 6]), images.Reader((3, 3))(PIXELS[number % 6])
    planes = np.full((4, 6, 8), 100 + number, np.uint8)
    frames = images.YUVFrames.from_buffer(planes, "nv12", matrix="bt709")
    return [
        layoutkit.convert(frames, "bhwc->bchw"),
        images.read(shared.png),
        images.fit(PIXELS[0], (6, 6)),
        list(where),
        *decoded,
        augmented,
    ]


# ---- the process -----------------------------------------------------------------------------


@covers("set_num_threads", "get_num_threads", "set_threading_layer", "warmup", "show_config")
def _process(_, _number=0):
    layoutkit.set_num_threads(2)
    layoutkit.set_threading_layer("auto")
    layoutkit.show_config()
    return [layoutkit.get_num_threads(), layoutkit.warmup("bhwc->bchw", LARGE.shape)]


@covers("buffers")
def _buffers(_, _number=0):
    buffers.set_limit(buffers.stats()["limit"])
    buffers.clear()
    array = buffers.empty((1000,), "int64")
    array[:] = 5
    return array


def all_calls(shared):
    """Return every call as a function without arguments, by the names that it covers."""
    return {names: partial(call, shared) for names, call in CALLS.items()}
