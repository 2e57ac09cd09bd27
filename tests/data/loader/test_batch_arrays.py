"""Batches in arrays of NumPy, PyTorch and JAX in place of Views."""

import pickle
from importlib.util import find_spec

import numpy as np
import pytest

from layoutkit import (
    ArgumentError,
    Collator,
    Converter,
    DataError,
    DtypeError,
    LayoutkitWarning,
    Packed,
    ShapeError,
)
from layoutkit.data import Ragged, sampled_batcher

RNG = np.random.default_rng(0)
SIZES = [(40, 33), (36, 50), (44, 41), (39, 39), (33, 60), (52, 35), (37, 38)]
IMAGES = [RNG.integers(0, 256, (*size, 3), np.uint8) for size in SIZES]
ROWS = RNG.integers(0, 256, (7, 6, 8, 3), np.uint8)
CROPS = {"h": 16, "w": 20, "resize": "bilinear", "crop": "random", "flip": "random"}
FLOATS = {"dtype": "bfloat16", "scale": 1 / 255, "mean": (0.4, 0.5, 0.6)}
CROP = Collator("hwc->bchw", **CROPS, **FLOATS)


def _needs(name):
    missing = find_spec(name) is None
    return pytest.param(name, marks=pytest.mark.skipif(missing, reason=f"{name} is not installed"))


FRAMEWORKS = ["numpy", _needs("torch"), _needs("jax")]


def _class_of(framework):
    if framework == "numpy":
        return np.ndarray
    return pytest.importorskip("torch").Tensor if framework == "torch" else _jax().Array


def _jax():
    return pytest.importorskip("jax")


def _as_numpy(x):
    """Return an array of any framework in NumPy, whose cast from bfloat16 is exact."""
    if type(x).__module__ == "torch":
        return x.double().numpy() if x.dtype.is_floating_point else x.numpy()
    return np.asarray(x)


def _read(number, out=None):
    return IMAGES[int(number)], int(number) % 3


def _read_fields(number, out=None):
    image = IMAGES[int(number)]
    return {"image": image, "mask": image[..., 0], "boxes": np.ones((number % 3, 4), np.float32)}


def _read_clip(number, out=None):
    return np.full((number + 1, 2), number, np.float32)


FIELDS = {
    "image": CROP,
    "mask": Collator("hw->bhw", h=16, w=20, resize="nearest", fill=255),
    "boxes": "ragged",
}
KINDS = {
    "rows": {"sources": {"x": ROWS, "y": list("abcabca")}, "layout": "bhwc"},
    "converted": {"sources": ROWS, "convert": Converter("bhwc->bchw", **FLOATS)},
    "targets": {"sources": {"x": ROWS[:, 0, 0], "y": np.linspace(0, 1, 7, dtype=np.float32)}},
    "crops": {"processor": _read, "collate": CROP},
    "several": {"processor": _read, "collate": [CROP, Collator("hwc->bhwc", h=9, w=9, fill=0)]},
    "fields": {"processor": _read_fields, "collate": FIELDS},
    "ragged": {"processor": _read_clip, "collate": "ragged"},
    "padded": {
        "processor": _read_clip,
        "collate": Collator("tf->btf", t="longest", fill=0, lengths=True),
    },
    "packed": {"processor": _read_clip, "collate": Collator("tf->(bt)f")},
}


def _open(kind, **options):
    arguments = {"sources": range(7), "batch_size": 3, "sampler": "shuffle", **KINDS[kind]}
    return sampled_batcher(**{**arguments, **options})


def _leaves(x):
    """Return the arrays of an input or target, in an order, without sizes and offsets."""
    if x is None:
        return []
    if isinstance(x, Packed | Ragged):
        return [x.data]
    if isinstance(x, dict | tuple):
        return [
            leaf for item in (x.values() if isinstance(x, dict) else x) for leaf in _leaves(item)
        ]
    return [x]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_batches_are_arrays_of_the_framework(framework, kind, workers):
    """Several batches are held at once: the memory of a batch in use is not written again."""
    array_class = _class_of(framework)
    with (
        _open(kind, num_workers=0) as in_views,
        _open(kind, framework=framework, num_workers=workers) as batches,
    ):
        held = [batch for _ in range(2) for batch in batches]
        expected = [batch for _ in range(2) for batch in in_views]
    assert [batch.count for batch in held] == [3, 3, 1] * 2
    for ours, theirs in zip(held, expected, strict=True):
        assert ours.index.tolist() == theirs.index.tolist()
        assert (ours.placements is None) == (theirs.placements is None)
        for part, reference in zip(ours, theirs, strict=True):
            for x, view in zip(_leaves(part), _leaves(reference), strict=True):
                array = getattr(view, "input", view)
                assert isinstance(x, array_class)
                np.testing.assert_array_equal(_as_numpy(x), array.astype(_as_numpy(x).dtype))


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_dtypes_of_batches(framework):
    with _open("crops", framework=framework) as batches:
        x, y = next(iter(batches))
    assert str(x.dtype).removeprefix("torch.") == "bfloat16"
    # JAX has 64 bits only with jax_enable_x64.
    assert str(y.dtype).removeprefix("torch.") == ("int32" if framework == "jax" else "int64")


