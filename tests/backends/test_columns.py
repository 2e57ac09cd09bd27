"""Columns and tables of Arrow, pandas and Polars."""

from itertools import permutations

import numpy as np
import pytest

from layoutkit import ArgumentError, DtypeError, ImageView, ShapeError, collate, convert
from tests.helpers.arrays_of import assert_same
from tests.helpers.reference import reference_convert

IMAGES = np.random.default_rng(0).integers(0, 256, (3, 4, 5, 2), np.uint8)
PLANES = reference_convert(IMAGES, "bhwc->bchw")


def tensors(pyarrow, values, shape, order=None):
    """Return a column of tensors with the memory layout of `values`."""
    kind = pyarrow.fixed_shape_tensor(
        pyarrow.from_numpy_dtype(values.dtype), shape, permutation=order
    )
    size = int(np.prod(shape))
    storage = pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(values.reshape(-1)), size)
    return pyarrow.ExtensionArray.from_storage(kind, storage)


# ---- Arrow -------------------------------------------------------------------------------


@pytest.fixture
def pyarrow():
    return pytest.importorskip("pyarrow", reason="columns of Arrow need pyarrow")


@pytest.mark.parametrize("order", [None, *permutations(range(3))], ids=str)
def test_tensors_are_read_by_their_permutation(pyarrow, order):
    """Axis i is axis permutation[i] in memory, as the Arrow format defines."""
    column = tensors(pyarrow, IMAGES, IMAGES.shape[1:], order)
    wanted = IMAGES if order is None else IMAGES.transpose(0, *(start + 1 for start in order))
    for x, values in [
        (column, wanted),
        (column[1:], wanted[1:]),
        (pyarrow.chunked_array([column]), wanted),
        (pyarrow.chunked_array([column, column[:1]]), np.concatenate([wanted, wanted[:1]])),
    ]:
        np.testing.assert_array_equal(convert(x, "bhwc->bchw"), values.transpose(0, 3, 1, 2))
        np.testing.assert_array_equal(ImageView("bhwc", x).input, values)


def test_tensors_share_their_memory(pyarrow):
    column = tensors(pyarrow, IMAGES, IMAGES.shape[1:])
    y = convert(column, "bhwc->bhwc")
    assert type(y) is np.ndarray
    assert np.shares_memory(y, column.storage.flatten().to_numpy())
    assert not y.flags.writeable


@pytest.mark.parametrize("dtype", ["uint8", "int64", "float16", "float32", "bool"])
def test_plain_columns_and_lists_of_fixed_size(pyarrow, dtype):
    values = (np.arange(24) % 7).astype(dtype)
    kind = pyarrow.from_numpy_dtype(values.dtype)
    np.testing.assert_array_equal(
        convert(pyarrow.array(values), "(bc)->cb", c=4), values.reshape(6, 4).T
    )
    pairs = pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(values, kind), 2)
    np.testing.assert_array_equal(convert(pairs, "bc->cb"), values.reshape(12, 2).T)
    nested = pyarrow.FixedSizeListArray.from_arrays(pairs, 3)
    np.testing.assert_array_equal(
        convert(nested[1:], "bhc->bch"), values.reshape(4, 3, 2)[1:].swapaxes(1, 2)
    )


def test_missing_values_are_refused(pyarrow):
    for column in (
        pyarrow.array([1, None, None]),
        pyarrow.array([[1, 2], None], pyarrow.list_(pyarrow.int8(), 2)),
        pyarrow.array([[1, None], [2, 3]], pyarrow.list_(pyarrow.int8(), 2)),
        pyarrow.chunked_array([[1], [None]]),
    ):
        with pytest.raises(ArgumentError, match=r"x has \d missing values.*fill_null\(x, 0\)"):
            convert(column, "b->b" if column.type == "int64" else "bc->cb")
    with pytest.raises(DtypeError, match="elements of dtype object"):
        convert(pyarrow.array(["a", "b"]), "b->b")


def test_lists_of_unequal_length(pyarrow):
    even = pyarrow.array([[1, 2], [3, 4]])
    np.testing.assert_array_equal(convert(even, "bc->cb"), [[1, 3], [2, 4]])
    with pytest.raises(ShapeError, match=r"arrays of x are stacked, but item 1 has shape \(1,\)"):
        convert(pyarrow.array([[1, 2], [3]]), "bc->cb")


# ---- pandas ------------------------------------------------------------------------------


@pytest.fixture
def pandas():
    return pytest.importorskip("pandas", reason="columns of pandas need pandas")


def test_columns_and_tables_of_pandas(pandas):
    table = pandas.DataFrame({"a": [1, 2, 3], "b": [0.5, 1.5, 2.5]})
    np.testing.assert_array_equal(convert(table, "bf->fb"), [[1, 2, 3], [0.5, 1.5, 2.5]])
    y = convert(table, "bf->bf", dtype="float32", copy=True)  # columns in separate memory
    np.testing.assert_array_equal(y, np.array([[1, 0.5], [2, 1.5], [3, 2.5]], "f4"))
    assert y.flags.c_contiguous
    for column in (table["a"], table.index + 1, table["a"].astype("Int64")):
        np.testing.assert_array_equal(convert(column, "b->tb"), [[1, 2, 3]])


def test_columns_of_arrays(pandas):
    column = pandas.Series(list(IMAGES))
    np.testing.assert_array_equal(convert(column, "bhwc->bchw"), PLANES)
    with pytest.raises(ShapeError, match=r"item 1 has shape \(2, 5, 2\) and item 0 \(4, 5, 2\)"):
        convert(pandas.Series([IMAGES[0], IMAGES[1, :2]]), "bhwc->bchw")


