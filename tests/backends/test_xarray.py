"""DataArrays of xarray as input and output, with dimensions, coordinates and attributes."""

import numpy as np
import pytest

xarray = pytest.importorskip("xarray", reason="tests of DataArrays need xarray")

from layoutkit import (
    ArgumentError,
    Converter,
    DataView,
    PatternError,
    ShapeError,
    accumulate,
    convert,
)
from tests.helpers.reference import reference_convert

VALUES = np.random.default_rng(0).integers(0, 256, (2, 4, 5, 3), np.uint8)
PLANES = reference_convert(VALUES, "bhwc->bchw")
MEANS = (0.5, 0.4, 0.3)


def scene(values=VALUES):
    return xarray.DataArray(
        values,
        dims=("time", "lat", "lon", "band"),
        coords={
            "time": [10, 20][: len(values)],
            "lat": np.linspace(50, 47, 4),
            "area": (("lat", "lon"), np.arange(20.0).reshape(4, 5)),
            "band": list("rgb"),
            "run": 7,
        },
        attrs={"sensor": "x"},
        name="scene",
    )


def test_dimensions_and_coordinates_are_carried():
    x = scene()
    formula = {"dtype": "float32", "scale": 1 / 255, "mean": (0.5, 0.4, 0.3)}
    y = convert(x, "bhwc->bchw", **formula)
    wanted = x.transpose("time", "band", "lat", "lon")
    wanted = wanted.copy(data=convert(VALUES, "bhwc->bchw", **formula))
    xarray.testing.assert_identical(y, wanted)
    assert list(y.coords) == list(x.coords)
    assert convert(x, "bhwc->bhwc") is x


@pytest.mark.parametrize(
    ("pattern", "sizes", "dims", "coords"),
    [
        ("bhwc->b(hw)c", {}, ("time", "lat_lon", "band"), {"time", "band", "run"}),
        ("bhwc->bf", {}, ("time", "lat_lon_band"), {"time", "run"}),
        ("b(hy)wc->bhywc", {"y": 2}, ("time", "h", "y", "lon", "band"), {"time", "band", "run"}),
        (
            "bhwc->tbhwc",
            {},
            ("t", "time", "lat", "lon", "band"),
            {"time", "lat", "area", "band", "run"},
        ),
        ("bhwc->(bh)wc", {}, ("time_lat", "lon", "band"), {"band", "run"}),
        ("bhwc->b(1hw)c1", {}, ("time", "lat_lon", "band", "dim_3"), {"time", "band", "run"}),
    ],
)
def test_what_is_folded_has_the_names_that_it_is_made_of(pattern, sizes, dims, coords):
    y = convert(scene(), pattern, **sizes)
    assert (y.dims, set(y.coords), y.name, y.attrs) == (dims, coords, "scene", {"sensor": "x"})
    np.testing.assert_array_equal(y.values, reference_convert(VALUES, pattern, **sizes))


def test_what_is_folded_by_an_ellipsis_has_the_names_that_it_is_made_of():
    y = convert(scene(), "b...c->b(...)c")
    assert (y.dims, set(y.coords)) == (("time", "lat_lon", "band"), {"time", "band", "run"})
    np.testing.assert_array_equal(y.values, VALUES.reshape(y.shape))


def test_a_dimension_that_is_dropped_leaves_its_coordinate():
    y = convert(scene(VALUES[:1]), "bhwc->hwc")
    assert y.dims == ("lat", "lon", "band")
    assert int(y.coords["time"]) == 10


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 1, 0, 2), (2, 3, 1, 0)])
@pytest.mark.parametrize(
    ("pattern", "dims"),
    [
        ("time lat lon band -> time band lat lon", ("time", "band", "lat", "lon")),
        ("time lat lon band -> time (lon lat) band", ("time", "lon_lat", "band")),
        ("time ... band -> band ... time", None),
        ("lat lon ... -> ... lon lat", None),
        ("time lat lon (rgb one) -> time 1 lat lon rgb one", None),
    ],
)
def test_names_are_dimensions_in_any_order(pattern, dims, order):
    x = scene().transpose(*(scene().dims[start] for start in order))
    if "rgb" in pattern:
        x = x.rename(band="rgb_one")
        y = convert(x, pattern, one=1)
        assert y.dims == ("time", "dim_1", "lat", "lon", "rgb", "one")
        np.testing.assert_array_equal(y.values[:, 0, ..., 0], VALUES)
        return
    y = convert(x, pattern)
    assert dims is None or y.dims == dims
    if "(" in pattern:
        stacked = scene().transpose("time", "lon", "lat", "band").values.reshape(2, 20, 3)
        np.testing.assert_array_equal(y.values, stacked)
    else:
        assert sorted(y.dims) == sorted(x.dims)
        xarray.testing.assert_identical(y, x.transpose(*y.dims, transpose_coords=False))


