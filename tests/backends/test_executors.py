"""Batches of every kind on every executor, compared with NumPy's: the CPU, a GPU, traced arrays.

The GPU is a stand-in under the real runtime and kernels (tests/helpers/fake_cuda.py).
"""

from typing import Any, NamedTuple

import numpy as np
import pytest

from layoutkit import ArgumentError, Collator
from layoutkit.fields import FieldCollators
from tests.helpers.cuda_shim import needs_compiler

RNG = np.random.default_rng(3)
IMAGES = [RNG.integers(0, 256, shape, np.uint8) for shape in [(20, 30, 3), (18, 26, 3)]]
CLIPS = [RNG.random((count, 8), np.float32) for count in (5, 2)]
MASKS = [x[..., 0].astype(np.int16) for x in IMAGES]
GAPS = [np.where(RNG.random(x.shape) < 0.2, np.nan, x).astype(np.float32) for x in IMAGES]
SIZES = {"h": 12, "w": 10}
FORMULA = {"dtype": "float32", "scale": 1 / 255, "mean": (0.4, 0.5, 0.6), "std": (0.2, 0.3, 0.4)}
# Random windows that another Collator has drawn, resized or cut out.
DRAWN = Collator("hwc->bchw", resize="area", crop="random", flip="random", seed=4, **SIZES)
SCALED = DRAWN.place(IMAGES, positions=[0, 1])
CUT = Collator("hwc->bchw", offset="random", flip="random", seed=4, **SIZES).place(IMAGES)
PATCHES = "(hp)(wq)c->(bhw)(cpq)"
FOLDED = {"p": 4, "q": 4, "multiple": 8, "max_pixels": 400}


class Mode(NamedTuple):
    """A kind of batch: a Collator, its samples, and the arguments of a call."""

    collator: Collator
    samples: list[Any]
    call: dict[str, Any]


MODES = {
    "windows": Mode(Collator("hwc->bchw", **SIZES, **FORMULA), IMAGES, {}),
    "placed": Mode(Collator("hwc->bhwc", **SIZES), IMAGES, {"placements": CUT}),
    "placed and resized": Mode(
        Collator("hwc->bchw", resize="bilinear", **SIZES, **FORMULA), IMAGES, {"placements": SCALED}
    ),
    "letterbox": Mode(
        Collator("hwc->bchw", resize="bicubic", fit="pad", fill=(9, 0, 3), h=24, w=24, **FORMULA),
        IMAGES,
        {},
    ),
    "masks": Mode(
        Collator("hw->bhw", resize="nearest", fill=255, **SIZES), MASKS, {"placements": SCALED}
    ),
    "longest": Mode(
        Collator("tf->bft", t="longest", fill=-1, lengths=True),
        CLIPS,
        {"flip": {"t": [True, False]}},
    ),
    "longest and resized": Mode(
        Collator(
            "hwc->bchw",
            h="longest",
            w="longest",
            resize="bilinear",
            short_side=12,
            max_side=17,
            lengths=True,
            **FORMULA,
        ),
        IMAGES,
        {"flip": {"w": [True, False]}},
    ),
    "packed": Mode(Collator("tf->(bt)f"), CLIPS, {"flip": "t"}),
    "packed patches": Mode(
        Collator(PATCHES, p=2, q=2, **FORMULA), IMAGES, {"flip": {"w": [True, False]}}
    ),
    "packed and resized": Mode(
        Collator(PATCHES, resize="bicubic", **FOLDED, **FORMULA), IMAGES, {"flip": "w"}
    ),
    "packed, nearest": Mode(Collator(PATCHES, resize="nearest", **FOLDED), IMAGES, {}),
    "packed, ignore": Mode(
        Collator("hwc->(bhw)c", resize="bicubic", ignore=float("nan")), GAPS, {"size": (8, 7)}
    ),
    "ignore": Mode(
        Collator("hwc->bchw", resize="bilinear", ignore=float("nan"), **SIZES),
        GAPS,
        {"placements": SCALED},
    ),
}
MOVES = {"placed", "masks", "longest", "packed", "packed, nearest"}
FIELDS = FieldCollators(
    {
        "image": Collator("hwc->bchw", resize="bilinear", offset={"h": 0}, **SIZES),
        "mask": Collator("hw->bhw", resize="nearest", **SIZES),
        "patches": Collator("(yp)(xq)c->(byx)(cpq)", p=2, q=2),
        "boxes": Collator("nk->bnk", n="longest", lengths=True),
    }
)
COLUMNS = {"image": IMAGES, "mask": MASKS, "patches": IMAGES, "boxes": CLIPS}


