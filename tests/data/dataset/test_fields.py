"""Fields as attributes: mappings, windows, nesting, writing and re-pointing, equality, pickling."""

import copy
import pickle

import numpy as np
import pytest

from layoutkit import DataError, DtypeError, PatternError, ShapeError
from layoutkit.data import Dataset, Sample
from tests.helpers.array_likes import Like, WritableLike


def two_fields():
    x, y = np.arange(12.0).reshape(6, 2), np.arange(6)
    return Dataset({"input": x, "target": y}), x, y


# ---- the proposal's first page ---------------------------------------------------------------


def test_a_sample_as_the_proposal_shows_it():
    x = np.arange(24.0).reshape(2, 3, 4)
    s = Sample(x, fields={"input": np.s_[:, :2], "target": np.s_[:, 2]})
    i, j, k = 1, 2, 4
    data = s()
    assert data is not s
    input_part = s.input
    assert (input_part() == x[:, :2]).all()
    assert (s[i]() == s()[i]).all()
    assert (s[i:j]() == s()[i:j]).all()
    assert (s[i, :, j:k]() == s()[i, :, j:k]).all()
    s._write(np.ones((2, 3, 4)))
    s.input = np.zeros(4)
    s *= 3
    s += 1
    s -= 0.5
    s /= 2
    assert (x[:, :2] == 0.25).all()
    assert (x[:, 2] == 1.75).all()
    new_input = Sample(np.arange(3))
    s.input = new_input
    assert s.input is new_input
    assert (x[:, :2] == 0.25).all()
    assert s == Sample(x.copy())
    fields = dict(s._iter_fields())
    assert fields["input"] == s.input
    assert list(fields) == ["input", "target"]
    for sample, value in zip(s, s(), strict=True):
        assert (sample() == value).all()
    assert len(s) == len(s())
    assert s._shape() == s().shape
    assert s._size() == 24


def test_a_dataset_as_the_proposal_shows_it():
    x = np.arange(40.0).reshape(10, 4)
    d = Dataset(x, fields={"input": np.s_[:, :3], "target": np.s_[:, 3:]})
    i, j, something = 2, 5, np.s_[1:3]
    data = d()
    s = d[i]
    assert (data[i] == s()).all()
    assert (d[i:j]() == data[i:j]).all()
    assert (d[[7, 1]]() == data[[7, 1]]).all()
    input_part = d.input
    assert input_part[i] == s.input
    some_sub_data = d[:, something]
    assert d[i, something] == d[i][something] == some_sub_data[i]
    assert isinstance(some_sub_data, Dataset)
    d._write(x + 1)
    d.target = 0
    d -= np.mean(d())
    assert abs(d().mean()) < 1e-12
    assert len(d) == 10
    assert d._shape()[1] == len(d[0]) == d._width() == 4
    for n, sample in enumerate(d):
        assert d[n] == sample
    mb_dataset = d._minibatches(batch_size=5)
    assert (mb_dataset[0]() == d[0:5]()).all()
    order = np.random.default_rng(0).permutation(len(d))
    assert (d[order]() == d()[order]).all()


# ---- fields ----------------------------------------------------------------------------------


def test_fields_nest_in_order_and_have_the_class_of_their_owner():
    a, b, c = (np.arange(4.0) + n for n in range(3))
    for cls in (Sample, Dataset):
        s = cls({"input": {"x2": b, "x1": a}, "target": c})
        assert type(s.input) is type(s.input.x1) is cls
        assert [name for name, _ in s._iter_fields()] == ["input", "target"]
        assert [name for name, _ in s.input._iter_fields()] == ["x2", "x1"]
        assert np.shares_memory(s.input.x1(), a)
        assert np.shares_memory(s(), b)  # the first field's first field
        assert "input" in dir(s)
    d = Dataset({"input": {"x1": a, "x2": b}, "target": c})
    assert d[2].input.x2() == b[2]
    assert (d[1:3].input.x1() == a[1:3]).all()


def test_an_unknown_field_names_those_there_are():
    d, _, _ = two_fields()
    with pytest.raises(DataError, match="input, target") as caught:
        d.inputs  # noqa: B018
    assert isinstance(caught.value, AttributeError)
    assert not hasattr(d, "labels")
    assert not hasattr(Sample(np.ones(2)), "iterator")
    with pytest.raises(DataError):
        d._nothing  # noqa: B018
    with pytest.raises(DataError):
        del d.input


