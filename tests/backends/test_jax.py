"""Arrays of JAX as input and output, and conversions under jit and grad."""

import functools
import gc
import pickle

import ml_dtypes
import numpy as np
import pytest

jax = pytest.importorskip("jax", reason="tests of arrays of JAX need jax")

import jax.numpy as jnp

from layoutkit import (
    ArgumentError,
    Converter,
    DeviceError,
    DtypeError,
    ShapeError,
    accumulate,
    buffers,
    convert,
)
from layoutkit.backends import jax as jax_placing
from tests.helpers.reference import reference_convert

pytestmark = pytest.mark.budget(4)

RNG = np.random.default_rng(0)
IMAGES = RNG.random((2, 4, 5, 3), np.float32)
FORMULA = {"scale": 1.5, "mean": (0.1, 0.2, 0.3), "std": (0.5, 2.0, 4.0)}
CASES = [
    ("bhwc->bchw", {}),
    ("bhwc->b(hwc)", {}),
    ("bhwc->bhwc", {}),
    ("bhwc->bf", {"dtype": "float16"}),
    ("bhwc->tbchw", {"dtype": "bfloat16"}),
    ("bhwc->chwb", FORMULA),
    ("bhwc->bchw", {"dtype": "float16", **FORMULA}),
    ("bhwc->bchw", {"dtype": "uint8", "scale": 300, "mean": 9, "casting": "saturate"}),
    ("bhwc->bchw", {"dtype": "int32", "scale": -9, "casting": "unsafe"}),
    ("bhwc->bchw", {"dtype": "complex64"}),
]


def pointer(x):
    return x.unsafe_buffer_pointer()


@pytest.mark.parametrize(("pattern", "keywords"), CASES)
def test_array_in_array_out_and_the_same_when_traced(pattern, keywords):
    wanted = reference_convert(IMAGES, pattern, **keywords)
    x = jnp.asarray(IMAGES)
    converter = Converter(pattern, **keywords)
    for y in (converter(x), jax.jit(converter)(x)):
        assert isinstance(y, jax.Array)
        assert (y.shape, y.dtype) == (wanted.shape, wanted.dtype)
        tolerance = 1e-2 if y.dtype.itemsize == 2 else 1e-6
        got = np.asarray(y).astype(np.complex128)
        np.testing.assert_allclose(got, wanted.astype(np.complex128), tolerance, 1e-6)


@pytest.mark.parametrize(
    "dtype", ["bool", "uint8", "int32", "float16", "bfloat16", "float8_e4m3fn", "complex64"]
)
def test_dtypes_go_in_and_out_as_they_are(dtype):
    x = (IMAGES * 9).astype(np.dtype(dtype) if hasattr(np, dtype) else getattr(ml_dtypes, dtype))
    wanted = reference_convert(x, "bhwc->bchw")
    for run in (lambda x: convert(x, "bhwc->bchw"), jax.jit(Converter("bhwc->bchw"))):
        y = run(jnp.asarray(x))
        assert y.dtype == x.dtype
        np.testing.assert_array_equal(np.asarray(y), wanted)


def test_traced_complex_numbers_are_true_unless_both_parts_are_zero():
    x = jnp.array([1j, 0, 1], "complex64")
    to = Converter("b->b", dtype="bool", casting="unsafe")
    for run in (to, jax.jit(to), lambda x: jax.vmap(to)(x[None])[0]):
        assert run(x).tolist() == [True, False, True]


def test_widths_are_those_that_jax_allows():
    x = jnp.asarray(IMAGES)
    for run in (
        Converter("bhwc->bchw", dtype="float64"),
        jax.jit(Converter("bhwc->bchw", dtype="float64")),
    ):
        assert run(x).dtype == np.float32
    with jax.enable_x64(True):
        for run in (
            Converter("bhwc->bchw", dtype="float64"),
            jax.jit(Converter("bhwc->bchw", dtype="float64")),
        ):
            assert run(x).dtype == np.float64


@pytest.mark.parametrize("dtype", ["int32", "uint32", "int64", "float64"])
def test_formulas_keep_the_digits_of_wide_dtypes(dtype):
    """Test formulas with x64, and without it the formulas of kernels."""
    top = 2**31 - 1
    x = np.array([[top - 60, top]], dtype)
    to = Converter("bc->cb", dtype="float32", mean=top)
    with jax.enable_x64(True):
        for run in (to, jax.jit(to), lambda x: jax.vmap(to)(x[None])[0]):
            assert run(jnp.asarray(x)).tolist() == [[-60], [0]]
    if dtype in ("int32", "uint32"):
        assert to(jnp.asarray(x)).tolist() == [[-60], [0]]
        assert jax.vmap(to)(jnp.asarray(x)[None]).dtype == np.float32  # float32, as in JAX


