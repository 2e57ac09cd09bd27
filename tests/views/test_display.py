"""Text and HTML representations of views, which never raise and never change a view."""

import re

import numpy as np

from layoutkit import ClassView, DataView, ImageView, ListView, SequenceView
from tests.helpers.views_state import state

X = np.zeros((8, 3, 3, 1))


def cells(html):
    """Return the text of every row of the tables."""
    rows = re.findall(r"<tr>(.*?)</tr>", html)
    return [re.findall(r"<t[hd]>(.*?)</t[hd]>", row) for row in rows]


def test_empty_views():
    for kind in (DataView, ImageView, SequenceView):
        assert repr(kind()) == f"{kind.__name__}(empty)"
        assert cells(kind()._repr_html_()) == []
        assert f"{kind.__name__}, empty" in kind()._repr_html_()
    assert repr(ClassView()) == "ClassView(empty; no classes)"
    assert repr(ClassView(classes=3)) == "ClassView(empty; 3 classes)"
    assert (
        repr(ListView([ImageView(), DataView()])) == "ListView(ImageView(empty), DataView(empty))"
    )


def test_one_line():
    view = ImageView("b h w c", X)
    assert repr(view) == "ImageView(bhwc (8, 3, 3, 1) float64)"
    view.forward_get()
    view.forward_get("chwb", "f4")
    view.backward_put("bhwc", X)
    wanted = "ImageView(bhwc (8, 3, 3, 1) float64; got chwb float32; 1 gradient)"
    assert repr(view) == wanted
    view.forward_get("bf")
    view.backward_put("bf", np.zeros((8, 9)))
    assert repr(view).endswith("got chwb float32, b(hwc) float64; 2 gradients)")
    labels = ClassView("b", np.zeros(8, int), ["a", "b"])
    both = ListView([view, ListView([labels])])
    inner = "ListView(ClassView(b (8,) int64; 2 classes))"
    assert repr(both) == f"ListView({view!r}, {inner})"


def test_a_table():
    view = ImageView("bhwc", X)
    view.forward_get("chwb", "f4"), view.forward_get("bf")
    view.backward_put("bf", np.zeros((8, 9)))
    view.backward_put("chwb", np.zeros((1, 3, 3, 8), "f4"))
    before = state(view)
    head, *rows = cells(view._repr_html_())
    assert head == ["", "layout", "dtype", "shape", "kernel", "bytes moved"]
    assert rows == [
        ["base", "bhwc", "float64", "(8, 3, 3, 1)", "-", "0"],
        ["got", "chwb", "float32", "(1, 3, 3, 8)", "transpose", "864"],
        ["got", "b(hwc)", "float64", "(8, 9)", "view", "0"],
        ["gradient", "b(hwc)", "float64", "(8, 9)", "view", "0"],
        ["gradient", "chwb", "float32", "(1, 3, 3, 8)", "transpose", "576"],
    ]
    assert state(view) == before


def test_a_table_of_labels():
    view = ClassView("bt", np.zeros((4, 2)), 3)
    view.forward_get("b")
    view.backward_put("b", np.zeros(4))
    html = view._repr_html_()
    assert "ClassView, 3 classes" in html
    assert cells(html)[2:] == [
        ["got", "b", "float64", "(4,)", "gather", "64"],
        ["gradient", "b", "float64", "(4,)", "column", "32"],
    ]


def test_a_table_for_each_component():
    view = ListView([ImageView("bhwc", X), ListView([ClassView()])])
    html = view._repr_html_()
    assert [row[0] for row in cells(html)] == ["", "base"]
    assert re.findall(r"<b>(.*?)</b>", html) == [
        "ListView", "ImageView", "ListView", "ClassView, no classes, empty"
    ]  # fmt: skip


def test_text_is_escaped():
    odd = np.zeros(3, [("<b>", "u1"), ("&", "u1")])
    html = DataView("b", odd)._repr_html_()
    assert "&lt;b&gt;" in html
    assert "<b>'" not in html


def test_a_result_that_shares_nothing_with_its_gradient():
    """The gradient has another dtype than the result, and no samples."""
    view = ImageView("bhwc", X[:0].astype("u1"))
    view.forward_get("bchw")
    view.backward_put("bchw", np.zeros((0, 1, 3, 3), "f4"))
    assert cells(view._repr_html_())[-1] == [
        "gradient",
        "bchw",
        "float32",
        "(0, 1, 3, 3)",
        "view",
        "0",
    ]
