"""PyTorch tensors as input and output: type, memory, dtypes, gradients, and errors."""

import gc

import ml_dtypes
import numpy as np
import pytest

pytestmark = pytest.mark.budget(3)

torch = pytest.importorskip("torch", reason="tests of tensors need torch")

from layoutkit import (
    ArgumentError,
    Converter,
    DeviceError,
    DtypeError,
    ShapeError,
    accumulate,
    buffers,
    collate,
    convert,
)
from tests.helpers.reference import reference_convert

RNG = np.random.default_rng(0)
IMAGES = RNG.random((2, 4, 5, 3), np.float32)
FORMULA = {"scale": 1.5, "mean": (0.1, 0.2, 0.3), "std": (0.5, 2.0, 4.0)}
SPECIAL = ["bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"]


def tensor(array=IMAGES, **keywords):
    return torch.tensor(array, **keywords)


def bits(x):
    """Return a tensor of a dtype that NumPy lacks as its bits."""
    unsigned = getattr(torch, f"uint{8 * x.element_size()}")
    return x.view(unsigned).numpy()


CASES = [
    ("bhwc->bchw", {}),
    ("bhwc->b(hwc)", {}),
    ("bhwc->bchw", {"dtype": "float64", **FORMULA}),
    ("bhwc->chwb", {"dtype": "uint8", "scale": 255, "casting": "saturate"}),
    ("bhwc->bhwc", {"dtype": "int32", "casting": "unsafe"}),
]