def test_windows_overlap():
    x = np.arange(12.0).reshape(2, 6)
    d = Dataset(x, fields={"pos_3d": np.s_[:, 0:3], "x": np.s_[:, 0]})
    d.x = -1
    assert d.pos_3d()[:, 0].tolist() == [-1, -1]
    d.pos_3d += 1
    assert d.x().tolist() == [0, 0]
    assert d[1].x() == 0
    assert (d._layout(), d.pos_3d._layout(), d.x._layout()) == ("bf", "bf", "b")


def test_a_window_may_be_any_selection_with_samples():
    x = np.arange(12.0).reshape(6, 2)
    fields = {"train": np.s_[:4], "picked": [5, 0], "high": x[:, 0] > 5, "row": 2}
    d = Dataset(x, fields=fields)
    assert [len(field) for _, field in d._iter_fields()] == [4, 2, 3, 2]
    assert all(type(field) is Dataset for _, field in d._iter_fields())
    d.picked[0] = 0
    assert x[5].tolist() == [0, 0]
    with pytest.raises(DataError):
        Dataset(x, fields={"one": np.s_[0, 0]})
    with pytest.raises(DataError):
        Dataset(x, fields={"out": np.s_[:, 2]})
    with pytest.raises(DataError, match="twice"):
        Dataset({"a": x}, fields={"a": np.s_[:, 0]})
    assert Dataset({"a": x}, fields={"b": np.s_[:, 1]}).b().tolist() == x[:, 1].tolist()


@pytest.mark.parametrize("name", ["_x", "__len__", "iterator", "a b", "1x", "", 3])
def test_names_that_cannot_be_fields(name):
    for cls in (Sample, Dataset):
        with pytest.raises(DataError):
            cls({name: np.ones(2)})
        with pytest.raises(DataError):
            cls(np.ones((2, 2)), fields={name: np.s_[:]})
    if isinstance(name, str):
        s = Sample({"x": np.ones(2)})
        with pytest.raises(DataError):
            setattr(s, name, Sample(np.ones(2)))
        with pytest.raises(DataError):
            setattr(s, name, 1)


def test_methods_cannot_be_replaced():
    s = Sample(np.ones(2))
    with pytest.raises(DataError):
        s._write = 3
    with pytest.raises(DataError):
        s._own = None


def test_selections_of_a_dataset_carry_the_fields_of_its_length_and_its_meta():
    x, y, z = np.arange(8.0).reshape(4, 2), np.arange(4), np.arange(3)
    d = Dataset({"x": x, "y": y, "z": z}, meta={"x": {"unit": "m"}, "y": {"classes": 4}})
    mask = np.array([True, False, True, True])
    for key, cls in [(2, Sample), (slice(1, 3), Dataset), ([3, 0], Dataset), (mask, Dataset)]:
        part = d[key]
        assert type(part) is cls
        assert [name for name, _ in part._iter_fields()] == ["x", "y"]
        assert part.y == d.y[key]
        assert part.x == d.x[key] == part
        assert (part._meta(), part.y._meta()) == ({"unit": "m"}, {"classes": 4})
    for part in (d[1, 0], d[1:3, 0], d[[0, 1], :], d[2][0], d[2][:], d[None], d[...]):
        assert list(part._iter_fields()) == []
        assert part._meta() == {}
    assert [type(d[k]) for k in (np.s_[1, :], np.s_[:, 0], np.s_[[0], 1])] == [
        Sample,
        Dataset,
        Dataset,
    ]


def test_fields_may_differ_in_length():
    d = Dataset({"data1": np.arange(4.0), "data2": np.arange(9.0)})
    assert (len(d), len(d.data1), len(d.data2)) == (4, 4, 9)
    assert d[3] == d.data1[3]
    assert [name for name, _ in d[1:]._iter_fields()] == ["data1"]


@pytest.mark.parametrize("names", [("input", "target"), ("x", "y")])
def test_an_input_and_its_target_have_equal_lengths(names, tmp_path):
    arrays = dict(zip(names, (np.zeros((5, 2)), np.zeros(3)), strict=True))
    np.savez(tmp_path / "xy.npz", **arrays)
    for source in (arrays, tmp_path / "xy.npz", Sample(arrays)):
        with pytest.raises(DataError, match=f"{names[1]} has 3 rows, but {names[0]} has 5"):
            Dataset(source)
    assert len(Dataset({**arrays, names[1]: lambda: iter(())})) == 5  # of unknown length


# ---- writing and re-pointing -----------------------------------------------------------------


