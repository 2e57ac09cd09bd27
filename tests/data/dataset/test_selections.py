"""Selections: keys applied one after the other select what NumPy selects, to read and write."""

import copy
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from layoutkit import DataError, DtypeError, ShapeError
from layoutkit.data import Dataset, Sample
from tests.helpers.array_likes import Like, StrictLike, WritableLike

KEYS = [
    np.s_[2],
    np.s_[-1],
    np.s_[1:3],
    np.s_[::-2],
    np.s_[4:1:-1],
    np.s_[5:2],
    np.s_[:],
    np.s_[...],
    np.s_[()],
    np.s_[None],
    np.s_[..., 0],
    np.s_[0, ..., None],
    np.s_[:, 1:3],
    np.s_[:, :, ::-1],
    np.s_[1, :, 2],
    np.s_[[3, 0, 3]],
    np.s_[[]],
    np.s_[[-1, 1], 1],
    np.s_[0, [2, 1]],
    np.s_[0, :, [2, 1]],
    np.s_[:, 0, [2, 1]],
    np.s_[[2, 1], :, 0],
    np.s_[:, [2, 0]],
    np.s_[:, [2, 0], 1:],
    np.s_[[0, 1], [1, 2]],
    np.s_[[0, 1], :, [1, 2]],
    np.s_[[[0, 1], [2, 3]]],
    np.s_[np.array([True, False, True, True, False, True])],
    pytest.param(np.arange(24).reshape(6, 4) % 5 == 0, id="mask"),
    np.s_[:, np.array([True, False, True, True])],
    np.s_[True],
    np.s_[np.int64(3)],
    np.s_[np.array(3)],
    np.s_[np.uint8(2) : np.int32(5)],
    np.s_[range(1, 4)],
]
SHAPE = (6, 4, 5)


def cube():
    return np.arange(120.0).reshape(SHAPE)


@pytest.mark.parametrize("kind", [np.asarray, Like, StrictLike])
@pytest.mark.parametrize("key", KEYS, ids=str)
def test_a_selection_is_what_numpy_selects(key, kind):
    x = cube()
    sample = Sample(kind(x))
    found, wanted = sample[key](), x[key]
    np.testing.assert_array_equal(found, wanted)
    assert sample[key]._shape() == wanted.shape
    assert type(found) is type(wanted)
    assert sample[key] == sample[key]


@pytest.mark.parametrize("kind", [np.asarray, WritableLike, StrictLike])
@pytest.mark.parametrize("key", KEYS, ids=str)
def test_every_selection_writes_through(key, kind):
    x, wanted = cube(), cube()
    wanted[key] = 7
    Sample(kind(x))[key] = 7
    np.testing.assert_array_equal(x, wanted)
    Sample(kind(x))[key] -= 1
    wanted[key] = 6
    np.testing.assert_array_equal(x, wanted)


def some_key(draw, shape):
    """Draw a key of any kind that NumPy accepts, for data of this shape."""
    parts = []
    lists = 0
    for size in shape:
        kinds = ["slice", "slice", "int", "list", "mask", "none"]
        kind = draw(st.sampled_from(kinds if size else ["slice"]))
        if kind == "none":
            parts.append(None)
            kind = "slice"
        if kind in ("list", "mask") and lists and draw(st.booleans()):
            kind = "slice"
        if kind == "slice":
            at = st.one_of(st.none(), st.integers(-size - 1, size + 1))
            step = draw(st.sampled_from([None, 1, 2, -1, -3]))
            parts.append(slice(draw(at), draw(at), step))
        elif kind == "int":
            parts.append(draw(st.integers(-size, size - 1)))
        elif kind == "list":
            lists += 1
            length = draw(st.sampled_from([1, 2, 2, 5]))
            item = st.integers(-size, size - 1)
            parts.append(draw(st.lists(item, min_size=length, max_size=length)))
        else:
            lists += 1
            parts.append(np.array(draw(st.lists(st.booleans(), min_size=size, max_size=size))))
        if draw(st.integers(0, 3)) == 0:
            break
    return tuple(parts) if len(parts) != 1 or draw(st.booleans()) else parts[0]


@st.composite
def chains(draw):
    """Draw a shape, a chain of keys, and the element positions that NumPy selects by the keys."""
    shape = tuple(draw(st.lists(st.integers(0, 4), min_size=1, max_size=4)))
    places = np.arange(np.prod(shape)).reshape(shape)
    keys = []
    for _ in range(draw(st.integers(1, 4))):
        key = some_key(draw, places.shape)
        try:
            places = np.asarray(places[key])
        except IndexError:  # lists that do not broadcast
            continue
        keys.append(key)
    return shape, keys, places


