"""The provider's interface: names, padding, tails, shuffling, slices for several devices."""

import json

import numpy as np
import pytest

from layoutkit import (
    ArgumentError,
    ClassView,
    DataError,
    DataView,
    DtypeError,
    ImageView,
    LayoutkitError,
    PatternError,
    SequenceView,
    ShapeError,
)
from layoutkit.data import ArrayProvider, Provider
from tests.helpers.arrays_of import BF16

N = 15
X = np.arange(N * 2, dtype=np.float32).reshape(N, 2)
Y = np.arange(N)


def rows(provider, name="data"):
    return [provider.get(batch, name).input.tolist() for batch in provider]


def places(n, size, number, tail):
    """Return the sample numbers of a batch by the documented rule, with None for padding."""
    wanted = range(number * size, (number + 1) * size)
    return [k % n if tail == "wrap" else (k if k < n else None) for k in wanted]


# ---- batches -----------------------------------------------------------------------------


@pytest.mark.parametrize("tail", ["pad", "wrap", "drop"])
@pytest.mark.parametrize("size", [1, 2, 3, 4, 14, 15, 16, 31, 40])
def test_batches_are_the_next_samples(tail, size):
    provider = ArrayProvider(X, Y, batch_size=size, tail=tail, padding={"label": -1})
    batches = list(provider)
    number = N // size if tail == "drop" else -(-N // size)
    assert len(batches) == provider.num_batches == number
    assert provider.unvisited == (N % size if tail == "drop" else 0)
    for k, batch in enumerate(batches):
        wanted = places(N, size, k, tail)
        real = min(size, N - k * size)
        assert (batch.count, provider.count_samples(batch)) == (real, real)
        label = [-1 if at is None else at for at in wanted]
        data = [[0, 0] if at is None else X[at].tolist() for at in wanted]
        assert batch.target.input.tolist() == label
        assert batch.input.input.tolist() == data
        assert [v.input.tolist() for v in provider.get_data(batch)] == [data]
        assert [v.input.tolist() for v in provider.get_label(batch)] == [label]


def test_the_documents_example():
    provider = ArrayProvider(X, batch_size=4)
    assert [batch.count for batch in provider] == [4, 4, 4, 3]


def test_one_batch_of_all_by_default():
    provider = ArrayProvider(X)
    assert (provider.batch_size, provider.num_batches) == (N, 1)
    assert rows(provider) == [X.tolist()]
    assert provider.provide_label == []
    assert next(iter(provider)).target is None


def test_it_is_a_provider():
    assert isinstance(ArrayProvider(X), Provider)
    assert not isinstance([X], Provider)


def test_names_and_shapes_are_in_order_of_declaration():
    data = {"z": np.zeros((4, 3, 2, 8)), "a": np.zeros((8, 5))}
    provider = ArrayProvider(
        data, {"y": np.zeros(8), "m": np.zeros((8, 2), int)}, batch_size=3,
        layout={"z": "chwb", "m": "bt"},
    )  # fmt: skip
    assert provider.provide_data == [("z", (4, 3, 2, 3)), ("a", (3, 5))]
    assert provider.provide_label == [("y", (3,)), ("m", (3, 2))]
    for batch in provider:
        assert [type(v) for v in provider.get_data(batch)] == [ImageView, DataView]
        assert [type(v) for v in provider.get_label(batch)] == [DataView, ClassView]
        assert batch.input is provider.get(batch, "z")
        assert batch.target is provider.get(batch, "y")
        with pytest.raises(DataError, match="'nosuch' is not provided; there are 'z', 'a', 'y'"):
            provider.get(batch, "nosuch")