def test_a_number_or_array_is_written_and_a_sample_is_pointed_to():
    d, x, y = two_fields()
    d.target = 7
    d.input = np.array([1, 2])
    assert y.tolist() == [7] * 6
    assert x.tolist() == [[1, 2]] * 6
    new = np.zeros(6)
    d.target = Dataset(new)
    d.extra = Dataset(np.ones(6))
    d.target += 1
    assert new.tolist() == [1] * 6
    assert y.tolist() == [7] * 6
    assert [name for name, _ in d[2:4]._iter_fields()] == ["input", "target", "extra"]
    assert d[2].target() == 1
    with pytest.raises(DataError, match="assign a Sample"):
        d.other = 3
    with pytest.raises(DtypeError):
        d.input = 1j
    with pytest.raises(ShapeError):
        d.input = np.ones(3)


def test_a_dataset_makes_a_dataset_of_the_sample_that_it_points_to():
    d, _, _ = two_fields()
    new = np.zeros(6)
    d.target = Sample(new)
    assert type(d.target) is Dataset
    d.target = 2
    assert new.tolist() == [2] * 6
    with pytest.raises(DataError):
        d.target = Sample(np.float64(1))
    assert d.target() is not None


def test_re_pointing_the_first_field_changes_the_data():
    d, _, _ = two_fields()
    d.input = Dataset(np.arange(3.0))
    assert d().tolist() == [0, 1, 2]
    assert len(d) == 3


def test_re_pointing_within_a_nested_field():
    s = Sample({"input": {"x1": np.zeros(2), "x2": np.ones(2)}})
    other = Sample(np.full(2, 5.0))
    s.input.x1 = other
    assert s.input.x1 is other
    assert s() is not None
    assert s().tolist() == [5, 5]


def test_in_place_on_a_field_and_on_a_selection_of_it():
    d, x, y = two_fields()
    field = d.target
    d.target += 10
    assert d.target is field
    d.target[2:] -= 5
    d[0].input = 9
    first = d[1]
    first.input[1] *= 100
    first.target *= 2
    assert y.tolist() == [10, 22, 7, 8, 9, 10]
    assert x[:2].tolist() == [[9, 9], [2, 300]]


def test_the_data_of_a_mapping_is_that_of_its_first_field():
    d, x, y = two_fields()
    assert (d() == x).all()
    assert (d._shape(), d._size(), d._width(), d._layout(), len(d)) == ((6, 2), 12, 2, "bf", 6)
    d -= 1
    d[0] = 50
    d._write(d() + 1)
    assert x[1].tolist() == [2, 3]
    assert x[0].tolist() == [51, 51]
    assert y.tolist() == list(range(6))


# ---- read-only -------------------------------------------------------------------------------


def frozen(array):
    array = array.copy()
    array.flags.writeable = False
    return array


@pytest.mark.parametrize(
    "make",
    [
        lambda x: Dataset(x, read_only=True),
        lambda x: Dataset(Sample(x), read_only=True),
        lambda x: Dataset(Sample(x, read_only=True)),
        lambda x: Dataset({"a": x}, read_only=True).a,
        lambda x: Dataset({"a": x}, read_only=True),
        lambda x: Dataset(frozen(x)),
        lambda x: Dataset(Like(x)),
        lambda x: Dataset(WritableLike(x), read_only=True),
        lambda x: Dataset([x, x], read_only=True),
        lambda x: Dataset(x, fields={"w": np.s_[:]}, read_only=True).w,
        lambda x: pickle.loads(pickle.dumps(Dataset(frozen(x)))),
        lambda x: pickle.loads(pickle.dumps(Dataset(x, read_only=True))),
    ],
)
def test_what_is_read_only_stays_so_in_all_that_is_derived(make):
    x = np.arange(6.0).reshape(3, 2)
    d = make(x)
    for s in (d, d[0], d[1:], d[[0, 1]], d[0][1:], next(iter(d)), d._minibatches(2)[0]):
        before = x.copy()
        with pytest.raises(DataError, match="read-only"):
            s._write(0)
        with pytest.raises(DataError, match="read-only"):
            s += 1
        with pytest.raises(DataError, match="read-only"):
            s[0] = 1
        with pytest.raises(DataError, match="read-only"):
            s[0] += 1
        with pytest.raises(DataError, match="read-only"):
            s[0] = s[0]
        for _, field in s._iter_fields():
            with pytest.raises(DataError, match="read-only"):
                field._write(1)
        assert (x == before).all()


