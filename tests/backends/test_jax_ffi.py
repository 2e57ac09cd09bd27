"""Conversions under jit on the CPU, which XLA runs as foreign functions."""

import ctypes
import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

jax = pytest.importorskip("jax", reason="tests of arrays of JAX need jax")

import jax.numpy as jnp

import layoutkit
from layoutkit import Converter
from layoutkit.backends.jax import ffi
from layoutkit.threads import pool
from tests.helpers.reference import reference_convert
from tests.helpers.xla_frames import (
    REFUSED,
    UNPLANNED,
    buffer_of,
    frame_of,
    handler_of,
    messages,
    words,
)

if ffi.version() is None:
    pytest.skip("this version of JAX has no foreign functions", allow_module_level=True)

pytestmark = pytest.mark.budget(8)

RNG = np.random.default_rng(0)
FORMULA = {"scale": 1.5, "mean": (0.1, 0.2, 0.3), "std": (0.5, 2.0, 4.0)}
PATTERNS = [
    ("bhwc->bchw", (2, 5, 7, 3), {}),
    ("bhwc->bchw", (2, 5, 7, 3), {"dtype": "float32", **FORMULA}),
    ("bchw->bhwc", (3, 3, 6, 5), {"dtype": "float16"}),
    ("bhwc->chwb", (4, 3, 5, 17), {}),
    ("bhwc->bf", (2, 4, 3, 5), {"clip": (1, 200)}),
    ("bhwc->b(chw)", (2, 4, 3, 5), {"threads": 1}),
    ("b(yp)(xq)c->b(yx)(cpq)", (2, 8, 6, 3), {"p": 2, "q": 3}),
    ("bhwc->bchw", (2, 3, 4, 5), {"std": (1, 2, 3, 4, 5)}),
    ("bwc->bcw", (3, 130, 64), {}),
    ("wc->cw", (600, 700), {}),
]


@pytest.fixture(autouse=True)
def no_minimum(monkeypatch):
    monkeypatch.setattr(ffi, "FEWEST_BYTES", 0)


def batch(shape, dtype):
    return RNG.integers(0, 256, shape).astype(dtype)


def calls(function, *args):
    """Return the number of foreign functions in a compiled function."""
    traced_again = jax.jit(lambda *args: function(*args))  # jit keeps traces of equal Converters
    return traced_again.lower(*args).as_text().count("custom_call @layoutkit_")


@pytest.mark.parametrize("dtype", ["uint8", "int16", "float32", "bfloat16"])
@pytest.mark.parametrize(("pattern", "shape", "options"), PATTERNS)
def test_results_are_those_of_the_kernels(pattern, shape, options, dtype):
    x = batch(shape, jnp.dtype(dtype))
    converter = Converter(pattern, **options)
    got = jax.jit(converter)(x)
    np.testing.assert_array_equal(np.asarray(got), converter(x))
    options = {name: value for name, value in options.items() if name != "threads"}
    expected = reference_convert(x, pattern, **options)
    assert (got.shape, got.dtype) == (expected.shape, expected.dtype)
    tolerance = 1e-2 if got.dtype.itemsize == 2 else 1e-6
    np.testing.assert_allclose(np.asarray(got).astype("f8"), expected.astype("f8"), tolerance, 1e-6)
    fuses = pattern in ("bhwc->bf", "bhwc->b(chw)") and converter.plan(x).kernel in ffi.FUSED
    assert calls(converter, x) == (not fuses)


def test_channels():
    x = batch((2, 5, 7, 3), "uint8")
    bgr = Converter("bhwc->bchw", channels=(2, 1, 0), dtype="float32", **FORMULA)
    assert calls(bgr, x) == 1
    np.testing.assert_array_equal(jax.jit(bgr)(x), bgr(x))
    twice = Converter("bhwc->bchw", channels=(0, 0), dtype="float32")
    np.testing.assert_array_equal(jax.jit(twice)(x), twice(x))
    gradient = jax.grad(lambda x: (bgr(x) * jnp.arange(3.0)[:, None, None]).sum())
    expected = np.array([2, 1, 0]) * 1.5 / np.float32(FORMULA["std"])[::-1]
    np.testing.assert_allclose(gradient(x.astype("f4"))[0, 0, 0], expected, rtol=1e-6)


