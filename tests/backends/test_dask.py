"""Arrays of dask: lazy, of known shape, dtype and chunks, and equal to eager conversions."""

import pickle
import subprocess
import sys
import warnings

import numpy as np
import pytest

from layoutkit import ArgumentError, Converter, DtypeError, ShapeError, accumulate, convert
from layoutkit.views import ClassView, ImageView

da = pytest.importorskip("dask.array", reason="the arrays are of dask")
from dask.base import tokenize

X = np.random.default_rng(0).integers(0, 255, (5, 8, 6, 3)).astype(np.uint8)
MEANS = (0.1, 0.2, 0.3)
LABELS = np.array([2, 0, 1, 1, 0])


def lazy(chunks=(2, 3, 6, 2), x=X):
    return da.from_array(x, chunks=chunks)


def never(*_, **__):
    raise AssertionError("computed while the graph was built")


CASES = [
    ("bhwc->bchw", {}, ((2, 2, 1), (2, 1), (3, 3, 2), (6,))),
    ("bhwc->bchw", {"dtype": "float32", "scale": 1 / 255, "mean": MEANS, "std": (1, 2, 3)}, None),
    ("bhwc->bchw", {"mean": {"h": list(range(8))}}, None),
    ("bhwc->bchw", {"mean": {"b": list(range(5))}, "clip": (3, 200)}, None),
    ("bhwc->b(chw)", {}, ((2, 2, 1), (96, 48))),
    ("bhwc->(hb)wc", {}, ((15, 15, 10), (6,), (2, 1))),
    ("bhwc->bf", {}, ((2, 2, 1), (54, 54, 36))),
    ("bhwc->hb1wc", {}, ((3, 3, 2), (2, 2, 1), (1,), (6,), (2, 1))),
    ("...hwc->...chw", {}, None),
    ("batch height width c->batch c (height width)", {}, None),
    ("bhwc->bchw", {"channels": (2, 0)}, ((2, 2, 1), (2,), (3, 3, 2), (6,))),
    ("bhwc->bchw", {"memory": "bhwc"}, None),
    ("bhwc->bchw", {"pad_to": {"h": 10, "w": 9}, "fill": 7, "scale": 0.5}, None),
    ("bhwc->bchw", {"pad_to": {"h": 10}, "fill": (1, 2, 3), "channels": (2, 1, 0)}, None),
]


def selected(mask, axis, chunks=(2, 3, 6, 2)):
    """Return a lazy selection of X, whose sizes along an axis are not known."""
    index = [slice(None)] * axis + [da.from_array(np.array(mask), chunks=chunks[axis])]
    return lazy(chunks)[tuple(index)]


@pytest.mark.parametrize(
    ("axis", "mask"), [(0, [1, 0, 0, 0, 1]), (1, [0, 1, 1, 0, 1, 0, 1, 1]), (3, [1, 1, 0])]
)
@pytest.mark.parametrize(
    ("pattern", "keywords", "needs"),
    [
        ("bhwc->bchw", {}, ""),
        ("bhwc->chwb", {"dtype": "float32", "scale": 0.5}, ""),
        ("bhwc->bhwc", {}, ""),
        ("batch height width c -> height batch c width", {}, ""),
        ("...c->c...", {}, ""),
        ("bhwc->bchw", {"mean": MEANS}, "c"),
        ("bhwc->b1chw", {}, ""),
        ("bhwc->bchw", {"channels": (1, 0)}, "c"),
        ("bhwc->bchw", {"memory": "bhwc"}, ""),
        ("bhwc->bh(cw)", {}, "c"),
        ("bhwc->bchw", {"mean": {"b": list(range(5))}}, "b"),
        ("bhwc->bchw", {"mean": {"h": list(range(8))}}, "h"),
        ("bhwc->(bc)hw", {}, "bc"),
        ("bhwc->b(hc)w", {}, "hc"),
        ("bhwc->bf", {}, "hc"),
        ("bhwc->bchw", {"pad_to": {"w": 9}}, "bhc"),
    ],
)
@pytest.mark.filterwarnings("ignore:.*needs other chunks")
def test_sizes_along_axes_that_only_move_may_be_unknown(pattern, keywords, needs, axis, mask):
    x = selected(np.array(mask, bool), axis)
    assert np.isnan(x.shape[axis])
    if "bhwc"[axis] in needs:
        with pytest.raises(ArgumentError, match=r"not known before .* x\.compute_chunk_sizes\(\)"):
            convert(x, pattern, **keywords)
        return
    want = convert(X.compress(mask, axis), pattern, **keywords)
    y = convert(x, pattern, **keywords)
    assert (y.ndim, y.dtype) == (want.ndim, want.dtype)
    known = [n == m for n, m in zip(y.shape, want.shape, strict=True)]
    assert known.count(False) == 1
    np.testing.assert_array_equal(y.compute(scheduler="sync"), want)