def test_re_pointing_is_allowed_in_a_read_only_sample():
    s = Sample({"a": np.zeros(2)}, read_only=True)
    s.a = Sample(np.ones(2))
    s.b = Sample(np.zeros(2))
    assert s.a().tolist() == [1, 1]
    s.b = 3
    assert s.b().tolist() == [3, 3]
    with pytest.raises(DataError):
        s._write(3)


def test_read_only_false_needs_a_source_that_can_be_written():
    assert Sample(np.zeros(2), read_only=False)._write(1) is None
    for source in (frozen(np.zeros(2)), Like(np.zeros(2)), Sample(np.zeros(2), read_only=True)):
        with pytest.raises(DataError, match="read_only=False"):
            Sample(source, read_only=False)


# ---- equality, length, iteration -------------------------------------------------------------


def test_equality_is_a_bool():
    x = np.arange(6).reshape(2, 3)
    s = Sample(x)
    assert (s == Sample(x.astype(float))) is True
    assert (s == Sample(x[:, :2])) is False
    assert (s == Sample(x + 1)) is False
    assert (s != Sample(x + 1)) is True
    assert (s == Dataset(x)) is True
    for other in (x, 3, None, "x", [x]):
        assert (s == other) is False
        assert (other == s) is False
    assert (Sample(np.array([np.nan])) == Sample(np.array([np.nan]))) is False
    assert (Sample(np.array(["a"])) == Sample(np.array([1]))) is False
    assert (Sample(np.zeros(1, "M8[s]")) == Sample(np.zeros(1, "f4,f4"))) is False
    assert (Sample([x, x[0]]) == Sample([x.copy(), x[0]])) is True
    assert (Sample([x, x[0]]) == Sample([x, x[1]])) is False
    assert (Sample([x, x]) == Sample(np.stack([x, x]))) is False
    assert (Sample(np.zeros((0, 3))) == Sample(np.zeros((0, 2)))) is False


def test_samples_are_unhashable():
    with pytest.raises(TypeError):
        hash(Sample(np.ones(2)))
    with pytest.raises(TypeError):
        {Dataset(np.ones(2))}


def test_length_and_iteration():
    x = np.arange(6).reshape(3, 2)
    assert (len(Sample(x)), Sample(x)._length()) == (3, 3)
    assert [s().tolist() for s in Sample(x)] == x.tolist()
    assert [s() for s in Sample(x)[0]] == [0, 1]
    assert Sample(x)[1] in Dataset(x)
    single = Sample(x)[0, 0]
    for ask in (len, iter, Sample._length):
        with pytest.raises(DataError) as caught:
            ask(single)
        assert isinstance(caught.value, TypeError)
    assert (single._shape(), single._size(), single()) == ((), 1, 0)


def test_width():
    assert Dataset(np.ones((2, 5, 3)))._width() == 5
    with pytest.raises(ShapeError):
        Dataset(np.ones(2))._width()


def test_numpy_reads_a_sample_as_an_array():
    x = np.arange(6.0).reshape(3, 2)
    assert np.asarray(Sample(x)[1:]).tolist() == x[1:].tolist()
    assert np.mean(np.asarray(Sample(x), np.float32)) == 2.5
    assert Sample(np.zeros((1, 2))) == Sample(np.asarray(Sample(np.zeros((1, 2)))))


# ---- lists of arrays -------------------------------------------------------------------------


def test_a_list_of_arrays():
    rows = [np.arange(3.0), np.arange(2.0), np.zeros(4)]
    d = Dataset(rows, fields={"first": np.s_[:2]})
    assert (len(d), d._length(), d._layout()) == (3, 3, None)
    assert all(a is b or np.shares_memory(a, b) for a, b in zip(d(), rows, strict=True))
    assert isinstance(d(), list)
    assert d[1]().tolist() == [0, 1]
    assert d[0, 2] == d[0][2]
    assert [len(row()) for row in d[[2, 0]]] == [4, 3]
    assert [len(row()) for row in d[np.array([False, True, True])]] == [2, 4]
    assert [len(row) for row in d[::-1]()] == [4, 2, 3]
    assert (d[1:3] == Dataset(rows[1:])) is True
    for ask in (d._shape, d._size, d._width, d._view):
        with pytest.raises(DataError):
            ask()
    for key in (3, -4, [0, 3], np.s_[:, 0], None, ..., "x"):
        with pytest.raises(DataError):
            d[key]()
    assert d.first == d[:2]