def test_large_results_on_several_threads():
    x = batch((16, 224, 224, 3), "uint8")  # 9.6 MB of floats, in huge pages
    converter = Converter("bhwc->bchw", dtype="float32", threads=2, **FORMULA)
    compiled = jax.jit(converter)
    for _ in range(5):
        np.testing.assert_array_equal(compiled(x), converter(x))


@pytest.mark.parametrize("extra", [-1, 0, 1])
def test_small_conversions_are_operations_of_xla(extra, monkeypatch):
    x = batch((2, 8, 9, 3), "uint8")
    moved = layoutkit.plan("bhwc->bchw", x.shape, "uint8").bytes_moved
    monkeypatch.setattr(ffi, "FEWEST_BYTES", moved + extra)
    assert calls(Converter("bhwc->bchw"), x) == (extra <= 0)


@pytest.mark.parametrize(
    ("pattern", "options"),
    [
        ("bhwc->bhwc", {"dtype": "float32"}),  # XLA fuses a cast
        ("bhwc->b(hwc)", {}),  # nothing moves
        ("bhwc->bchw", {"dtype": "complex64"}),
    ],
)
def test_conversions_that_stay_operations_of_xla(pattern, options):
    x = batch((2, 8, 9, 3), "uint8")
    converter = Converter(pattern, **options)
    assert calls(converter, x) == 0
    np.testing.assert_array_equal(jax.jit(converter)(x), converter(x))


def test_mean_may_be_traced():
    x = batch((2, 8, 9, 3), "float32")

    def normalize(x, mean):
        return Converter("bhwc->bchw", mean=mean)(x)

    mean = jnp.array([1.0, 2.0, 3.0])
    assert calls(normalize, x, mean) == 0
    np.testing.assert_allclose(
        jax.jit(normalize)(x, mean), reference_convert(x, "bhwc->bchw", mean=(1, 2, 3))
    )


# ---- transformations ---------------------------------------------------------------------


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_vmap_converts_all_samples_in_one_call(axis):
    x = batch((4, 5, 6, 3), "uint8")
    one = Converter("hwc->chw", dtype="float32", **FORMULA)
    samples = jax.vmap(one, axis)
    assert calls(samples, np.moveaxis(x, 0, axis)) == 1
    np.testing.assert_array_equal(
        samples(np.moveaxis(x, 0, axis)), Converter("bhwc->bchw", dtype="float32", **FORMULA)(x)
    )


@pytest.mark.parametrize("pattern", ["hwc->chw", "... c -> c ...", "hwc->f", "hwc->(wh)c"])
def test_vmap_of_vmap(pattern):
    x = batch((2, 3, 5, 6, 4), "float32")
    one = Converter(pattern, std=(1, 2, 3, 4))
    expected = np.stack([np.stack([one(sample) for sample in part]) for part in x])
    np.testing.assert_array_equal(jax.jit(jax.vmap(jax.vmap(one)))(x), expected)
    across = jax.vmap(jax.vmap(one, in_axes=1, out_axes=1))
    moved = jnp.moveaxis(x, 1, 2)
    np.testing.assert_array_equal(across(moved), np.moveaxis(expected, 1, 2))


@pytest.mark.budget(4)
@pytest.mark.parametrize(("pattern", "shape", "options"), PATTERNS)
def test_gradients_are_those_of_backward(pattern, shape, options):
    if options.get("dtype") == "float16":
        options = {}
    x = jnp.asarray(batch(shape, "float32"))
    converter = Converter(pattern, **options)
    weights = RNG.random(converter(x).shape, np.float32)

    def loss(x):
        return (converter(x) * weights).sum()

    expected = np.asarray(converter.backward(weights, like=np.asarray(x)))
    for grad in (jax.grad(loss), jax.jit(jax.grad(loss)), jax.grad(jax.checkpoint(loss))):
        np.testing.assert_allclose(grad(x), expected, rtol=1e-6)


