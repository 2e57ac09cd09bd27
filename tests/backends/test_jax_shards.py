"""Arrays of JAX sharded over four devices of the CPU.

JAX counts devices once a process, so one test runs the others in a process with four devices.
"""

import os
import subprocess
import sys

import numpy as np
import pytest

jax = pytest.importorskip("jax", reason="tests of arrays of JAX need jax")

import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from layoutkit import ArgumentError, Converter, DeviceError, ShapeError, accumulate, convert
from layoutkit.backends.jax.sharding import result_axes

FOUR = len(jax.devices()) == 4

X = np.random.default_rng(0).integers(0, 256, (8, 4, 6, 3), np.uint8)
FORMULA = {"dtype": "float32", "scale": 1 / 255, "mean": (0.5, 0.4, 0.3)}
MESH = Mesh(np.array(jax.devices()).reshape(2, 2), ("data", "model")) if FOUR else None


def four(test):
    """Run a test only in the process with four devices."""
    return test if FOUR else None


@pytest.mark.budget(0)
def test_with_four_devices():
    if FOUR:
        return
    flags = "--xla_force_host_platform_device_count=4"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-n", "0", __file__],
        env={**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
    )
    assert "7 passed" in done.stdout, done.stdout + done.stderr


def test_axes_of_which_a_shard_needs_the_whole():
    cases = [
        ("bhwc->b(hwc)", {}, 1),
        ("bhwc->bchw", {"pad_to": {"h": 8}}, 1),
        ("bhwc->bchw", {"mean": (1, 2, 3)}, 3),
        ("bhwc->bchw", {"channels": (2, 0)}, 3),
    ]
    for pattern, keywords, axis in cases:
        options = Converter(pattern, **keywords).options
        with pytest.raises(ShapeError, match=f"along axis {'bhwc'[axis]}, but"):
            result_axes(options, ["data" if n == axis else None for n in range(4)])
        assert result_axes(options, ["data", None, None, None])[0] == "data"


def put(*spec, x=X):
    return jax.device_put(x, NamedSharding(MESH, PartitionSpec(*spec)))


@four
def test_shards_stay_where_they_are():
    cases = [
        ("bhwc->bchw", ("data",), ("data",)),
        ("bhwc->bchw", (("data", "model"),), (("data", "model"),)),
        ("bhwc->chwb", ("data", None, "model"), (None, None, "model", "data")),
        ("bhwc->b(hwc)", ("model",), ("model",)),
        ("bhwc->bchw", (), ()),  # a copy on each device
    ]
    for pattern, spec, wanted in cases:
        for keywords in ({}, FORMULA):
            x = put(*spec)
            y = Converter(pattern, **keywords)(x)
            assert isinstance(y, jax.Array)
            assert y.sharding.is_equivalent_to(put(*wanted, x=np.asarray(y)).sharding, y.ndim)
            assert {shard.device for shard in y.addressable_shards} == set(jax.devices())
            np.testing.assert_array_equal(np.asarray(y), convert(X, pattern, **keywords))


@four
def test_sizes_are_those_of_the_whole():
    y = convert(put("data"), "bhw(c)->bchw", b=8, c=3)
    np.testing.assert_array_equal(np.asarray(y), X.transpose(0, 3, 1, 2))
    with pytest.raises(ShapeError, match="b=4 was given"):
        convert(put("data"), "bhwc->bchw", b=4)


@four
def test_what_a_shard_does_not_know_is_refused():
    fix = "run the conversion under jax.jit, or shard x along b only"
    with pytest.raises(ShapeError, match=fix):
        convert(put(None, "data"), "bhwc->b(hwc)")
    last = put(None, None, "data", x=X[..., :2].swapaxes(2, 3))
    with pytest.raises(ShapeError, match="along axis c"):
        convert(last, "bhcw->bchw", mean=(1, 2))
    with pytest.raises(ShapeError, match="along axis c"):
        convert(put(None, "data"), "bchw->bhwc", channels=(1, 0))
    np.testing.assert_array_equal(convert(last, "bhcw->bchw"), X[..., :2].transpose(0, 3, 1, 2))
    with pytest.raises(ArgumentError, match="immutable"):
        convert(put("data"), "bhwc->bchw", out=X)
    with pytest.raises(ArgumentError, match=fix):
        accumulate([(put("data"), "bhwc")], "bchw")
    with pytest.raises(DeviceError, match="several devices"):
        accumulate([(X, "bhwc"), (put("data"), "bhwc")], "bchw")


@four
def test_tracing_takes_any_shards():
    y = jax.jit(Converter("bhwc->b(hwc)", **FORMULA))(put(None, "data"))
    np.testing.assert_allclose(np.asarray(y), convert(X, "bhwc->b(hwc)", **FORMULA), 1e-5, 1e-6)
    per_shard = jax.shard_map(
        Converter("bhwc->bchw"),
        mesh=MESH,
        in_specs=PartitionSpec("data"),
        out_specs=PartitionSpec("data"),
    )
    np.testing.assert_array_equal(per_shard(put("data")), X.transpose(0, 3, 1, 2))


@four
def test_parts_in_shard_map_run_kernels_and_other_programs_operations():
    x = np.random.default_rng(0).integers(0, 256, (8, 256, 256, 3), np.uint8)
    converter = Converter("bhwc->bchw", **FORMULA)
    expected = converter(x)
    across = NamedSharding(MESH, PartitionSpec(("data", "model")))
    sharded = jax.device_put(x, across)
    for check_vma in (True, False):
        parts = jax.jit(
            jax.shard_map(
                lambda x: converter(x),
                mesh=MESH,
                in_specs=across.spec,
                out_specs=across.spec,
                check_vma=check_vma,
            )
        )
        assert parts.lower(sharded).as_text().count("custom_call @layoutkit_") == 1
        np.testing.assert_array_equal(parts(sharded), expected)
    whole = jax.jit(converter)
    assert "custom_call @layoutkit_" not in whole.lower(sharded).as_text()
    assert whole(sharded).sharding.is_equivalent_to(across, 4)
    np.testing.assert_allclose(whole(sharded), expected, 1e-5, 1e-6)
    names = (jax.sharding.AxisType.Explicit,) * 2
    with jax.set_mesh(jax.make_mesh((2, 2), ("data", "model"), axis_types=names)):
        typed = jax.jit(converter)(jax.device_put(x, PartitionSpec("data")))
    assert typed.sharding.spec[0] == "data"
    np.testing.assert_allclose(typed, expected, 1e-5, 1e-6)


@four
def test_results_of_one_device_go_to_any_mesh():
    """Results are committed only if x was put on a device by name, as JAX's own results are."""
    free = jnp.asarray(X)
    bound = jax.device_put(X, jax.devices()[1])
    assert [convert(x, "bhwc->bchw").committed for x in (free, bound)] == [False, True]
    assert convert(bound, "bhwc->bchw").devices() == {jax.devices()[1]}
    np.testing.assert_array_equal(
        jnp.add(convert(free, "bhwc->bhwc", copy=True), put("data")), X + X
    )
