"""Arrays, and files that hold them, as indexes."""

import mmap

import numpy as np
import pytest

from layoutkit import Collator, DataError, ShapeError
from layoutkit.data import Dataset, Ragged, open_index, sampled_batcher
from tests.helpers.array_likes import Like

X = np.arange(12, dtype="f4").reshape(4, 3)


def test_an_array():
    index = open_index(X)
    assert (len(index), index.kind, index.url_prefix, index.labels) == (4, "tensor", None, [])
    assert np.array_equal(index[1].array, X[1])
    assert np.shares_memory(index[1].array, X)
    assert (index[-1].position, index[0].label, index[0].labels) == (3, None, ())


def test_numbers_are_records_of_no_axes():
    record = open_index(np.array([1, 2, 3]))[1]
    assert (record.array.shape, int(record.array)) == ((), 2)


@pytest.mark.parametrize(
    ("y", "labels", "of_first"),
    [([20, 10, 10, 20], [10, 20], 20), (["b", "a", "c", "b"], ["a", "b", "c"], "b")],
)
def test_labels(y, labels, of_first):
    for given in (y, np.array(y)):
        index = open_index({"x": X, "y": given})
        assert index.labels == labels
        assert type(index.labels[0]) is type(of_first)
        assert index.label_index == {label: rank for rank, label in enumerate(labels)}
        assert (index[0].label, index[0].labels) == (of_first, (of_first,))
        assert index.item_at(1, of_first).position == 3
        assert index.targets(np.array([0])) is None


@pytest.mark.parametrize("y", [np.ones((4, 2)), np.arange(4.0), np.ones((4, 1), int)])
def test_any_other_y_is_the_target(y):
    index = open_index({"x": X, "y": y}, partition=1, partitions=2)
    assert (index.labels, index[0].label) == ([], None)
    assert np.array_equal(index.targets(np.array([1]))[0], y[3])


def test_files(tmp_path):
    np.save(tmp_path / "x.npy", X)
    mapped = open_index(tmp_path / "x.npy")
    assert np.array_equal(mapped[2].array, X[2])
    memory = mapped[2].array
    while isinstance(memory, np.ndarray):
        memory = memory.base
    assert isinstance(memory, mmap.mmap)
    np.savez(tmp_path / "xy.npz", x=X, y=[1, 0, 1, 0])
    assert [r.label for r in open_index(str(tmp_path / "xy.npz"))] == [1, 0, 1, 0]


def test_safetensors(tmp_path):
    numpy = pytest.importorskip("safetensors.numpy")
    numpy.save_file({"x": X, "y": np.array([1, 0, 1, 0])}, tmp_path / "xy.safetensors")
    index = open_index(tmp_path / "xy.safetensors")
    assert (index.labels, index.item_count(1)) == ([0, 1], 2)
    assert np.array_equal(index[3].array, X[3])


def test_pt(tmp_path):
    torch = pytest.importorskip("torch", reason="needs PyTorch: the extra `torch`")
    torch.save({"x": torch.from_numpy(X), "y": torch.tensor([1, 0, 1, 0])}, tmp_path / "xy.pt")
    index = open_index(tmp_path / "xy.pt")
    assert index.labels == [0, 1]
    assert np.array_equal(index[3].array, X[3])
    torch.save(torch.ones(2, 3, dtype=torch.bfloat16), tmp_path / "x.pt")
    assert open_index(tmp_path / "x.pt")[1].array.dtype == "bfloat16"


def test_files_at_urls():
    fsspec = pytest.importorskip("fsspec")
    with fsspec.open("memory://arrays/x.npy", "wb") as file:
        np.save(file, X)
    assert np.array_equal(open_index("memory://arrays/x.npy")[1].array, X[1])


@pytest.mark.parametrize("name", ["x.npy", "x.npz", "x.safetensors"])
@pytest.mark.parametrize("content", [None, b"no array", b""])
def test_files_that_hold_none(tmp_path, name, content):
    if name == "x.safetensors":
        pytest.importorskip("safetensors")
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=name):
        open_index(tmp_path / name)


