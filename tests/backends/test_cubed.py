"""Arrays of cubed: lazy, in chunks of one size, and equal to conversions of the whole array."""

import numpy as np
import pytest

from layoutkit import ArgumentError, Converter, ShapeError, accumulate, convert
from layoutkit.views import ImageView

cubed = pytest.importorskip("cubed", reason="the arrays are of cubed")

X = np.random.default_rng(0).integers(0, 255, (5, 8, 6, 3)).astype(np.uint8)
MEANS = (0.1, 0.2, 0.3)


@pytest.fixture
def lazy(tmp_path):
    spec = cubed.Spec(work_dir=str(tmp_path), allowed_mem="500MB")
    return lambda x=X, chunks=(2, 3, 6, 2): cubed.from_array(x, chunks=chunks, spec=spec)


@pytest.mark.parametrize(
    ("pattern", "keywords", "chunks"),
    [
        ("bhwc->bchw", {}, ((2, 2, 1), (2, 1), (3, 3, 2), (6,))),
        ("bhwc->bchw", {"dtype": "float32", "scale": 1 / 255, "mean": MEANS, "std": MEANS}, None),
        ("bhwc->b(chw)", {}, ((2, 2, 1), (96, 48))),
        ("bhwc->bchw", {"channels": (2, 0)}, ((2, 2, 1), (2,), (3, 3, 2), (6,))),
        ("bhwc->bchw", {"memory": "bhwc"}, None),
    ],
)
@pytest.mark.filterwarnings("ignore:.*needs other chunks")
def test_lazy_and_equal_to_the_whole(lazy, pattern, keywords, chunks):
    with cubed.raise_if_computes():
        y = convert(lazy(), pattern, **keywords)
    want = convert(X, pattern, **keywords)
    assert isinstance(y, cubed.Array)
    assert (y.shape, y.dtype) == (want.shape, want.dtype)
    assert chunks is None or y.chunks == chunks
    np.testing.assert_array_equal(y.compute(), want)


@pytest.mark.filterwarnings("ignore:.*needs other chunks")
def test_chunks_are_brought_to_one_size(lazy):
    flat = X.reshape(5, 48, 3)
    y = convert(lazy(flat, (2, 16, 3)), "b(hw)c->bchw", w=6)
    assert y.chunks == ((2, 2, 1), (3,), (3, 3, 2), (6,))
    np.testing.assert_array_equal(y.compute(), convert(flat, "b(hw)c->bchw", w=6))


def test_sums_views_and_plans(lazy):
    planes = X.transpose(0, 3, 1, 2)
    total = accumulate([(lazy(), "bhwc"), (planes, "bchw")], "bchw", dtype="float32")
    assert isinstance(total, cubed.Array)
    np.testing.assert_array_equal(total.compute(), 2 * planes.astype(np.float32))
    view = ImageView("bhwc", lazy())
    np.testing.assert_array_equal(view.forward_get("bchw").compute(), planes)
    plan = Converter("bhwc->b(hwc)").plan(lazy())
    assert plan.bytes_rechunked == X.nbytes
    assert plan.tasks >= 9 + 1  # 9 conversions, and the steps in which cubed rechunks
    assert convert(x := lazy(), "bhwc->bhwc") is x


@pytest.mark.parametrize(
    ("kind", "words", "call"),
    [
        (ShapeError, "rank 3", lambda x: convert(x, "bhw->bwh")),
        (ArgumentError, "cubed.to_zarr", lambda x: convert(x, "bhwc->bchw", out=X)),
        (
            ArgumentError,
            "pad_to= is not known",
            lambda x: convert(x, "bhwc->bchw", pad_to={"h": 9}),
        ),
    ],
)
def test_mistakes_are_found_when_the_plan_is_made(lazy, kind, words, call):
    with pytest.raises(kind, match=words):
        call(lazy())