def test_forward_and_second_derivatives():
    x = batch((2, 5, 7, 3), "float32")
    converter = Converter("bhwc->bchw", **FORMULA)
    value, slope = jax.jvp(converter, (x,), (jnp.ones_like(x),))
    np.testing.assert_array_equal(value, converter(x))
    expected = np.broadcast_to((1.5 / np.float32(FORMULA["std"])).reshape(3, 1, 1), slope.shape)
    np.testing.assert_allclose(slope, expected, rtol=1e-6)
    assert calls(lambda x, t: jax.jvp(converter, (x,), (t,)), x, x) == 2
    twice = jax.grad(jax.grad(lambda t: (converter(x * t) ** 2).sum()))(1.0)
    moved = (converter(x) - converter(0 * x)).astype("f8")
    np.testing.assert_allclose(twice, 2 * (moved**2).sum(), rtol=1e-4)
    with_clip = Converter("bhwc->bchw", clip=(10, 200))
    slope = jax.jvp(with_clip, (x,), (jnp.ones_like(x),))[1]
    np.testing.assert_array_equal(slope, ((x >= 10) & (x <= 200)).transpose(0, 3, 1, 2))


def test_integers_have_no_derivative():
    x = batch((2, 5, 7, 3), "uint8")
    converter = Converter("bhwc->bchw", dtype="float32")

    def loss(scale):
        return (converter(x) * scale).sum()

    assert jax.grad(loss)(1.0) == x.sum(dtype=np.float32)
    gradient = jax.grad(lambda x: converter(x).sum(), allow_int=True)(x)
    assert gradient.dtype == jax.dtypes.float0


# ---- dtypes ------------------------------------------------------------------------------

PACKED = ["int2", "uint2", "int4", "uint4", "float4_e2m1fn"]
SCALARS = {
    jnp.dtype(scalar).name
    for scalar in vars(jnp).values()
    if isinstance(scalar, type(jnp.float32)) and jnp.dtype(scalar).itemsize < 8
}
# JAX's own jit refuses these.
SCALARS = sorted(SCALARS.union(PACKED) - {"int1", "uint1", "float6_e2m3fn", "float6_e3m2fn"})


def in_jit(pattern, x, **options):
    return jax.jit(lambda x: layoutkit.convert(x, pattern, **options))(x)


def in_vmap(pattern, x, **options):
    one = pattern.replace("b", "")
    return jax.vmap(lambda x: layoutkit.convert(x, one, **options))(x)


def in_jvp(pattern, x, **options):
    converter = Converter(pattern, **options)
    if not jnp.issubdtype(x.dtype, jnp.inexact):
        return jax.jit(converter)(x)
    value, slope = jax.jit(lambda x, t: jax.jvp(converter, (x,), (t,)))(x, x)
    np.testing.assert_array_equal(bits(value), bits(slope))
    return value


def in_shards(pattern, x, **options):
    mesh = jax.make_mesh((1,), ("one",))
    spec = jax.sharding.PartitionSpec("one")
    shards = jax.shard_map(Converter(pattern, **options), mesh=mesh, in_specs=spec, out_specs=spec)
    return jax.jit(shards)(jax.device_put(x, jax.sharding.NamedSharding(mesh, spec)))


def in_view(pattern, x, dtype=None, casting=None):
    source, target = pattern.split("->")
    return jax.jit(lambda x: layoutkit.ImageView(source, x).forward_get(target, dtype))(x)


def in_collate(pattern, x, **options):
    height, width = x.shape[1:3]
    collator = layoutkit.Collator(pattern.replace("b", "", 1), h=height, w=width, **options)
    return jax.jit(lambda x: collator(list(x)))(x)


WAYS = [in_jit, in_vmap, in_jvp, in_shards, in_view, in_collate]


def bits(array):
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


@pytest.mark.parametrize("name", SCALARS)
def test_every_dtype_of_jax_moves_as_in_numpy(name):
    x = RNG.integers(0, 2, (2, 6, 5, 3)).astype(name)
    got = in_jit("bhwc->bchw", jnp.asarray(x))
    assert got.dtype == x.dtype
    np.testing.assert_array_equal(bits(got), bits(x.transpose(0, 3, 1, 2)))
    assert calls(Converter("bhwc->bchw"), x) == (name in ffi.TYPE_NUMBERS)
    if name in ffi.TYPE_NUMBERS:
        assert jax.dtypes.itemsize_bits(x.dtype) == 8 * x.dtype.itemsize
    assert (name in ffi.TYPE_NUMBERS) <= (name not in PACKED)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", PACKED)
