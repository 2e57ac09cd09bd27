"""Infinite datasets, and datasets that can only be iterated."""

import itertools
import math
import pickle

import numpy as np
import pytest

from layoutkit import DataError, DtypeError, ImageView, ShapeError
from layoutkit.data import Dataset, Sample


class Squares:
    """An infinite source: x is [i, i*i], y is i % 3."""

    def __init__(self, mapping=True):
        self.mapping, self.asked = mapping, []

    def __getitem__(self, i):
        assert type(i) is int
        self.asked.append(i)
        x = np.array([i, i * i])
        return {"x": x, "y": i % 3} if self.mapping else x


def numbers():
    return (np.full(2, i) for i in range(5))


def mappings():
    for i in range(5):
        yield {"x": np.full(2, i), "y": {"label": np.int8(i)}}


class Reiterable:
    def __iter__(self):
        return numbers()


# ---- infinite --------------------------------------------------------------------------------


def test_an_infinite_dataset_is_selected_from_lazily():
    squares = Squares(mapping=False)
    d = Dataset(squares)
    assert d._length() == math.inf
    sample, run = d[4], d[2:8:2]
    part, late = sample[1], run[1]
    assert squares.asked == []
    assert sample().tolist() == [4, 16]
    assert (part(), squares.asked) == (16, [4])
    assert run().tolist() == [[2, 4], [4, 16], [6, 36]]
    assert late().tolist() == [4, 16]
    assert d[3, 1] == d[3][1]
    assert (len(run), run._shape()) == (3, (3, 2))
    assert [s().tolist() for s in itertools.islice(d, 3)] == [[0, 0], [1, 1], [2, 4]]
    assert d[0:0]().shape == (0, 2)


def test_a_key_is_copied():
    """Elements are read later, when the caller may have changed the list."""
    key = [1, 0]
    part = Dataset(Squares(mapping=False))[4][key]
    key[:] = [0, 0]
    assert part().tolist() == [16, 4]
    key = np.array([1, 0])
    part = Dataset(Squares(mapping=False))[4][key]
    key[:] = 0
    assert part().tolist() == [16, 4]


def test_only_the_elements_of_a_run_that_are_selected_are_read():
    squares = Squares(mapping=False)
    run = Dataset(squares)[10:20]
    assert run[[3, 1]]().tolist() == [[13, 169], [11, 121]]
    assert run[2:4][1, 0]() == 13
    assert run[-1]().tolist() == [19, 361]
    assert squares.asked == [13, 11, 13, 19]
    assert run[1:4, 1]().tolist() == [121, 144, 169]
    for key in (10, -11, [0, 10], np.s_[0, 2]):
        with pytest.raises(DataError):
            run[key]()


def test_an_infinite_dataset_has_the_fields_of_its_elements():
    d = Dataset(Squares(), meta={"y": {"classes": 3}})
    assert [name for name, _ in d._iter_fields()] == ["x", "y"]
    assert d[5].y() == 2
    assert d.x[5]().tolist() == d[5]().tolist() == [5, 25]
    assert d[4:7].y().tolist() == [1, 2, 0]
    assert d.y._meta() == d[4:7].y._meta() == {"classes": 3}
    assert type(d.x) is type(d[4:7].x) is Dataset
    assert type(d[5].x) is Sample
    first = next(iter(d))
    assert (first.x().tolist(), first.y()) == ([0, 0], 0)
    with pytest.raises(DataError, match="x, y"):
        d.z  # noqa: B018


def test_what_an_infinite_dataset_cannot_do():
    d = Dataset(Squares())
    with pytest.raises(DataError) as caught:
        len(d)
    assert isinstance(caught.value, TypeError)
    for ask in (d, d._shape, d._size, d._width, d._view, lambda: d == d, lambda: d._write(1)):
        with pytest.raises(DataError):
            ask()
    with pytest.raises(DataError):
        d += 1
    for key in (-1, slice(None), slice(3, None), slice(-3, 5), slice(5, -1), [1, 2], None, ...):
        with pytest.raises(DataError):
            d[key]
    with pytest.raises(DataError):
        d[0] = 1
    with pytest.raises(DataError):
        d[0:2] += 1
    with pytest.raises(DataError):
        Sample(Squares())


