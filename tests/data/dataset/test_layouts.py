"""Layouts of selections, and the class of View that each layout selects."""

import numpy as np
import pytest

from layoutkit import ClassView, DataError, DataView, ImageView, SequenceView
from layoutkit.data import Dataset, Sample

PHOTOS = np.zeros((6, 4, 5, 3), np.uint8)


@pytest.mark.parametrize(
    ("key", "layout"),
    [
        (0, "hwc"),
        (-1, "hwc"),
        (np.int64(2), "hwc"),
        (slice(2, 4), "bhwc"),
        ([3, 1], "bhwc"),
        ([], "bhwc"),
        (np.array([1, 2]), "bhwc"),
        (np.ones(6, bool), "bhwc"),
        (np.s_[:, 0], "bwc"),
        (np.s_[2, 1:3], "hwc"),
        (np.s_[2, :, 4], "hc"),
        (np.s_[[1, 2], :2, 0], "bhc"),
        (np.s_[1, 1, 1, 1], ""),
        (np.s_[:, [0, 1]], None),
        (np.s_[0, [0, 1]], None),
        (np.s_[:, :, np.ones(5, bool)], None),
        (np.s_[None], None),
        (np.s_[..., 0], "bhw"),
        (np.s_[0, ..., 0], "hw"),
        (np.s_[1:3, ..., :2], "bhwc"),
        (np.s_[..., 0, :], "bhc"),
        (np.s_[:, ...], "bhwc"),
        (np.s_[...], "bhwc"),
        (np.s_[[1, 0], ..., 0], "bhw"),
        (np.s_[0, 0, 0, 0, ...], ""),
        (np.s_[..., None], None),
        (np.s_[..., [0, 1]], None),
        (np.s_[np.ones((6, 4), bool)], None),
        (np.s_[[[0, 1]]], None),
    ],
    ids=str,
)
def test_layouts_follow_selections(key, layout):
    assert Dataset(PHOTOS, layout="bhwc")[key]._layout() == layout


def test_layouts_follow_selections_of_selections():
    s = Dataset(PHOTOS, layout="b h w c")[0]
    assert (s._layout(), s[0]._layout(), s[[0, 1]]._layout()) == ("hwc", "wc", "hwc")
    assert s[:, [0]]._layout() is None
    assert s[:, [0]][0]._layout() is None
    assert Dataset(np.zeros((4, 6)), layout="b(hw)")[1:, 2]._layout() == "b"


def test_an_ellipsis_is_any_number_of_full_slices():
    s = Dataset(PHOTOS, layout="bhwc")[..., 0]
    assert (s._layout(), s._shape(), s[0]._layout()) == ("bhw", (6, 4, 5), "hw")
    assert s._view().forward_get("bwh").shape == (6, 5, 4)
    d = Dataset({"x": PHOTOS}, fields={"red": np.s_[..., 0]}, layout={"x": "bhwc"})
    assert d.red._layout() == "bhw"
    assert Dataset(np.zeros((6, 2)))._minibatches(2)[..., 0]._layout() is None


def test_the_default_is_b_and_bf_of_datasets():
    layouts = [Dataset(np.zeros((2,) * rank))._layout() for rank in (1, 2, 3, 4)]
    assert layouts == ["b", "bf", None, None]
    assert Sample(np.zeros((2, 2)))._layout() is None
    assert Dataset(Sample(np.zeros((2, 2))))._layout() == "bf"
    assert Dataset(np.zeros((2, 3)))[0]._layout() == "f"
    d = Dataset({"x": PHOTOS, "y": np.zeros(6)}, layout={"x": "bhwc"})
    assert (d._layout(), d.x._layout(), d.y._layout()) == ("bhwc", "bhwc", "b")
    assert (d[3].x._layout(), d[1:].y._layout(), d[3].y._layout()) == ("hwc", "b", "")


def test_layout_and_meta_of_nested_mappings():
    d = Dataset(
        {"input": {"photo": PHOTOS, "id": np.arange(6)}, "target": np.arange(6)},
        layout={"input": {"photo": "bhwc"}},
        meta={"input": {"photo": {"camera": "front"}}, "target": {"classes": 6}},
    )
    assert d.input.photo._layout() == "bhwc"
    assert d._meta() == d.input.photo._meta() == {"camera": "front"}
    assert d[2].target._meta() == {"classes": 6}


def test_what_is_said_about_a_sample_anew():
    d = Dataset(PHOTOS, layout="bhwc", meta={"a": 1})
    assert Dataset(d)._layout() == "bhwc"
    assert Dataset(d)._meta() == {"a": 1}
    again = Dataset(d, layout="bwhc", meta={"b": 2})
    assert (again._layout(), again._meta()) == ("bwhc", {"b": 2})
    assert (d._layout(), d._meta()) == ("bhwc", {"a": 1})


def test_meta_is_a_dict_of_ones_own():
    said = {"classes": 3}
    d = Dataset(np.arange(3), meta=said)
    d._meta()["more"] = 1
    said["later"] = 2
    assert d._meta() == {"classes": 3}


@pytest.mark.parametrize(
    ("shape", "dtype", "layout", "cls"),
    [
        ((6, 4, 5, 3), "u1", "bhwc", ImageView),
        ((6, 3, 4, 5), "f4", "bchw", ImageView),
        ((6, 4, 5), "f4", "bhw", ImageView),
        ((6, 2, 4, 5, 3), "f4", "bdhwc", ImageView),
        ((6, 7, 2), "f4", "bwc", SequenceView),
        ((6, 2, 7), "f4", "bcw", SequenceView),
        ((6,), "i8", None, ClassView),
        ((6, 2), "u1", "bt", ClassView),
        ((6,), "f4", None, DataView),
        ((6,), "?", None, DataView),
        ((6, 2), "f4", "bt", DataView),
        ((6, 2), "i4", "bf", DataView),
        ((6, 2, 3), "f4", "bxy", DataView),
        ((6, 60), "u1", "b(hwc)", DataView),
    ],
)
def test_the_view_of_a_layout(shape, dtype, layout, cls):
    x = np.zeros(shape, dtype)
    view = Dataset(x, layout=layout, meta={"classes": ["cat", "dog"]})._view()
    assert type(view) is cls
    assert view.layout == (layout or "b")
    assert np.shares_memory(view.input, x)
    if cls is ClassView:
        assert view.classes == ["cat", "dog"]


def test_views_of_parts():
    d = Dataset({"x": PHOTOS, "y": np.arange(6)}, layout={"x": "bhwc"}, meta={"y": {"classes": 6}})
    assert d._view().forward_get("bchw").shape == (6, 3, 4, 5)
    assert type(d[2:4].y._view()) is ClassView
    assert d[[5, 1]].y._view().one_hot().shape == (2, 6)
    assert d._minibatches(4)[1]._view().layout == "bhwc"
    assert type(Sample(PHOTOS, layout="hwcb"[::-1])._view()) is ImageView
    for part in (d[0], d[:, None], d[:, [0]], Dataset(PHOTOS), d._minibatches(3)):
        with pytest.raises(DataError):
            part._view()