def test_classes_are_int64_tensors_for_a_loss():
    torch = pytest.importorskip("torch")
    with _open("rows", framework="torch") as batches:
        for x, y in batches:
            loss = torch.nn.functional.cross_entropy(x.float().mean((1, 2)), y)
            assert loss.isfinite()
            assert y.dtype == torch.int64


def test_tensors_share_the_memory_of_a_batch():
    torch = pytest.importorskip("torch")
    from layoutkit.backends.registry import import_framework

    array = np.arange(6, dtype=np.float32)
    tensor = import_framework("torch").from_numpy(array)
    tensor[0] = 7
    assert (array[0], tensor.dtype) == (7, torch.float32)


LAST = {"memory": "bhwc", **FLOATS}
LAST_STEPS = [
    {"sources": ROWS, "convert": Converter("bhwc->bchw", **LAST)},
    {"processor": _read, "collate": Collator("hwc->bchw", **CROPS, **LAST)},
]


@pytest.mark.parametrize("steps", LAST_STEPS)
def test_batches_have_a_memory_layout(steps):
    torch = pytest.importorskip("torch")
    arguments = {"sources": range(7), "batch_size": 3, **steps}
    with sampled_batcher(framework="torch", **arguments) as batches:
        x = next(iter(batches)).input
    assert x.is_contiguous(memory_format=torch.channels_last)
    _jax()
    with pytest.raises(DataError, match="memory='bhwc', and XLA chooses the memory layout"):
        sampled_batcher(framework="jax", **arguments)


def test_jax_arrays_share_the_memory_of_a_batch():
    _jax()
    from layoutkit import buffers
    from layoutkit.backends.registry import import_framework

    array = buffers.empty((64, 64), np.float32)
    assert import_framework("jax").from_numpy(array).unsafe_buffer_pointer() == array.ctypes.data


def test_records_that_fail_leave_tensors_of_the_others():
    torch = pytest.importorskip("torch")

    def read(number, out=None):
        if number % 2:
            raise OSError("damaged")
        return _read(number)

    with _open(
        "crops", processor=read, framework="torch", batch_size=2, sampler="linear"
    ) as batches:
        found = list(batches)
    assert [len(batch.dropped) for batch in found] == [1, 1, 1, 0]
    assert [batch.target.tolist() for batch in found] == [[0], [2], [1], [0]]
    assert all(isinstance(batch.input, torch.Tensor) for batch in found)


# ---- Collators of PyTorch --------------------------------------------------------------------


@pytest.mark.parametrize("form", [lambda x: x, lambda x: [CROP, x], lambda x: {"image": x}])
def test_a_collator_of_torch_makes_tensors(form):
    torch = pytest.importorskip("torch")
    from layoutkit.torch import Collator as TorchCollator

    ours = TorchCollator("hwc->bchw", **CROPS, **{**FLOATS, "dtype": torch.bfloat16})
    read = _read_fields if isinstance(form(ours), dict) else _read
    options = {"processor": read, "num_workers": 2}
    with _open("crops", collate=form(ours), **options) as batches:
        found = [leaf for batch in batches for leaf in _leaves(batch.input)]
    with _open("crops", collate=form(CROP), framework="torch", **options) as batches:
        expected = [leaf for batch in batches for leaf in _leaves(batch.input)]
    for x, y in zip(found, expected, strict=True):
        assert isinstance(x, torch.Tensor)
        assert torch.equal(x, y)