@pytest.mark.parametrize(("pattern", "keywords"), CASES)
def test_tensor_in_tensor_out(pattern, keywords):
    y = convert(tensor(), pattern, **keywords)
    wanted = reference_convert(IMAGES, pattern, **keywords)
    assert type(y) is torch.Tensor
    assert y.numpy().dtype == wanted.dtype
    np.testing.assert_allclose(y.numpy(), wanted, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(
    "dtype", ["bool", "uint8", "int16", "uint16", "int64", "float16", "float64", "complex64"]
)
def test_dtypes_of_numpy(dtype):
    x = (IMAGES * 9).astype(dtype)
    y = convert(torch.from_numpy(x), "bhwc->bchw")
    np.testing.assert_array_equal(y.numpy(), reference_convert(x, "bhwc->bchw"), strict=True)


@pytest.mark.parametrize("name", SPECIAL)
def test_dtypes_that_numpy_lacks(name):
    dtype = np.dtype(getattr(ml_dtypes, name))
    theirs = getattr(torch, name)
    y = convert(tensor().to(theirs), "bhwc->bchw")
    assert y.dtype is theirs
    wanted = reference_convert(IMAGES.astype(dtype), "bhwc->bchw")
    np.testing.assert_array_equal(bits(y), wanted.view(f"u{dtype.itemsize}"))
    for requested in (name, dtype, theirs):
        assert torch.equal(convert(tensor(), "bhwc->bchw", dtype=requested).float(), y.float())


def test_dtypes_of_torch_are_names_of_dtypes():
    assert convert(IMAGES, "bhwc->bchw", dtype=torch.float64).dtype == np.float64
    with pytest.raises(DtypeError, match="not a dtype"):
        convert(IMAGES, "bhwc->bchw", dtype=torch.quint8)


def test_a_dtype_that_torch_lacks():
    with pytest.raises(DtypeError, match="torch has no dtype float8_e3m4"):
        convert(tensor(), "bhwc->bchw", dtype="float8_e3m4")


PACKED = [
    name for name in ("uint4", "int4", "int2", "uint1", "float4_e2m1fn_x2") if hasattr(torch, name)
]


@pytest.mark.parametrize("name", PACKED)
@pytest.mark.parametrize(
    "use",
    [
        lambda x: convert(x, "bhwc->bchw"),
        lambda x: convert(x, "bhwc->bhwc"),
        lambda x: convert(x.to("meta"), "bhwc->bchw"),
        lambda x: torch.func.vmap(lambda x: convert(x, "hwc->chw"))(x),
        lambda x: collate([*x], "hwc->bchw"),
        lambda x: accumulate([(x, "bhwc")], "bchw"),
        lambda x: convert(x.view(torch.uint8), "bhwc->bchw", dtype=str(x.dtype)[6:]),
    ],
    ids=["moved", "kept", "meta", "mapped", "collated", "summed", "asked for"],
)
def test_packed_elements_are_an_error(name, use):
    x = torch.zeros(2, 4, 6, 4, dtype=torch.uint8).view(getattr(torch, name))
    with pytest.raises(DtypeError, match=f"{name} are packed into bytes|'{name}' is not a dtype"):
        use(x)
    assert convert(x.view(torch.uint8), "bhwc->bchw").shape == (2, 4, 4, 6)


# ---- memory ------------------------------------------------------------------------------


def test_where_nothing_moves_it_is_the_tensor_or_its_memory():
    x = tensor()
    assert convert(x, "bhwc->bhwc") is x
    assert convert(x, "bhwc->b(hwc)").data_ptr() == x.data_ptr()
    assert convert(x, "bhwc->bhwc", copy=True).data_ptr() != x.data_ptr()
    with pytest.raises(ArgumentError, match="copy=False"):
        convert(x, "bhwc->bchw", copy=False)


@pytest.mark.parametrize("name", ["float32", "bfloat16"])
def test_results_are_the_pools_own_memory_for_as_long_as_they_live(name, monkeypatch):
    created = []
    take = buffers.pool.take
    monkeypatch.setattr(buffers.pool, "take", lambda n: created.append(take(n)) or created[-1])
    x = tensor(dtype=getattr(torch, name))
    y = convert(x, "bhwc->bchw")
    assert [block.address for block in created] == [y.data_ptr()]
    row = y[0]
    kept = row.clone()
    del y
    gc.collect()
    assert created[0] in buffers.pool.lent
    further = [convert(x, "bhwc->bchw") for _ in range(4)]
    assert row.data_ptr() not in [other.data_ptr() for other in further]
    assert torch.equal(row, kept)
    del row, further
    gc.collect()
    assert created[0] not in buffers.pool.lent


@pytest.mark.parametrize("name", ["float32", "bfloat16"])
def test_the_kernel_reads_the_tensors_own_memory(name, monkeypatch):
    seen = []
    call = Converter.__call__

    def spy(self, x, out=None):
        if type(x) is np.ndarray:
            seen.append(x.ctypes.data)
        return call(self, x, out)

    monkeypatch.setattr(Converter, "__call__", spy)
    x = tensor(dtype=getattr(torch, name))
    convert(x, "bhwc->bchw")
    assert seen == [x.data_ptr()]


def test_strided_and_expanded_tensors_and_none_is_written():
    base = tensor(RNG.random((2, 9, 5, 6), np.float32))
    before = base.clone()
    for x in (base[:, 1::2, :, ::2], base[:1].expand(3, -1, -1, -1), base.permute(0, 2, 1, 3)):
        y = convert(x, "bhwc->bchw", **FORMULA | {"mean": 0.5, "std": 2})
        wanted = reference_convert(x.numpy(), "bhwc->bchw", scale=1.5, mean=0.5, std=2)
        np.testing.assert_allclose(y.numpy(), wanted, rtol=1e-6)
    assert torch.equal(base, before)


def test_out_is_written_in_place_and_returned():
    x = tensor()
    out = torch.zeros(2, 3, 4, 10)[..., ::2]
    version = out._version
    assert convert(x, "bhwc->bchw", out=out) is out
    assert torch.equal(out, x.permute(0, 3, 1, 2))
    assert out._version > version
    half = torch.zeros(2, 3, 4, 5, dtype=torch.bfloat16)
    assert torch.equal(convert(x, "bhwc->bchw", out=half), x.permute(0, 3, 1, 2).bfloat16())


@pytest.mark.parametrize("x", [IMAGES, tensor()], ids=["NumPy", "torch"])
def test_out_is_of_the_same_library(x):
    other = np.zeros((2, 3, 4, 5), np.float32)
    other = torch.from_numpy(other) if isinstance(x, np.ndarray) else other
    with pytest.raises(ArgumentError, match="out is a"):
        convert(x, "bhwc->bchw", out=other)
    with pytest.raises(ArgumentError, match="out is a"):
        accumulate([(x, "bhwc")], "bchw", out=other)
    with pytest.raises(ArgumentError, match="out shares memory"):
        convert(x, "bhwc->bhwc", out=x)


# ---- gradients ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "keywords"),
    [
        ("bhwc->bchw", {}),
        ("bhwc->b(hwc)", {}),
        ("bhwc->bhwc", {}),
        ("bhwc->chwb", FORMULA),
        ("bhwc->bcf", {"mean": 3, "copy": True}),
    ],
)
def test_gradcheck(pattern, keywords):
    x = tensor(dtype=torch.float64, requires_grad=True)
    converter = Converter(pattern, **keywords)
    assert torch.autograd.gradcheck(converter, x)
    assert torch.autograd.gradgradcheck(converter, x)


