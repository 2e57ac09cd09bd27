"""Sources without records: one error for all containers, from all that read records."""

from functools import partial

import numpy as np
import pytest

from layoutkit import DataError, VectorSpace
from layoutkit.cli import main
from layoutkit.data import (
    ArrayProvider,
    CSVProvider,
    Dataset,
    ImageRecordProvider,
    MNISTProvider,
    open_index,
    sampled_batcher,
    sampler,
)
from layoutkit.data.recordio import read_records
from tests.helpers.loopback import serving
from tests.helpers.record_files import image, tar, write_rec

ROWS = np.zeros((0, 3), np.float32)


def saved(path, save):
    """Save an empty array or table by a function of the path; return the path."""
    save(path)
    return path


def zarr_store(path):
    zarr = pytest.importorskip("zarr", reason="the store is of zarr", minversion="3.1.3")
    zarr.create_array(path, shape=(0, 3), chunks=(1, 3), dtype="f4")


def h5_array(folder):
    h5py = pytest.importorskip("h5py", reason="the array is of h5py")
    return h5py.File(folder / "a.h5", "w").create_dataset("x", data=ROWS)


def parquet_table(path):
    pa = pytest.importorskip("pyarrow", reason="the table is of pyarrow")
    from pyarrow import parquet

    parquet.write_table(pa.table({"image": pa.array([], pa.binary())}), path)


def several_parquet_tables(folder):
    for number in range(2):
        parquet_table(folder / f"a-{number}.parquet")
    return folder / "a-*.parquet"


def frame(columns):
    pandas = pytest.importorskip("pandas", reason="the frame is of pandas")
    return pandas.DataFrame(columns)


def empty_parts(folder, *contents):
    (folder / "parts").mkdir()
    for number, content in enumerate(contents):
        (folder / "parts" / f"part-{number}").write_bytes(content)
    return folder / "parts"


def rec_file(path, payloads, index=None):
    write_rec(path, payloads)
    if index is not None:
        path.with_suffix(".idx").write_text(index)


def folder_of(folder, *names):
    (folder / "d").mkdir()
    for name in names:
        (folder / "d" / name).parent.mkdir(exist_ok=True)
        (folder / "d" / name).write_bytes(b"")
    return folder / "d"


class NoItems:
    """A map-style Dataset without items."""

    def __len__(self):
        return 0

    def __getitem__(self, number):
        raise IndexError(number)


SOURCES = {
    "array": lambda folder: ROWS,
    "dict of arrays": lambda folder: {"x": ROWS, "y": np.zeros(0, int)},
    "dict of lists": lambda folder: {"x": [], "y": []},
    "list": lambda folder: [],
    "tuple": lambda folder: (),
    "Dataset": lambda folder: Dataset({"x": ROWS, "y": np.zeros(0, int)}),
    "selection of a Dataset": lambda folder: Dataset(np.zeros((4, 3)))[4:],
    "map-style Dataset": lambda folder: NoItems(),
    "frame of numbers": lambda folder: frame({"a": np.zeros(0), "b": np.zeros(0)}),
    "frame of files": lambda folder: frame({"filename": [], "label": []}),
    "npy": lambda folder: saved(folder / "a.npy", lambda path: np.save(path, ROWS)),
    "npz": lambda folder: saved(folder / "a.npz", lambda path: np.savez(path, x=ROWS)),
    "zarr": lambda folder: saved(folder / "a.zarr", zarr_store),
    "h5": h5_array,
    "csv": lambda folder: saved(folder / "a.csv", lambda path: path.write_text("filename,label\n")),
    "tsv": lambda folder: saved(folder / "a.tsv", lambda path: path.write_text("filename\n\n")),
    "parquet": lambda folder: saved(folder / "a.parquet", parquet_table),
    "parquet files": several_parquet_tables,
    "tar": lambda folder: saved(folder / "a.tar", lambda path: path.write_bytes(tar([]))),
    "tar without images": lambda folder: saved(
        folder / "a.tar", lambda path: path.write_bytes(tar([("0.txt", b"a")]))
    ),
    "rec of empty images": lambda folder: saved(
        folder / "a.rec", partial(rec_file, payloads=[image(b"", 1)])
    ),
    "rec with an empty idx": lambda folder: saved(
        folder / "a.rec", partial(rec_file, payloads=[image(b"x", 1)], index="")
    ),
    "folder": folder_of,
    "folder of hidden files": lambda folder: folder_of(folder, "a/.hidden", ".DS_Store"),
}
ZERO_BYTES = ["a.rec", "a.tfrecord", "a.tar", "a.parquet", "a.npy", "a.npz", "a.csv"]


@pytest.mark.parametrize("kind", SOURCES)
@pytest.mark.parametrize("use", [open_index, partial(sampled_batcher, batch_size=2)])
def test_a_source_without_records_is_an_error(tmp_path, kind, use):
    source = SOURCES[kind](tmp_path)
    with pytest.raises(DataError, match="has no records: ") as error:
        use(source)
    if hasattr(source, "name") and not hasattr(source, "shape"):
        assert source.name.partition("*")[0] in str(error.value)