# ---- memory ------------------------------------------------------------------------------


def test_where_nothing_moves_it_is_the_array_or_its_memory():
    x = jnp.asarray(IMAGES)
    assert convert(x, "bhwc->bhwc") is x
    assert pointer(convert(x, "bhwc->b(hwc)")) == pointer(x)
    assert pointer(convert(x, "bhwc->bhwc", copy=True)) != pointer(x)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float8_e5m2"])
def test_results_are_the_pools_own_memory_for_as_long_as_they_live(dtype, monkeypatch):
    created = []
    take = buffers.pool.take
    monkeypatch.setattr(buffers.pool, "take", lambda n: created.append(take(n)) or created[-1])
    x = jnp.asarray(IMAGES).astype(dtype)
    y = convert(x, "bhwc->bchw")
    assert [block.address for block in created] == [pointer(y)]
    kept = np.array(y)
    gc.collect()
    further = [convert(x, "bhwc->bchw") for _ in range(4)]
    assert pointer(y) not in map(pointer, further)
    np.testing.assert_array_equal(np.asarray(y), kept)
    del y, further
    gc.collect()
    assert created[0] not in buffers.pool.lent


def test_the_kernel_reads_the_arrays_own_memory_and_never_writes_it(monkeypatch):
    seen = []
    call = Converter.__call__

    def spy(self, x, out=None):
        if type(x) is np.ndarray:
            seen.append((x.ctypes.data, x.flags.writeable))
        return call(self, x, out)

    monkeypatch.setattr(Converter, "__call__", spy)
    x = jnp.asarray(IMAGES)
    convert(x, "bhwc->bchw", **FORMULA)
    assert seen == [(pointer(x), False)]
    np.testing.assert_array_equal(np.asarray(x), IMAGES)


@pytest.mark.parametrize("out", [np.zeros((2, 3, 4, 5), "f4"), jnp.zeros((2, 3, 4, 5))])
def test_there_is_no_out(out):
    x = jnp.asarray(IMAGES)
    for run in (lambda f: f, jax.jit):
        with pytest.raises(ArgumentError, match="arrays of jax are immutable; omit out="):
            run(lambda x: convert(x, "bhwc->bchw", out=out))(x)
    with pytest.raises(ArgumentError, match="arrays of jax are immutable"):
        accumulate([(x, "bhwc")], "bchw", out=out)


@pytest.mark.parametrize("quick", [True, False], ids=["quick", "device_put"])
@pytest.mark.parametrize("dtype", ["bool", "uint8", "float32", "bfloat16", "complex64", "float64"])
def test_both_ways_into_jax_give_the_same(dtype, quick, monkeypatch):
    placer = jax_placing.DevicePutter(jax)
    assert placer.put_quick is not None  # the function of this version was recognized
    monkeypatch.setattr(placer, "put_quick", placer.put_quick if quick else None)
    array = (
        np.asarray(jnp.asarray(IMAGES * 9).astype(dtype)) if dtype != "float64" else IMAGES * 9.0
    )
    for like in (jnp.zeros(2), jax.device_put(jnp.zeros(2), jax.devices("cpu")[0])):
        y = placer(array, like)
        assert isinstance(y, jax.Array)
        assert (y.devices(), y.committed) == (like.devices(), like.committed)
        assert y.dtype == jax.dtypes.canonicalize_dtype(array.dtype)
        assert y.aval == (y + 0 if dtype != "bool" else y | False).aval
        np.testing.assert_array_equal(np.asarray(y), array.astype(y.dtype))


def test_another_jaxlib_is_not_called_in_this_ones_words(monkeypatch):
    """Test a jaxlib whose function copies, and one with another signature."""
    import jaxlib.xla_client

    def copies(shaped, sharding, arrays, devices, committed):
        return jax.device_put(arrays[0].copy(), devices[0])

    for function in (copies, lambda: None):
        monkeypatch.setattr(jaxlib.xla_client, "batched_device_put", function)
        assert jax_placing.DevicePutter(jax).put_quick is None


# ---- gradients ---------------------------------------------------------------------------


@pytest.mark.parametrize("compiled", [lambda f: f, jax.jit], ids=["eager", "jit"])
@pytest.mark.parametrize(
    ("pattern", "keywords"), [case for case in CASES if case[1].get("dtype") in (None, "float16")]
)
def test_gradients_are_those_of_backward(pattern, keywords, compiled):
    converter = Converter(pattern, **keywords)
    x = jnp.asarray(IMAGES)
    weights = RNG.random(converter.target_shape(IMAGES.shape), np.float32)

    def loss(x):
        return (converter(x).astype(jnp.float32) * weights).sum()

    got = compiled(jax.grad(loss))(x)
    assert got.dtype == np.float32
    wanted = converter.backward(weights, like=IMAGES)
    np.testing.assert_allclose(np.asarray(got), wanted, 2e-3 if "dtype" in keywords else 1e-6)


