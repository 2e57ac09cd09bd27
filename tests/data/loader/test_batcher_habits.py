"""Habits from other libraries: shuffle, drop_last, len, pairs, DataFrames, argument names."""

import warnings
from functools import partial
from itertools import chain

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layoutkit import Collator, Conv2DSpace, Converter, DataError, LayoutkitWarning
from layoutkit.data import ArrayProvider, Dataset, open_index, sampled_batcher, sampler
from layoutkit.data.samplers.sampling import ALIASES, KINDS, find_kind, full_batch_kind

X = np.arange(20.0).reshape(10, 2)
Y = np.array([*"abababcabc"])


def rows_of(source=X, **arguments):
    """Return the first number of each row of an epoch, in a list per batch."""
    with sampled_batcher(source, num_workers=0, **arguments) as batches:
        return [batch.input.input[:, 0].tolist() for batch in batches]


def test_a_batcher_says_what_it_is():
    with sampled_batcher(X, batch_size=4, num_workers=0) as batches:
        assert repr(batches) == "<Batcher of 3 batches of 4, epoch 0>"
        assert len([*batches]) == 3
        assert repr(batches) == "<Batcher of 3 batches of 4, epoch 1>"


# ---- orders ------------------------------------------------------------------------------------


def test_shuffle_is_the_permutation():
    shuffled = rows_of(batch_size=4, sampler="shuffle", seed=3)
    assert shuffled == rows_of(batch_size=4, sampler="permutation", seed=3)
    order = [*chain.from_iterable(shuffled)]
    assert sorted(order) == X[:, 0].tolist() != order
    assert sampler("shuffle", 10, seed=3).state_dict()["kind"] == "permutation"


@given(
    count=st.integers(1, 30),
    size=st.integers(1, 12),
    seed=st.integers(0, 5),
    kind=st.sampled_from(["linear", "shuffle", "batchwise_shuffled_sequential"]),
)
def test_drop_last_is_the_same_order_without_the_batch_that_is_not_full(count, size, seed, kind):
    source = np.arange(count, dtype=np.float64)[:, None]
    how = {"batch_size": size, "sampler": kind, "seed": seed}
    with sampled_batcher(source, **how, drop_last=True, num_workers=0) as batches:
        number = len(batches)
    found = rows_of(source, **how, drop_last=True)
    assert number == len(found) == count // size
    assert all(len(rows) == size for rows in found)
    assert len({*chain.from_iterable(found)}) == number * size
    if not kind.startswith("batchwise"):  # there the short batch may come anywhere
        assert found == rows_of(source, **how)[:number]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"batch_size": 11, "drop_last": True}, "batch_size=11, and only full batches are made"),
        ({"batch_size": 11, "sampler": "even_sequential"}, "or omit drop_last=True"),
        ({"batch_size": 6, "drop_last": True, "shard": (1, 2)}, "6 for each of 2 processes, and"),
        ({"batch_size": 1, "shard": (0, 11)}, "11 processes; use fewer processes"),
    ],
)
def test_epochs_without_a_batch_warn(options, text):
    with pytest.warns(LayoutkitWarning, match=f"no batch: 10 records are fewer than .*{text}"):
        assert rows_of(**options) == []
    enough = {**options, "shard": (0, 10)} if options["batch_size"] == 1 else options
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(rows_of(**enough | {"batch_size": min(5, options["batch_size"])})) > 0


@pytest.mark.parametrize("sampler", ["linear", "even_sequential", "uniform"])
def test_no_batches_are_what_num_batches_0_asks_for(sampler):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert rows_of(batch_size=4, sampler=sampler, num_batches=0) == []


def test_drop_last_where_all_batches_are_full_already_or_there_is_no_such_order():
    for kind in ("uniform", "random_slice", "even_sequential"):
        how = {"batch_size": 4, "sampler": kind}
        assert rows_of(**how, drop_last=True) == rows_of(**how)
    assert {full_batch_kind(name) for name, kind in KINDS.rows.items() if not kind.parts} == {
        kind.name for kind in KINDS.rows.values() if kind.even or kind.draws
    }
    with pytest.raises(DataError, match="part-linear does not know the number"):
        full_batch_kind("part-linear")
    assert all(find_kind(name).name == kind for name, kind in ALIASES.items())


def test_drop_last_beside_a_sampler_that_is_made():
    index = open_index(X)
    even = sampler("even_sequential", index, batch_size=4)
    assert rows_of(index, batch_size=4, sampler=even, drop_last=True) == rows_of(
        batch_size=4, drop_last=True
    )
    with pytest.raises(DataError, match="make it of kind 'even-shuffled-sequential'"):
        sampled_batcher(
            index, batch_size=4, sampler=sampler("shuffle", index), drop_last=True, num_workers=0
        )


def test_drop_last_of_several_sources():
    def joined(one, other, out):
        return one + other

    how = {"batch_size": 4, "processor": joined, "sampler": ["linear", "uniform"]}
    with sampled_batcher([X, X], **how, drop_last=True, num_workers=0) as batches:
        assert [batch.count for batch in batches] == [4, 4]