@pytest.mark.parametrize("name", ZERO_BYTES)
@pytest.mark.parametrize("beside", [False, True])
def test_a_file_of_no_bytes_is_an_error_that_names_it(tmp_path, name, beside):
    """Test one of several files, too; in both orders."""
    if name.endswith(".parquet"):
        pytest.importorskip("pyarrow", reason="it reads Parquet")
    (tmp_path / name).write_bytes(b"")
    source = tmp_path / name
    if beside and name[2:] in ("rec", "tar"):
        write_rec(tmp_path / "0.rec", [image(b"x", 1)], index=False)
        (tmp_path / "0.tar").write_bytes(tar([("0.jpg", b"x")]))
        suffix = source.suffix
        for order in ("0,a", "a,0"):
            with pytest.raises(DataError, match=rf"{source.name} has 0 bytes"):
                open_index(f"{tmp_path}/{{{order}}}{suffix}")
    with pytest.raises(DataError, match=source.name):
        open_index(source)


def test_an_empty_tar_or_table_is_allowed_beside_others(tmp_path):
    (tmp_path / "0.tar").write_bytes(tar([]))
    (tmp_path / "1.tar").write_bytes(tar([("0.jpg", b"x")]))
    assert len(open_index(f"{tmp_path}/*.tar")) == 1
    pa = pytest.importorskip("pyarrow", reason="the tables are of pyarrow")
    from pyarrow import parquet

    parquet_table(tmp_path / "0.parquet")
    parquet.write_table(pa.table({"image": [b"x"]}), tmp_path / "1.parquet")
    assert len(open_index(f"{tmp_path}/*.parquet")) == 1


def test_an_empty_partition_of_records_is_no_error():
    index = open_index(np.zeros((2, 3)), partition=2, partitions=3)
    with sampled_batcher(index, batch_size=2) as batches:
        assert (list(batches), len(index)) == ([], 0)


@pytest.mark.parametrize("contents", [(), (b"",), (b"", b"", b"")])
@pytest.mark.parametrize("use", ["len", "batches", "walk", "item"])
def test_part_files_without_lines_are_an_error(tmp_path, contents, use):
    """Part files are not opened before their lines are needed."""
    folder = empty_parts(tmp_path, *contents)
    with pytest.raises(DataError, match="parts has no records: "):
        index = open_index(folder, kind="parts")
        if use == "len":
            len(index)
        elif use == "batches":
            list(sampled_batcher(index, batch_size=2, sampler="part-linear"))
        elif use == "walk":
            list(sampler("part-permutation-permutation", index))
        else:
            index[0]


def test_remote_sources_without_records_are_an_error(site):
    site.files["/a.tar"] = tar([])
    site.files["/a.rec"] = site.files["/a.tfrecord"] = b""
    with serving(site) as home:
        for name in ("a.tar", "a.rec", "a.tfrecord"):
            with pytest.raises(DataError, match=rf"{name} has (no records|0 bytes)"):
                len(open_index(f"{home}/{name}"))


def write_idx(path, shape):
    head = bytes([0, 0, 8, len(shape)]) + b"".join(size.to_bytes(4, "big") for size in shape)
    path.write_bytes(head + bytes(int(np.prod(shape))))
    return path


def mnist(folder):
    images = write_idx(folder / "images", (0, 28, 28))
    return MNISTProvider(images, write_idx(folder / "labels", (0,)), batch_size=2)


def record_provider(folder):
    write_rec(folder / "a.rec", [image(b"", 1)])
    return ImageRecordProvider(folder / "a.rec", data_shape=(3, 4, 4), batch_size=2)


def csv_provider(folder):
    (folder / "a.csv").write_text("\n")
    return CSVProvider(folder / "a.csv", data_shape=(3,), batch_size=2)


PROVIDERS = {
    "arrays": lambda folder: ArrayProvider(ROWS, np.zeros(0), batch_size=2),
    "all": lambda folder: ArrayProvider({"a": ROWS, "b": ROWS}),
    "mnist": mnist,
    "records": record_provider,
    "csv": csv_provider,
    "Dataset": lambda folder: Dataset({"x": ROWS}).iterator((VectorSpace(3), "x"), batch_size=2),
}


@pytest.mark.parametrize("kind", PROVIDERS)
def test_providers_of_nothing_are_an_error(tmp_path, kind):
    with pytest.raises(DataError, match="has no records: "):
        PROVIDERS[kind](tmp_path)


@pytest.mark.parametrize("command", ["batches", "index", "pack"])
def test_commands_refuse_sources_without_records(tmp_path, monkeypatch, capsys, command):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.rec").write_bytes(b"")
    (tmp_path / "d").mkdir()
    words = {
        "batches": ["batches", "a.rec", "--size", "4x4"],
        "index": ["index", "a.rec"],
        "pack": ["pack", "d", "b.rec"],
    }[command]
    assert main(words) not in (0, 70)
    text = "d has no records" if command == "pack" else "a.rec has 0 bytes"
    assert text in capsys.readouterr().err
    assert not (tmp_path / "a.idx").exists()


def test_read_records_refuses_a_file_of_no_bytes(tmp_path):
    (tmp_path / "a.rec").write_bytes(b"")
    with pytest.raises(DataError, match=r"a\.rec has 0 bytes"):
        read_records(tmp_path / "a.rec")