def test_under_vmap():
    converter = Converter("hwc->chw", **FORMULA)
    got = jax.vmap(converter)(jnp.asarray(IMAGES))
    wanted = reference_convert(IMAGES, "bhwc->bchw", **FORMULA)
    np.testing.assert_allclose(np.asarray(got), wanted, rtol=1e-6, atol=1e-6)


def test_backward_called_by_hand():
    converter = Converter("bhwc->bchw", **FORMULA)
    grad = RNG.random((2, 3, 4, 5), np.float32)
    wanted = converter.backward(grad, like=IMAGES)
    got = converter.backward(jnp.asarray(grad), like=jnp.asarray(IMAGES))
    assert isinstance(got, jax.Array)
    np.testing.assert_array_equal(np.asarray(got), wanted)
    traced = jax.jit(lambda grad, x: converter.backward(grad, like=x))(grad, IMAGES)
    np.testing.assert_allclose(np.asarray(traced), wanted, rtol=1e-6)


def test_a_converter_is_a_static_argument():
    """Equal Converters hash equal, so jit compiles once."""
    traced = []

    @functools.partial(jax.jit, static_argnums=0)
    def run(converter, x):
        traced.append(converter)
        return converter(x)

    x = jnp.asarray(IMAGES)
    for _ in range(3):
        y = run(pickle.loads(pickle.dumps(Converter("bhwc->bchw", **FORMULA))), x)
    assert len(traced) == 1
    run(Converter("bhwc->bchw"), x)
    assert len(traced) == 2
    wanted = reference_convert(IMAGES, "bhwc->bchw", **FORMULA)
    np.testing.assert_allclose(np.asarray(y), wanted, 1e-6, 1e-6)


@pytest.mark.parametrize(
    ("pattern", "keywords", "shape"),
    [
        ("bhwc->bchw", FORMULA, "b, 4, 5, 3"),
        ("bhwc->b(hw)c", {"dtype": "float16", **FORMULA}, "b, h, w, 3"),
        ("bhwc->(bh)wc", {}, "b, h, w, c"),
        ("(bt)hwc->btchw", {"t": 2}, "2*b, 4, 5, 3"),
        ("bh(wq)c->bhwqc", {"w": 5}, "b, h, 5, 3"),
        ("b(hp)wc->bhw(pc)", {"p": 2}, "b, 2*h, 5, 3"),
        ("bhwc->bf", {}, "b, h, 5, 3"),
        ("batch ... c -> batch c ...", {}, "b, 4, 5, 3"),
        ("bhwc->bchw", {"pad_to": {"h": 8}, "fill": 3}, "b, 4, 5, 3"),
    ],
)
def test_sizes_may_be_symbols(pattern, keywords, shape):
    """A function is exported once for batches of all sizes."""
    export = pytest.importorskip("jax.export", reason="this version of JAX exports elsewhere")
    converter = Converter(pattern, **keywords)
    open_shape = jax.ShapeDtypeStruct(export.symbolic_shape(shape), np.float32)
    exported = export.export(jax.jit(converter))(open_shape)
    for x in (IMAGES, np.concatenate([IMAGES, 2 * IMAGES])):
        wanted = converter(x)
        got = np.asarray(exported.call(x))
        assert (got.shape, got.dtype) == (wanted.shape, wanted.dtype)
        np.testing.assert_allclose(got, wanted, 2e-3 if got.dtype == np.float16 else 1e-6, 1e-6)


def test_a_size_that_is_traced_is_told_to_be_static():
    fold = functools.partial(convert, pattern="b(hp)->bhp")
    x = jnp.zeros((2, 6))
    with pytest.raises(ShapeError, match="size is an int >= 0; make a traced one static"):
        jax.jit(lambda x, p: fold(x, p=p))(x, 3)
    assert jax.jit(lambda x, p: fold(x, p=p), static_argnums=1)(x, 3).shape == (2, 2, 3)


def test_symbols_that_do_not_fit_are_told():
    export = pytest.importorskip("jax.export", reason="this version of JAX exports elsewhere")
    open_shape = jax.ShapeDtypeStruct(export.symbolic_shape("b, 4, 5, 3"), np.float32)
    for converter, words in [
        (Converter("bhwc->hwc"), "axis b of size b is not on the right"),
        (Converter("(bt)hwc->btchw", t=2), "size b cannot be divided by t=2"),
        (Converter("bhw->bwh"), "give an array of rank 3"),
        (Converter("bhwc->bchw", mean=(1, 2)), "2 values and axis c has size 3"),
    ]:
        with pytest.raises(ShapeError, match=words):
            export.export(jax.jit(converter))(open_shape)
    with pytest.raises(
        ArgumentError, match=r"copy=False, but x of shape .* is traced for all sizes"
    ):
        export.export(jax.jit(Converter("bhwc->bchw", copy=False)))(open_shape)