@pytest.mark.parametrize("wrong", [1, "yes", None])
def test_drop_last_is_a_flag(wrong):
    with pytest.raises(DataError, match="drop_last="):
        sampled_batcher(X, batch_size=2, drop_last=wrong)


# ---- len and pairs -----------------------------------------------------------------------------


def test_len_is_the_number_of_batches_of_an_epoch():
    with sampled_batcher(X, batch_size=4, num_workers=0) as batches:
        assert len(batches) == batches.num_batches == len(list(batches)) == 3
        next(iter(batches))
        assert len(batches) == 3  # counts the whole epoch at any point of a loop
    with sampled_batcher(X, batch_size=4, sampler="uniform", num_batches=7) as batches:
        assert len(batches) == 7


def test_a_batcher_without_batches_is_one():
    index = open_index(X, partition=len(X), partitions=len(X) + 1)
    with sampled_batcher(index, batch_size=4, num_workers=0) as batches:
        assert (bool(batches), len(batches), list(batches)) == (True, 0, [])


def test_no_len_while_there_are_parts_to_open(tmp_path):
    for part in "ab":
        (tmp_path / part).write_text("1\n2\n3\n")
    index = open_index(tmp_path, kind="parts")
    how = {"batch_size": 2, "sampler": "part-linear", "get": lambda record: np.zeros(2)}
    with sampled_batcher(index, **how, num_workers=0) as batches:
        with pytest.raises(TypeError, match="not known until every part is opened"):
            len(batches)
        assert len(list(batches)) > 0  # `list` asks for a length, and ignores the TypeError


@pytest.mark.parametrize(
    ("source", "targets"),
    [
        ({"x": X, "y": Y}, [[0, 1, 0, 1], [0, 1, 2, 0], [1, 2]]),
        (X, None),
        (Dataset({"input": X, "target": np.arange(10.0)}), [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]),
    ],
)
def test_a_batch_is_a_pair_of_views(source, targets):
    with sampled_batcher(source, batch_size=4, num_workers=0) as batches:
        pairs = [*batches]
    assert [x.input.tolist() for x, _ in pairs] == [X[:4].tolist(), X[4:8].tolist(), X[8:].tolist()]
    found = [y if y is None else y.input.tolist() for _, y in pairs]
    assert found == (targets or [None] * 3)


# ---- tables ------------------------------------------------------------------------------------


@pytest.fixture(params=["pandas", "polars"])
def frame(request):
    library = pytest.importorskip(request.param, reason=f"{request.param} is not installed")
    return library.DataFrame({"a": X[:, 0], "b": X[:, 1], "n": np.arange(10), "kind": list(Y)})


def test_rows_of_a_table_are_vectors_and_a_column_has_labels(frame):
    source = {"x": frame[["a", "b"]], "y": frame["kind"]}
    with sampled_batcher(source, batch_size=4, sampler="shuffle", num_workers=2) as batches:
        for batch in batches:
            places = [record.position for record in batch.item]
            assert batch.input.forward_get("bf", "float32").tolist() == X[places].tolist()
            assert batch.label == Y[places].tolist()
    assert open_index(source).labels == ["a", "b", "c"]


def test_columns_of_several_kinds_of_numbers_promote(frame):
    found = open_index(frame[["n", "a"]])[3].array
    assert (found.tolist(), found.dtype) == ([3, 6], np.float64)


def test_a_column_alone(frame):
    index = open_index({"x": frame["n"], "y": frame["a"]})
    assert (len(index), index[4].array.tolist(), index.labels) == (10, 4, [])
    assert index.targets(np.array([4])).tolist() == [8.0]


def test_a_table_with_words_in_it_is_refused(frame):
    for source in (frame, {"x": frame}):
        with pytest.raises(DataError, match=r"dtype"):
            open_index(source)


def test_a_column_of_arrays_is_a_batch_of_them():
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    frame = pandas.DataFrame({"pixels": list(np.arange(12).reshape(3, 2, 2)), "label": list("aba")})
    index = open_index({"x": frame["pixels"], "y": frame["label"]})
    assert (index[1].array.tolist(), index[1].label) == ([[4, 5], [6, 7]], "b")


def test_a_dataset_of_columns_goes_by_place_and_not_by_label(frame):
    turned = frame[::-1]  # a DataFrame with the labels 9, 8, .. 0
    dataset = Dataset({"input": turned[["a", "b"]], "target": turned["n"]})
    assert dataset.target[2]() == 7
    assert dataset.target[[0, 1]]().tolist() == [9, 8]
    assert dataset.input[:2]().tolist() == X[:-3:-1].tolist()
    with pytest.raises(DataError, match=r"cannot be written to|read-only"):
        dataset.target[0] = 5


# ---- names -------------------------------------------------------------------------------------