def test_a_collator_of_torch_reads_rows_of_an_array():
    torch = pytest.importorskip("torch")
    from layoutkit.torch import Collator as TorchCollator

    collator = TorchCollator("hwc->bchw", h=4, w=4, offset="random", seed=1)
    with sampled_batcher(ROWS, batch_size=7, collate=collator) as batches:
        x = next(iter(batches)).input
    assert torch.equal(x, collator(list(ROWS), positions=range(7)))


def test_another_framework_than_the_collators_is_an_error():
    pytest.importorskip("torch")
    from layoutkit.torch import Collator as TorchCollator

    collator = TorchCollator("hwc->bchw", h=8, w=8)
    message = "framework='numpy', but batches of a layoutkit.torch.Collator are of torch"
    with pytest.raises(DataError, match=message):
        _open("crops", collate=collator, framework="numpy")


# ---- states ----------------------------------------------------------------------------------


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_run_resumes_in_another_framework(framework):
    with _open("crops", seed=3) as batches:
        loop = iter(batches)
        next(loop)
        state = batches.state_dict()
        rest = [batch.input.input for batch in loop]
    with _open("crops", seed=3, framework=framework) as batches:
        batches.load_state_dict(state)
        found = [batch.input for batch in batches]
        assert batches.epoch == 1
    for x, expected in zip(found, rest, strict=True):
        np.testing.assert_array_equal(_as_numpy(x), expected.astype(_as_numpy(x).dtype))


def test_a_collator_of_torch_has_the_state_of_a_collator():
    pytest.importorskip("torch")
    from layoutkit.torch import Collator as TorchCollator

    states = []
    for collator in (CROP, TorchCollator.from_dict(CROP.to_dict())):
        with _open("crops", collate=collator) as batches:
            loop = iter(batches)
            next(loop)
            states.append(batches.state_dict())
    assert states[0] == states[1]


# ---- batches ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_batches_move_to_devices(kind):
    torch = pytest.importorskip("torch")
    with _open(kind, framework="torch") as batches:
        batch = next(iter(batches))
    moved = batch.to("meta", non_blocking=True)
    for part in moved:
        assert all(x.device == torch.device("meta") for x in _leaves(part))
    assert all(x.device.type == "cpu" for x in _leaves(batch.input))
    assert moved.item == batch.item
    assert moved.index is batch.index


@pytest.mark.parametrize("framework", [None, "numpy"])
def test_only_tensors_move_to_devices(framework):
    with _open("crops", framework=framework) as batches:
        batch = next(iter(batches))
    with pytest.raises(ArgumentError, match='not a tensor; give sampled_batcher framework="torch"'):
        batch.to("cpu")


def test_the_text_of_a_batch_has_shapes_and_no_values():
    torch = pytest.importorskip("torch")
    with _open("crops", framework="torch") as batches:
        batch = next(iter(batches))
    expected = (
        "<batch of 3: torch.Tensor (3, 3, 16, 20) torch.bfloat16, torch.Tensor (3,) torch.int64>"
    )
    assert repr(batch) == expected
    assert torch.equal(pickle.loads(pickle.dumps(batch)).input, batch.input)


# ---- errors ----------------------------------------------------------------------------------


@pytest.mark.parametrize("framework", ["tensorflow", "pt", 1, True])
def test_an_unknown_framework_is_an_error(framework):
    with pytest.raises(ArgumentError, match="it must be one of 'numpy', 'jax', 'torch'"):
        _open("rows", framework=framework)


def test_dtypes_that_torch_lacks_are_an_error():
    pytest.importorskip("torch")
    rows = np.zeros((4, 2), np.longdouble)
    batches = sampled_batcher(rows, batch_size=2, framework="torch")
    with batches, pytest.raises(DtypeError, match="torch has no dtype"):
        next(iter(batches))


@pytest.mark.parametrize("framework", [None, *FRAMEWORKS])
def test_the_rank_of_rows_is_checked(framework):
    batches = sampled_batcher(ROWS, batch_size=2, layout="bhw", framework=framework)
    with batches, pytest.raises(ShapeError, match="bhw"):
        next(iter(batches))


def test_rows_of_a_framework_need_no_layout():
    with sampled_batcher(ROWS, batch_size=2, framework="numpy") as batches:
        np.testing.assert_array_equal(next(iter(batches)).input, ROWS[:2])


# ---- feed, which converts the batches of a Batcher -------------------------------------------