def test_packed_items_move_as_in_numpy(name, way):
    x = RNG.integers(0, 2, (2, 6, 5, 3)).astype(name)
    got = way("bhwc->bchw", jnp.asarray(x))
    assert got.dtype == x.dtype
    np.testing.assert_array_equal(bits(got), bits(x.transpose(0, 3, 1, 2)))


@pytest.mark.parametrize(("source", "target"), [("int4", "float32"), ("uint8", "uint4")])
def test_casts_of_packed_items(source, target):
    x = RNG.integers(0, 7, (2, 6, 5, 3)).astype(source)
    got = in_jit("bhwc->bchw", jnp.asarray(x), dtype=target, casting="unsafe")
    np.testing.assert_array_equal(bits(got), bits(x.transpose(0, 3, 1, 2).astype(target)))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("source", "target"),
    [("uint8", "float64"), ("float32", "float64"), ("int32", "int64"), ("uint32", "uint64")],
)
def test_results_are_as_wide_as_the_settings_of_jax(source, target, way):
    x = RNG.integers(0, 256, (2, 6, 5, 3)).astype(source)
    expected = x.transpose(0, 3, 1, 2).astype(target)
    narrow = way("bhwc->bchw", jnp.asarray(x), dtype=target)
    assert narrow.dtype == target.replace("64", "32")
    np.testing.assert_array_equal(narrow, expected)
    with jax.enable_x64(True):
        wide = way("bhwc->bchw", jnp.asarray(x), dtype=target)
    assert wide.dtype == target
    np.testing.assert_array_equal(wide, expected)


def test_traces_keep_the_width_of_their_settings():
    x = batch((2, 6, 5, 3), "uint8")
    converter = Converter("bhwc->bchw", dtype="float64")
    with jax.enable_x64(True):
        wide = jax.jit(lambda x: converter(x)).trace(x)
    narrow = jax.jit(lambda x: converter(x)).trace(x)
    with jax.enable_x64(True):
        narrow = narrow.lower().compile()(x)
    wide = wide.lower().compile()(x)
    assert [str(result.dtype) for result in (wide, narrow)] == ["float64", "float32"]
    for result in (wide, narrow):
        np.testing.assert_array_equal(result, x.transpose(0, 3, 1, 2))


@pytest.mark.parametrize("make", [jax.jit, lambda f: f, lambda f: lambda x: f(list(x))])
def test_narrowed_results(make):
    large = jnp.full((2, 6, 5, 3), 3e9, jnp.float32)
    to_int = make(Converter("bhwc->bchw", dtype="int64", casting="saturate"))
    assert (np.asarray(to_int(large)) == 2**31 - 1).all()  # neither wrapped nor cut
    to_float = make(Converter("bhwc->bchw", dtype="float64", casting="safe"))
    assert to_float(large).dtype == np.float32
    with pytest.raises(layoutkit.DtypeError, match=r"no float64 .* int32 to float32 .*enable_x64"):
        to_float(large.astype(jnp.int32))


# ---- processes and devices ---------------------------------------------------------------


def test_exported_programs_do_not_call_this_process():
    from jax import export

    x = batch((2, 5, 7, 3), "uint8")
    converter = Converter("bhwc->bchw", dtype="float32", **FORMULA)
    exported = export.export(jax.jit(converter))(x)
    assert "custom_call" not in exported.mlir_module()
    np.testing.assert_allclose(exported.call(x), converter(x), rtol=1e-6)