# ---- sums --------------------------------------------------------------------------------


def test_accumulate():
    planes = np.ascontiguousarray(IMAGES.transpose(0, 3, 1, 2))

    def total(a, b):
        return accumulate([(a, "bhwc"), (b, "bchw"), (planes, "bchw")], "chwb")

    a = jnp.asarray(IMAGES)
    b = jnp.asarray(planes)
    wanted = total(IMAGES, planes)
    for y in (total(a, b), jax.jit(total)(a, b)):
        assert isinstance(y, jax.Array)
        np.testing.assert_allclose(np.asarray(y), wanted, rtol=1e-6)
    assert type(total(IMAGES, b)) is np.ndarray
    grad = jax.grad(lambda a: (total(a, b) ** 2).sum() / 2)(a)
    np.testing.assert_allclose(np.asarray(grad), wanted.transpose(3, 1, 2, 0), rtol=1e-6)


def test_sums_of_halves_are_computed_in_float32():
    parts = [jnp.full((2, 2), value, jnp.float16) for value in (2048, 1, 1)]
    total = jax.jit(lambda parts: accumulate([(part, "bf") for part in parts], "bf"))
    np.testing.assert_array_equal(np.asarray(total(parts)), np.full((2, 2), 2050, "f2"))


@pytest.mark.parametrize("place", [0, 1, 2])
def test_any_item_of_a_list_may_be_traced(place):
    def planes(x):
        items = [jax.numpy.asarray(IMAGES[0]), IMAGES[1]]
        items.insert(place, x)
        return convert(items, "bhwc->bchw")

    traced = 2 * IMAGES[0]
    wanted = np.insert(IMAGES, place, traced, axis=0).transpose(0, 3, 1, 2)
    np.testing.assert_array_equal(jax.jit(planes)(traced), wanted)
    gradient = jax.grad(lambda x: (planes(x) * wanted).sum())(traced)
    np.testing.assert_array_equal(gradient, traced)


def test_a_traced_part_takes_no_tensor_of_torch():
    torch = pytest.importorskip("torch", reason="mixes JAX with torch")
    with pytest.raises(ArgumentError, match=r"part 1 is a torch.Tensor.*jax or NumPy"):
        jax.jit(lambda x: accumulate([(x, "bf"), (torch.zeros(2, 2), "bf")], "bf"))(np.eye(2))


# ---- errors ------------------------------------------------------------------------------


@pytest.mark.parametrize("run", [lambda f: f, jax.jit], ids=["eager", "jit"])
def test_mistakes_are_layoutkits_own_errors(run):
    x = jnp.asarray(IMAGES)
    with pytest.raises(DtypeError, match="float32 to uint8 is not allowed"):
        run(Converter("bhwc->bchw", dtype="uint8"))(x)
    with pytest.raises(ShapeError, match="give an array of rank 3"):
        run(Converter("bhw->bwh"))(x)
    with pytest.raises(ShapeError, match="2 values and axis c has size 3"):
        run(Converter("bhwc->bchw", mean=(1, 2)))(x)
    with pytest.raises(ArgumentError, match="copy=False"):
        run(Converter("bhwc->bchw", copy=False))(x)
    with pytest.raises(DtypeError, match="only moved"):
        run(Converter("bhwc->bchw", dtype="M8[s]", casting="unsafe"))(x)


def test_arrays_without_data():
    x = jnp.asarray(IMAGES) + 1
    x.delete()
    with pytest.raises(ArgumentError, match="the memory of x"):
        convert(x, "bhwc->bchw")
    with pytest.raises(DtypeError, match="not a dtype"):
        convert(jax.random.split(jax.random.key(0), 3), "b->b")
    with pytest.raises(ArgumentError, match="ShapeDtypeStruct, not a NumPy array"):
        convert(jax.ShapeDtypeStruct((2, 3), np.float32), "bc->cb")


def test_another_device_is_named(monkeypatch):
    """Use an array that claims to be on a TPU, since there may be none here."""

    class Tpu:
        platform = "tpu"

        def __str__(self):
            return "tpu:1"

    monkeypatch.setattr(type(jnp.zeros(2)), "devices", lambda self: {Tpu()})
    with pytest.raises(DeviceError, match=r"x is on tpu:1.*pass jax\.device_put"):
        convert(jnp.asarray(IMAGES), "bhwc->bchw")
