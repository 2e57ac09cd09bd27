"""Views whose base is of another library, or on a GPU: results are of that library too."""

from importlib.util import find_spec

import numpy as np
import pytest

import layoutkit
from layoutkit import (
    BackwardError,
    ClassView,
    CompositeSpace,
    Conv2DSpace,
    DataView,
    DeviceError,
    ImageView,
    IndexSpace,
    ListView,
    NullSpace,
    SpaceError,
    VectorSequenceSpace,
    VectorSpace,
    ViewError,
)
from tests.helpers.cuda_shim import needs_compiler
from tests.helpers.fake_cuda import FakeArray, install, values_of
from tests.helpers.reference import reference_convert

IMAGES = np.random.default_rng(0).random((5, 4, 6, 3), np.float32)
GRADIENT = np.random.default_rng(1).random((5, 3, 4, 6), np.float32)
OTHER = np.random.default_rng(2).random((5, 72), np.float32)
LABELS = np.array([[3, 1], [2, 0], [1, 2]])


class Torch:
    """PyTorch tensors on the CPU."""

    device = "cpu"

    def __init__(self, _):
        self.torch = pytest.importorskip("torch", reason="needs PyTorch")

    def make(self, values):
        return self.torch.from_numpy(values.copy())

    def values(self, x):
        assert isinstance(x, self.torch.Tensor)
        return x.detach().numpy()


class Jax:
    """JAX arrays on the CPU."""

    device = "cpu"

    def __init__(self, _):
        self.jax = pytest.importorskip("jax", reason="needs JAX")

    def make(self, values):
        return self.jax.numpy.asarray(values)

    def values(self, x):
        assert isinstance(x, self.jax.Array)
        return np.asarray(x)


class Cuda:
    """CuPy arrays on a fake GPU."""

    device = "cuda:0"

    def __init__(self, monkeypatch):
        self.runtime = install(monkeypatch)
        self.runtime.eager = True

    def make(self, values):
        return self.runtime.array(values)

    def values(self, x):
        assert isinstance(x, FakeArray)
        return values_of(x)


@pytest.fixture(params=[Torch, Jax, pytest.param(Cuda, marks=needs_compiler)])
def library(request, monkeypatch):
    return request.param(monkeypatch)


def check_result(library, got, wanted):
    values = library.values(got)
    assert values.shape == wanted.shape
    np.testing.assert_allclose(values, wanted, rtol=1e-6)


def test_results_are_of_the_kind_that_was_put(library):
    x = library.make(IMAGES)
    view = ImageView("bhwc", x)
    assert (view.input is x, view.forward_get() is x, len(view)) == (True, True, 5)
    assert (view.device, view.dtype) == (library.device, np.float32)
    check_result(library, view.forward_get("bchw"), reference_convert(IMAGES, "bhwc->bchw"))
    check_result(
        library,
        view.forward_get("bf", "float16"),
        reference_convert(IMAGES, "bhwc->bf").astype("f2"),
    )
    assert view.forward_get("b c h w") is view.forward_get("bchw")
    assert "(5, 4, 6, 3)" in repr(view)
    assert "bchw" in view._repr_html_()


def test_gradients_come_back_in_that_kind(library):
    view = ImageView("bhwc", library.make(IMAGES))
    view.forward_get("bchw"), view.forward_get("bf")
    view.backward_put("bchw", library.make(GRADIENT))
    alone = GRADIENT.transpose(0, 2, 3, 1)
    check_result(library, view.backward_get(), alone)
    view.backward_put("bf", library.make(OTHER))
    check_result(library, view.backward_get(), alone + OTHER.reshape(5, 4, 6, 3))
    assert view.backward_get().dtype == view.input.dtype
    check_result(library, view.backward_get(dtype="float64"), alone + OTHER.reshape(5, 4, 6, 3))