CACHED = """
import sys, jax, numpy as np
from layoutkit import Converter
from layoutkit.backends.jax import ffi
ffi.FEWEST_BYTES = 0
kept = [np.zeros(999) for _ in range(int(sys.argv[2]))]  # other addresses than in the other process
jax.config.update("jax_compilation_cache_dir", sys.argv[1])
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
events = []
jax.monitoring.register_event_listener(lambda event, **_: events.append(event.split("/")[-1]))
x = np.arange(6 * 64 * 64 * 3, dtype=np.float32).reshape(6, 64, 64, 3)
result = jax.jit(lambda x: Converter("bhwc->bchw")(x) + 1)(x)
np.testing.assert_array_equal(result, x.transpose(0, 3, 1, 2) + 1)
assert len(ffi._registered) == 1
print("cache_hits" in events, "cache_misses" in events)
"""


@pytest.mark.budget(0)
def test_programs_in_jaxs_cache_run_in_other_processes(tmp_path):
    printed = [
        subprocess.run(
            [sys.executable, "-c", CACHED, str(tmp_path), str(count)],
            capture_output=True,
            text=True,
            check=True,
        ).stdout.split()
        for count in (1, 500)
    ]
    assert printed == [["False", "True"], ["True", "False"]]


def test_without_workers_the_calling_thread_converts(monkeypatch):
    """Convert as in a forked child, which has no workers and in which JAX itself may not run."""
    x = batch((16, 128, 128, 3), "uint8")
    converter = Converter("bhwc->bchw", dtype="float32", threads=2)
    compiled = jax.jit(converter)
    compiled(x)
    state = ffi.board[0]
    assert state == pool.pool.state_address
    ffi.after_fork()
    try:
        np.testing.assert_array_equal(compiled(x), converter(x))
    finally:
        ffi.board[0] = state


def test_many_threads():
    x = batch((8, 128, 128, 3), "uint8")
    converter = Converter("bhwc->bchw", dtype="float32", threads=2, scale=0.5)
    expected = converter(x)
    equal = []

    def run():
        compiled = jax.jit(lambda x: converter(x))  # traced and registered by each thread
        equal.extend(np.array_equal(compiled(x), expected) for _ in range(20))

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert equal == [True] * 80


# ---- the interface of XLA ----------------------------------------------------------------


def function_of(x, pattern, **options):
    """Return a foreign function, to be called with a frame, and the plan."""
    converter = Converter(pattern, **options)
    plan = converter.plan(x)
    return handler_of(converter, plan), plan


def aligned(spec):
    """Return zeros of a spec at an address of a cache line."""
    memory = np.zeros(spec.nbytes + 128, np.uint8)
    start = -memory.ctypes.data % 64
    return memory[start : start + spec.nbytes].view(spec.dtype).reshape(spec.shape)


@pytest.mark.parametrize("offset", [0, 16, 32, 48])
@pytest.mark.parametrize(
    ("pattern", "shape"), [("bhwc->bchw", (64, 56, 56, 64)), ("bhwc->bchw", (3, 9, 11, 3))]
)
def test_outputs_of_any_alignment(pattern, shape, offset):
    x = batch(shape, "float32")
    function, plan = function_of(x, pattern)
    guard = 64
    memory = np.full(plan.target.nbytes + 256, guard, np.uint8)
    start = -memory.ctypes.data % 64 + offset
    out = memory[start : start + plan.target.nbytes].view(np.float32).reshape(plan.target.shape)
    assert function(frame_of(buffer_of(x), buffer_of(out))) == 0
    np.testing.assert_array_equal(out, x.transpose(0, 3, 1, 2))
    assert (memory[:start] == guard).all()
    assert (memory[start + plan.target.nbytes :] == guard).all()


def test_xla_is_told_the_version_and_nothing_is_converted():
    x = batch((2, 4, 5, 3), "float32")
    function, plan = function_of(x, "bhwc->bchw")
    out = np.zeros(plan.target.shape, np.float32)
    metadata = words(*[-1] * 6)
    extension = words(32, 1, 0, ctypes.addressof(metadata))
    assert function(frame_of(buffer_of(x), buffer_of(out), ctypes.addressof(extension))) == 0
    assert not out.any()
    major, minor = ffi.version()
    assert list(metadata) == [-1, -1, -1, major | minor << 32, 0, -1]


