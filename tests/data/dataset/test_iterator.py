"""`Dataset.iterator`: batches in the requested spaces, and the position to resume from."""

import json
import pickle

import numpy as np
import pytest

from layoutkit import (
    CompositeSpace,
    Conv2DSpace,
    DataError,
    DtypeError,
    IndexSpace,
    NullSpace,
    ShapeError,
    SpaceError,
    VectorSpace,
)
from layoutkit.data import Dataset, sampler
from layoutkit.data.dataset import stores
from layoutkit.spaces import convert
from tests.helpers.array_likes import Like

pytestmark = pytest.mark.budget(8)

RNG = np.random.default_rng(0)
N = 10
PHOTOS = RNG.integers(0, 255, (N, 4, 5, 3), np.uint8)
PLANES = RNG.random((N, 3, 4, 5), np.float32)
VECTORS = RNG.random((N, 6), np.float32)
LABELS = RNG.integers(0, 4, N)
PAIRS = RNG.integers(0, 4, (N, 2))
NUMBERS = RNG.random(N)


def dataset():
    return Dataset(
        {
            "photos": PHOTOS.copy(),
            "planes": PLANES.copy(),
            "labels": LABELS.copy(),
            "nested": {"vectors": VECTORS.copy(), "pairs": PAIRS.copy()},
            "numbers": NUMBERS.copy(),
            "unsaid": np.zeros((N, 2, 2)),
            "odd": np.zeros((N, 2, 2)),
            "short": np.zeros(N - 1),
        },
        layout={
            "photos": "bhwc",
            "planes": "bchw",
            "nested": {"vectors": "bf", "pairs": "bt"},
            "odd": "bxy",
        },
        meta={"nested": {"pairs": {"classes": list("abcd")}}},
    )


def k_hot(labels, width=4):
    columns = labels.reshape(len(labels), -1)
    return (columns[:, :, None] == np.arange(width)).any(1).astype(np.float32)


def flat_of(planes):
    """Return the images as vectors, in the order (rows, columns, channels)."""
    return planes.transpose(0, 2, 3, 1).reshape(len(planes), -1)


CASES = [
    ("photos", Conv2DSpace((4, 5), 3, "bhwc", "uint8"), PHOTOS),
    ("photos", Conv2DSpace((4, 5), 3, "bchw"), PHOTOS.transpose(0, 3, 1, 2)),
    ("photos", Conv2DSpace((4, 5), 3, "chwb", None), PHOTOS.transpose(3, 1, 2, 0)),
    ("photos", VectorSpace(60), PHOTOS.reshape(N, 60)),
    ("planes", VectorSpace(60), flat_of(PLANES)),
    ("planes", Conv2DSpace((4, 5), 3, "bhwc", "float64"), PLANES.transpose(0, 2, 3, 1)),
    ("nested.vectors", VectorSpace(6), VECTORS),
    ("nested.vectors", Conv2DSpace((1, 2), 3, "bhwc"), VECTORS.reshape(N, 1, 2, 3)),
    ("labels", IndexSpace(4, 1), LABELS[:, None]),
    ("labels", VectorSpace(4), k_hot(LABELS)),
    ("labels", VectorSpace(1), LABELS[:, None]),
    ("nested.pairs", IndexSpace(4, 2, "int32"), PAIRS),
    ("nested.pairs", VectorSpace(4), k_hot(PAIRS)),
    ("numbers", VectorSpace(1, dtype="float64"), NUMBERS[:, None]),
]


@pytest.mark.parametrize("gathered", [False, True], ids=["taken", "collated"])
@pytest.mark.parametrize(("source", "space", "wanted"), CASES, ids=lambda x: str(x)[:40])
def test_rows_come_in_the_space_that_is_asked_for(source, space, wanted, gathered, monkeypatch):
    monkeypatch.setattr(convert, "_SMALL", 0 if gathered else 1 << 20)
    axis = space.layout.index("b") if isinstance(space, Conv2DSpace) else 0
    at = 0
    for batch in dataset().iterator((space, source), batch_size=4):
        rows = np.take(wanted, range(at, min(at + 4, N)), axis)
        np.testing.assert_array_equal(batch, rows)
        assert batch.dtype == (space.dtype or wanted.dtype)
        space.validate(batch)
        at += 4
    assert at == 12