def test_gradients_that_belong_to_nothing(library):
    view = ImageView("bhwc", library.make(IMAGES))
    with pytest.raises(BackwardError, match="no result of this batch matches it"):
        view.backward_put("bchw", library.make(GRADIENT))
    view.forward_get("bchw")
    with pytest.raises(BackwardError, match=r"expected shape \(5, 3, 4, 6\)"):
        view.backward_put("bchw", library.make(GRADIENT[1:]))


def test_samples_are_of_that_kind(library):
    view = ImageView("bhwc", library.make(IMAGES))
    check_result(library, view.index([4, 0, -1]).input, IMAGES[[4, 0, 4]])
    check_result(library, view.sub(1, 3).input, IMAGES[1:3])
    check_result(library, view.sub(3, 9, copy=False).input, IMAGES[3:])
    parts = [part.forward_get("bchw") for part in view.batches(2)]
    for part, wanted in zip(parts, np.array_split(IMAGES, [2, 4]), strict=True):
        check_result(library, part, reference_convert(wanted, "bhwc->bchw"))
    out = ImageView("bhwc", library.make(IMAGES))
    assert view.index([2], out=out) is out
    check_result(library, out.forward_get("chwb"), reference_convert(IMAGES[2:3], "bhwc->chwb"))


def test_a_copy_shares_no_memory(library):
    if isinstance(library, Jax):
        pytest.skip("arrays of JAX are immutable")
    view = ImageView("bhwc", library.make(IMAGES))
    part = view.sub(0, 2)
    library.values(view.input)[...] = 0
    check_result(library, part.input, IMAGES[:2])


def test_a_batch_is_replaced(library):
    view = ImageView("bhwc", library.make(IMAGES))
    view.replace("bchw", library.make(GRADIENT))
    check_result(library, view.input, GRADIENT.transpose(0, 2, 3, 1))
    view.flush()
    check_result(library, view.forward_get("bchw"), GRADIENT)


def test_labels(library):
    view = ClassView("bt", library.make(LABELS), 4)
    check_result(library, view.forward_get("b"), LABELS[:, 0])
    check_result(library, view.one_hot(), np.eye(4, dtype="f4")[LABELS[:, 0]])
    check_result(library, view.many_hot(), np.eye(4, dtype="f4")[LABELS].max(1))
    view.backward_put("b", library.make(np.array([0.5, 0.25, 2], "f4")))
    check_result(library, view.backward_get(), np.array([[0.5, 0], [0.25, 0], [2, 0]], "f4"))


def test_several_components(library):
    view = ListView([ImageView("bhwc", library.make(IMAGES)), DataView("bf", library.make(OTHER))])
    planes, flat = view.forward_get(["bchw", "bf"])
    check_result(library, planes, reference_convert(IMAGES, "bhwc->bchw"))
    check_result(library, flat, OTHER)
    view.backward_put(["bchw", "bf"], (library.make(GRADIENT), library.make(OTHER)))
    check_result(library, view.backward_get()[0], GRADIENT.transpose(0, 2, 3, 1))


def test_spaces_that_are_a_layout_and_a_dtype(library):
    view = ImageView("bhwc", library.make(IMAGES))
    planes = Conv2DSpace((4, 6), 3, "bchw", "float32")
    check_result(library, view.forward_get(planes), reference_convert(IMAGES, "bhwc->bchw"))
    view.backward_put(planes, library.make(GRADIENT))
    check_result(library, view.backward_get(), GRADIENT.transpose(0, 2, 3, 1))
    flat = view.forward_get(VectorSpace(72))
    check_result(library, flat, reference_convert(IMAGES, "bhwc->b(hwc)"))


def test_spaces_that_are_more(library):
    view = ClassView("bt", library.make(LABELS), 4)
    hot = VectorSpace(4)
    if library.device == "cpu":
        check_result(library, view.forward_get(hot), np.eye(4, dtype="f4")[LABELS].max(1))
        assert isinstance(view.forward_get(IndexSpace(4, 2)), type(view.input))
    else:
        with pytest.raises(DeviceError, match=r"is on cuda:0.*get it with device=.cpu. first"):
            view.forward_get(hot)


