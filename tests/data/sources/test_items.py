"""Map-style Datasets as sources, and what is no source although Python iterates over it."""

import numpy as np
import pytest

from layoutkit import Collator, DataError
from layoutkit.data import Dataset, open_index, sampled_batcher

COUNT = 5


class Items:
    """A Dataset of computed items, which has no last one unless `len` is asked."""

    def __init__(self, item):
        self.item, self.asked = item, []

    def __len__(self):
        return COUNT

    def __getitem__(self, number):
        assert type(number) is int
        self.asked.append(number)
        assert len(self.asked) < 50, "the end of the items is sought"
        return self.item(number)


class Table(Items):
    """Items with the attributes of a Dataset of Hugging Face."""

    shape = (COUNT, 2)
    column_names = ("image", "label")


def pixels(number):
    return np.full((8 + number, 9 - number, 3), number, np.uint8)


def picture(number):
    return pytest.importorskip("PIL.Image").fromarray(pixels(number))


def batches_of(source, **options):
    with sampled_batcher(source, batch_size=3, num_workers=0, **options) as batches:
        return [
            (x.forward_get("bhwc").tolist(), None if y is None else y.input.tolist())
            for x, y in batches
        ]


ITEMS = {
    "an image": (lambda n: pixels(n), None),
    "a picture": (lambda n: picture(n), None),
    "one in a tuple": (lambda n: (pixels(n),), None),
    "an image and a label": (lambda n: (pixels(n), n), int),
    "a list": (lambda n: [picture(n), np.int32(n)], int),
    "a mapping": (lambda n: {"image": picture(n), "label": n}, int),
    "x and y": (lambda n: {"y": n / 4, "x": pixels(n)}, lambda n: n / 4),
    "a row as target": (lambda n: (pixels(n), np.array([n, 1.5])), lambda n: [n, 1.5]),
}


@pytest.mark.parametrize("kind", [Items, Table])
@pytest.mark.parametrize("name", ITEMS)
def test_items_are_read_when_their_batch_is_made(name, kind):
    item, target = ITEMS[name]
    collator = Collator("hwc->bhwc", h=4, w=4, resize="nearest")
    expected = [collator([pixels(n) for n in part]).tolist() for part in (range(3), range(3, 5))]
    targets = [None if target is None else [*map(target, part)] for part in (range(3), range(3, 5))]
    source = kind(item)
    index = open_index(source)
    assert (index.kind, len(index), index.labels, index[4].position) == ("items", 5, [], 4)
    assert source.asked == []
    assert batches_of(source, collate=collator) == list(zip(expected, targets, strict=True))
    assert source.asked == [*range(COUNT)]
    part = open_index(kind(item), partition=1, partitions=2)
    ((x, y),) = batches_of(part, collate=collator)
    assert x == collator([pixels(1), pixels(3)]).tolist()
    assert y == (None if target is None else [target(1), target(3)])


def test_a_processor_gets_the_data_and_the_target_stays():
    pytest.importorskip("PIL.Image")
    for options in (
        {"size": (4, 4)},
        {"processor": lambda data, out: data[:4, :4], "layout": "bhwc"},
    ):
        found = batches_of(Items(lambda n: (pixels(n), n)), **options)
        assert [y for _, y in found] == [[0, 1, 2], [3, 4]]
    own = {"processor": lambda data, out: (data[:4, :4], 7), "layout": "bhwc"}
    assert batches_of(Items(lambda n: (pixels(n), n)), **own)[1][1] == [7, 7]
    mine = {"get": lambda record: pixels(record.position)[:4, :4], "layout": "bhwc"}
    assert [y for _, y in batches_of(Items(pixels), **mine)] == [None, None]


@pytest.mark.parametrize(
    ("item", "words"),
    [
        (lambda n: (pixels(n), "cat"), "the label of an item is 'cat'"),
        (lambda n: (pixels(n), None), "the label of an item is None"),
        (lambda n: (pixels(n), float("nan")), "the label of an item is nan"),
        (lambda n: (pixels(n), np.float32("nan")), "the label of an item is nan"),
        (lambda n: (pixels(n), np.array("nan", np.float64)), "the label of an item is nan"),
        (lambda n: (pixels(n), np.array("cat")), "the label of an item is 'cat'"),
        (lambda n: (pixels(n), 1, 2), r"a tuple of 3 values; .*get="),
        (lambda n: {"image": pixels(n), "kind": n}, "an item has no column label or class; found"),
    ],
)
def test_items_of_another_form_are_named(item, words):
    with pytest.raises(DataError, match=words):
        batches_of(Items(item), layout="bhwc")
    index = open_index(Items(item), columns={"label": "kind"})
    if "column" in words:
        assert index.getter(None)(index[3])[1] == 3