@pytest.mark.parametrize("layout", ["bhwc", "chwb", "hbwc", "bchw"])
@pytest.mark.parametrize("tail", ["pad", "wrap"])
def test_the_batch_axis_is_where_the_layout_says(layout, tail):
    x = np.arange(5 * 2 * 3 * 4).reshape(5, 2, 3, 4)
    axis = layout.index("b")
    moved = np.moveaxis(x, 0, axis)
    provider = ArrayProvider(moved, batch_size=3, layout=layout, tail=tail, padding=-5)
    for k, batch in enumerate(provider):
        wanted = np.stack(
            [np.full((2, 3, 4), -5) if at is None else x[at] for at in places(5, 3, k, tail)]
        )
        np.testing.assert_array_equal(np.moveaxis(batch.input.input, axis, 0), wanted)
        assert batch.input.layout == layout
        assert len(batch.input) == 3


def test_layouts_by_default_and_by_name():
    assert type(ArrayProvider(np.zeros((4, 3, 2)), layout="bwc").__iter__().__next__().input) is (
        SequenceView
    )
    for layout in (None, {}, {"data": None}):
        with pytest.raises(PatternError, match="data has 3 axes"):
            ArrayProvider(np.zeros((4, 3, 2)), layout=layout)


@pytest.mark.parametrize("dtype", ["?", "u1", ">i2", "i8", "f2", BF16, "f8", "c16", "M8[s]"])
def test_dtypes_are_kept(dtype):
    x = np.arange(5).astype("i8").astype(dtype)
    for tail in ("pad", "wrap"):
        batches = list(ArrayProvider(x, batch_size=3, tail=tail))
        native = x.dtype.newbyteorder("=")
        assert all(batch.input.input.dtype == native for batch in batches)
        np.testing.assert_array_equal(batches[0].input.input, x[:3])
        assert batches[1].input.input[2] == (x[0] if tail == "wrap" else np.zeros((), x.dtype))


def test_large_integers_stay_what_they_are():
    x = np.array([2**53 + 1, 2**62 + 1])
    assert rows(ArrayProvider(x)) == [x.tolist()]


@pytest.mark.parametrize(
    ("padding", "dtype", "fits"),
    [
        (255, "u1", True), (256, "u1", False), (-1, "u1", False), (0.5, "i4", False),
        (-1, "i1", True), (0.5, "f4", True), (float("nan"), "f2", True), (7, "f4", True),
        (1j, "f8", False), (True, "?", True), (2, "?", False), ("0", "f4", False),
        (None, "f4", False), (3, "M8[s]", False), (0, "M8[s]", True),
    ],
)  # fmt: skip
def test_padding_is_a_value_of_the_array(padding, dtype, fits):
    x = np.zeros(3, dtype)
    if not fits:
        with pytest.raises(DtypeError, match="padding"):
            ArrayProvider(x, batch_size=2, padding=padding)
        return
    *_, last = ArrayProvider(x, batch_size=2, padding=padding)
    np.testing.assert_array_equal(last.input.input[1], np.array(padding).astype(dtype))


def test_memory_is_the_holders():
    x = X.copy()
    provider = ArrayProvider(x, batch_size=4)
    held = list(provider)
    list(provider)
    for k, batch in enumerate(held[:3]):
        assert batch.input.input.tolist() == X[4 * k : 4 * k + 4].tolist()
        batch.input.input[...] = -1
    assert x.tolist() == X.tolist()


def test_any_strides_and_memory_maps(tmp_path):
    np.save(tmp_path / "x.npy", X)
    for x in (np.load(tmp_path / "x.npy", mmap_mode="r"), X[::-1][::-1], np.asfortranarray(X)):
        assert rows(ArrayProvider(x, batch_size=5)) == [X[k : k + 5].tolist() for k in (0, 5, 10)]


# ---- order and state ---------------------------------------------------------------------


def shuffled(**options):
    return ArrayProvider(X, Y, batch_size=4, shuffle=True, **options)


@pytest.mark.parametrize("tail", ["pad", "wrap", "drop"])
def test_shuffling_is_one_order_for_all_arrays(tail):
    provider = shuffled(tail=tail)
    seen = []
    for _ in range(3):
        epoch = []
        for batch in provider:
            label = batch.target.input[: batch.count]
            np.testing.assert_array_equal(batch.input.input[: batch.count], X[label])
            epoch += label.tolist()
        assert len(set(epoch)) == len(epoch) == N - provider.unvisited
        seen.append(epoch)
    assert seen[0] != seen[1] != seen[2] != seen[0]
    assert X.tolist() == np.arange(N * 2).reshape(N, 2).tolist()  # the arrays stay as they were