def test_gradcheck_of_casts():
    x = tensor(dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(Converter("bhwc->bchw", dtype="complex128"), x)
    z = torch.randn(2, 3, dtype=torch.complex128, requires_grad=True)
    assert torch.autograd.gradcheck(Converter("bc->cb"), z)
    assert torch.autograd.gradcheck(Converter("bc->cb", dtype="float64", casting="unsafe"), z)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_gradients_have_the_dtype_of_x(dtype):
    x = tensor(requires_grad=True)
    y = convert(x, "bhwc->bchw", dtype=dtype, **FORMULA)
    grad = torch.randn(2, 3, 4, 5).to(y.dtype)
    y.backward(grad)
    factors = torch.tensor([1.5 / 0.5, 1.5 / 2, 1.5 / 4])
    torch.testing.assert_close(x.grad, grad.float().permute(0, 2, 3, 1) * factors)


def test_backward_is_the_converters(monkeypatch):
    calls = []
    back = Converter.backward
    monkeypatch.setattr(
        Converter, "backward", lambda self, grad, **k: calls.append(self) or back(self, grad, **k)
    )
    converter = Converter("bhwc->bchw")
    x = tensor(requires_grad=True)
    converter(x).sum().backward()
    assert calls == [converter]
    assert torch.equal(x.grad, torch.ones_like(x))


def test_what_takes_no_gradient():
    x = tensor(requires_grad=True)
    assert not convert(tensor().to(torch.uint8), "bhwc->bchw", dtype="float32").requires_grad
    assert not convert(x, "bhwc->bchw", dtype="uint8", casting="saturate").requires_grad
    with torch.no_grad():
        assert not convert(x, "bhwc->bchw").requires_grad
        out = torch.zeros(2, 3, 4, 5)
        assert convert(x, "bhwc->bchw", out=out) is out
    assert convert(x.detach(), "bhwc->bhwc", copy=True).grad_fn is None


def test_a_view_of_a_recorded_tensor_is_known_to_torch():
    x = tensor(requires_grad=True)
    assert convert(x, "bhwc->b(hwc)")._base is x
    with pytest.raises(RuntimeError, match="in-place"):
        convert(x, "bhwc->b(hwc)").add_(1)


def test_out_and_gradients_exclude_each_other():
    x = tensor(requires_grad=True)
    out = torch.zeros(2, 3, 4, 5)
    with pytest.raises(ArgumentError, match=r"x requires a gradient.*omit out="):
        convert(x, "bhwc->bchw", out=out)
    with pytest.raises(ArgumentError, match=r"out requires a gradient.*omit out="):
        convert(tensor(), "bhwc->bchw", out=out.clone().requires_grad_())
    with pytest.raises(ArgumentError, match=r"part 0 requires a gradient"):
        accumulate([(x, "bhwc")], "bchw", out=out)
    assert not out.any()


def test_backward_called_by_hand():
    converter = Converter("bhwc->bchw", dtype="float32", **FORMULA)
    grad = torch.randn(2, 3, 4, 5)
    like = tensor().to(torch.uint8)
    got = converter.backward(grad, like=like)
    assert type(got) is torch.Tensor
    np.testing.assert_array_equal(got.numpy(), converter.backward(grad.numpy(), like=like.numpy()))
    out = torch.zeros(2, 4, 5, 3)
    assert converter.backward(grad, like=like, out=out) is out
    assert torch.equal(out, got)
    meta = torch.empty(2, 4, 5, 3, device="meta", dtype=torch.float64)
    assert converter.backward(grad, like=meta).dtype is torch.float64


# ---- sums --------------------------------------------------------------------------------


def test_accumulate():
    planes = tensor().permute(0, 3, 1, 2).contiguous()
    total = accumulate([(tensor(), "bhwc"), (planes, "bchw")], "bhwc")
    assert type(total) is torch.Tensor
    np.testing.assert_array_equal(total.numpy(), IMAGES + IMAGES)
    out = torch.zeros(2, 4, 5, 3)
    assert accumulate([(tensor(), "bhwc"), (planes, "bchw")], "bhwc", out=out) is out
    assert torch.equal(out, total)


def test_accumulate_is_of_the_first_parts_kind():
    mixed = [(IMAGES, "bhwc"), (tensor().bfloat16(), "bhwc")]
    assert type(accumulate(mixed, "bchw")) is np.ndarray
    assert type(accumulate(mixed[::-1], "bchw")) is torch.Tensor
    with pytest.raises(ArgumentError, match=r"part 1 requires a gradient.*detach"):
        accumulate([(IMAGES, "bhwc"), (tensor(requires_grad=True), "bhwc")], "bchw")


def test_gradients_of_sums():
    a = torch.randn(2, 3, 4, dtype=torch.float64, requires_grad=True)
    b = torch.randn(4, 2, 3, dtype=torch.float64, requires_grad=True)
    c = np.ones((2, 12))

    def total(a, b):
        return accumulate([(a, "bhc"), (b, "cbh"), (c, "b(hc)")], "hbc", h=3)

    assert torch.autograd.gradcheck(total, (a, b))
    total(a, b.detach()).sum().backward()
    assert a.grad is not None
    assert b.grad is None


@pytest.mark.parametrize("learned", [(), (0,), (1,), (0, 1)])
def test_gradients_of_some_items_of_a_list(learned):
    weights = torch.rand(2, 3, 4, 5)
    for factor, call in (
        (1, lambda items: convert(items, "bhwc->bchw")),
        (2, lambda items: accumulate([(items, "bhwc"), (items, "bhwc")], "bchw")),
    ):
        items = [tensor(image, requires_grad=n in learned) for n, image in enumerate(IMAGES)]
        result = call(items)
        assert result.requires_grad == bool(learned)
        if learned:
            (result * weights).sum().backward()
        for n, item in enumerate(items):
            assert (item.grad is not None) == (n in learned)
            if n in learned:
                torch.testing.assert_close(item.grad, factor * weights[n].permute(1, 2, 0))


@pytest.mark.parametrize("learned", [0, 1, 2])
def test_lists_of_tensors_and_other_arrays_keep_gradients(learned):
    others = [IMAGES[0], IMAGES[0].copy(), memoryview(IMAGES[0])]
    others[1].flags.writeable = False
    items = [*others[:learned], tensor(IMAGES[1], requires_grad=True), *others[learned:]]
    if learned:
        with pytest.raises(ArgumentError, match=rf"item {learned} of x requires a gradient"):
            convert(items, "bhwc->bchw")
        with torch.no_grad():
            assert type(convert(items, "bhwc->bchw")) is np.ndarray
        items.insert(0, tensor(IMAGES[0]))
    result = convert(items, "bhwc->bchw")
    arrays = [item.detach().numpy() if isinstance(item, torch.Tensor) else item for item in items]
    np.testing.assert_array_equal(
        result.detach().numpy(), reference_convert(np.stack(arrays), "bhwc->bchw")
    )
    result.sum().backward()
    item = next(item for item in items if getattr(item, "requires_grad", False))
    assert torch.equal(item.grad, torch.ones(4, 5, 3))


def test_lists_with_gradients_have_one_shape_and_dtype():
    first = tensor(IMAGES[0], requires_grad=True)
    for odd, error in ((tensor(IMAGES[0, 1:]), ShapeError), (first.double(), DtypeError)):
        for items in ([first, odd], [odd, first]):
            with pytest.raises(error, match="are not stacked; give one"):
                convert(items, "bhwc->bchw")


def test_gradients_that_torch_has_not_negated_or_conjugated_yet():
    x = torch.randn(2, 3, dtype=torch.float64, requires_grad=True)
    grad = torch.randn(3, 2, dtype=torch.complex128).conj().imag
    assert grad.is_neg()
    convert(x, "bc->cb", scale=2.0).backward(grad)
    assert torch.equal(x.grad, 2 * grad.resolve_neg().t())
    z = torch.randn(2, 3, dtype=torch.complex128, requires_grad=True)
    grad = torch.randn(3, 2, dtype=torch.complex128).conj()
    assert grad.is_conj()
    convert(z, "bc->cb").backward(grad)
    assert torch.equal(z.grad, grad.resolve_conj().t())


# ---- errors ------------------------------------------------------------------------------

REFUSED = {
    "sparse": (lambda: torch.eye(3).to_sparse(), ArgumentError, "to_dense"),
    "conj": (lambda: torch.zeros(2, 3, dtype=torch.complex64).conj(), ArgumentError, "conj"),
    "neg": (lambda: torch.zeros(2, 3, dtype=torch.complex64).conj().imag, ArgumentError, "neg"),
    "quantized": (
        lambda: torch.quantize_per_tensor(torch.zeros(2, 3), 0.1, 0, torch.quint8),
        ArgumentError,
        "dequantize",
    ),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("make", "error", "words"), REFUSED.values(), ids=REFUSED)
def test_tensors_without_plain_memory(make, error, words):
    x = make()
    with pytest.raises(error, match=words):
        convert(x, "bc->cb")
    with pytest.raises(error, match=words):
        Converter("bc->cb")(x)
    with pytest.raises(error, match=words):
        accumulate([(x, "bc")], "cb")


def test_another_device_is_named(monkeypatch):
    """Use a tensor that claims to be on a GPU, since there may be none here."""

    class Elsewhere(torch.Tensor):
        device = torch.device("cuda:1")

    x = torch.zeros(2, 3).as_subclass(Elsewhere)
    with pytest.raises(DeviceError, match=r"x is on cuda:1.*pass x\.cpu\(\)"):
        convert(x, "bc->cb")


def test_a_device_may_be_torchs_own_word():
    x = torch.arange(6.0).reshape(2, 3)
    assert torch.equal(convert(x, "bc->cb", device=x.device), x.T)
    converter = Converter("bc->cb", device=torch.device("cpu"))
    assert converter == Converter("bc->cb", device="cpu")
    assert torch.equal(torch.compile(converter, fullgraph=True, backend="aot_eager")(x), x.T)
    with pytest.raises(DeviceError, match="device='meta' is not a device that layoutkit knows"):
        convert(x, "bc->cb", device=torch.device("meta"))