@needs_compiler
def test_a_base_on_a_gpu_is_got_on_the_cpu_and_takes_gradients_from_there(monkeypatch):
    library = Cuda(monkeypatch)
    view = ImageView("bhwc", library.make(IMAGES))
    planes = view.forward_get("bchw", device="cpu")
    assert isinstance(planes, np.ndarray)
    np.testing.assert_array_equal(planes, reference_convert(IMAGES, "bhwc->bchw"))
    view.forward_get("bf")
    view.backward_put("bchw", GRADIENT)
    check_result(library, view.backward_get(), GRADIENT.transpose(0, 2, 3, 1))
    view.backward_put("bf", library.make(OTHER))
    wanted = GRADIENT.transpose(0, 2, 3, 1) + OTHER.reshape(5, 4, 6, 3)
    check_result(library, view.backward_get(), wanted)


@needs_compiler
def test_another_device_or_library_begins_anew(monkeypatch):
    library = Cuda(monkeypatch)
    view = ImageView("bhwc", IMAGES)
    on_cpu = view.forward_get("bchw")
    view.forward_put("bhwc", library.make(IMAGES))
    assert view.device == "cuda:0"
    check_result(library, view.forward_get("bchw"), on_cpu)
    view.forward_put("bhwc", IMAGES)
    assert (view.device, type(view.forward_get("bchw"))) == ("cpu", np.ndarray)


@pytest.mark.skipif(find_spec("torch") is None, reason="needs PyTorch")
def test_autograd_goes_through_a_view():
    import torch

    x = torch.rand(5, 4, 6, 3, requires_grad=True)
    view = ImageView("bhwc", x)
    (view.forward_get("bchw") * torch.from_numpy(GRADIENT)).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), GRADIENT.transpose(0, 2, 3, 1), rtol=1e-6)
    taken = view.index([1, 1]).forward_get("bf").sum()
    assert torch.autograd.grad(taken, x)[0][1].min() == 2


# ---- NumPy's protocol --------------------------------------------------------------------


def test_a_view_is_an_array_to_numpy():
    view = ImageView("bhwc", IMAGES)
    assert np.asarray(view) is IMAGES
    assert view.shape == np.shape(view) == IMAGES.shape
    assert np.asarray(view, "float64").dtype == np.float64
    assert not np.shares_memory(np.array(view), IMAGES)
    assert np.asarray(view, copy=False) is IMAGES
    with pytest.raises(ValueError, match="Unable to avoid copy"):
        np.array(view, dtype="float64", copy=False)
    assert np.array_equal(view, IMAGES)
    assert np.asarray(view.sub(1, 3, copy=False)).base is not None
    window = np.asarray(view.sub(1, 3, copy=False))
    assert np.shares_memory(window, IMAGES)


def test_views_stay_components_and_values_of_their_own():
    view = DataView("bf", OTHER)
    other = DataView("bf", OTHER)
    assert ListView([view, other]).components == (view, other)
    assert view != other
    assert [view, other].index(other) == 1
    with pytest.raises(layoutkit.ArgumentError, match="not a NumPy array"):
        layoutkit.convert(view, "bf->fb")


def test_a_view_that_holds_nothing_or_several_arrays_is_none():
    with pytest.raises(ViewError, match="holds no batch yet"):
        np.asarray(ImageView())
    both = ListView([ImageView("bhwc", IMAGES), DataView("bf", OTHER)])
    assert both.shape == (IMAGES.shape, OTHER.shape)
    with pytest.raises(ViewError, match=r"a ListView holds several arrays.*view\.input"):
        np.asarray(both)


def test_memory_that_the_cpu_reaches_is_shared_with_numpy(library):
    x = library.make(IMAGES)
    view = ImageView("bhwc", x)
    assert view.shape == IMAGES.shape
    if library.device != "cpu":
        with pytest.raises(DeviceError, match=r"is on cuda:0.*forward_get\(device=.cpu.\)"):
            np.asarray(view)
        return
    assert np.shares_memory(np.asarray(view), np.asarray(x))
    np.testing.assert_array_equal(view, IMAGES)


