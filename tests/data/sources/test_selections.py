"""Subsets of an index: slices, arrays of numbers, splits and folds; classes in a fixed order."""

import functools
import operator
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layoutkit import Collator, DataError
from layoutkit.data import Index, open_index, sampled_batcher, sampler
from tests.helpers.record_files import write_rec

LABELS = [*"abcabbbcab"]
X = np.arange(10 * 6 * 6, dtype=np.float32).reshape(10, 6, 6)


def numbered(folder):
    """Write ten files in a folder for each label, and return their paths in the index's order."""
    for number, label in enumerate(LABELS):
        (folder / label).mkdir(parents=True, exist_ok=True)
        (folder / label / f"{number}.bin").write_bytes(bytes([number]))
    return [f"{folder}/{label}/{number}.bin" for number, label in enumerate(LABELS)]


class Items:
    def __len__(self):
        return 10

    def __getitem__(self, number):
        return X[number], number


def open_kind(kind, folder):
    if kind == "arrays":
        return open_index({"x": X, "y": LABELS})
    if kind == "targets":
        return open_index({"x": X, "y": np.arange(10) / 4})
    if kind == "some unlabelled":
        return open_index({"x": X, "y": [None, *LABELS[1:]]}, missing=-1)
    if kind == "items":
        return open_index(Items())
    if kind == "rec":
        write_rec(folder / "a.rec", [bytes([n]) for n in range(10)])
        return open_index(folder / "a.rec", kind="raw")
    paths = numbered(folder)
    if kind == "folder":
        return open_index(folder)
    if kind == "partition":
        return open_index({"x": paths * 2, "y": LABELS * 2}, partition=1, partitions=2)
    rows = [f"{path},{label},all" for path, label in zip(paths, LABELS, strict=True)]
    (folder / "list.csv").write_text("\n".join(["file,label,label2", *rows]))
    return open_index(folder / "list.csv")