def test_types_have_the_numbers_of_xla():
    header = Path(jax.ffi.include_dir(), "xla/ffi/api/c_api.h").read_text()
    numbers = dict(re.findall(r"XLA_FFI_DataType_(\w+) = (\d+)", header))
    letters = {"int": "S", "uint": "U", "float": "F", "bfloat": "BF"}
    expected = {}
    for name in ffi.TYPE_NUMBERS:
        kind, rest = re.fullmatch(r"([a-z]+)(\w*)", name).groups()
        text = (letters.get(kind, "PRED") + rest).upper().replace("8_", "8")
        expected[name] = int(numbers[text])
    assert expected == ffi.TYPE_NUMBERS


@pytest.mark.parametrize("change", sorted(UNPLANNED))
@pytest.mark.parametrize("changed", ["source", "target"])
@pytest.mark.parametrize(("dtype", "target"), [("uint8", "float32"), ("bfloat16", "bfloat16")])
def test_arrays_that_were_not_planned_are_an_error(dtype, target, changed, change):
    x = batch((2, 4, 5, 3), jnp.dtype(dtype))
    function, plan = function_of(x, "bhwc->bchw", dtype=target)
    out = aligned(plan.target)
    buffers = {
        name: buffer_of(array, **(UNPLANNED[change](array) if name == changed else {}))
        for name, array in (("source", x), ("target", out))
    }
    assert function(frame_of(*buffers.values())) == REFUSED
    assert not out.view("u1").any()
    text = f"planned for 120 items of {dtype} to 120 items of {target}, but XLA passed other"
    assert text in messages.pop()
    assert function(frame_of(buffer_of(x), buffer_of(out))) == 0
    assert out.view("u1").any()


@pytest.mark.parametrize("counts", [(0, 1), (2, 1), (1, 0), (1, 2)])
def test_other_numbers_of_arrays_are_an_error(counts):
    x = batch((2, 4, 5, 3), "float32")
    function, plan = function_of(x, "bhwc->bchw")
    out = aligned(plan.target)
    assert function(frame_of(buffer_of(x), buffer_of(out), counts=counts)) == REFUSED
    assert not out.any()


@pytest.mark.parametrize("shift", [1, 4, 8, 15])
def test_outputs_of_less_than_the_least_alignment_are_an_error(shift):
    x = batch((2, 4, 5, 3), "float32")
    function, plan = function_of(x, "bhwc->bchw")
    out = aligned(plan.target)
    assert function(frame_of(buffer_of(x), buffer_of(out, shift=shift))) == REFUSED
    assert not out.any()


def test_xla_raises_the_error(monkeypatch):
    """Let XLA allocate other arrays than those that were planned."""
    infer = ffi.KernelPrimitive.infer_type
    namespace = layoutkit.backends.jax.Jax()
    x = batch((2, 6, 5, 3), "float32")

    def infer_less(self, *args, **keywords):
        return infer(self, *args, **keywords).update(dtype=np.dtype("float16"))

    monkeypatch.setattr(ffi.KernelPrimitive, "infer_type", infer_less)
    primitive = ffi.KernelPrimitive(namespace)
    with pytest.raises(
        jax.errors.JaxRuntimeError, match=r"180 items of float32 .* XLA passed other"
    ):
        jax.jit(lambda x: primitive(Converter("bhwc->bchw"), x))(x)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("#define XLA_FFI_API_MAJOR 0\n#define XLA_FFI_API_MINOR 3\n", (0, 3)),
        ("#define XLA_FFI_API_MAJOR 0\n#define XLA_FFI_API_MINOR 4\n", None),
        ("#define XLA_FFI_API_MAJOR 1\n#define XLA_FFI_API_MINOR 0\n", None),
        ("", None),
        (None, None),
    ],
)
def test_an_unknown_version_is_not_used(text, expected, tmp_path, monkeypatch):
    header = tmp_path / "xla/ffi/api/c_api.h"
    header.parent.mkdir(parents=True)
    if text is not None:
        header.write_text(text)
    monkeypatch.setattr(jax.ffi, "include_dir", lambda: os.fspath(tmp_path))
    assert ffi.version.__wrapped__() == expected
    monkeypatch.setattr(ffi, "version", ffi.version.__wrapped__)
    x = batch((2, 8, 9, 3), "uint8")
    assert calls(Converter("bhwc->bchw"), x) == (expected is not None)