def test_wrapping_takes_the_epochs_own_first_samples():
    provider = shuffled(tail="wrap")
    labels = [b.target.input.tolist() for b in provider]
    assert labels[3][3] == labels[0][0]


def test_order_is_a_function_of_seed_and_epoch():
    one, other = shuffled(seed=1), shuffled(seed=2)
    assert rows(one) != rows(other)
    again = shuffled(seed=1)
    again.set_epoch(1)
    assert rows(one) == rows(again)
    np.random.seed(0)
    state = np.random.get_state()[1].tolist()
    rows(one)
    assert np.random.get_state()[1].tolist() == state


@pytest.mark.parametrize("tail", ["pad", "wrap", "drop"])
@pytest.mark.parametrize("shuffle", [False, True])
def test_resume_from_every_position(tail, shuffle):
    def fresh():
        return ArrayProvider(X, batch_size=4, shuffle=shuffle, tail=tail, seed=5)

    provider = fresh()
    wanted = [rows(provider), rows(provider)]
    for stop in range(len(wanted[0]) + 1):
        first, second = fresh(), fresh()
        loop = iter(first)
        for _ in range(stop):
            next(loop)
        second.load_state_dict(json.loads(json.dumps(first.state_dict())))
        assert rows(second) == wanted[0][stop:]
        assert rows(second) == wanted[1]


def test_one_loop_at_a_time():
    provider = shuffled()
    peek = next(iter(provider)).target.input.tolist()
    loop = iter(provider)
    assert next(loop).target.input.tolist() == peek
    newer = iter(provider)
    with pytest.raises(DataError, match="over"):
        next(loop)
    assert len(list(newer)) == 4
    assert provider.epoch == 1


@pytest.mark.parametrize(
    "options", [{"batch_size": 5}, {"seed": 1}, {"shuffle": False}, {"tail": "wrap"}]
)
def test_a_state_of_another_provider(options):
    provider = ArrayProvider(X, batch_size=4, shuffle=True)
    next(iter(provider))
    other = ArrayProvider(X, **{"batch_size": 4, "shuffle": True, **options})
    with pytest.raises(DataError, match="another ArrayProvider"):
        other.load_state_dict(provider.state_dict())


# ---- load_data, load_label ---------------------------------------------------------------


def test_loading_into_whole_arrays_and_slices():
    provider = ArrayProvider({"x": X, "w": -X[:, 0]}, Y, batch_size=6, padding=9)
    *_, last = provider
    whole = np.zeros((6, 2), np.float64)
    parts = [(slice(0, 2), np.zeros(2)), (slice(2, 6), np.zeros(4)), (slice(1, 1), np.zeros(0))]
    assert provider.load_data(last, [whole, parts]) is None
    assert whole.tolist() == [*X[12:].tolist(), [9, 9], [9, 9], [9, 9]]
    assert [array.tolist() for _, array in parts] == [[-24, -26], [-28, 9, 9, 9], []]
    label = np.zeros(3, np.int32)
    provider.load_label(last, [[(slice(1, 4), label)]])
    assert label.tolist() == [13, 14, 9]


def test_slices_may_overlap_and_leave_gaps_along_any_batch_axis():
    x = np.arange(24.0).reshape(2, 3, 1, 4)
    provider = ArrayProvider(x, layout="chwb")
    [batch] = provider
    one, two = np.zeros((2, 3, 1, 2)), np.zeros((2, 3, 1, 3))[..., ::-1]
    provider.load_data(batch, [[(slice(None, 2), one), (slice(1, None), two)]])
    np.testing.assert_array_equal(one, x[..., :2])
    np.testing.assert_array_equal(two, x[..., 1:])