def test_sums_by_names():
    x = scene(VALUES.astype("f4"))
    turned = x.transpose("band", "lon", "time", "lat", transpose_coords=False)
    name = "time lat lon band"
    total = accumulate([(turned, name), (x, name)], "band time lat lon")
    xarray.testing.assert_identical(total, (x + x).transpose("band", "time", "lat", "lon"))


def test_names_that_are_not_all_there():
    words = "names time, height, lon, band, but x has the dimensions time, lat, lon, band; name all"
    with pytest.raises(PatternError, match=words):
        convert(scene(), "time height lon band -> band time height lon")
    y = convert(scene(), "batch height width depth -> depth batch height width")  # by position
    assert y.dims == ("band", "time", "lat", "lon")


@pytest.mark.parametrize("pattern", ["x y t -> y x t", "xyt->yxt", "YTX->(yt)x"])
def test_letters_that_are_the_dimensions_in_another_order(pattern):
    x = xarray.DataArray(np.zeros((2, 3, 4)), dims=("t", "y", "x"))
    words = "but x has the dimensions t, y, x, and letters are axes by position; write t y x on"
    calls = [
        lambda: convert(x, pattern),
        lambda: Converter(pattern).plan(x),
        lambda: accumulate([(x, pattern.split("->")[0])], "cab"),
    ]
    for call in calls:
        with pytest.raises(PatternError, match=words):
            call()
    assert convert(x, "t y x -> y x t").dims == ("y", "x", "t")
    assert convert(x, "tyc->cyt").dims == ("x", "y", "t")  # c is no dimension: by position
    assert convert(x.transpose("x", "y", "t"), "xyt->yxt").shape == (3, 4, 2)


def test_plans_are_of_the_named_order():
    plan = Converter("band time lat lon -> time band lat lon").plan(scene())
    assert plan.source.shape == (3, 2, 4, 5)


def test_without_coordinates():
    x = xarray.DataArray(VALUES[:1], dims=("time", "lat", "lon", "band"), coords={"band": [*"rgb"]})
    assert convert(x, "bhwc->(hw)c").dims == ("lat_lon", "band")
    assert list(convert(x, "bhwc->(hw)c").coords) == ["band"]


def test_a_letter_that_is_a_name_already():
    x = xarray.DataArray(np.zeros((2, 3)), dims=("c", "h"))
    assert convert(x, "ab->cab").dims == ("c", "c_", "h")


def test_coordinates_of_many_levels():
    index = xarray.Coordinates.from_pandas_multiindex(
        pytest.importorskip("pandas", reason="xarray needs pandas").MultiIndex.from_product(
            [["a"], [1, 2]], names=("one", "two")
        ),
        "time",
    )
    x = xarray.DataArray(np.arange(6).reshape(2, 3), dims=("time", "band"), coords=index)
    y = convert(x, "bc->cb")
    xarray.testing.assert_identical(y, x.transpose("band", "time"))


def test_larger_results_drop_the_coordinates_of_their_axes():
    y = convert(scene(), "bhwc->bchw", pad_to={"h": 6, "w": 5})
    assert set(y.coords) == {"time", "band", "run"}
    np.testing.assert_array_equal(y.values, np.pad(PLANES, ((0, 0), (0, 0), (1, 1), (0, 0))))