def parts_of(batch):
    """Return the arrays of a batch, which is an array, Padded, or Packed."""
    return [*batch] if isinstance(batch, tuple) else [batch]


def compare(found, expected, name, is_traced=False):
    """Compare bits, or traced formulas and sums, in which XLA fuses other operations."""
    for x, y in zip(parts_of(found), parts_of(expected), strict=True):
        assert x.shape == y.shape, name
        if is_traced and y.dtype.kind == "f" and name not in MOVES:
            largest = np.abs(y[np.isfinite(y)]).max()
            np.testing.assert_allclose(x, y, rtol=0, atol=8 * np.finfo(y.dtype).eps * largest)
        else:
            np.testing.assert_array_equal(x, y, name)


def read_all(batch, read):
    return tuple(map(read, parts_of(batch)))


@pytest.fixture
def torch():
    module = pytest.importorskip("torch", reason="PyTorch is not installed")
    module.compiler.reset()
    return module


@pytest.fixture
def jax():
    return pytest.importorskip("jax", reason="JAX is not installed")


# ---- concrete arrays ---------------------------------------------------------------------


@pytest.fixture(params=["torch", "jax", "keras", "cupy", "torch on a GPU"])
def library(request, monkeypatch):
    """Return the functions that make an array of a library, and read one, and the GPU or None."""
    name = request.param
    if name == "torch":
        module = request.getfixturevalue("torch")
        return module.from_numpy, np.asarray, None
    if name == "jax":
        return request.getfixturevalue("jax").numpy.asarray, np.asarray, None
    if name == "keras":
        keras = pytest.importorskip("keras", reason="Keras is not installed")
        return keras.ops.convert_to_tensor, np.asarray, None
    gpu = request.getfixturevalue("gpu")
    if name == "cupy":
        from tests.helpers.fake_cuda import FakeArray, values_of

        return gpu.array, lambda x: values_of(x) if isinstance(x, FakeArray) else x, gpu
    from tests.helpers.fake_torch import Cuda, FakeTorch, here

    gpu.eager = True
    there, module = FakeTorch(gpu, monkeypatch).there, request.getfixturevalue("torch")
    return (
        lambda x: there(module.from_numpy(x)),
        lambda x: here(x).numpy() if isinstance(x, Cuda) else x,
        gpu,
    )


@pytest.mark.budget(8)
@needs_compiler
@pytest.mark.parametrize("name", MODES)
def test_batches_of_every_library_are_those_of_numpy(library, name):
    make, read, gpu = library
    collator, samples, call = MODES[name]
    batch = collator([*map(make, samples)], **call)
    assert gpu is None or len(gpu.cupy.launched) == 1
    compare(read_all(batch, read), collator(samples, **call), name)


@needs_compiler
def test_fields_of_every_library_are_those_of_numpy(library):
    make, read, _ = library
    columns = {field: [*map(make, samples)] for field, samples in COLUMNS.items()}
    batches, placements = FIELDS.collate(columns)
    expected, expected_placements = FIELDS.collate(COLUMNS)
    assert placements == expected_placements
    for field, batch in batches.items():
        compare(read_all(batch, read), expected[field], field)
    boxes = [[2.0, 3.0, 25.0, 17.0]]
    found, wanted = placements[1].fit_boxes(boxes), expected_placements[1].fit_boxes(boxes)
    np.testing.assert_array_equal(found[0], wanted[0])


# ---- gradients ---------------------------------------------------------------------------


def differentiate(torch, mode, make):
    """Return a batch of float samples, and the gradients of samples for a random direction."""
    samples = [make(torch.from_numpy(x.astype(np.float32))).requires_grad_() for x in mode.samples]
    (batch, *_) = parts_of(mode.collator(samples, **mode.call))
    direction = np.random.default_rng(0).random(tuple(batch.shape), np.float32)
    gradients = torch.autograd.grad(batch, samples, make(torch.from_numpy(direction)))
    return batch, direction, gradients