@pytest.mark.budget(0)
@pytest.mark.parametrize("kind", [np.asarray, StrictLike])
@settings(max_examples=250, deadline=None, derandomize=True, database=None)
@given(chain=chains())
def test_windows_on_windows_read_and_write_as_numpy_would(kind, chain):
    shape, keys, places = chain
    x = np.arange(np.prod(shape), dtype=float).reshape(shape)
    wanted = x.copy()
    sample = Sample(kind(x))
    for key in keys:
        sample = sample[key]
    np.testing.assert_array_equal(sample(), wanted.reshape(-1)[places])
    values = np.random.default_rng(places.size).random(places.shape)
    wanted.reshape(-1)[places] = values
    sample._write(values)
    np.testing.assert_array_equal(x, wanted)


def test_a_window_through_a_list_with_repeats_reaches_the_element():
    x = np.zeros((3, 2))
    dataset = Dataset(x)
    dataset[[0, 0]][0] = 5
    assert x.tolist() == [[5, 5], [0, 0], [0, 0]]
    dataset[[2, 1, 2]][x[:, 0] == 0] = 9  # a mask on what the list selects: rows 1 and 2
    assert x.tolist() == [[5, 5], [9, 9], [9, 9]]


def test_adding_to_a_list_with_repeats_adds_once_as_in_numpy():
    x, wanted = np.zeros(3), np.zeros(3)
    Dataset(x)[[0, 0, 1]] += 1
    wanted[[0, 0, 1]] += 1
    assert x.tolist() == wanted.tolist() == [1, 1, 0]


@pytest.mark.parametrize("chain", [[np.s_[2:5], 1], [[4, 0, 2], 1], [np.s_[:, 1], np.s_[3:5]]])
def test_only_the_selection_is_read(chain):
    like = Like(cube())
    window, wanted = Dataset(like), like.array
    for key in chain:
        window, wanted = window[key], wanted[key]
    assert like.asked == []
    window()
    assert like.elements_read == wanted.size


@pytest.mark.parametrize("key", [np.s_[[1, 2], [3, 0]], np.s_[1, :2, None], np.s_[[4, 4], :, 0]])
def test_little_more_than_an_odd_selection_is_read(key):
    like = Like(cube())
    np.testing.assert_array_equal(Sample(like)[key](), cube()[key])
    assert like.elements_read <= 4 * cube()[key].size


def test_nothing_is_read_before_it_is_needed():
    like = Like(cube())
    dataset = Dataset(like, fields={"first": np.s_[:, 0]}, layout="bwc")
    sample = dataset[2:4][0]
    assert (len(dataset), dataset._shape(), sample._size()) == (6, SHAPE, 20)
    _ = dataset.first, dataset._layout(), dataset[1]._layout(), repr(dataset)
    _ = list(dataset._iter_fields()), dataset._minibatches(2)._shape(), dataset == 3
    steps = iter(dataset)
    assert like.asked == []
    next(steps)()
    assert like.elements_read == 20
    assert sample == sample
    assert like.elements_read == 60


def test_keys_are_snapshots():
    x, mask, places = np.arange(4.0), np.array([True, False, True, False]), [0, 1]
    by_mask, by_list = Sample(x)[mask], Sample(x)[places]
    mask[:] = False
    places[0] = 3
    assert by_mask().tolist() == [0, 2]
    assert by_list().tolist() == [0, 1]


@pytest.mark.parametrize(
    "key", [6, -7, [0, 6], np.s_[0, 4], np.s_[0, 0, 0, 0], "x", 1.5, [0.5], np.ones(5, bool), {}]
)
def test_keys_out_of_range_are_index_errors(key):
    sample = Sample(cube())
    with pytest.raises(DataError) as caught:
        sample[key]()
    assert isinstance(caught.value, IndexError)
    with pytest.raises(DataError):
        sample[key] = 1


def test_an_ellipsis_too_many_and_lists_that_differ_are_refused():
    for key in (
        np.s_[..., 0, ...],
        [[0], [1, 2]],
        np.s_[[0, 1], [0, 1, 2]],
        np.s_[np.ones((6, 5), bool)],
    ):
        for cls in (Sample, Dataset):
            with pytest.raises(DataError):
                cls(cube())[key]


# ---- views and writing -----------------------------------------------------------------------


def test_data_is_numpys_view_where_there_is_one():
    x = cube()
    sample = Sample(x)
    assert np.shares_memory(sample(), x)
    sample[1:3]()[...] = -1
    sample[0, 1]()[2] = -2
    assert (x[1:3] == -1).all()
    assert x[0, 1, 2] == -2
    assert not np.shares_memory(sample[[0, 1]](), x)
    assert isinstance(sample[0, 0, 0](), np.float64)
    assert sample()[0, 0, 0] == x[0, 0, 0]