def test_a_library_that_is_not_installed(tmp_path, monkeypatch):
    for module, name, extra in (
        ("safetensors.numpy", "x.safetensors", "data"),
        ("torch", "x.pt", "torch"),
    ):
        monkeypatch.setitem(__import__("sys").modules, module, None)
        (tmp_path / name).touch()
        with pytest.raises(DataError, match=rf"layoutkit\[{extra}\]"):
            open_index(tmp_path / name)


@pytest.mark.parametrize(
    ("source", "error", "says"),
    [
        ({"x": X, "y": [1, 2]}, DataError, "x has 4 records and y 2; give one label per record"),
        ({"y": [1, 2]}, DataError, "has y; an index needs x"),
        ({"x": X, "z": X}, DataError, "has x, z"),
        (np.float32(1), ShapeError, "no axes"),
        (5, DataError, "give an array with a row"),
        (None, DataError, "the source is None; give an array"),
    ],
)
def test_what_is_no_source(source, error, says):
    with pytest.raises(error, match=says):
        open_index(source)


def test_labels_as_objects_as_pandas_keeps_strings():
    index = open_index({"x": X, "y": np.array(["b", "a", "c", "b"], object)})
    assert (index.labels, index[0].label) == (["a", "b", "c"], "b")
    assert type(index.labels[0]) is str


@pytest.mark.parametrize(
    "wrong", [np.ma.array(X, mask=X > 3), np.array([1, "a"], object), np.array([None, None])]
)
def test_arrays_that_lose_something_or_hold_anything(wrong):
    with pytest.raises(DataError, match=r"masked array|numbers or strings"):
        open_index(wrong)


@pytest.mark.parametrize("wrong", [np.ma.array(X, mask=X > 3), [{}, 1, 2, 3], [[1], [2, 3], [], 4]])
def test_labels_that_are_nothing_of_the_kind(wrong):
    with pytest.raises(DataError, match=r"masked array|numbers or strings|y is not an array"):
        open_index({"x": X, "y": wrong})


def test_datasets_as_labels_and_as_targets():
    labelled = open_index({"x": X, "y": Dataset(np.array([5, 3, 3, 5]))})
    assert (labelled.labels, labelled[1].label) == ([3, 5], 3)
    aimed = open_index({"x": X, "y": Dataset(np.array([0.5, 0.25, 0.5, 0.75]))})
    assert (aimed.labels, aimed[1].label, float(aimed.targets(np.array([1]))[0])) == (
        [],
        None,
        0.25,
    )


def test_targets_of_different_lengths():
    index = open_index(Dataset({"input": X, "target": [np.arange(n) for n in (2, 0, 3, 1)]}))
    assert index.labels == []
    assert [len(index.targets(np.array([at]))[0]) for at in range(4)] == [2, 0, 3, 1]


@pytest.mark.parametrize(("y", "label"), [([2, 1, 1, 2], 2), ([0.5, 1, 1, 2], None)])
def test_array_likes_need_no_len(y, label):
    index = open_index({"x": Like(X), "y": Like(np.array(y))}, partition=0, partitions=2)
    assert (len(index), index[0].label) == (2, label)
    assert np.array_equal(index[1].array, X[2])
    assert index.labels == ([] if label is None else [1, 2])


def test_labels_as_objects_in_a_dataset():
    target = np.array(["b", "a", "c", "b"], object)
    assert open_index(Dataset({"input": X, "target": target})).labels == ["a", "b", "c"]


@pytest.mark.parametrize("names", [("x", "y"), ("y", "x"), ("input", "target")])
def test_datasets_mappings_and_files_recognize_the_same_names(tmp_path, names):
    arrays = {name: X if name in ("x", "input") else np.array([5, 3, 3, 5]) for name in names}
    np.savez(tmp_path / "xy.npz", **arrays)
    sources = arrays, Dataset(arrays), tmp_path / "xy.npz", Dataset(tmp_path / "xy.npz")
    for source in sources:
        index = open_index(source)
        assert index.labels == [3, 5]
        assert [record.label for record in index] == [5, 3, 3, 5]
        assert np.array_equal(index[1].array, X[1])


@pytest.mark.parametrize("names", [("label", "image"), ("x", "y", "z"), ("x", "target"), ("y",)])
def test_fields_that_an_index_would_omit_are_an_error(names):
    arrays = dict.fromkeys(names, X)
    for source in (arrays, Dataset(arrays)):
        with pytest.raises(DataError, match=f"has {', '.join(names)}; an index needs x"):
            open_index(source)