KINDS = ["arrays", "targets", "some unlabelled", "items", "rec", "folder", "partition", "csv"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_selection_has_the_records_of_its_source(kind, tmp_path):
    whole = open_kind(kind, tmp_path)
    numbers = np.array([7, 2, 2, 9])
    for selection, chosen in [
        (whole[numbers], numbers),
        (whole[[7, 2, 2, -len(whole) + 9]], numbers),
        (whole[8:2:-3], np.array([8, 5])),
        (whole[2:][1:6][[4, 0]], np.array([7, 3])),
        (pickle.loads(pickle.dumps(whole[numbers])), numbers),
    ]:
        every = np.arange(len(chosen))
        assert isinstance(selection, Index)
        assert [*selection] == selection.records(every) == whole.records(chosen)
        assert [r.position for r in selection] == [whole[n].position for n in chosen.tolist()]
        for name in ("ranks", "targets"):
            own, expected = getattr(selection, name)(every), getattr(whole, name)(chosen)
            assert (own is None) == (expected is None)
            assert own is None or own.tolist() == expected.tolist()
        assert selection.labels == whole.labels
        counts = [selection.item_count(label) for label in whole.labels]
        assert counts == [sum(whole[n].label == y for n in chosen.tolist()) for y in whole.labels]
        assert open_index(selection) is selection


@pytest.mark.parametrize("kind", ["arrays", "targets", "items", "folder", "rec", "csv"])
def test_batches_of_a_selection_are_rows_of_batches_of_its_source(kind, tmp_path):
    whole = open_kind(kind, tmp_path)
    numbers = np.array([7, 2, 9, 0, 4])
    options = {"num_workers": 0, "batch_size": 3, "seed": 5}
    if kind in ("arrays", "targets", "items"):
        options["collate"] = Collator("hw->bhw", h=3, w=3, offset="random", flip="random")

    def rows_of(index):
        with sampled_batcher(index, **options) as batches:
            pairs = [(x.input, y and y.input) for x, y in batches]
        target = None if pairs[0][1] is None else np.concatenate([y for _, y in pairs])
        return np.concatenate([x for x, _ in pairs]), target

    (x, y), (expected, target) = rows_of(whole[numbers]), rows_of(whole)
    assert np.array_equal(x, expected[numbers])
    assert (y is None) == (target is None)
    assert y is None or np.array_equal(y, target[numbers])


def test_a_state_belongs_to_its_selection():
    whole = open_index({"x": X, "y": LABELS})
    training, validation = whole.split(0.5, seed=1)
    options = {"batch_size": 2, "sampler": "shuffle", "num_workers": 0, "layout": "bhw"}
    with sampled_batcher(training, **options) as batches:
        expected = [batch.input.input.tolist() for batch in batches][1:]
    with sampled_batcher(training, **options) as batches:
        next(iter(batches))
        state = batches.state_dict()
    with sampled_batcher(whole.split(0.5, seed=1)[0], **options) as batches:
        batches.load_state_dict(state)
        assert [batch.input.input.tolist() for batch in batches] == expected
    for other in (validation, whole.split(0.5, seed=2)[0], whole[:5]):
        with (
            sampled_batcher(other, **options) as batches,
            pytest.raises(DataError, match="state is of another Batcher: partition '0 of 1, sel"),
        ):
            batches.load_state_dict(state)
    assert whole[2:8].selection == whole[1:9][1:7].selection != whole[3:9].selection
    assert whole[:].selection == whole.selection == "0 of 1"


def test_a_sampler_of_a_selection():
    selection = open_index({"x": X, "y": LABELS})[1:7]
    order = sampler("label-permutation", selection, batch_size=3, num_batches=1)
    assert sorted(record.label for record in order) == ["a", "b", "c"]
    with sampled_batcher(selection, batch_size=3, sampler=order, layout="bhw") as batches:
        assert [batch.count for batch in batches] == [3]
    assert [r.position for r in sampler("linear", selection, label="c")] == [2]


@given(
    st.integers(2, 200),
    st.lists(st.floats(0.01, 0.99), min_size=1, max_size=3),
    st.integers(1, 4),
    st.integers(0, 9),
    st.booleans(),
)
def test_parts_of_a_split_are_disjoint_and_as_large_as_asked(count, sizes, classes, seed, stratify):
    labels = np.random.default_rng(seed).integers(0, classes, count)
    index = open_index({"x": np.arange(count), "y": labels})
    fractions = [size / max(1, sum(sizes)) for size in sizes]
    ends = [round(float(end) * count) for end in np.cumsum([*fractions])]
    is_complete = sum(fractions) > 1 - 1e-9
    expected = np.diff([0, *ends] if is_complete else [0, *ends, count]).tolist()
    if 0 in expected or len(expected) == 1:
        return
    parts = index.split(*fractions, seed=seed, stratify=stratify)
    assert [*map(len, parts)] == expected
    found = [[record.position for record in part] for part in parts]
    assert all(part == sorted(part) for part in found)
    assert sorted(number for part in found for number in part) == [*range(count)]
    again = index.split(*fractions, seed=seed, stratify=stratify)
    assert [part.selection for part in again] == [part.selection for part in parts]
    if stratify:
        share = len(parts[0]) / count
        for label in index.labels:
            assert abs(parts[0].item_count(label) - share * index.item_count(label)) < 1


@given(st.integers(2, 60), st.integers(2, 9), st.booleans())
def test_each_record_validates_one_fold(count, number, stratify):
    index = open_index({"x": np.arange(count), "y": np.arange(count) % 3})
    if number > count:
        with pytest.raises(DataError, match=f"count={number}, but there are {count} records"):
            index.folds(number)
        return
    folds = index.folds(number, seed=3, stratify=stratify)
    validated = [[record.position for record in part] for _, part in folds]
    assert sorted(n for part in validated for n in part) == [*range(count)]
    assert max(map(len, validated)) - min(map(len, validated)) <= 1
    for (training, _), part in zip(folds, validated, strict=True):
        assert [r.position for r in training] == [n for n in range(count) if n not in part]
    if stratify:
        for label in index.labels:
            counts = [validation.item_count(label) for _, validation in folds]
            assert max(counts) - min(counts) <= 1


def test_seeds_make_other_splits_and_stratify_needs_labels():
    index = open_index({"x": np.arange(40)})
    assert len({index.split(0.5, seed=seed)[0].selection for seed in range(9)}) == 9
    with pytest.raises(DataError, match=r"stratify=True needs a label of each record, but <tensor"):
        index.split(0.5, stratify=True)
    for fractions in ((), (80,), (0.5, 0.6), (0.5, -0.1), ("0.5",)):
        with pytest.raises(DataError, match=r"fractions between 0 and 1, .*index\[:100\]"):
            index.split(*fractions)
    with pytest.raises(
        DataError, match=r"split\(0\.01\) of 40 records gives a part without records"
    ):
        index.split(0.01)
    for key in ("a", 1.5, [[1]], [True], [40], np.zeros(2), 40):
        with pytest.raises(DataError):
            index[key]


# ---- classes -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["arrays", "folder", "csv", "partition"])
def test_classes_number_the_labels(kind, tmp_path):
    index = open_kind(kind, tmp_path)
    classes = ["zebra", *reversed(index.labels)]
    numbered_index = open_index(index, classes=classes)
    every = np.arange(len(index))
    assert numbered_index.labels == classes
    ranks = numbered_index.ranks(every).tolist()
    assert [classes[rank] for rank in ranks] == [record.label for record in index]
    assert [*numbered_index] == [*index]
    assert numbered_index.item_count("zebra") == 0
    part = numbered_index[3:][[0, 2]]
    assert part.ranks(np.arange(2)).tolist() == [ranks[3], ranks[5]]
    assert part.labels == classes
    assert numbered_index.selection == index.selection


def test_a_folder_without_a_class_keeps_the_numbers(tmp_path):
    numbered(tmp_path / "train")
    training = open_index(tmp_path / "train")
    (tmp_path / "validation" / "c").mkdir(parents=True)
    (tmp_path / "validation" / "c" / "0.bin").write_bytes(b"0")
    validation = open_index(tmp_path / "validation", classes=training.labels)
    with sampled_batcher(validation, batch_size=1) as batches:
        (batch,) = batches
    assert (batch.target.input.tolist(), batch.label) == ([2], ["c"])
    with pytest.raises(DataError, match=r"has the label 'b', which is not in classes=: 'a', 'c'; "):
        open_index(tmp_path / "train", classes=["a", "c"])


def test_records_without_a_label_have_no_class():
    source = {"x": X, "y": [None, *LABELS[1:]]}
    index = open_index(source, missing=-1, classes=[*"cba"])
    assert index.ranks(np.arange(3)).tolist() == [-1, 1, 0]


@pytest.mark.parametrize("classes", ["abc", [], ["a", "a"], 3, {"a": 0}])
def test_classes_are_a_list_of_labels(classes):
    with pytest.raises(DataError, match=r"classes=.* it is a list of different texts"):
        open_index({"x": X, "y": LABELS}, classes=classes)
    with pytest.raises(DataError, match=r"classes= numbers labels, but <tensor index .* has none"):
        open_index(X, classes=["a"])


# ---- orders of positions -----------------------------------------------------------------------


@pytest.mark.parametrize("kind", [list, tuple, np.array, "range", "torch"])
def test_positions_are_an_order(kind):
    order = [7, 2, 2, 9, -10]
    positions = range(8, 3, -1) if kind == "range" else order
    if kind == "torch":
        positions = pytest.importorskip("torch").tensor(order)
    elif kind != "range":
        positions = kind(order)
    expected = [8, 7, 6, 5, 4] if kind == "range" else [7, 2, 2, 9, 0]
    index = open_index({"x": np.arange(10.0), "y": LABELS})
    assert [record.position for record in sampler(positions, index)] == expected
    assert [*sampler(positions, 10)] == expected
    for drop_last, sizes in ((False, [2, 2, 1]), (True, [2, 2])):
        options = {"batch_size": 2, "sampler": positions, "drop_last": drop_last, "num_workers": 0}
        with sampled_batcher(index, **options) as batches:
            found = [batch.input.input.tolist() for batch in batches]
        assert [*map(len, found)] == sizes
        assert functools.reduce(operator.iadd, found, []) == expected[: sum(sizes)]
        with sampled_batcher(index, **options) as batches:
            next(iter(batches))
            state = batches.state_dict()
        with sampled_batcher(index, **options) as batches:
            batches.load_state_dict(state)
            assert [batch.input.input.tolist() for batch in batches] == found[1:]
        with (
            sampled_batcher(index, **{**options, "sampler": [1, 2, 3, 4, 5]}) as batches,
            pytest.raises(DataError, match="state is of another Batcher: partition"),
        ):
            batches.load_state_dict(state)


def test_positions_of_several_sources_and_of_ranks():
    rows = np.arange(10.0)
    options = {"batch_size": 4, "processor": lambda a, b: np.array([a, b])}
    for order, expected in (([3, 1], [[3, 3], [1, 1]]), ([[3, 1], "linear"], None)):
        if expected is None:
            with pytest.raises(DataError, match="first source gives 2 records an epoch"):
                sampled_batcher([rows, rows], sampler=order, **options)
            order, expected = [[3, 1], np.array([4, 5])], [[3, 4], [1, 5]]
        with sampled_batcher([rows, rows], sampler=order, **options) as batches:
            (batch,) = batches
        assert batch.input.input.tolist() == expected
    found = []
    for rank in range(2):
        with sampled_batcher(rows, batch_size=1, sampler=[5, 4, 3, 2], shard=(rank, 2)) as batches:
            found.append([int(batch.input.input[0]) for batch in batches])
    assert found == [[5, 3], [4, 2]]


@pytest.mark.parametrize(
    ("order", "words"),
    [
        ([10], "index 10 at position 0 is out of range: there are 10 records"),
        ([1.5], "give one list or array of whole numbers"),
        (np.zeros((2, 2), int), "give one list or array of whole numbers"),
        ({3: 1}, "sampler= is a dict; give the name of an order"),
        (3, "sampler= is an int; give the name of an order"),
        (iter([1]), r"can be iterated only once; give list\(sampler\)"),
    ],
)
def test_an_order_consists_of_positions(order, words):
    for drop_last in (False, True):
        with pytest.raises(DataError, match=words):
            sampled_batcher(np.zeros(10), batch_size=2, sampler=order, drop_last=drop_last)


def test_a_label_does_not_select_from_positions():
    index = open_index({"x": np.arange(10.0), "y": LABELS})
    with pytest.raises(DataError, match=r"both select records; give index\.members\('a'\)"):
        sampler([1, 2], index, label="a")
    assert [r.label for r in sampler(index.members("a"), index)] == ["a"] * 3