@pytest.mark.parametrize("name", MODES)
def test_gradients_are_transposed_batches(torch, name):
    """Test <direction, batch(x) - batch(0)> = <gradient, x>, as batches are linear but for fill."""
    mode = MODES[name]
    batch, direction, gradients = differentiate(torch, mode, lambda x: x)
    samples = [x.astype(np.float32) for x in mode.samples]
    expected, *_ = parts_of(mode.collator(samples, **mode.call))
    compare(batch.detach().numpy(), expected, name)
    zeros = [0 * x for x in samples]
    at_zero, *_ = parts_of(mode.collator(zeros, **mode.call))
    change = np.vdot(direction, np.nan_to_num(expected - at_zero).astype(np.float64))
    pairs = zip(gradients, map(np.nan_to_num, samples), strict=True)
    assert np.isclose(
        sum(np.vdot(g.numpy(), x.astype(np.float64)) for g, x in pairs), change, rtol=1e-5
    )
    if "ignore" in name:
        assert all(
            (grad.numpy()[np.isnan(x)] == 0).all()
            for grad, x in zip(gradients, samples, strict=True)
        )


@needs_compiler
@pytest.mark.parametrize("name", [name for name in MODES if "ignore" not in name])
def test_gradients_on_a_gpu_are_those_of_the_cpu(torch, gpu, monkeypatch, name):
    """Torch's own operations divide the sums of `ignore`: they need a real GPU."""
    from tests.helpers.fake_torch import FakeTorch, here

    gpu.eager = True
    there = FakeTorch(gpu, monkeypatch).there
    batch, _, gradients = differentiate(torch, MODES[name], there)
    expected, _, expected_gradients = differentiate(torch, MODES[name], lambda x: x)
    assert torch.equal(here(batch), expected)
    for found, wanted in zip(gradients, expected_gradients, strict=True):
        assert torch.equal(here(found), wanted)


# ---- traces ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MODES)
def test_traces_of_jax_are_batches_of_numpy(jax, name):
    """Under jax.jit, sizes are those of the traced samples, so packed batches can be traced."""
    collator, samples, call = MODES[name]
    batch = jax.jit(lambda x: collator(x, **call))([*map(jax.numpy.asarray, samples)])
    compare(read_all(batch, np.asarray), collator(samples, **call), name, is_traced=True)


NOT_IN_GRAPHS = {"packed": "a packed batch has sizes", "longest": "lengths=True makes arrays of"}


@pytest.mark.parametrize("name", MODES)
def test_graphs_of_torch_compile_are_batches_of_numpy(torch, name):
    collator, samples, call = MODES[name]
    run = torch.compile(lambda x: collator(x, **call), fullgraph=True, backend="eager")
    tensors = [*map(torch.from_numpy, samples)]
    refusal = next((text for part, text in NOT_IN_GRAPHS.items() if part in name), None)
    if refusal is None:
        compare(read_all(run(tensors), np.asarray), collator(samples, **call), name)
        return
    with pytest.raises(Exception, match=refusal):
        run(tensors)


def test_random_windows_are_refused_in_traces(torch, jax):
    message = "a compiled function would repeat the windows of its first call"
    with pytest.raises(ArgumentError, match=message):
        jax.jit(DRAWN)([*map(jax.numpy.asarray, IMAGES)])
    run = torch.compile(lambda x: DRAWN(x), fullgraph=True, backend="eager")
    with pytest.raises(Exception, match=message):
        run([*map(torch.from_numpy, IMAGES)])


# ---- chunks and names --------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:.*other chunks")
@pytest.mark.parametrize("name", MODES)
def test_lazy_arrays_of_dask_are_moved_and_not_resized(name):
    dask = pytest.importorskip("dask.array", reason="dask is not installed")
    collator, samples, call = MODES[name]
    lazy = [dask.from_array(x, chunks=(5, *x.shape[1:])) for x in samples]
    if collator.windows.resize is None:
        compare(read_all(collator(lazy, **call), np.asarray), collator(samples, **call), name)
        return
    with pytest.raises(ArgumentError, match=r"compute the samples first|on arrays of NumPy"):
        collator(lazy, **call)


@pytest.mark.parametrize("name", ["windows", "letterbox", "packed"])
def test_named_arrays_of_xarray_are_refused(name):
    xarray = pytest.importorskip("xarray", reason="xarray is not installed")
    collator, samples, call = MODES[name]
    with pytest.raises(ArgumentError, match=r"give the arrays inside, as in \[x.to_numpy\(\)"):
        collator([*map(xarray.DataArray, samples)], **call)