def test_layouts_of_infinite_datasets():
    d = Dataset(Squares(mapping=False))
    assert (d._layout(), d[2]._layout(), d[2:4]._layout()) == ("bf", "f", "bf")
    d = Dataset(Squares(), layout={"x": "bt"})
    assert (d._layout(), d.x[1:3]._layout(), d.y._layout(), d[1].x._layout()) == (
        "bt",
        "bt",
        "b",
        "t",
    )

    class Photos:
        def __getitem__(self, i):
            return np.zeros((4, 5, 3), np.uint8)

    d = Dataset(Photos(), layout="bhwc")
    assert type(d[2:6]._view()) is ImageView
    assert type(d._minibatches(3)[7]._view()) is ImageView
    assert d[3]._layout() == "hwc"


def test_mini_batches_of_an_infinite_dataset():
    d = Dataset(Squares())
    mb = d._minibatches(4)
    assert mb._length() == math.inf
    assert mb[2]().tolist() == d[8:12]().tolist()
    assert mb[2].y().tolist() == d[8:12].y().tolist() == mb.y[2]().tolist()
    assert mb[1:3]._shape() == (2, 4, 2)
    assert mb[1:3]().tolist() == [mb[1]().tolist(), mb[2]().tolist()]
    assert [len(batch) for batch in itertools.islice(mb, 3)] == [4, 4, 4]
    pairs = itertools.islice(zip(mb.x, mb.y, strict=False), 2)
    assert [(x().shape, y().tolist()) for x, y in pairs] == [
        ((4, 2), [0, 1, 2, 0]),
        ((4, 2), [1, 2, 0, 1]),
    ]


def test_an_element_is_read_once():
    squares = Squares()
    sample = Dataset(squares)[7]
    _ = sample.x(), sample.y(), sample(), sample.x[0]()
    assert squares.asked == [7]


def test_what_is_written_to_an_element_does_not_reach_the_source():
    kept = [np.zeros(2), np.ones(2)]

    class Kept:
        def __getitem__(self, i):
            return kept[i]

    d = Dataset(Kept())
    with pytest.raises(ValueError, match="read-only"):
        d[0]()[0] = 1
    d[0:2]()[0] = 7
    assert kept[0].tolist() == [0, 0]


# ---- iteration only --------------------------------------------------------------------------


@pytest.mark.parametrize("source", [numbers, Reiterable(), lambda: numbers()])
def test_a_dataset_that_can_only_be_iterated(source):
    d = Dataset(source)
    assert d._length() is None
    for _ in range(2):
        assert [s().tolist() for s in d] == [[i, i] for i in range(5)]
    assert [mb().shape for mb in d._minibatches(2)] == [(2, 2), (2, 2), (1, 2)]
    assert len(list(d)) == 5
    assert d._layout() == "bf"
    assert next(iter(d))._layout() == "f"
    assert next(iter(d._minibatches(2)))._layout() == "bf"
    assert list(d._iter_fields()) == []


def test_fields_of_what_can_only_be_iterated():
    d = Dataset(mappings, meta={"y": {"label": {"classes": 5}}})
    assert [name for name, _ in d._iter_fields()] == ["x", "y"]
    assert [s.y.label() for s in d] == list(range(5))
    assert [s() for s in d.y.label] == list(range(5))
    assert [s.x().tolist() for s in d][2] == [2, 2]
    assert d.y.label._meta() == {"classes": 5}
    batches = [(mb.x().tolist(), mb.y.label().tolist()) for mb in d._minibatches(3)]
    assert batches[1] == ([[3, 3], [4, 4]], [3, 4])
    assert [mb().tolist() for mb in d.y.label._minibatches(4)] == [[0, 1, 2, 3], [4]]
    assert [mb().tolist() for mb in d._minibatches(4).y.label] == [[0, 1, 2, 3], [4]]
    assert next(iter(d._minibatches(2))).y.label._view().classes == 5