@pytest.mark.parametrize("key", [..., 1, np.s_[1:, 0], [1, 0], np.s_[:, None]], ids=str)
def test_what_a_read_only_sample_of_an_array_like_gives_cannot_be_written(key):
    class Lending(Like):
        """An array-like whose results share its memory without having it as their base."""

        def __getitem__(self, key):
            return np.asarray(memoryview(self.array))[key]

    class LendingToWriters(Lending):
        def __setitem__(self, key, value):
            self.array[key] = value

    like = LendingToWriters(np.zeros((2, 3)))
    for d in (Dataset(Lending(np.zeros((2, 3)))), Dataset(like, read_only=True)):
        assert not d[key]().flags.writeable
        with pytest.raises(ValueError, match="read-only"):
            d[key]()[...] = 1
    assert Dataset(like)[key]().flags.writeable
    assert not like.array.any()


def test_a_read_only_sample_gives_views_that_cannot_be_written():
    x = cube()
    sample = Sample(x, read_only=True)
    for array in (sample(), sample[0](), sample[::2, 1]()):
        assert np.shares_memory(array, x)
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1
    assert x.flags.writeable


@pytest.mark.parametrize(
    ("value", "row"),
    [
        (3, [3, 3, 3]),
        (2.5, [2.5] * 3),
        (True, [1, 1, 1]),
        (np.float32(1), [1, 1, 1]),
        (np.arange(3), [0, 1, 2]),
        ([4, 5, 6], [4, 5, 6]),
        (np.ones((1, 1, 3)), [1, 1, 1]),
        (np.float64([[7], [8]]), None),
        (Sample(np.arange(3)), [0, 1, 2]),
    ],
)
def test_what_is_written_is_broadcast_and_cast(value, row):
    x = np.zeros((2, 3), np.float32)
    Sample(x)._write(value)
    assert x.tolist() == ([row, row] if row else [[7] * 3, [8] * 3])


def test_a_part_of_one_source_is_written_to_another():
    array, like = np.arange(6.0).reshape(2, 3), WritableLike(np.zeros((2, 3)))
    Sample(like)[0] = Sample(array)[1]
    assert like.array.tolist() == [[3, 4, 5], [0, 0, 0]]
    Sample(array)[0] = Sample(like)[0]
    assert array.tolist() == [[3, 4, 5], [3, 4, 5]]


@pytest.mark.parametrize(
    ("dtype", "value", "error"),
    [
        ("i4", 1.5, DtypeError),
        ("i4", np.ones(3), DtypeError),
        ("u1", 256, DtypeError),
        ("u1", -1, DtypeError),
        ("u1", np.ones(3, "i1"), DtypeError),
        ("f4", 1j, DtypeError),
        ("f4", "x", DtypeError),
        ("f4", None, DtypeError),
        ("?", 1, DtypeError),
        ("f4", np.ones(4), ShapeError),
        ("f4", np.ones((2, 3)), ShapeError),
        ("f4", [[1, 2], [3]], ShapeError),
    ],
)
def test_a_refused_value_changes_nothing(dtype, value, error):
    for kind in (np.asarray, WritableLike):
        x = np.zeros(3, dtype)
        with pytest.raises(error):
            Sample(kind(x))._write(value)
        with pytest.raises(error):
            Sample(kind(x))[:] = value
        assert not x.any()


def test_numbers_at_the_edges_of_a_dtype():
    x = np.zeros(2, np.uint8)
    sample = Sample(x)
    sample[0] = 255
    sample[1] = 0
    assert x.tolist() == [255, 0]
    with pytest.raises(DtypeError):
        sample += 256
    assert x.tolist() == [255, 0]


def test_a_sample_is_written_into_itself_shifted():
    x = np.arange(6.0)
    sample = Sample(x)
    sample[1:] = sample[:-1]
    assert x.tolist() == [0, 0, 1, 2, 3, 4]
    sample[[1, 2, 3, 4, 5]] = sample[:-1]
    assert x.tolist() == [0, 0, 0, 1, 2, 3]
    sample[[[0, 1, 2], [3, 4, 5]]] = sample[::-1][None][0][[[0, 1, 2], [3, 4, 5]]]
    assert x.tolist() == [3, 2, 1, 0, 0, 0]
    sample[None, [0, 1, 2, 3, 4, 5]] = sample[::-1]
    assert x.tolist() == [0, 0, 0, 1, 2, 3]


# ---- operators -------------------------------------------------------------------------------


def test_operators_work_in_the_base():
    x = np.array([[2.0, 4.0], [6.0, 8.0]])
    sample = same = Sample(x)
    sample += 2
    sample *= np.array([1, 2])
    sample -= Sample(np.ones(2))
    sample /= 2
    assert sample is same
    assert x.tolist() == [[1.5, 5.5], [3.5, 9.5]]
    sample[0] += 1
    sample[:, 1] *= 10
    sample[[1]] -= 0.5
    assert x.tolist() == [[2.5, 65], [3, 94.5]]


