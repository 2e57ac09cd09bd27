"""The interface of all providers: batches, tails, parts, orders, states, keywords; and arrays."""

import json
import logging
import pickle
import threading
import weakref
from itertools import chain, islice

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
from layoutkit.data import (
    ArrayProvider,
    CSVProvider,
    ImageRecordProvider,
    MNISTProvider,
    Provider,
)
from layoutkit.data.recordio import RecordWriter, pack_image
from tests.helpers.arrays_of import BF16
from tests.helpers.photographs import encoded

N = 61
NUMBERS = np.arange(N)
FILES = ["csv", "idx", "records"]


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """Return a folder of files in which row n is n, with the label n + 100."""
    folder = tmp_path_factory.mktemp("providers")
    for name, values in (("x", NUMBERS), ("y", NUMBERS + 100)):
        (folder / f"{name}.csv").write_text("".join(f"{value}\n" for value in values))
        head = bytes.fromhex("00000801000000") + bytes([N])
        (folder / f"{name}-idx1").write_bytes(head + values.astype(np.uint8).tobytes())
    with RecordWriter(folder / "x.rec") as writer:
        for number in NUMBERS:
            writer.write(pack_image(encoded(np.full((1, 1), number, np.uint8)), number + 100))
    return folder


@pytest.fixture
def make(request, folder):
    """Return a function that makes a provider of the parametrized kind."""
    kind = request.param
    if kind == "records":
        pytest.importorskip("PIL")

    def made(**options):
        options = {"batch_size": 4, **options}
        if kind == "arrays":
            options.pop("prefetch", None)
            return ArrayProvider(NUMBERS.astype("f4"), NUMBERS + 100, **options)
        if kind == "csv":
            return CSVProvider(folder / "x.csv", (), **{"label_csv": folder / "y.csv", **options})
        if kind == "idx":
            options = {"shuffle": False, "scale": None, **options}
            return MNISTProvider(folder / "x-idx1", folder / "y-idx1", **options)
        return ImageRecordProvider(folder / "x.rec", (1, 1, 1), **{"num_workers": 2, **options})

    made.kind = kind
    return made


def parametrize(*kinds):
    return pytest.mark.parametrize("make", kinds, indirect=True)


of_all = parametrize("arrays", *FILES)
of_files = parametrize(*FILES)


def rows_of(batch):
    """Return the number in each row, padding included."""
    return batch.input.input.reshape(len(batch.input), -1)[:, 0].astype(int).tolist()


def numbers(batches):
    """Return the numbers of the rows that are not padding; check their labels."""
    found = []
    for batch in batches:
        data = rows_of(batch)[: batch.count]
        assert batch.target.input[: batch.count].tolist() == [value + 100 for value in data]
        found += data
    return found


# ---- batches -----------------------------------------------------------------------------


@of_all
@pytest.mark.parametrize("tail", ["pad", "wrap", "drop"])
@pytest.mark.parametrize("size", [1, 4, 60, 61, 62, 130])
def test_batches_are_the_next_samples(make, tail, size):
    provider = make(batch_size=size, tail=tail)
    assert isinstance(provider, Provider)
    assert provider.batch_size == size
    shapes = [shape for _, shape in provider.provide_data + provider.provide_label]
    for _ in range(2):  # every epoch begins at its first row
        batches = list(provider)
        kept = N // size * size if tail == "drop" else N
        assert numbers(batches) == list(range(kept))
        assert (len(batches), provider.unvisited) == (provider.num_batches, N - kept)
        for batch in batches:
            assert provider.count_samples(batch) == batch.count
            views = provider.get_data(batch) + provider.get_label(batch)
            assert [view.input.shape for view in views] == shapes
            assert views == [batch.input, batch.target]
        if tail != "drop":
            filling = rows_of(batches[-1])[batches[-1].count :]
            assert filling == [n % N if tail == "wrap" else 0 for n in range(len(filling))]
    assert provider.dropped == 0


@of_all
def test_batches_are_never_overwritten(make):
    provider = make(shuffle=True, prefetch=2)
    held = [list(provider) for _ in range(3)]
    assert all(sorted(numbers(epoch)) == list(range(N)) for epoch in held)