@pytest.mark.parametrize("framework", [None, "numpy", "torch"])
def test_feed_converts_the_batches_of_a_batcher(framework):
    torch = pytest.importorskip("torch")
    from layoutkit.torch import feed

    formula = {**FLOATS, "dtype": torch.bfloat16}
    with _open("rows", framework=framework) as batches:
        fed = feed(batches, "bhwc->bchw", **formula)
        assert len(fed) == 3
        found = list(fed)
        assert batches.epoch == 1
    with _open("rows", convert=Converter("bhwc->bchw", **formula), framework="torch") as batches:
        expected = list(batches)
    for batch, reference in zip(found, expected, strict=True):
        assert torch.equal(batch.input, reference.input)
        assert torch.equal(batch.target, reference.target)
        assert batch.label == reference.label


def test_feed_converts_a_field_of_records():
    torch = pytest.importorskip("torch")
    from layoutkit.torch import feed

    with _open("fields", framework="torch") as batches:
        expected = next(iter(batches)).input
    with _open("fields") as batches:
        found = next(iter(feed(batches, "bchw->bhwc", key="image"))).input
    assert torch.equal(found["image"], expected["image"].permute(0, 2, 3, 1))
    assert torch.equal(found["mask"], expected["mask"])
    assert torch.equal(found["boxes"].data, expected["boxes"].data)


@pytest.mark.parametrize("framework", [None, "torch"])
@pytest.mark.parametrize(("kind", "key"), [("crops", None), ("fields", "image"), ("rows", None)])
def test_feed_refuses_the_axes_of_a_batcher_in_another_order(kind, key, framework):
    pytest.importorskip("torch")
    from layoutkit.torch import feed

    convert = {"convert": Converter("bhwc->bchw")} if kind == "rows" else {}
    with _open(kind, framework=framework, **convert) as batches:
        message = 'are bchw, but "nhwc->nchw" converts bhwc; give "bchw->bchw"'
        with pytest.raises(ArgumentError, match=message):
            feed(batches, "nhwc->nchw", key=key)
        batch = next(iter(feed(batches, "bchw->bchw", key=key))).input
    assert (batch if key is None else batch[key]).shape[1] == 3


def test_feed_passes_batches_without_records_on():
    pytest.importorskip("torch")
    from layoutkit.torch import feed

    def refuse_first(number, out=None):
        return None if number < 2 else IMAGES[0]

    options = {"processor": refuse_first, "batch_size": 2, "sampler": "linear"}
    with _open("crops", **options) as batches:
        found = list(feed(batches, "bchw->bhwc"))
    assert [batch.count for batch in found] == [0, 2, 2, 1]


# ---- page-locked memory ----------------------------------------------------------------------


@pytest.fixture
def pinned_class(monkeypatch):
    """Stand for a torch with CUDA: tensors in page-locked memory are of a subclass, the result."""
    torch = pytest.importorskip("torch")

    class Pinned(torch.Tensor):
        def pin_memory(self):
            return self

    def pin(tensor):
        return tensor.clone().as_subclass(Pinned)

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.Tensor, "pin_memory", pin)
    return Pinned


@pytest.mark.parametrize("kind", KINDS)
def test_pinned_batches_are_equal_and_are_copied_by_the_threads(pinned_class, kind):
    options = {"framework": "torch", "num_workers": 2, "seed": 1}
    with _open(kind, **options) as batches:
        expected = list(batches)
    with _open(kind, pin_memory=True, **options) as batches:
        # Converted in the thread of the loop, and pinned after that.
        assert (batches._config.pipeline.pin is None) == (kind == "converted")
        for pinned, batch in zip(batches, expected, strict=True):
            found = [*_leaves(pinned.input), *_leaves(pinned.target)]
            plain = [*_leaves(batch.input), *_leaves(batch.target)]
            assert [type(x) for x in found] == [pinned_class] * len(plain)
            for x, y in zip(found, plain, strict=True):
                assert x.dtype == y.dtype
                assert (x == y).all()


def test_pinned_memory_needs_tensors_and_cuda(monkeypatch):
    torch = pytest.importorskip("torch")
    for framework in (None, "numpy"):
        with pytest.raises(DataError, match=r'pin_memory=True .* give framework="torch"'):
            sampled_batcher(ROWS, batch_size=4, framework=framework, pin_memory=True)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    options = {"batch_size": 7, "layout": "bhwc", "framework": "torch", "pin_memory": True}
    with (
        pytest.warns(LayoutkitWarning, match="no effect, because torch finds no CUDA"),
        sampled_batcher(ROWS, **options) as batches,
    ):
        assert (next(iter(batches)).input.numpy() == ROWS).all()