@pytest.mark.parametrize(("pattern", "keywords", "chunks"), CASES)
@pytest.mark.filterwarnings("ignore:.*needs other chunks")
def test_lazy_and_equal_to_the_whole(pattern, keywords, chunks, monkeypatch):
    x = lazy()
    want = convert(X, pattern, **keywords)
    with monkeypatch.context() as patch:
        patch.setattr(da.Array, "compute", never)
        patch.setattr("dask.base.compute", never)
        y = convert(x, pattern, **keywords)
    assert isinstance(y, da.Array)
    assert y.shape == want.shape
    assert y.dtype == want.dtype
    assert type(y._meta) is np.ndarray
    assert y._meta.dtype == want.dtype
    assert chunks is None or y.chunks == chunks
    got = y.compute(scheduler="threads")
    assert got.dtype == want.dtype
    np.testing.assert_array_equal(got, want)
    for start in np.ndindex(*y.numblocks):  # each block has the shape that the graph states
        assert y.blocks[start].compute(scheduler="sync").shape == y.blocks[start].shape


@pytest.mark.parametrize("chunks", [(2, 16, 3), (5, 7, 1), (5, 48, 3), (1, (1, 40, 7), 2)])
@pytest.mark.filterwarnings("ignore:.*needs other chunks")
def test_folds_of_x_keep_the_chunks_of_their_first_axis(chunks):
    flat = X.reshape(5, 48, 3)
    for pattern in ("b(hw)c->bchw", "b(hw)c->hb(wc)", "b(hw)c->bc(hw)"):
        y = convert(lazy(chunks, flat), pattern, w=6, mean=MEANS)
        np.testing.assert_array_equal(y.compute(), convert(flat, pattern, w=6, mean=MEANS))
    full = convert(lazy((2, 18, 3), flat), "b(hw)c->bchw", h=8)
    assert full.chunks == ((2, 2, 1), (3,), (3, 3, 2), (6,))


@pytest.mark.parametrize("shape", [(0, 8, 6, 3), (5, 0, 6, 3), (5, 8, 6, 0), (0, 0, 6, 3)])
@pytest.mark.parametrize("pattern", ["bhwc->bchw", "bhwc->b(chw)", "bhwc->(hb)wc"])
@pytest.mark.filterwarnings("ignore:.*needs other chunks")
def test_an_axis_of_size_zero_has_one_chunk(pattern, shape):
    empty = np.zeros(shape, np.uint8)
    converted = convert(lazy(x=empty), pattern, dtype="float32")
    expected = convert(empty, pattern, dtype="float32")
    assert converted.shape == converted.compute().shape == expected.shape
    assert converted.dtype == expected.dtype


def test_a_warning_says_how_many_bytes_move():
    with pytest.warns(da.PerformanceWarning, match="chunks along c: 720 bytes"):
        convert(lazy(), "bhwc->b(hwc)")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        convert(lazy((2, 3, 6, 3)), "bhwc->bchw", mean=MEANS)


def test_a_plan_says_chunks_tasks_and_what_is_put_together_anew():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plan = Converter("bhwc->b(hwc)", dtype="float32").plan(lazy())
    y = da.from_array(X, chunks=(2, 3, 6, 3))
    assert plan.chunks == (lazy().chunks, ((2, 2, 1), (54, 54, 36)))
    assert plan.tasks == 9 + 9  # 9 to rechunk, and 9 to convert
    assert (plan.bytes_rechunked, plan.rechunked[0].axes) == (720, ("c",))
    assert (plan.source.shape, plan.bytes_moved) == ((5, 8, 6, 3), 720 + 2880)
    text = str(plan)
    assert "other chunks along c: 720 bytes are copied into new chunks; rechunk to" in text
    assert "chunks    18 of (2, 3, 6, 2) -> 9 of (2, 54), at most" in text
    assert "a chunk   72 bytes read, 432 written" in text
    assert "tasks     18" in text
    easy = Converter("bhwc->bchw").plan(y)
    assert (easy.rechunked, easy.tasks) == ((), 9)
    assert "rechunk" not in str(easy)
    assert Converter("bhwc->bchw", channels=(2, 1, 0), pad_to={"h": 10}).plan(y).chunks[1][2] == (
        10,
    )
    with pytest.raises(ShapeError, match="rank 3"):
        Converter("bhw->bwh").plan(y)
    with pytest.warns(da.PerformanceWarning):  # making a plan has not suppressed the warning
        convert(lazy(), "bhwc->b(hwc)")