@of_all
def test_load_into_slices(make):
    provider = make()
    batch = list(provider)[-1]
    ((_, (_, *row)),) = provider.provide_data
    left, right, label = np.zeros((1, *row)), np.zeros((3, *row)), np.zeros(4)
    provider.load_data(batch, [[(slice(0, 1), left), (slice(1, 4), right)]])
    provider.load_label(batch, [label])
    assert (left.ravel().tolist(), right.ravel().tolist()) == ([60], [0] * 3)
    assert label.tolist() == [160, 0, 0, 0]


# ---- order and state ---------------------------------------------------------------------


@of_all
@pytest.mark.parametrize("tail", ["pad", "wrap", "drop"])
def test_an_order_is_a_function_of_seed_and_epoch(make, tail):
    provider = make(shuffle=True, tail=tail)
    np.random.seed(0)
    before = np.random.get_state()[1].tolist()
    epochs = []
    for _ in range(3):
        batches = list(provider)
        epochs.append(numbers(batches))
        assert len(set(epochs[-1])) == N - provider.unvisited
        if tail == "wrap":
            assert rows_of(batches[-1])[1:] == epochs[-1][:3]
    assert len({*map(tuple, epochs)}) == 3
    assert np.random.get_state()[1].tolist() == before
    provider.set_epoch(1)
    assert numbers(provider) == epochs[1]
    seeds = [make(shuffle=True, tail=tail, seed=seed) for seed in (0, np.int64(-1), -1, 1)]
    orders = [numbers(each) for each in seeds]
    assert orders[0] == epochs[0] != orders[1] == orders[2] != orders[3]


@of_files
@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("parts", [1, 2, 7, 70])
def test_parts_differ_by_one_at_most_and_none_is_lost(make, parts, shuffle):
    found = [
        numbers(make(part_index=part, num_parts=parts, shuffle=shuffle)) for part in range(parts)
    ]
    assert sorted(chain(*found)) == list(range(N))
    assert {len(part) for part in found} <= {N // parts, N // parts + 1}


@of_files
def test_parts_have_orders_and_states_of_their_own(make):
    first, second = (make(part_index=p, num_parts=2, shuffle=True) for p in (0, 1))
    assert [n // 2 for n in numbers(first)][:30] != [n // 2 for n in numbers(second)]
    next(iter(first))
    with pytest.raises(DataError, match="partition '0 of 2', not '1 of 2'"):
        second.load_state_dict(first.state_dict())


@pytest.mark.budget(6)
@of_all
@pytest.mark.parametrize("prefetch", [0, 3])
@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("tail", ["pad", "wrap", "drop"])
def test_states_resume_to_the_bit(make, shuffle, prefetch, tail):
    how = {"shuffle": shuffle, "seed": 5, "tail": tail}
    if make.kind != "arrays":
        how |= {"part_index": 1, "num_parts": 2}
    provider, other = make(prefetch=prefetch, **how), make(**how)
    list(provider)
    for taken in range(provider.num_batches + 1):
        loop = iter(provider)
        assert len(list(islice(loop, taken))) == taken
        state = provider.state_dict()
        assert (state["epoch"], state["position"]) == (1, taken)
        other.load_state_dict(json.loads(json.dumps(state)))
        assert other.state_dict() == state
        assert [rows_of(batch) for batch in other] == [rows_of(batch) for batch in loop]
        provider.set_epoch(1)


@of_all
@pytest.mark.parametrize(
    "changed",
    [{"seed": 1}, {"batch_size": 5}, {"tail": "drop"}, {"shuffle": True}],
)
def test_states_of_others_are_refused(make, changed):
    provider = make()
    next(iter(provider))
    with pytest.raises(DataError, match=f"of another {type(provider).__name__}"):
        make(**changed).load_state_dict(provider.state_dict())


# ---- loops and files ---------------------------------------------------------------------


@of_all
def test_close_is_for_good_and_ends_threads(make):
    before = set(threading.enumerate())
    with make(prefetch=2) as provider:
        loop = iter(provider)
        next(loop)
        begun = set(threading.enumerate()) - before
        assert begun or make.kind == "arrays"
    assert not any(thread.is_alive() for thread in begun)
    with pytest.raises(DataError, match="is over"):
        next(loop)
    with pytest.raises(DataError, match="is closed; make a new one"):
        iter(provider)
    provider.close()


@of_all
def test_a_provider_is_freed_with_its_last_reference(make):
    """A cycle of references would keep files and arrays until the next garbage collection."""
    provider = make(prefetch=2)
    next(iter(provider))
    alive = weakref.ref(provider)
    del provider
    assert alive() is None


@of_all
def test_loops_follow_the_common_rules(make):
    provider = make(prefetch=1)
    next(iter(provider))  # the next loop begins again
    assert numbers(provider) == list(range(N))
    loop = iter(provider)
    next(loop)
    newer = iter(provider)
    with pytest.raises(DataError, match="over"):
        next(loop)
    next(newer)
    provider.reset()
    assert provider.epoch == 1
    assert numbers(provider) == list(range(N))


@parametrize("arrays", "csv", "idx")
def test_pickles_go_on(make):
    provider = make(shuffle=True)
    loop = iter(provider)
    next(loop)
    copy = pickle.loads(pickle.dumps(provider))
    copy.load_state_dict(provider.state_dict())
    assert numbers(copy) == numbers(loop)


# ---- keywords ----------------------------------------------------------------------------


@of_files
def test_the_keywords_of_mxnet(make):
    assert rows_of(list(make(round_batch=True))[-1]) == [60, 0, 1, 2]
    assert rows_of(list(make(round_batch=False))[-1]) == [60, 0, 0, 0]
    assert numbers(make(prefetch_buffer=4)) == list(range(N))
    make(round_batch=True, tail="wrap", silent=True, verbose=False)


@of_files
@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"batchsize": 3}, r"Provider has no batchsize=; did you mean batch_size=\?"),
        ({"round_batches": True}, r"no round_batches=; did you mean round_batch=\?"),
        ({"suffle": True}, r"no suffle=; did you mean shuffle=\?"),
    ],
)
def test_an_unknown_keyword_names_the_nearest(make, wrong, message):
    with pytest.raises(TypeError, match=message):
        make(**wrong)