def test_the_dataset_is_centred_in_place():
    x = np.arange(6.0).reshape(3, 2)
    d = Dataset(x)
    d -= np.mean(d())
    assert x.tolist() == [[-2.5, -1.5], [-0.5, 0.5], [1.5, 2.5]]


def test_operators_cast_as_same_kind_and_do_not_grow_the_data():
    x = np.arange(3)
    sample = Sample(x)
    for value in (0.5, np.ones(3), "x", None):
        with pytest.raises(DtypeError):
            sample += value
    with pytest.raises(DtypeError):
        sample /= 2
    with pytest.raises(ShapeError):
        sample += np.ones((2, 3), int)
    with pytest.raises(ShapeError):
        sample += np.ones(2, int)
    assert x.tolist() == [0, 1, 2]
    small = np.ones(3, np.float32)
    half = Sample(small)
    half += np.full(3, 0.5)  # float64 to float32 is a cast of the same kind
    assert small.tolist() == [1.5] * 3


def test_adding_to_a_selection_writes_once():
    class Counted(WritableLike):
        writes = 0

        def __setitem__(self, key, value):
            Counted.writes += 1
            super().__setitem__(key, value)

    like = Counted(np.zeros((4, 2)))
    dataset = Dataset({"x": like})
    dataset.x[1:3] += 1
    assert (Counted.writes, len(like.asked)) == (1, 1)
    dataset.x += 1
    dataset[[3, 1]] *= 2
    dataset.x[dataset.x()[:, 0] > 2] -= 1
    assert Counted.writes == 4
    assert like.array.tolist() == [[1, 1], [3, 3], [2, 2], [2, 2]]


def test_setting_a_selection_to_another_sample_writes_its_data():
    x = np.arange(4.0)
    sample = Sample(x)
    sample[:2] = sample[2:]
    assert x.tolist() == [2, 3, 2, 3]
    sample[0] = Sample(np.array(9))
    assert x.tolist() == [9, 3, 2, 3]


# ---- structured, object and other dtypes -----------------------------------------------------


def test_fields_of_a_structured_dtype_are_windows():
    x = np.zeros(4, [("a", "f4", (2,)), ("b", "i4")])
    sample = Sample(x)
    sample["b"] = np.arange(4)
    sample[[3, 1]]["a"][0] = 5
    sample[1:]["a"][:, 1] += 1
    assert x["b"].tolist() == [0, 1, 2, 3]
    assert x["a"].tolist() == [[0, 0], [0, 1], [0, 1], [5, 6]]
    assert sample["a"]._shape() == (4, 2)
    np.testing.assert_array_equal(sample[["b"]](), x[["b"]])
    with pytest.raises(DataError):
        sample["c"]


@pytest.mark.parametrize("dtype", ["?", "U3", "M8[D]", ">i4", "c8", "O", "f2"])
def test_any_dtype_is_selected_and_written(dtype):
    x = np.array([0, 1, 0, 1]).astype("M8[D]" if dtype == "M8[D]" else "i8").astype(dtype)
    wanted = x.copy()
    wanted[[0, 2]] = x[1]
    sample = Sample(x)
    sample[[0, 2]] = x[1:2].copy()
    assert sample() is not x
    np.testing.assert_array_equal(x, wanted)
    assert sample == Sample(wanted)


def test_a_masked_array_is_refused():
    with pytest.raises(DataError, match="filled"):
        Sample(np.ma.masked_array([1, 2]))


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_copies_of_read_only_data_are_read_only(copied):
    array = np.arange(3)
    array.flags.writeable = False
    twin = copied(Sample(array))
    assert not twin().flags.writeable
    with pytest.raises(DataError, match="read-only"):
        twin._write(1)
    assert copied(Sample(np.arange(3)))().flags.writeable


def test_an_empty_key_is_all_of_the_data():
    array = np.arange(12.0).reshape(4, 3)
    dataset = Dataset(array)
    assert np.array_equal(dataset[()](), array)
    dataset[()] = 1
    assert (array == 1).all()
    assert np.array_equal(dataset._minibatches(2)[()](), array.reshape(2, 2, 3))
    with pytest.raises(DataError, match="does not support the key"):
        Sample([np.arange(2), np.arange(3)])[()]


def test_lists_of_different_lengths_are_no_operands():
    sample = Sample(np.zeros((2, 3)))
    with pytest.raises(ShapeError, match="add of data of shape"):
        sample += [[1], [2, 3]]
    assert not sample().any()


def test_rows_of_different_lengths_are_no_array():
    with pytest.raises(DataError, match="has no shape"):
        np.asarray(Sample([np.arange(2), np.arange(3)]))
    assert np.asarray(Sample([np.arange(2), np.arange(2)])).shape == (2, 2)
