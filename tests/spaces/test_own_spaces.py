"""Spaces of other packages: subclasses of ArraySpace with a layout and sizes."""

import pickle
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layoutkit import (
    ArraySpace,
    CompositeSpace,
    Conv2DSpace,
    DtypeError,
    ImageView,
    IndexSpace,
    LayoutkitError,
    ShapeError,
    SpaceError,
    VectorSpace,
)


@dataclass(frozen=True)
class VolumeSpace(ArraySpace):
    shape: tuple
    channels: int = 1
    layout: str = "bcdhw"
    dtype: Any = "float32"

    @property
    def sizes(self):
        return dict(zip("dhwc", (*self.shape, self.channels), strict=True))


VOLUMES = VolumeSpace((2, 3, 4), 5)
BATCH = np.random.default_rng(0).random((6, 5, 2, 3, 4), np.float32)
VECTORS = BATCH.transpose(0, 2, 3, 4, 1).reshape(6, 120)


@given(st.permutations("bcdhw"), st.permutations("bcdhw"))
def test_layouts_and_vectors(source, target):
    first = VolumeSpace((2, 3, 4), 5, "".join(source))
    second = VolumeSpace((2, 3, 4), 5, "".join(target))
    batch = BATCH.transpose(["bcdhw".index(letter) for letter in source])
    expected = BATCH.transpose(["bcdhw".index(letter) for letter in target])
    np.testing.assert_array_equal(first.format_as(batch, second), expected)
    np.testing.assert_array_equal(first.format_as(batch, VectorSpace(120)), VECTORS)
    np.testing.assert_array_equal(second.undo_format_as(VECTORS, VectorSpace(120)), expected)


def test_it_is_a_space_like_any_other():
    again = pickle.loads(pickle.dumps(VOLUMES))
    assert (again, hash(again)) == (VOLUMES, hash(VolumeSpace((2, 3, 4), 5)))
    assert VOLUMES.with_dtype(None) != VOLUMES
    assert VOLUMES.get_total_dimension() == 120
    assert (VOLUMES.batch_size(BATCH), VOLUMES.get_origin().shape) == (6, (5, 2, 3, 4))
    assert VOLUMES.get_origin_batch(2).shape == (2, 5, 2, 3, 4)


def test_in_a_composite():
    both = CompositeSpace((VOLUMES, VectorSpace(1)))
    joined = both.format_as((BATCH, np.ones((6, 1), np.float32)), VectorSpace(121))
    np.testing.assert_array_equal(joined[:, :120], VECTORS)
    np.testing.assert_array_equal(both.undo_format_as(joined, VectorSpace(121))[0], BATCH)


def test_its_view():
    view = VOLUMES.view(BATCH)
    assert isinstance(view, ImageView)
    np.testing.assert_array_equal(view.forward_get("b(dhwc)"), VECTORS)


WRONG_BATCHES = [
    (BATCH[0], ShapeError, "batch, c=5, d=2, h=3, w=4.*rank is 4, not 5"),
    (BATCH[:, :4], ShapeError, r"axis 1 \(c\) is 4, not 5"),
    (BATCH.astype("c8"), DtypeError, "complex64"),
    (BATCH.tolist(), SpaceError, "needs one array"),
]


@pytest.mark.parametrize(("batch", "error", "says"), WRONG_BATCHES)
def test_wrong_batches(batch, error, says):
    with pytest.raises(error, match=says):
        VOLUMES.validate(batch)


WRONG_TARGETS = [
    (VolumeSpace((2, 3, 5), 5), "'w': 4.*'w': 5.*have to be equal"),
    (Conv2DSpace((6, 4), 5), "have to be equal"),
    (VectorSpace(119), "120 numbers in the first and 119"),
    (IndexSpace(10, 1), "labels"),
]


@pytest.mark.parametrize(("target", "says"), WRONG_TARGETS)
def test_spaces_without_a_conversion(target, says):
    with pytest.raises(SpaceError, match=says):
        VOLUMES.format_as(BATCH, target)


WRONG_CLASSES = [
    ({}, SpaceError, "does not define layout"),
    ({"layout": "bz"}, SpaceError, "does not define sizes"),
    ({"layout": "bz", "sizes": {"q": 3}}, SpaceError, "layout='bz' and the sizes {'q': 3}"),
    ({"layout": "z", "sizes": {"z": 3}}, SpaceError, "the letters of all sizes and b"),
    ({"layout": "bz", "sizes": {"z": 0}}, ShapeError, "z=0"),
    ({"layout": "b-z", "sizes": {"z": 3}}, LayoutkitError, "b-z"),
    ({"layout": "bz", "sizes": {"z": 3}, "dtype": "no"}, DtypeError, "no"),
]


@pytest.mark.parametrize(("attributes", "error", "says"), WRONG_CLASSES)
def test_a_class_without_what_a_space_needs(attributes, error, says):
    members = {"__annotations__": {"dtype": Any}, "dtype": "float32", **attributes}
    space = dataclass(frozen=True)(type("OwnSpace", (ArraySpace,), members))
    with pytest.raises(error, match=says):
        space()
