"""View targets in place of a layout: views call only the methods of the protocol."""

import subprocess
import sys

import numpy as np
import pytest

from layoutkit import BackwardError, DataView, ImageView, ListView, PatternError, ShapeError
from tests.helpers.views_state import check_error

IMAGES = np.random.default_rng(0).random((4, 2, 3, 1))
VECTORS = np.arange(8.0).reshape(4, 2)


class Doubled:
    """A target that is twice the base and is not a space; its gradients are the base's too."""

    def __init__(self, name="doubled"):
        self.name = name
        self.asked = 0

    def __repr__(self):
        return self.name

    def check_from(self, view, dtype, device):
        if view.shape[0] > 4:
            raise ShapeError("too many samples to double")

    def get_from(self, view, dtype, device):
        self.check_from(view, dtype, device)
        self.asked += 1
        held = view.batch
        return held.by_target.setdefault(self, 2 * held.array.astype(dtype or view.dtype))

    def gradients_for(self, view, grad):
        if self not in view.batch.by_target:
            raise BackwardError(f"nothing was got as {self}")
        return [(view.batch.plans.base, 2 * grad)]


def test_views_load_no_spaces():
    code = "import sys, layoutkit.views; print([m for m in sys.modules if 'layoutkit.spaces' in m])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_view_is_got_in_a_form_once():
    view = ImageView("bhwc", IMAGES)
    form = Doubled()
    result = view.forward_get(form)
    assert result.tolist() == (2 * IMAGES).tolist()
    assert view.forward_get(form) is result
    assert form.asked == 1
    assert view.forward_get(form, "float32") is result
    assert "got doubled" in repr(view)
    assert "doubled" in view._repr_html_()


def test_gradients_of_forms_and_layouts_are_summed():
    view = DataView("bf", VECTORS)
    form = Doubled()
    with check_error(BackwardError, "nothing was got as doubled", view):
        view.backward_put(form, VECTORS)
    view.forward_get(form), view.forward_get("fb")
    view.backward_put(form, VECTORS)
    view.backward_put("fb", VECTORS.T)
    assert view.backward_get().tolist() == (3 * VECTORS).tolist()


def test_components_are_asked_for_forms_and_layouts():
    view = ListView([ImageView("bhwc", IMAGES), ListView([DataView("bf", VECTORS)])])
    form = Doubled()
    planes, (doubled,) = view.forward_get(("bchw", (form,)))
    assert planes.shape == (4, 1, 2, 3)
    assert doubled.tolist() == (2 * VECTORS).tolist()
    view.backward_put((None, [form]), (IMAGES, [VECTORS]))
    assert view.backward_get()[1][0].tolist() == (2 * VECTORS).tolist()


def test_a_form_that_refuses_one_component_is_asked_before_anything_is_made():
    many = np.zeros((5, 2))
    form = Doubled()
    view = ListView([DataView("bf", many), ListView([DataView("bf", many)])])
    with check_error(ShapeError, r"component \[1\]\[0\]: too many samples to double", view):
        view.forward_get(("fb", (form,)))


@pytest.mark.parametrize("layout", [Doubled, 5, ["bf"], object()])
def test_what_is_neither_text_nor_a_form(layout):
    with pytest.raises(PatternError, match="a layout is text"):
        DataView("bf", VECTORS).forward_get(layout)
    with pytest.raises(PatternError, match="a layout is text"):
        DataView("bf", VECTORS).backward_put(layout, VECTORS)