class Exporter:
    """An array of an unregistered library, imported by DLPack."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **keywords):
        return self.array.__dlpack__(**keywords)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


def test_arrays_known_by_dlpack_are_shared_too():
    assert np.shares_memory(np.asarray(ImageView("bhwc", Exporter(IMAGES))), IMAGES)


# ---- several devices ---------------------------------------------------------------------


@needs_compiler
def test_the_devices_of_several_components(monkeypatch):
    library = Cuda(monkeypatch)
    x = library.make(IMAGES)
    y = library.make(OTHER)
    near = ListView([ImageView("bhwc", IMAGES), ListView([DataView("bf", OTHER)])])
    assert near.device == "cpu"
    mixed = ListView([ImageView("bhwc", x), ListView([DataView("bf", OTHER), DataView("bf", y)])])
    assert mixed.device == ("cuda:0", ("cpu", "cuda:0"))
    far = ListView([ImageView("bhwc", x), ListView([DataView("bf", y)])])
    assert far.device == "cuda:0"
    check_result(library, mixed.forward_get("bf")[1][1], OTHER)


# ---- batches of spaces -------------------------------------------------------------------


def test_a_batch_of_any_library_has_a_view(library):
    x = library.make(IMAGES)
    if library.device != "cpu":
        with pytest.raises(SpaceError):  # spaces have no batches on a GPU
            Conv2DSpace((4, 6), 3).view(x)
        return
    view = Conv2DSpace((4, 6), 3).view(x)
    assert view.input is x
    check_result(library, view.forward_get("bchw"), IMAGES.transpose(0, 3, 1, 2))
    labels = IndexSpace(4, 2).view(library.make(LABELS))
    check_result(library, labels.many_hot(), np.eye(4, dtype="f4")[LABELS].max(1))
    words = VectorSequenceSpace(72).view(library.make(OTHER))
    assert words.shape == (1, 5, 72)
    both = CompositeSpace((Conv2DSpace((4, 6), 3), NullSpace(), VectorSpace(72)))
    several = both.view((x, None, library.make(OTHER)))
    check_result(library, several.input[1], OTHER)


def abstract_batches():
    """Return batches of shape (5, 72) that hold no data."""
    space = VectorSpace(72)
    yield space.make_symbolic_batch(5)


@pytest.mark.skipif(find_spec("jax") is None, reason="needs JAX")
def test_a_batch_without_data_has_none():
    for batch in abstract_batches():
        with pytest.raises(SpaceError, match=r"a View holds data.*use format_as"):
            VectorSpace(72).view(batch)
        with pytest.raises(SpaceError, match=r"component \[1\]: a View holds data"):
            CompositeSpace((NullSpace(), VectorSpace(72))).view((None, batch))


@pytest.mark.skipif(find_spec("jax") is None, reason="needs JAX")
def test_a_traced_batch_has_a_view():
    import jax

    space = VectorSpace(72)
    result = jax.jit(lambda x: space.view(x).forward_get("fb"))(OTHER)
    np.testing.assert_array_equal(result, OTHER.T)


@pytest.mark.skipif(find_spec("torch") is None, reason="needs PyTorch")
def test_a_meta_batch_has_a_view():
    batch = VectorSpace(72).make_symbolic_batch(5, framework="torch")
    result = VectorSpace(72).view(batch).forward_get("fb", "float16")
    assert (tuple(result.shape), str(result.dtype), result.device.type) == (
        (72, 5), "torch.float16", "meta",
    )  # fmt: skip


def test_what_is_no_array_is_refused_as_before():
    view = ImageView()
    for value in ([1, 2], None, "bhwc"):
        with pytest.raises(layoutkit.ArgumentError, match="array is "):
            view.forward_put("bhwc", value)