def test_what_stays_as_it_is_is_no_task():
    x = lazy()
    assert convert(x, "bhwc->bhwc") is x
    assert convert(x, "bhwc->bhwc", copy=True) is not x
    assert convert(x, "bhwc->bhwc", scale=2) is not x
    assert convert(x[..., :1], "bhwc->bchw").shape == (5, 1, 8, 6)


def test_names_are_deterministic_here_and_in_another_process():
    def made():
        return convert(lazy(), "bhwc->bchw", dtype="float32", mean=MEANS).name

    code = (
        "import numpy as np, dask.array as da\n"
        "from layoutkit import convert\n"
        "x = np.random.default_rng(0).integers(0, 255, (5, 8, 6, 3)).astype(np.uint8)\n"
        "d = da.from_array(x, chunks=(2, 3, 6, 2))\n"
        "print(convert(d, 'bhwc->bchw', dtype='float32', mean=[0.1, 0.2, 0.3]).name)\n"
    )
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert made() == made() == other.stdout.strip()
    assert made() != convert(lazy(), "bhwc->bchw", dtype="float32", mean=(0.1, 0.2, 0.4)).name
    ways = [Converter("bhwc->bchw", mean=MEANS) for _ in range(2)]
    ways[0](X)  # cached data does not change the token
    assert tokenize(ways[0]) == tokenize(ways[1]) != tokenize(Converter("bhwc->bchw", mean=1))


def test_equal_conversions_of_different_arrays_are_different_tasks():
    """Tasks of one graph with equal names would be computed once."""
    other = 255 - X
    x, y = convert(lazy(), "bhwc->bchw"), convert(lazy(x=other), "bhwc->bchw")
    assert x.name != y.name
    both = da.stack([x, y]).compute()
    np.testing.assert_array_equal(both, np.stack([X, other]).transpose(0, 1, 4, 2, 3))
    sums = da.stack(
        [accumulate([(a, "bhwc"), (x, "bchw")], "bhwc") for a in (lazy(), lazy(x=other))]
    )
    np.testing.assert_array_equal(sums.compute(), np.stack([X + X, other + X]))


def test_different_constants_of_later_channels_are_different_tasks():
    x = lazy((5, 8, 6, 1))
    means = [(9, 9, 9), (9, 9, 7)]
    ways = [Converter("bhwc->bchw", dtype="float32", mean=mean) for mean in means]
    for found, way in zip(da.compute(*(way(x) for way in ways)), ways, strict=True):
        np.testing.assert_array_equal(found, way(X))


def test_sums_of_different_dtypes_are_different_tasks():
    part = lazy(x=X.astype("float32") / 3)
    dtypes = ("float32", "float64")
    sums = [accumulate([(part, "bhwc")] * 2, "bhwc", dtype=dtype) for dtype in dtypes]
    assert sums[0].name != sums[1].name
    assert [total.dtype for total in da.compute(*sums)] == list(map(np.dtype, dtypes))


def test_graphs_and_tasks_stay_small():
    x = da.zeros((10_000, 2, 2, 3), dtype="u1", chunks=(1, 2, 2, 3))
    y = convert(x, "bhwc->bchw", dtype="float32", mean=MEANS)
    assert len(pickle.dumps(y)) < 100_000
    bands = convert(da.zeros((2, 2, 2, 64), chunks=(1, 2, 2, 1)), "bhwc->bchw", mean=range(64))
    tasks = {key: task for key, task in dict(bands.dask).items() if key[0] == bands.name}
    assert len(tasks) == 2 * 64
    # Each task holds its own constants only. With the constants of all tasks in each, the size of a
    # graph would grow with the square of their number.
    assert max(len(pickle.dumps(task)) for task in tasks.values()) < 1000