def test_datasets_of_torch():
    torch = pytest.importorskip("torch")
    from torch.utils.data import Subset, TensorDataset

    x = torch.arange(10.0).reshape(5, 2)
    whole = TensorDataset(x, torch.arange(5))
    with sampled_batcher(Subset(whole, [4, 2]), batch_size=2) as batches:
        (batch,) = batches
    assert batch.input.input.tolist() == x[[4, 2]].tolist()
    assert batch.target.input.tolist() == [4, 2]
    with sampled_batcher(TensorDataset(x), batch_size=5) as batches:
        assert next(iter(batches)).input.input.tolist() == x.tolist()


def test_a_dataset_iterates_over_items_up_to_their_length():
    source = Items(lambda n: np.full(2, n))
    assert [sample().tolist() for sample in Dataset(source)] == [[n, n] for n in range(COUNT)]


class ClassLabel:
    names = ("cat", "dog", "eel", "fox")


def make_labeled(kind):
    source = Table(lambda n: {"label": n % 3, "image": pixels(n)})
    if kind == "features":
        source.features = {"label": ClassLabel(), "image": None}
    else:
        source.classes = ClassLabel.names
    return source


@pytest.mark.parametrize("kind", ["features", "classes"])
@pytest.mark.parametrize("part", [slice(None), slice(3)])
def test_names_of_classes_number_the_columns_of_one_hot(kind, part):
    options = {"batch_size": 3, "collate": Collator("hwc->bchw", h=4, w=4)}
    with sampled_batcher(open_index(make_labeled(kind))[part], **options) as batches:
        batch = next(iter(batches))
    assert batch.target.classes == ("cat", "dog", "eel", "fox")
    assert batch.target.one_hot().tolist() == np.eye(3, 4).tolist()
    source = Items(lambda n: (pixels(n), n / 4))
    source.classes = ClassLabel.names
    with sampled_batcher(source, **options) as batches:  # targets that number no classes
        assert next(iter(batches)).target.input.tolist() == [0, 0.25, 0.5]


class Batches:
    """An object with a length that can only be iterated, as a DataLoader."""

    def __len__(self):
        return 3

    def __iter__(self):
        return iter([1, 2, 3])


@pytest.mark.parametrize("source", [Batches(), {1: 2}.values()])
def test_what_has_a_length_and_can_only_be_iterated_is_refused(source):
    words = r"which can only be iterated; .*lambda: iter.*sampled_batcher\({'x': numbers}, get="
    with pytest.raises(DataError, match=words):
        open_index(source)


def test_records_are_no_sources_and_an_index_is_one_as_it_is():
    index = open_index({"x": np.arange(6.0), "y": [1, 2] * 3})
    for source in ([*index[:2]], index[0], tuple(index)):
        with pytest.raises(DataError, match=r"the source consists of Records, which have no data"):
            open_index(source)
    assert open_index(index) is index
    options = [{"missing": -1}, {"kind": "tensor"}, {"partitions": 2}, {"columns": {}}]
    for option in options:
        with pytest.raises(DataError, match="is an Index already, which only classes= can change"):
            open_index(index, **option)


def test_images_of_different_sizes_are_a_source_and_a_dataset():
    arrays = [pixels(number) for number in range(3)]
    with pytest.raises(DataError, match=r"arrays of one source are {'x': arrays}"):
        sampled_batcher(arrays, batch_size=2)
    collator = Collator("hwc->bhwc", h=4, w=4, resize="nearest")
    for source in (
        {"x": arrays, "y": np.arange(3)},
        Dataset({"input": arrays, "target": np.arange(3)}),
    ):
        assert batches_of(source, collate=collator) == [(collator(arrays).tolist(), [0, 1, 2])]
