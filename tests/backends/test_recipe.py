"""The recipe for a new array library in docs/how-it-runs.md works for a toy library."""

import sys
from types import ModuleType

import numpy as np
import pytest

import layoutkit.backends
from layoutkit import ArgumentError, Converter, DataView, accumulate, config, convert
from layoutkit.backends import registry
from tests.helpers.recipes import blocks

# The library, which does not use layoutkit, and the backend module that adapts it.
TOY = ModuleType("toy")
exec(
    """
class Tensor:
    def __init__(self, values):
        self.values = values
    shape = property(lambda self: self.values.shape)
    def __getitem__(self, place):
        return Tensor(self.values[place])
""",
    TOY.__dict__,
)
FILE = blocks("A new array library")[0]


@pytest.fixture
def toy(tmp_path, monkeypatch):
    """Install the toy library and its backend module, and remove both afterwards."""
    (tmp_path / "toy.py").write_text(FILE)
    monkeypatch.setitem(sys.modules, "toy", TOY)
    monkeypatch.setitem(registry.BACKENDS, "toy", "toy")
    monkeypatch.setattr(
        layoutkit.backends, "__path__", [*layoutkit.backends.__path__, str(tmp_path)]
    )
    registry.backend_by_type.cache_clear()
    yield TOY
    sys.modules.pop("layoutkit.backends.toy", None)
    vars(layoutkit.backends).pop("toy", None)
    registry.backend_by_type.cache_clear()


IMAGES = np.random.default_rng(0).integers(0, 256, (2, 4, 5, 3), np.uint8)
PLANES = np.ascontiguousarray(IMAGES.transpose(0, 3, 1, 2))


def test_its_arrays_come_in_and_go_out(toy):
    x = toy.Tensor(IMAGES)
    out = toy.Tensor(np.zeros_like(PLANES))
    y = convert(x, "bhwc->bchw")
    assert type(y) is toy.Tensor
    np.testing.assert_array_equal(y.values, PLANES)
    assert convert(x, "bhwc->bchw", out=out) is out
    np.testing.assert_array_equal(out.values, PLANES)
    assert convert(x, "bhwc->bhwc") is x


def test_sums_gradients_and_views_take_them(toy):
    grads = PLANES.astype("f4")
    total = accumulate([(toy.Tensor(grads), "bchw"), (grads, "bchw")], "bhwc")
    assert type(total) is toy.Tensor
    np.testing.assert_array_equal(total.values, 2.0 * IMAGES)
    back = Converter("bhwc->bchw").backward(toy.Tensor(grads), like=toy.Tensor(IMAGES))
    np.testing.assert_array_equal(back.values, IMAGES)
    view = DataView("bhwc", toy.Tensor(IMAGES))
    np.testing.assert_array_equal(view.forward_get("bchw").values, PLANES)
    np.testing.assert_array_equal(view.index([1, 0]).input.values, IMAGES[::-1])


def test_without_its_file_the_library_is_unknown(monkeypatch):
    monkeypatch.setitem(sys.modules, "toy", TOY)
    with pytest.raises(ArgumentError, match=r"x is a toy\.Tensor, not a NumPy array"):
        convert(TOY.Tensor(IMAGES), "bhwc->bchw")


def test_the_configuration_lists_every_library():
    """CuPy is listed with the GPU, and jaxlib comes with jax."""
    listed = {*config.OPTIONAL_PACKAGES, "cupy", "jaxlib"}
    assert set(registry.BACKENDS) <= listed