def test_one_array_needs_no_name(tmp_path):
    np.savez(tmp_path / "one.npz", X)
    for source in (tmp_path / "one.npz", {"image": X}, Dataset({"image": X})):
        assert np.array_equal(open_index(source)[1].array, X[1])


def test_the_data_of_a_dataset_is_the_input_beside_a_target():
    dataset = Dataset(X, fields={"first": np.s_[:, 0]})
    assert np.array_equal(open_index(dataset)[1].array, X[1])
    dataset.target = Dataset(np.array([5, 3, 3, 5]))
    assert [record.label for record in open_index(dataset)] == [5, 3, 3, 5]


def test_a_target_consists_of_positions_in_classes(tmp_path):
    np.savez(
        tmp_path / "a.npz", input=X, name=list("abcd"), target=[2, 0, 2, 2], classes=["u", "v", "w"]
    )
    for source in (tmp_path / "a.npz", Dataset(tmp_path / "a.npz")):
        index = open_index(source)
        assert index.labels == ["u", "v", "w"]
        assert [record.label for record in index] == ["w", "u", "w", "w"]
    for target in ([3, 0, 0, 0], [0.5, 0, 0, 0]):
        with pytest.raises(DataError, match="3 classes, but the target does not consist of"):
            open_index({"input": X, "target": target, "classes": ["u", "v", "w"]})


# ---- Arrays of different sizes ---------------------------------------------------------------


def sounds_of(convert=np.asarray):
    return [convert(np.arange(10.0 * n, dtype="f4").reshape(-1, 2)) for n in (3, 1, 4, 2)]


def object_array(rows):
    array = np.empty(len(rows), object)
    array[:] = rows
    return array


@pytest.mark.parametrize("container", [list, tuple, object_array])
@pytest.mark.parametrize("library", ["numpy", "torch", "jax"])
def test_arrays_of_different_sizes_are_records(container, library):
    convert = np.asarray
    if library == "torch":
        convert = pytest.importorskip("torch").from_numpy
    elif library == "jax":
        convert = pytest.importorskip("jax.numpy").asarray
    source = {"x": container(sounds_of(convert)), "y": list("abba")}
    expected = sounds_of()
    index = open_index(source)
    assert index.labels == ["a", "b"]
    assert all(map(np.array_equal, [record.array for record in index], expected))
    with sampled_batcher(source, batch_size=3, sampler="shuffle", collate="ragged") as batches:
        for batch in batches:
            for row, record in zip(batch.input, batch.item, strict=True):
                assert np.array_equal(row, expected[record.position])
            assert batch.label == [source["y"][record.position] for record in batch.item]


def test_arrays_of_different_sizes_share_their_memory():
    sounds = sounds_of()
    index = open_index({"x": sounds})
    assert all(map(np.shares_memory, [record.array for record in index[[3, 1]]], sounds[3:0:-2]))
    collator = Collator("tf->btf", t=4, offset={"t": 0}, fill=-1)
    with sampled_batcher({"x": sounds}, batch_size=4, collate=collator) as batches:
        for batch in batches:
            assert np.array_equal(batch.input.input, collator(sounds))


@pytest.mark.parametrize("of", [list, Ragged.of])
def test_batches_of_different_shapes_need_a_step_that_makes_them_equal(of):
    source = {"x": of(sounds_of())}
    with pytest.raises(DataError, match=r"differ in shape, such as \(\d+, 2\).*collate="):
        sampled_batcher(source, batch_size=2)
    with sampled_batcher(source, batch_size=2, processor=len) as batches:
        assert [batch.count for batch in batches] == [2, 2]


@pytest.mark.parametrize(
    "x", [[np.zeros(2), None], [np.zeros(2), "text"], [[1], ["a", "b"]], [[1], [[1], [2, 3]]]]
)
def test_lists_of_other_things_are_no_source(x):
    with pytest.raises(DataError, match="x is not an array"):
        open_index({"x": x})


def test_targets_of_different_sizes_are_an_error():
    with pytest.raises(DataError, match="y is not an array: its rows differ in size"):
        open_index({"x": np.zeros(2), "y": [np.zeros(2), np.zeros(3)]})