def test_sparse_vectors():
    sparse = pytest.importorskip("scipy.sparse")
    (batch,) = dataset().iterator((VectorSpace(4, sparse=True), "labels"), batch_size=N)
    assert sparse.issparse(batch)
    np.testing.assert_array_equal(batch.toarray(), k_hot(LABELS))


def test_batches_are_nested_as_the_source_is():
    d = dataset()
    v, c, t = VectorSpace(60), Conv2DSpace((4, 5), 3, "bchw"), VectorSpace(4)
    it = d.iterator((CompositeSpace((v, t)), ("photos", "labels")), batch_size=3)
    x, y = next(iter(it))
    assert (x.shape, y.shape) == ((3, 60), (3, 4))
    space = CompositeSpace((NullSpace(), CompositeSpace((v, c, t)), v))
    it = d.iterator((space, ("", ("photos", "photos", "labels"), "photos")), batch_size=3)
    for nothing, (a, b, _), again in it:
        assert nothing is None
        assert a is again
        np.testing.assert_array_equal(flat_of(b), a)
        assert not np.shares_memory(a, b)
    (one,) = next(iter(d.iterator((CompositeSpace((v,)), ("photos",)), batch_size=3)))
    assert one.shape == (3, 60)
    batches = list(d.iterator((NullSpace(), ""), batch_size=4))
    assert batches == [None] * 3
    empty = list(d.iterator((CompositeSpace(()), ()), batch_size=6))
    assert empty == [(), ()]


MODES = [
    "sequential",
    "linear",
    "shuffled_sequential",
    "permutation",
    "batchwise_shuffled_sequential",
    "even_sequential",
    "even_shuffled_sequential",
    "even_batchwise_shuffled_sequential",
    "random_uniform",
    "uniform",
    "random_slice",
]
SPECS = CompositeSpace((VectorSpace(1, dtype="float64"), IndexSpace(4, 1))), ("numbers", "labels")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("size", [1, 3, 5, 10])
def test_every_mode_gives_the_rows_of_its_sampler(mode, size):
    it = dataset().iterator(SPECS, mode=mode, batch_size=size, seed=3, epoch=2)
    order = sampler(mode, N, batch_size=size, seed=3, epoch=2)
    assert (it.num_batches, it.num_examples) == (order.num_batches, len(order))
    for epoch in (2, 3):
        assert it.epoch == epoch
        batches = list(it)
        rows = list(order.batches())
        assert len(batches) == len(rows) == it.num_batches
        for (x, y), places in zip(batches, rows, strict=True):
            np.testing.assert_array_equal(x[:, 0], NUMBERS[places])
            np.testing.assert_array_equal(y[:, 0], LABELS[places])
        assert sum(len(x) for x, _ in batches) == it.num_examples


@pytest.mark.parametrize("mode", MODES)
def test_it_resumes_from_every_position(mode):
    def made():
        return dataset().iterator(SPECS, mode=mode, batch_size=3, seed=1)

    whole = [[x for x, _ in loop] for loop in [made(), made()]]
    for done in range(len(whole[0]) + 1):
        it = made()
        loop = iter(it)
        for _ in range(done):
            next(loop)
        state = json.loads(json.dumps(it.state_dict()))
        resumed = made()
        resumed.load_state_dict(state)
        rest = [x for x, _ in resumed]
        np.testing.assert_equal(rest, whole[0][done:])
        assert resumed.epoch == 1


def test_an_iterator_is_pickled():
    it = dataset().iterator(SPECS, mode="shuffled_sequential", batch_size=4)
    first = next(iter(it))[0]
    again = pickle.loads(pickle.dumps(it))
    np.testing.assert_array_equal(next(iter(again))[0], first)


def test_num_batches():
    d = dataset()
    assert [len(x) for x, _ in d.iterator(SPECS, num_batches=3)] == [4, 4, 2]
    assert [len(x) for x, _ in d.iterator(SPECS, batch_size=3, num_batches=2)] == [3, 3]
    it = d.iterator(SPECS, mode="uniform", batch_size=7, num_batches=5)
    assert (it.num_batches, it.num_examples) == (5, 35)
    with pytest.raises(DataError, match="num_batches"):
        d.iterator(SPECS, batch_size=3, num_batches=5)