def test_sums_and_views_are_lazy():
    planes = convert(X, "bhwc->bchw", dtype="float32")
    pairs = [(lazy(), "bhwc"), (planes, "bchw"), (da.from_array(planes, chunks=2), "bchw")]
    total = accumulate(pairs, "bchw")
    want = accumulate([(X, "bhwc"), (planes, "bchw"), (planes, "bchw")], "bchw")
    assert isinstance(total, da.Array)
    assert total.dtype == want.dtype
    np.testing.assert_array_equal(total.compute(), want)
    view = ImageView("bhwc", lazy())
    got = view.forward_get("bchw", "float32", scale=1 / 255)
    assert isinstance(got, da.Array)
    np.testing.assert_allclose(got.compute(), planes / 255, rtol=1e-6)
    view.backward_put("bchw", got, scale=1 / 255)
    back = view.backward_get("bhwc", "float32")
    assert isinstance(back, da.Array)
    assert back.shape == X.shape
    np.testing.assert_allclose(back.compute(), X / 255**2, rtol=1e-5)


@pytest.mark.filterwarnings("ignore:.*needs other chunks")
def test_views_go_from_batch_to_batch_and_add_gradients_lazily(monkeypatch):
    view = ImageView("bhwc", lazy())
    classes = ClassView("b", da.from_array(LABELS, chunks=2), 3)
    with monkeypatch.context() as patch:
        patch.setattr(da.Array, "compute", never)
        patch.setattr("dask.base.compute", never)
        for x in (lazy(), lazy((3, 8, 3, 3), 2.0 * X)):
            view.forward_put("bhwc", x)
            planes = view.forward_get("bchw", "float32")
            flat = view.forward_get("bf", "float32")
            view.backward_put("bchw", planes * 2)
            view.backward_put("bf", flat * 3)
            back = view.backward_get("bhwc", "float32")
        labels = classes.forward_get("b", "int16")
        with pytest.raises(ArgumentError, match=r"compute\(\)"):
            classes.one_hot()  # one_hot needs the value of each label
    assert isinstance(back, da.Array)
    np.testing.assert_array_equal(back.compute(), np.float32(10) * X)
    np.testing.assert_array_equal(labels.compute(), LABELS)


@pytest.mark.parametrize(
    ("kind", "words", "call"),
    [
        (ShapeError, "rank 3", lambda x: convert(x, "bhw->bwh")),
        (ShapeError, "mean has 2", lambda x: convert(x, "bhwc->bchw", mean=(1, 2))),
        (DtypeError, "same_kind", lambda x: convert(x.astype("f4"), "bhwc->bchw", dtype="u1")),
        (ArgumentError, "out=", lambda x: convert(x, "bhwc->bchw", out=X)),
        (ArgumentError, "copy=False", lambda x: convert(x, "bhwc->bchw", copy=False)),
        (ArgumentError, "chunk_sizes", lambda x: convert(x[x[:, 0, 0, 0] > 3], "bhwc->(bh)wc")),
        (ShapeError, "part 1", lambda x: accumulate([(x, "bhwc"), (x[1:], "bhwc")], "bchw")),
    ],
)  # fmt: skip
def test_mistakes_are_found_when_the_graph_is_built(kind, words, call):
    with pytest.raises(kind, match=words):
        call(lazy())


@pytest.mark.budget(0)
def test_workers_plan_once_with_one_thread_each_on_a_cluster_of_processes():
    distributed = pytest.importorskip("distributed", reason="the cluster is of distributed")
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        y = convert(lazy((1, 4, 6, 2)), "bhwc->bchw", dtype="float32", mean=MEANS)
        want = convert(X, "bhwc->bchw", dtype="float32", mean=MEANS)
        np.testing.assert_array_equal(client.compute(y).result(), want)
        total = accumulate([(y, "bchw"), (lazy((1, 4, 6, 2)), "bhwc")], "bchw")
        np.testing.assert_array_equal(
            client.compute(total).result(), want + X.transpose(0, 3, 1, 2)
        )
        told = client.run(_planned)
    assert all(count <= 4 and threads <= {1} for count, threads in told.values()), told
    assert any(count for count, _ in told.values())


def _planned():
    """Return the number of Converters that this process has made for chunks, and their threads."""
    import gc

    from layoutkit import Converter
    from layoutkit.backends import dask

    created = [item for item in gc.get_objects() if type(item) is Converter and item._programs]
    return dask.first_equal.cache_info().currsize, {item.options.threads for item in created}