def test_what_can_only_be_iterated_can_do_nothing_else():
    d = Dataset(numbers)
    with pytest.raises(DataError) as caught:
        len(d)
    assert isinstance(caught.value, TypeError)
    for ask in (d, d._shape, d._size, d._width, d._view, lambda: d == d, lambda: d._write(1)):
        with pytest.raises(DataError):
            ask()
    for key in (0, slice(2), [0], np.s_[0, 0], None):
        with pytest.raises(DataError):
            d[key]
    with pytest.raises(DataError):
        d._minibatches(2)[0]


def test_fields_from_several_functions_go_together():
    d = Dataset({"x": numbers, "y": lambda: iter(range(5)), "names": np.arange(9)})
    assert [(s.x()[0], s.y()) for s in d] == [(i, i) for i in range(5)]
    assert [mb.y().tolist() for mb in d._minibatches(3)] == [[0, 1, 2], [3, 4]]
    d.y = Dataset(lambda: iter(range(4)))
    with pytest.raises(DataError, match="y"):
        list(d)


def test_re_pointing_a_field_of_an_infinite_dataset():
    d = Dataset(Squares(), meta={"x": {"unit": "m"}}, layout={"x": "bt"})
    d.y = Dataset(Squares(mapping=False))
    d.z = Dataset(np.arange(3))
    assert d[4].y().tolist() == [4, 16]
    assert [name for name, _ in d[2:4]._iter_fields()] == ["x", "y"]
    assert (d._meta(), d._layout(), d[3]._meta(), d[2:4]._layout()) == (
        {"unit": "m"},
        "bt",
        {"unit": "m"},
        "bt",
    )
    assert d[3, 0]._layout() is None
    assert d[3, 0]() == 3


def test_one_shot_iterators_and_functions_with_arguments_are_refused():
    with pytest.raises(DataError, match="only once"):
        Dataset(numbers())
    with pytest.raises(DataError, match="arguments"):
        Dataset(lambda n: iter(range(n)))
    with pytest.raises(DataError):
        list(Dataset(lambda: 3))
    for source in (b"abc", 3, None):
        with pytest.raises(DataError):
            Dataset(source)
    with pytest.raises(DataError):
        Sample(numbers)


def test_elements_that_are_no_arrays():
    with pytest.raises(DataError, match="not an array"):
        next(iter(Dataset(lambda: iter([object()]))))()
    with pytest.raises(DataError, match="not an array"):
        next(iter(Dataset(lambda: iter([[[1], [1, 2]]]))))()
    with pytest.raises(DataError, match="no field 'x'"):
        [s.x() for s in Dataset(lambda: iter([{"x": 1}, {"z": 1}])).x]
    with pytest.raises(DataError):
        Dataset(lambda: iter(()))._layout()
    with pytest.raises(ShapeError, match="stacked"):
        next(iter(Dataset(lambda: iter([np.ones(1), np.ones(2)]))._minibatches(2)))()


def test_a_failing_source_says_so_itself():
    def failing():
        yield np.ones(1)
        raise KeyError("broken")

    with pytest.raises(KeyError, match="broken"):
        list(Dataset(failing))


def test_unbounded_datasets_are_pickled():
    for d in (Dataset(Squares()), Dataset(mappings), Dataset(Reiterable())):
        again = pickle.loads(pickle.dumps(d))
        assert next(iter(again)) == next(iter(d))
        assert pickle.loads(pickle.dumps(next(iter(d)))) == next(iter(d))
    run = pickle.loads(pickle.dumps(Dataset(Squares())[3:5]))
    assert run.y().tolist() == [0, 1]
    assert run._layout() == "bf"


@pytest.mark.parametrize("layout", ["fb", {"x": "fb"}])
def test_layouts_of_datasets_begin_with_b(layout):
    with pytest.raises(DataError):
        Dataset(Squares(), layout=layout)


def test_a_layout_that_does_not_fit_the_elements():
    with pytest.raises((ShapeError, DtypeError)):
        Dataset(Squares(mapping=False), layout="bhwc")[0:2]._view()