def test_a_list_of_arrays_is_written_row_by_row():
    rows = [np.arange(3.0), np.arange(2.0)]
    d = Dataset(rows)
    d += 1
    d[[1, 0]][0] *= 10
    assert [row.tolist() for row in rows] == [[1, 2, 3], [10, 20]]
    d._write([np.zeros(3), 5])
    assert [row.tolist() for row in rows] == [[0, 0, 0], [5, 5]]
    d -= [np.ones(3), 1]
    assert [row.tolist() for row in rows] == [[-1, -1, -1], [4, 4]]
    d[0] = Sample(np.arange(3))
    d[1][1] += 1
    assert [row.tolist() for row in rows] == [[0, 1, 2], [4, 5]]
    for wrong in ([1], [np.zeros(3), np.zeros(3)], [np.zeros(3), 1j], np.ones(3)):
        with pytest.raises((DataError, ShapeError, DtypeError)):
            d._write(wrong)
    assert [row.tolist() for row in rows] == [[0, 1, 2], [4, 5]]


def test_a_list_is_written_into_itself_in_another_order():
    rows = [np.zeros(2), np.ones(2), np.full(2, 2.0)]
    d = Dataset(rows)
    d._write(d[::-1])
    assert [row.tolist() for row in rows] == [[2, 2], [1, 1], [0, 0]]


def test_the_layout_of_a_list_is_that_of_its_rows():
    d = Dataset([np.zeros((3, 2)), np.zeros((5, 2))], layout="bwc")
    assert (d._layout(), d[0]._layout(), d[1:]._layout()) == ("bwc", "wc", "bwc")
    with pytest.raises(ShapeError):
        Dataset([np.zeros(3), np.zeros(5)], layout="bwc")


# ---- invalid sources -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "source", [None, 3, 2.5, object(), {}, [1, 2], [[1, 2]], ["a"], "no such file.npy", b"x", int]
)
def test_what_is_no_source(source):
    with pytest.raises(DataError):
        Sample(source)


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ({"layout": "hwc"}, ShapeError),
        ({"layout": "fb"}, DataError),
        ({"layout": "b?"}, PatternError),
        ({"layout": {"x": "bf"}}, DataError),
        ({"meta": 3}, DataError),
        ({"fields": 3}, DataError),
        ({"fields": {"x": 9}}, DataError),
        ({"nonsense": 3}, TypeError),
    ],
)
def test_words_that_do_not_fit(words, error):
    with pytest.raises(error):
        Dataset(np.ones((2, 2)), **words)


@pytest.mark.parametrize("words", [{"layout": "bf"}, {"layout": {"z": "b"}}, {"meta": {"z": {}}}])
def test_words_that_do_not_fit_a_mapping(words):
    with pytest.raises(DataError):
        Dataset({"x": np.ones((2, 2))}, **words)


def test_a_dataset_has_a_first_axis():
    with pytest.raises(DataError):
        Dataset(np.array(3.0))
    assert Sample(np.array(3.0))() == 3
    assert Sample(np.float32(3))() == 3


# ---- pickling --------------------------------------------------------------------------------


def test_pickled_samples_keep_what_they_are():
    x = np.arange(12.0).reshape(4, 3)
    d = Dataset(
        {"x": x, "y": np.arange(4)}, meta={"y": {"classes": list("abcd")}}, layout={"x": "bf"}
    )
    again = pickle.loads(pickle.dumps(d))
    assert type(again) is Dataset
    assert again == d
    assert again.y == d.y
    assert again.y._meta() == d.y._meta()
    assert again._layout() == "bf"
    for s in (d[1], d[[2, 0]], d[1:, 0], d._minibatches(3), Dataset([x, x[0]])):
        same = pickle.loads(pickle.dumps(s))
        assert type(same) is type(s)
        assert same[0] == s[0]


def test_overlapping_windows_overlap_after_pickling_and_copying():
    for again in (lambda s: pickle.loads(pickle.dumps(s)), copy.deepcopy):
        d = Dataset(np.zeros((2, 3)), fields={"a": np.s_[:, :2], "b": np.s_[:, 1]})
        other = again(d)
        other.a = 1
        assert other.b().tolist() == [1, 1]
        assert d.b().tolist() == [0, 0]


def test_names_that_python_reads_as_others_are_refused():
    # Python reads the micro sign in `sample.µ` as the Greek letter, which is another name.
    with pytest.raises(DataError, match="\N{GREEK SMALL LETTER MU}"):
        Sample({"\N{MICRO SIGN}": np.ones(2)})
    sample = Sample({"\N{GREEK SMALL LETTER MU}": np.ones(2)})
    assert sample.μ() is not None