# ---- memory ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("source", "space", "wanted"), CASES, ids=lambda x: str(x)[:40])
@pytest.mark.parametrize("mode", ["sequential", "random_slice"])
def test_writing_to_a_batch_never_reaches_the_source(source, space, wanted, mode):
    d = dataset()
    whole = np.asarray(d)
    before = [np.array(field()) for _, field in d._iter_fields()]
    for batch in d.iterator((space, source), mode=mode, batch_size=N):
        batch[...] = 1
        assert not np.shares_memory(batch, whole)
    after = [field() for _, field in d._iter_fields()]
    for x, y in zip(before, after, strict=True):
        np.testing.assert_array_equal(x, y)


def test_a_batch_that_is_held_is_never_written_to_again():
    it = dataset().iterator((VectorSpace(6), "nested.vectors"), batch_size=2)
    held = [(batch, batch.copy()) for batch in it]
    for _ in it:
        pass
    for batch, copy in held:
        np.testing.assert_array_equal(batch, copy)


def test_sources_of_every_kind(tmp_path):
    np.savez(tmp_path / "d.npz", x=VECTORS)
    kept = VECTORS.copy()

    class View(Like):
        def __getitem__(self, key):
            return self.array[key]

    like = Like(VECTORS)
    for source in (like, View(kept), tmp_path / "d.npz", Dataset(VECTORS)[::1], VECTORS[::-1]):
        d = Dataset(source if str(source).endswith("npz") else {"x": source})
        rows = []
        for batch in d.iterator((VectorSpace(6), "x"), batch_size=4):
            rows.append(batch.copy())
            batch[...] = 0
        np.testing.assert_array_equal(np.concatenate(rows), d.x())
    assert like.elements_read <= 3 * VECTORS.size
    np.testing.assert_array_equal(kept, VECTORS)


def test_only_the_rows_of_a_batch_are_read():
    like = Like(VECTORS)
    it = Dataset({"x": like}).iterator((VectorSpace(6), "x"), mode="permutation", batch_size=4)
    loop = iter(it)
    assert like.asked == []
    next(loop)
    assert like.elements_read == 4 * 6


def test_windows_and_selections_are_iterated():
    x = np.arange(40.0).reshape(10, 4)
    d = Dataset(x, fields={"input": np.s_[:, :3], "target": np.s_[:, 3]})
    specs = CompositeSpace((VectorSpace(3), VectorSpace(1))), ("input", "target")
    (batch,) = d[[7, 2, 5]].iterator(specs, batch_size=5)
    np.testing.assert_array_equal(batch[0], x[[7, 2, 5], :3])
    np.testing.assert_array_equal(batch[1], x[[7, 2, 5], 3:])