def test_functions_of_one_argument_are_processors():
    rows = np.arange(8.0).reshape(4, 2)

    def double(data):
        return 2 * data

    class Doubled:
        def __call__(self, data, **options):
            return double(data, **options)

    for function in (
        double,
        lambda *data: double(*data),
        partial(double),
        Doubled(),
        np.add.reduce,
    ):
        with sampled_batcher(rows, batch_size=4, processor=function) as batches:
            (batch,) = batches
        expected = np.add.reduce if function == np.add.reduce else lambda row: 2 * row
        assert batch.input.input.tolist() == [expected(row).tolist() for row in rows]
    with sampled_batcher(rows, batch_size=4, input_dims=2, processor=double) as batches:
        (batch,) = batches
    assert batch.input.input.dtype == "float32"
    assert batch.input.input.tolist() == (2 * rows).tolist()
    with sampled_batcher([rows, rows], batch_size=4, processor=lambda a, b: a + b) as batches:
        (batch,) = batches
    assert batch.input.input.tolist() == (2 * rows).tolist()


def test_functions_of_one_argument_process_fields_and_items():
    collate = {"x": Collator("f->bf", f=2), "y": Collator("f->bf", f=2)}
    sources = {"x": np.ones((4, 2)), "y": np.ones((4, 2))}
    processor = {"y": lambda data: 3 * data}
    with sampled_batcher(sources, batch_size=4, processor=processor, collate=collate) as batches:
        (batch,) = batches
    assert [x.input.max() for x in batch.input.values()] == [1, 3]


def test_the_signature_of_a_processor_decides():
    rows = np.zeros((4, 2))

    def undescribed(*args, **kwargs):
        return args[0]

    for function in (undescribed, bytes):
        with pytest.raises(DataError, match="does not tell whether it has a parameter out"):
            sampled_batcher(rows, batch_size=2, processor=function)
    with pytest.raises(DataError, match=r"called as processor\(data\).* too many positional"):
        sampled_batcher(rows, batch_size=2, processor=lambda: 0)
    with pytest.raises(DataError, match=r"called as processor\(data, data\), with out=row if"):
        sampled_batcher([rows, rows], batch_size=2, processor=lambda data, out: data)
    sampled_batcher(rows, batch_size=2, processor=np.negative)


def test_transforms_of_torchvision_and_albumentations_get_decoded_images(tmp_path):
    image = pytest.importorskip("PIL.Image")
    pixels = np.arange(60, dtype=np.uint8).reshape(4, 5, 3)
    image.fromarray(pixels).save(tmp_path / "0.png")

    class Transform:
        def __call__(self, *args, **data):
            if args:
                return np.asarray(args[0].transpose(image.Transpose.FLIP_LEFT_RIGHT))
            return {"image": data["image"][:, ::-1]}

    for package in ("torchvision.transforms", "albumentations.toy"):
        transform = type("Flip", (Transform,), {"__module__": package})()
        for source in (tmp_path, {"x": pixels[None]}):
            options = {"processor": transform, "batch_size": 1, "layout": "bhwc"}
            with sampled_batcher(source, **options) as batches:
                (batch,) = batches
            assert np.array_equal(batch.input.input, pixels[None, :, ::-1])


def test_torch_modules_are_processors():
    torch = pytest.importorskip("torch")
    module = torch.nn.Sequential(torch.nn.Flatten(0), torch.nn.ReLU())
    source = {"x": np.arange(-4.0, 4).reshape(2, 2, 2)}
    with sampled_batcher(
        source, batch_size=2, get=lambda r: torch.from_numpy(r.array), processor=module
    ) as batches:
        (batch,) = batches
    assert batch.input.input.tolist() == [[0, 0, 0, 0], [0, 1, 2, 3]]


def test_an_error_about_a_missing_out_names_input_dims():
    def fill(data, out):
        out[...] = data
        return out

    with sampled_batcher(np.zeros((4, 2)), batch_size=2, input_dims=2, processor=fill) as batches:
        assert [batch.count for batch in batches] == [2, 2]
    with (
        sampled_batcher(np.zeros((4, 2)), batch_size=2, processor=fill) as batches,
        pytest.raises(DataError, match="item assignment; out is None unless input_dims gives"),
    ):
        next(iter(batches))


def test_the_batch_axis_may_be_called_n():
    x = np.arange(2 * 4 * 5 * 3, dtype=np.uint8).reshape(2, 4, 5, 3)
    planes = Converter("NHWC->NCHW", dtype="float32")
    options = [
        ({"layout": "NHWC"}, "bhwc"),
        ({"layout": ("NHWC", "N")}, "bhwc"),
        ({"convert": planes}, "bchw"),
        ({"convert": planes, "layout": "nhwc"}, "bchw"),
        ({"collate": Collator("hwc->bchw", h=4, w=4), "layout": "NCHW"}, "bchw"),
    ]
    for keywords, layout in options:
        with sampled_batcher(x, batch_size=2, **keywords) as batches:
            assert next(iter(batches)).input.layout == layout
    provider = ArrayProvider({"x": x, "y": np.arange(2)}, batch_size=2, layout={"x": "NHWC"})
    assert next(iter(provider)).input.layout == "bhwc"
    dataset = Dataset(x, layout="NHWC")
    assert (dataset._layout(), dataset[0]._layout()) == ("bhwc", "hwc")
    assert Conv2DSpace((4, 5), 3, axes="NHWC") == Conv2DSpace((4, 5), 3, axes="bhwc")