def test_memory_in_another_order():
    y = convert(scene(), "bhwc->bchw", memory="bhwc", dtype="float32")
    xarray.testing.assert_identical(y, scene().transpose("time", "band", "lat", "lon").astype("f4"))
    assert y.values.transpose(0, 2, 3, 1).flags.c_contiguous


def test_out_is_written():
    out = scene().transpose("time", "band", "lat", "lon").copy(data=np.zeros_like(PLANES))
    for x in (scene(), VALUES):
        out.values[:] = 0
        assert convert(x, "bhwc->bchw", out=out) is out
        np.testing.assert_array_equal(out.values, PLANES)
    plain = np.zeros_like(PLANES)
    assert convert(scene(), "bhwc->bchw", out=plain) is plain
    np.testing.assert_array_equal(plain, PLANES)


def test_sums_gradients_and_views():
    x = scene(VALUES.astype("f4"))
    total = accumulate([(x, "bhwc"), (PLANES, "bchw")], "bchw")
    xarray.testing.assert_identical(
        total, x.transpose("time", "band", "lat", "lon").copy(data=np.float32(2) * PLANES)
    )
    assert type(accumulate([(PLANES, "bchw"), (x, "bhwc")], "bchw")) is np.ndarray
    grad = Converter("bhwc->bchw", scale=3).backward(total, like=x)
    assert grad.dims == x.dims
    np.testing.assert_array_equal(grad.values, 6 * VALUES.astype("f4"))
    view = DataView("bhwc", scene())
    np.testing.assert_array_equal(view.forward_get("bchw"), PLANES)
    assert Converter("bhwc->bchw").plan(scene()).target.shape == PLANES.shape


def test_arrays_inside_may_be_of_another_library():
    torch = pytest.importorskip("torch", reason="the array inside is of torch")
    jnp = pytest.importorskip("jax.numpy", reason="the array inside is of jax")
    y = convert(xarray.DataArray(jnp.asarray(VALUES), dims=("b", "h", "w", "c")), "bhwc->bchw")
    assert isinstance(y.data, type(jnp.zeros(1)))
    np.testing.assert_array_equal(np.asarray(y.data), PLANES)
    assert torch.equal(torch.from_numpy(np.array(y.data)), torch.from_numpy(PLANES))


def test_chunks_of_dask_stay_lazy_and_named():
    pytest.importorskip("dask.array", reason="chunks are of dask")
    lazy = scene().chunk({"time": 1})
    full = scene()
    y = convert(lazy, "bhwc->bchw")
    assert y.chunks is not None
    assert y.dims == convert(full, "bhwc->bchw").dims
    xarray.testing.assert_identical(y.compute(), convert(full, "bhwc->bchw"))
    total = accumulate([(lazy, "bhwc"), (lazy, "bhwc")], "bchw")
    assert total.chunks is not None
    np.testing.assert_array_equal(total.values, 2 * PLANES)
    for key, value in lazy.coords.items():
        xarray.testing.assert_identical(y.coords[key].compute(), value)
    assert (y.attrs, y.name) == (lazy.attrs, lazy.name)
    plan = Converter("time lat lon band -> time band lat lon").plan(lazy.transpose(..., "time"))
    assert (plan.tasks, plan.chunks[1]) == (2, ((1, 1), (3,), (4,), (5,)))
    assert Converter("bhwc->bchw").plan(full).kernel == "split"
    by_name = {"dtype": "float32", "mean": {"band": list(MEANS)}}
    chunked = convert(lazy, "time lat lon band -> time band lat lon", **by_name)
    assert chunked.chunks == ((1, 1), (3,), (4,), (5,))
    xarray.testing.assert_identical(
        chunked.compute(), convert(full, "bhwc->bchw", dtype="float32", mean=MEANS)
    )


def test_mistakes():
    with pytest.raises(ShapeError, match="give an array of rank 3"):
        convert(scene(), "bhw->bwh")
    with pytest.raises(ArgumentError, match="cannot be accessed"):
        convert(scene().to_dataset(), "bhwc->bchw")