@of_files
@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"round_batch": False, "tail": "wrap"}, "tail='wrap' and round_batch=False contradict"),
        ({"prefetch": 1, "prefetch_buffer": 4}, "prefetch=1 and prefetch_buffer=4 contradict"),
        ({"silent": True, "verbose": True}, "silent=True and verbose=True contradict"),
        ({"round_batch": 1}, "round_batch=1; it must be True or False"),
        ({"silent": None}, "silent=None; it must be True or False"),
        ({"batch_size": 0}, "batch_size=0"),
        ({"tail": "padding"}, "tail is 'padding'"),
        ({"part_index": 2, "num_parts": 2}, "part_index=2; with num_parts=2 the last part is 1"),
        ({"num_parts": 0}, "num_parts=0; it must be a whole number of at least 1"),
        ({"label_name": 3}, "label_name=3; a name must be a str"),
        ({"data_name": None}, "data_name=None; a name must be a str"),
        ({"data_name": "y", "label_name": "y"}, "'y' is both data and label"),
        ({"prefetch": -1}, "prefetch=-1"),
        ({"shuffle": "yes"}, "shuffle='yes'"),
    ],
)
def test_wrong_values_are_refused_at_once(make, wrong, message):
    with pytest.raises(DataError, match=message):
        make(**wrong)


@of_files
def test_silent_and_verbose_are_whether_a_line_is_logged(make, caplog):
    with caplog.at_level(logging.INFO, "layoutkit.data"):
        make(silent=True)
        make(verbose=False)
        assert not caplog.messages
        make(num_parts=2)
    (line,) = caplog.messages
    assert "61" in line
    assert "31 of them here" in line


# ---- arrays ------------------------------------------------------------------------------

ROWS = 15
X = np.arange(ROWS * 2, dtype=np.float32).reshape(ROWS, 2)
Y = np.arange(ROWS)


def rows(provider, name="data"):
    return [provider.get(batch, name).input.tolist() for batch in provider]


def test_one_batch_of_all_by_default():
    provider = ArrayProvider(X)
    assert (provider.batch_size, provider.num_batches) == (ROWS, 1)
    assert rows(provider) == [X.tolist()]
    assert provider.provide_label == []
    assert next(iter(provider)).target is None


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
        filling = x[:1] if tail == "wrap" else np.full((1, 2, 3, 4), -5)
        wanted = np.concatenate([x, filling])[3 * k : 3 * k + 3]
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
        (None, DataError, "targets are None"),
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
        ((X,), {"layout": {"x": "bf"}}, "names 'x', but the arrays are"),
        ((X,), {"padding": {"x": 1}}, "names 'x', but the arrays are"),
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