# ---- errors, at the call ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("specs", "words", "error"),
    [
        ((VectorSpace(6), "vectors"), {}, DataError),
        ((VectorSpace(6), "nested.vektors"), {}, DataError),
        ((VectorSpace(6), "nested"), {}, None),
        ((VectorSpace(6), ("nested.vectors",)), {}, SpaceError),
        ((CompositeSpace((VectorSpace(6),)), "photos"), {}, SpaceError),
        ((CompositeSpace((VectorSpace(60), VectorSpace(4))), ("photos",)), {}, ShapeError),
        (("photos", VectorSpace(60)), {}, SpaceError),
        ((VectorSpace(61), "photos"), {}, SpaceError),
        ((VectorSpace(7), "nested.vectors"), {}, SpaceError),
        ((Conv2DSpace((5, 4), 3), "photos"), {}, SpaceError),
        ((Conv2DSpace((2, 2), 1), "labels"), {}, SpaceError),
        ((VectorSpace(5), "nested.pairs"), {}, SpaceError),
        ((IndexSpace(5, 2), "nested.pairs"), {}, SpaceError),
        ((IndexSpace(4, 1), "nested.pairs"), {}, SpaceError),
        ((IndexSpace(4, 1), "numbers"), {}, SpaceError),
        ((VectorSpace(2), "numbers"), {}, SpaceError),
        ((VectorSpace(1, dtype="int32"), "numbers"), {}, DtypeError),
        ((VectorSpace(8), "unsaid"), {}, DataError),
        ((VectorSpace(4), "odd"), {}, DataError),
        ((VectorSpace(4), "labels"), {"mode": "backwards"}, DataError),
        ((VectorSpace(4), "labels"), {"mode": "label-uniform"}, DataError),
        ((VectorSpace(4), "labels"), {"mode": "part-linear"}, DataError),
        ((VectorSpace(4), "labels"), {"mode": "even_sequences"}, DataError),
        ((VectorSpace(4), "labels"), {"batch_size": None}, DataError),
        ((VectorSpace(4), "labels"), {"batch_size": 0}, DataError),
        ((VectorSpace(4), "labels"), {"batch_size": 11, "mode": "random_slice"}, DataError),
        ((VectorSpace(4), "labels"), {"epoch": -1}, DataError),
        (
            (CompositeSpace((VectorSpace(1), VectorSpace(1))), ("numbers", "short")),
            {},
            DataError,
        ),
    ],
)
def test_whatever_is_wrong_is_said_at_the_call(specs, words, error):
    if error is None:  # the data of a mapping is that of its first field
        assert dataset().iterator(specs, batch_size=N).num_batches == 1
        return
    with pytest.raises(error):
        dataset().iterator(specs, **{"batch_size": 3, **words})


def test_unknown_sources_name_those_there_are():
    with pytest.raises(DataError, match="photos, planes, labels"):
        dataset().iterator((VectorSpace(6), "vectors"), batch_size=3)
    with pytest.raises(DataError, match="none"):
        Dataset(VECTORS).iterator((VectorSpace(6), "x"), batch_size=3)


def test_infinite_datasets_have_no_iterator_but_their_parts_do():
    class Ones:
        def __getitem__(self, i):
            return {"x": np.full(3, float(i))}

    d = Dataset(Ones())
    with pytest.raises(DataError, match="length"):
        d.iterator((VectorSpace(3), "x"), batch_size=2)
    with pytest.raises(DataError, match="length"):
        Dataset(lambda: iter([{"x": np.ones(3)}])).iterator((VectorSpace(3), "x"), batch_size=2)
    batches = list(d[5:8].iterator((VectorSpace(3), "x"), batch_size=2))
    assert [batch[:, 0].tolist() for batch in batches] == [[5, 6], [7]]


def test_a_label_out_of_range_is_an_error_and_no_end_of_the_epoch():
    d = Dataset({"y": np.array([0, 1, 9, 1])})
    it = d.iterator((VectorSpace(4), "y"), batch_size=2)
    loop = iter(it)
    next(loop)
    state = it.state_dict()
    with pytest.raises(ShapeError, match="9"):
        next(loop)
    assert it.state_dict() == state
    assert it.epoch == 0


def test_samples_have_no_iterator():
    with pytest.raises(DataError):
        dataset()[0].iterator((VectorSpace(6), "x"), batch_size=2)


def test_large_rows_are_converted_where_they_lie(tmp_path, monkeypatch):
    """Rows are gathered and converted in one pass over the source, for any strides."""
    photos = np.arange(7 * 32 * 33 * 3).astype(np.uint8).reshape(7, 32, 33, 3)
    np.save(tmp_path / "photos.npy", photos)
    space = Conv2DSpace((32, 33), 3, "bchw")
    monkeypatch.setattr(stores, "take", None)  # `take` would gather the rows first
    asked = {"mode": "shuffled_sequential", "batch_size": 3, "seed": 4}
    order = [*sampler("shuffled_sequential", 7, seed=4)]
    wanted = photos.transpose(0, 3, 1, 2)[order].astype(np.float32)
    for source in (photos, tmp_path / "photos.npy", np.asfortranarray(photos)):
        batches = Dataset({"x": source}, layout={"x": "bhwc"}).iterator((space, "x"), **asked)
        np.testing.assert_array_equal(np.concatenate([*batches]), wanted)
    own = Dataset({"x": photos}, layout={"x": "bhwc"})
    for batch in own.iterator((space, "x"), **asked):
        batch[...] = 0
    assert photos.any()
