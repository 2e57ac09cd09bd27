"""Arrays of JAX on a GPU: their device, and results that become arrays of JAX."""

from types import SimpleNamespace

import numpy as np
import pytest

from layoutkit import ArgumentError, Converter, DeviceError, DtypeError
from layoutkit.backends import dispatch
from tests.helpers.cuda_shim import needs_compiler
from tests.helpers.fake_cuda import values_of
from tests.helpers.reference import reference_convert

pytestmark = needs_compiler

IMAGES = np.random.default_rng(0).random((2, 4, 5, 3), np.float32)
WANTED = reference_convert(IMAGES, "bhwc->bchw")


class Array:
    """A fake JAX array, which is recognized by its devices and exports its memory by DLPack.

    `id` is the number of a device in all processes, `local_hardware_id` its number on the machine.
    """

    def __init__(self, array, *devices):
        self.memory, self.ordinal, self.shape, self.dtype = (
            array.memory, array.data.device_id, array.shape, array.dtype,
        )  # fmt: skip
        self._devices = devices or (device("gpu", self.ordinal),)

    def devices(self):
        return set(self._devices)

    def __dlpack__(self, *, stream):
        return


class Device(SimpleNamespace):
    def __hash__(self):
        return self.id

    def __str__(self):
        return f"{self.platform}:{self.id}"


def device(platform, local):
    return Device(platform=platform, local_hardware_id=local, id=8 + local)


@pytest.fixture
def taken(gpu, monkeypatch):
    """Handle each `Array` as an array of JAX; return the devices current at imports of results."""
    pytest.importorskip("jax", reason="needs JAX")
    from layoutkit.backends import jax

    took, (_, _, adapter, _) = [], jax._adapters()
    names = ("adapter_for_any", "get_device_adapter")
    for name, ask in [(name, getattr(dispatch, name)) for name in names]:
        monkeypatch.setattr(
            dispatch, name, lambda x, ask=ask: adapter if isinstance(x, Array) else ask(x)
        )
    monkeypatch.setattr(
        adapter.namespace.jax.dlpack,
        "from_dlpack",
        lambda array: took.append(gpu.runtime.current()) or Array(array),
    )
    return took


@pytest.mark.parametrize("ordinal", [0, 1])
def test_they_are_converted_on_their_gpu_and_stay_theirs(gpu, taken, ordinal):
    converter = Converter("bhwc->bchw")
    for turn in range(2):
        there = gpu.array(IMAGES + turn, ordinal)
        y = converter(Array(there))
        assert (type(y), y.ordinal) == (Array, ordinal)
        values_of(gpu.cupy.ndarray.of(y.memory, ordinal))
        np.testing.assert_array_equal(y.memory, WANTED + turn)
    larger = Converter("bhwc->bchw", pad_to={"h": 9}, fill=2)
    y = larger(Array(gpu.array(IMAGES, ordinal)))
    values_of(gpu.cupy.ndarray.of(y.memory, ordinal))
    np.testing.assert_array_equal(y.memory, larger(IMAGES))
    assert set(taken) == {ordinal}


def test_what_is_refused(gpu, taken):
    x = gpu.array(IMAGES)
    converter = Converter("bhwc->bchw")
    for devices in ([device("tpu", 0)], [device("gpu", 0), device("gpu", 1)]):
        with pytest.raises(DeviceError, match="pass one that is on one GPU"):
            converter(Array(x, *devices))
    with pytest.raises(ArgumentError, match="arrays of jax are immutable"):
        converter(Array(x), gpu.array(np.zeros_like(WANTED)))
    with pytest.raises(DtypeError, match="jax has no dtype"):
        Converter("bhwc->bchw", dtype=np.longdouble)(Array(x))
    assert taken == []