def test_columns_of_pandas_that_arrow_holds(pandas, pyarrow):
    held = pandas.arrays.ArrowExtensionArray(tensors(pyarrow, IMAGES, (4, 5, 2), (2, 0, 1)))
    wanted = IMAGES.transpose(0, 3, 1, 2)
    np.testing.assert_array_equal(
        convert(pandas.Series(held), "bchw->bhwc"), wanted.transpose(0, 2, 3, 1)
    )
    numbers = pandas.Series([1, 2, 3], dtype="int64[pyarrow]")
    np.testing.assert_array_equal(convert(numbers, "b->b"), [1, 2, 3])


EXTENSIONS = ["Int64", "UInt8", "Float32", "boolean", "int16[pyarrow]", "double[pyarrow]"]


@pytest.mark.parametrize("dtype", EXTENSIONS)
def test_complete_columns_of_extension_dtypes(pandas, dtype):
    values = np.array([1, 0, 1]).astype(pandas.Series([1], dtype=dtype).to_numpy().dtype)
    array = pandas.array(values, dtype=dtype)
    for x in (array, pandas.Series(array), pandas.Index(array)):
        assert_same(convert(x, "b->b"), values)
    table = pandas.DataFrame({"a": array, "b": array})
    assert_same(convert(table, "bf->fb"), np.stack([values, values]))
    assert_same(collate([table, table], "tf->btf")[1], np.stack([values, values], 1))


@pytest.mark.parametrize("dtype", [*EXTENSIONS, "category", "Sparse[float64]"])
@pytest.mark.parametrize("others", [[1.5, 2.5, 3.5], [1, 2, 3]])
def test_missing_values_of_extension_dtypes_are_an_error(pandas, dtype, others):
    array = pandas.array([1, None, 1], dtype=dtype)
    for x in (array, pandas.Series(array), pandas.Index(array)):
        with pytest.raises(ArgumentError, match=r"missing values.*fill them"):
            convert(x, "b->b")
    table = pandas.DataFrame({"a": others, "b": array})
    with pytest.raises(ArgumentError, match="missing values in column 'b'"):
        convert(table, "bf->fb")


def test_the_dtype_of_a_table(pandas):
    columns = {
        "i": pandas.array([1, 2], "Int64"), "u": pandas.array([1, 2**63 + 1], "UInt64"),
        "s": pandas.array([3, 4], "Int8"), "f": pandas.array([0.5, 1], "Float32"),
        "?": pandas.array([True, False], "boolean"), "n": np.array([5, 6]), "t": ["x", "y"],
        "U": np.array([1, 2**63 + 1], "u8"),
    }  # fmt: skip
    for names, dtype in [("is", "i8"), ("in", "i8"), ("if", "f8"), ("sf", "f4"), ("uU", "u8")]:
        table = pandas.DataFrame({name: columns[name] for name in names})
        wanted = np.array([[*columns[name]] for name in names]).astype(dtype)
        assert_same(convert(table, "bf->fb"), wanted)
    for names in ("iu", "i?", "it", "nU", "uns"):
        with pytest.raises(DtypeError, match="which no dtype of numbers holds without loss"):
            convert(pandas.DataFrame({name: columns[name] for name in names}), "bf->fb")


def test_what_a_column_of_pandas_cannot_be(pandas):
    with pytest.raises(ArgumentError, match=r"x has missing values, .*x\.fillna\(0\)"):
        convert(pandas.Series([1, None], dtype="Int64"), "b->b")
    assert np.isnan(convert(pandas.Series([1, None]), "b->b")[1])  # None is NaN in a float column
    with pytest.raises(DtypeError, match=r"columns of .*int64.* select those that belong together"):
        convert(pandas.DataFrame({"a": ["x"], "b": [1]}), "bf->fb")
    with pytest.raises(DtypeError, match="elements of dtype object"):
        convert(pandas.Series(["x", "y"]), "b->b")
    with pytest.raises(ArgumentError, match="memory cannot be written"):
        convert(np.zeros(2), "b->b", out=pandas.Series([1.0, 2.0]))


# ---- Polars ------------------------------------------------------------------------------


@pytest.fixture
def polars():
    return pytest.importorskip("polars", reason="columns of Polars need polars")


def test_columns_and_tables_of_polars(polars):
    table = polars.DataFrame({"a": [1, 2, 3], "b": [0.5, 1.5, 2.5]})
    np.testing.assert_array_equal(convert(table, "bf->fb"), [[1, 2, 3], [0.5, 1.5, 2.5]])
    np.testing.assert_array_equal(convert(table["a"], "b->tb"), [[1, 2, 3]])
    column = polars.Series(IMAGES.tolist(), dtype=polars.Array(polars.UInt8, (4, 5, 2)))
    np.testing.assert_array_equal(convert(column, "bhwc->bchw"), PLANES)
    np.testing.assert_array_equal(
        convert(polars.Series([[1, 2], [3, 4]]), "bc->cb"), [[1, 3], [2, 4]]
    )


def test_what_a_column_of_polars_cannot_be(polars):
    pairs = polars.Array(polars.Int8, 2)
    for column in (
        polars.Series("n", [1, None]),
        polars.Series("n", [[1, None], [1, 2]], dtype=pairs),
        polars.Series("n", [[1, 2], None], dtype=pairs),
        polars.Series("n", [[[1, 2], [None, 4]]], dtype=polars.Array(polars.Int8, (2, 2))),
        polars.Series("n", [[[1, 2], [None, 4]]]),
        polars.DataFrame({"m": [1, 2], "n": [1, None]}),
    ):
        with pytest.raises(ArgumentError, match=r"missing values in column 'n'.*fill_null\(0\)"):
            convert(column, "b->b")
    with pytest.raises(ShapeError, match="item 1 has shape"):
        convert(polars.Series([[1, 2], [3]]), "bc->cb")