def test_loading_into_tensors():
    torch = pytest.importorskip("torch")
    provider = ArrayProvider(X, batch_size=4)
    target = torch.zeros(4, 2)
    provider.load_data(next(iter(provider)), [target])
    assert target.tolist() == X[:4].tolist()


@pytest.mark.parametrize(
    ("targets", "error", "words"),
    [
        ([], DataError, "targets are 0"),
        ([np.zeros((4, 2))] * 3, DataError, "targets are 3"),
        (None, DataError, "NoneType"),
        ([np.zeros((4, 2)), np.zeros((3, 2))], ShapeError, r"\(3, 2\)"),
        ([np.zeros((4, 2)), np.zeros((4, 2), int)], DtypeError, "int64"),
        ([np.zeros((4, 2)), [(slice(0, 5), np.zeros((5, 2)))]], DataError, "slice"),
        ([np.zeros((4, 2)), [(slice(3, 2), np.zeros((0, 2)))]], DataError, "slice"),
        ([np.zeros((4, 2)), [(slice(-1, 4), np.zeros((1, 2)))]], DataError, "slice"),
        ([np.zeros((4, 2)), [(slice(0, 4, 2), np.zeros((2, 2)))]], DataError, "slice"),
        ([np.zeros((4, 2)), [(slice(0, 1.5), np.zeros((1, 2)))]], DataError, "slice"),
        ([np.zeros((4, 2)), [(slice(0, 4), np.zeros((3, 2)))]], ShapeError, r"\(3, 2\)"),
        ([np.zeros((4, 2)), [np.zeros((4, 2))]], DataError, "list of"),
        ([np.zeros((4, 2)), 5], ArgumentError, "int"),
        ([np.zeros((4, 2)), np.broadcast_to(0.0, (4, 2))], DataError, "read-only"),
    ],
)
def test_wrong_targets_are_refused_before_anything_is_written(targets, error, words):
    provider = ArrayProvider({"a": X + 1, "b": X}, batch_size=4)
    batch = next(iter(provider))
    with pytest.raises(error, match=words):
        provider.load_data(batch, targets)
    assert not targets or not np.any(targets[0])


# ---- arguments ---------------------------------------------------------------------------


def test_any_whole_number_is_a_seed():
    orders = [
        [batch.target.input.tolist() for batch in ArrayProvider(X, Y, shuffle=True, seed=seed)]
        for seed in (-1, np.int64(-1), 1)
    ]
    assert orders[0] == orders[1] != orders[2]


@pytest.mark.parametrize(
    ("arguments", "options", "words"),
    [
        ((X, Y[:-1]), {}, "data has 15 samples, but label has 14"),
        (({"a": X, "b": X[1:]},), {}, "a has 15 samples, but b has 14"),
        ((X,), {"batch_size": 0}, "batch_size"),
        ((X,), {"batch_size": True}, "batch_size"),
        ((X,), {"tail": "roll"}, "tail is 'roll'"),
        ((X,), {"seed": "x"}, "seed"),
        ((X,), {"shuffle": "no"}, "shuffle='no'; it must be True or False"),
        (({},), {}, "at least one"),
        (({1: X},), {}, "str"),
        (({"a": X}, {"a": Y}), {}, "both data and label"),
        ((X,), {"layout": {"x": "bf"}}, "speaks of 'x'"),
        ((X,), {"padding": {"x": 1}}, "speaks of 'x'"),
        ((X,), {"layout": "bhwc"}, "4"),
        ((X,), {"layout": "hw"}, "batch"),
        ((X.tolist(),), {}, "numpy.asarray"),
        ((np.array(["a", "b"], object),), {}, "dtype"),
        ((np.float32(3),), {}, "data"),
        ((None,), {}, "data"),
    ],
)
def test_wrong_arguments_are_refused_at_the_call(arguments, options, words):
    with pytest.raises(LayoutkitError, match=words):
        ArrayProvider(*arguments, **options)
