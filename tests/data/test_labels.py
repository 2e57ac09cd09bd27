"""Labels of every source: missing ones, the order of classes, and the columns that have them."""

import datetime
import json
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest

from layoutkit import DataError
from layoutkit.data import (
    ArrayProvider,
    CSVProvider,
    Dataset,
    ImageRecordProvider,
    Sample,
    open_index,
    sampled_batcher,
)
from layoutkit.data.labels import are_whole, order_classes, whole_number
from layoutkit.data.recordio import RecordWriter, pack_image
from tests.helpers.record_files import tar

X = np.zeros((9, 2), np.float32)
PATHS = [f"photos/{number}.png" for number in range(9)]


def pandas():
    return pytest.importorskip("pandas")


def is_text(labels):
    return all(label is None or isinstance(label, str) for label in labels)


def are_numbers(labels):
    return all(label is None or isinstance(label, int | float) for label in labels)


# ---- containers: each returns a source and options for labels with None where one is missing ----


def make_csv(folder, labels, name="a.csv", delimiter=","):
    lines = [f"{path}{delimiter}{'' if y is None else y}\n" for path, y in zip(PATHS, labels)]  # noqa: B905
    (folder / name).write_text(f"filename{delimiter}label\n" + "".join(lines))
    return folder / name


def make_tsv(folder, labels):
    return make_csv(folder, labels, "a.tsv", "\t")


def make_frame(folder, labels):
    return pandas().DataFrame({"filename": PATHS[: len(labels)], "label": labels})


def make_object_frame(folder, labels):
    column = pandas().Series(labels, dtype=object)
    return pandas().DataFrame({"filename": PATHS[: len(labels)], "label": column})


def make_list(folder, labels):
    return {"x": X[: len(labels)], "y": labels}


def make_files(folder, labels):
    return {"x": PATHS[: len(labels)], "y": labels}


def make_objects(folder, labels):
    return {"x": X[: len(labels)], "y": np.array(labels, object)}


def make_column(folder, labels):
    return {"x": X[: len(labels)], "y": pandas().Series(labels)}


def make_arrow(folder, labels):
    return {"x": X[: len(labels)], "y": pytest.importorskip("pyarrow").array(labels)}


def make_dataset_fields(folder, labels):
    return {"input": Dataset(X[: len(labels)]), "target": Dataset(np.array(labels, object))}


def make_positions(folder, labels):
    classes = order_classes(label for label in labels if label is not None)
    positions = [-1 if label is None else classes.index(label) for label in labels]
    return {"x": X[: len(labels)], "y": positions, "classes": classes}


def make_parquet(folder, labels):
    parquet = pytest.importorskip("pyarrow.parquet")
    import pyarrow as pa

    table = pa.table({"image": [b"i"] * len(labels), "label": labels})
    parquet.write_table(table, folder / "a.parquet", row_group_size=2)
    return folder / "a.parquet"


def write_tar(folder, labels, suffix, encode):
    members = []
    for number, label in enumerate(labels):
        members.append((f"{number}.jpg", b"i"))
        if label is not None:
            members.append((f"{number}.{suffix}", encode(label)))
    (folder / "a.tar").write_bytes(tar(members))
    return folder / "a.tar"


def make_tar(folder, labels):
    return write_tar(folder, labels, "cls", lambda label: str(label).encode())


def make_txt_tar(folder, labels):
    return write_tar(folder, labels, "txt", str.encode)


def make_json_tar(folder, labels):
    return write_tar(folder, labels, "json", lambda label: json.dumps({"y": label}).encode())


def make_folder(folder, labels):
    for number, label in enumerate(labels):
        path = folder / "root" / (f"{number}.jpg" if label is None else f"{label}/{number}.jpg")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return folder / "root"


def make_rec(folder, labels):
    with RecordWriter(folder / "a.rec") as writer:
        for number, label in enumerate(labels):
            value = float("nan") if label is None else float(label)
            writer.write(pack_image(b"i", value, id=number), key=number)
    return folder / "a.rec"


def make_lst(folder, labels):
    rec = make_rec(folder, [0] * len(labels))
    lines = [f"{n}\t{'nan' if y is None else y}\tx\n" for n, y in enumerate(labels)]
    (folder / "a.lst").write_text("".join(lines))
    return rec


def make_npz(folder, labels):
    np.savez(folder / "a.npz", x=X[: len(labels)], y=np.array(labels))
    return folder / "a.npz"


# Container -> the labels that it can contain.
MAKERS = {
    make_csv: lambda labels: True,
    make_tsv: lambda labels: True,
    make_frame: lambda labels: True,
    make_object_frame: lambda labels: True,
    make_list: lambda labels: True,
    make_files: lambda labels: True,
    make_objects: lambda labels: True,
    make_column: lambda labels: True,
    make_dataset_fields: lambda labels: True,
    make_positions: is_text,
    make_tar: lambda labels: True,
    make_json_tar: lambda labels: True,
    make_folder: is_text,
    make_txt_tar: is_text,
    make_arrow: lambda labels: is_text(labels) or are_numbers(labels),
    make_parquet: lambda labels: is_text(labels) or are_numbers(labels),
    make_rec: are_numbers,
    make_lst: are_numbers,
    make_npz: lambda labels: None not in labels and (is_text(labels) or are_numbers(labels)),
}
OPTIONS = {
    make_json_tar: {"columns": {"label": "json:y"}},
}


def options_of(make, folder):
    return {"list": folder / "a.lst"} if make is make_lst else OPTIONS.get(make, {})


def opened(make, folder, labels, **options):
    return open_index(make(folder, labels), **options_of(make, folder), **options)


def target_of(index):
    """Return the targets of all records in the order of the source, by what they label."""
    numbers = np.arange(len(index))
    targets = index.targets(numbers)
    return (index.ranks(numbers) if targets is None else targets).tolist()


# ---- missing labels ------------------------------------------------------------------------------

LABELLED = {
    "text": ["b", "a", None, "b", None, "a"],
    "ints": [5, 7, None, 5, None, 7],
    "whole": [5.0, 7.0, None, 5.0, None, 7.0],
    "fractions": [0.5, 7.0, None, 0.5, None, 7.0],
    "text of ints": ["5", "10", None, "5", None, "10"],
}


def case_ids(value):
    return value.__name__ if callable(value) else None


@pytest.mark.parametrize("name", LABELLED)
@pytest.mark.parametrize("make", MAKERS, ids=case_ids)
def test_missing_labels_are_an_error_or_omitted_or_minus_one(tmp_path, make, name):
    labels = LABELLED[name]
    if not MAKERS[make](labels):
        pytest.skip("the container does not hold such labels")
    with pytest.raises(DataError, match=r'\(2 of 6 records have none\); give missing="drop"'):
        opened(make, tmp_path, labels)
    dropped = opened(make, tmp_path, labels, missing="drop")
    kept = opened(make, tmp_path, labels, missing=-1)
    assert (len(dropped), dropped.skipped) == (4, 2)
    assert (len(kept), kept.skipped) == (6, 0)
    present = [label for label in labels if label is not None]
    if name == "fractions" and make is not make_txt_tar:
        wanted = {label: label for label in present}
    else:
        wanted = {label: rank for rank, label in enumerate(order_classes(present))}
        assert len(kept.labels) == len(dropped.labels) == 2
    expected = [wanted.get(label, -1) for label in labels]
    if make is make_folder:  # in the order of the folders
        expected = [expected[int(record.url[-5])] for record in kept]
    assert target_of(kept) == expected
    assert target_of(dropped) == [target for target in expected if target != -1]


@pytest.mark.parametrize("gap", ["None", "nan", "NaT", "NA", "empty", "blank"])
@pytest.mark.parametrize("make", [make_list, make_objects, make_column, make_object_frame])
def test_every_kind_of_missing_value(tmp_path, make, gap):
    value = {
        "None": None,
        "nan": float("nan"),
        "NaT": np.datetime64("NaT"),
        "NA": pandas().NA,
        "empty": "",
        "blank": "  ",
    }[gap]
    labels = ["b", value, "a"]
    with pytest.raises(DataError, match=r"(record|row) 1 of the .* has no label"):
        opened(make, tmp_path, labels)
    assert target_of(opened(make, tmp_path, labels, missing=-1)) == [1, -1, 0]


@pytest.mark.parametrize("dtype", ["Int64", "Float64", "string", "category", "boolean"])
def test_columns_of_extension_types(dtype):
    values = {"string": ["b", None, "a"], "boolean": [True, None, False]}.get(dtype, [7, None, 5])
    for y in (pandas().Series(values, dtype=dtype), pandas().array(values, dtype=dtype)):
        source = {"x": X[:3], "y": y}
        with pytest.raises(DataError, match="record 1 of the source has no label"):
            open_index(source)
        assert target_of(open_index(source, missing=-1)) == [1, -1, 0]
        assert open_index(source, missing="drop").skipped == 1


@pytest.mark.parametrize("gap", [None, float("nan"), [None, None]])
def test_rows_of_numbers_with_a_missing_row(gap):
    rows = [[1.0, 2.0], gap, [3.0, 4.0]]
    column = pandas().Series(rows)
    frame = pandas().DataFrame({"path": PATHS[:3], "label": column})
    sources = {"x": X[:3], "y": rows}, {"x": PATHS[:3], "y": column}, frame
    for source in sources:
        with pytest.raises(DataError, match=r"has no label \(1 of 3"):
            open_index(source)
        assert target_of(open_index(source, missing=-1)) == [[1, 2], [-1, -1], [3, 4]]
        assert target_of(open_index(source, missing="drop")) == [[1, 2], [3, 4]]


@pytest.mark.parametrize("label", [{1: 2}, {3}])
def test_a_label_is_a_number_or_a_word(label):
    frame = pandas().DataFrame({"path": PATHS[:2], "label": ["a", label]})
    for source in (frame, {"x": X[:2], "y": ["a", label]}):
        with pytest.raises(DataError, match=r"numbers or (words|strings)"):
            open_index(source)


def test_lists_of_scalars_are_labels():
    torch = pytest.importorskip("torch")
    for make in (torch.tensor, np.array, np.int32, np.float32):
        assert target_of(open_index({"x": X[:3], "y": [make(n) for n in (7, 5, 7)]})) == [1, 0, 1]


def test_columns_of_arrays_are_targets():
    rows = [np.array([1.0, 2.0]), np.array([3.0, 4.0])]
    index = open_index({"x": X[:2], "y": pandas().Series(rows)})
    assert (index.labels, target_of(index)) == ([], [[1, 2], [3, 4]])


class PolarsColumn:
    """A stand-in for a Series of Polars, whose arrays have floats in place of missing integers."""

    shape = (3,)

    def __init__(self, values):
        self.values = values

    def null_count(self):
        return self.values.count(None)

    def to_list(self):
        return self.values

    def to_numpy(self):
        return np.array(self.values, float)


def test_large_integers_beside_a_missing_one_are_exact():
    column = PolarsColumn([2**53 + 1, None, 2**53 + 2])
    assert open_index({"x": X[:3], "y": column}, missing=-1).labels == [2**53 + 1, 2**53 + 2]


def test_numpy_arrays_with_gaps():
    days = np.array(["2026-11-26", "NaT", "2025-01-02"], "M8[D]")
    masked = np.ma.array([7, 6, 5], mask=[False, True, False])
    for y in (np.array([7, np.nan, 5]), masked, days, days.astype("M8[ns]")):
        with pytest.raises(DataError, match="record 1 of the source has no label"):
            open_index({"x": X[:3], "y": y})
        assert target_of(open_index({"x": X[:3], "y": y}, missing=-1)) == [1, -1, 0]
    for y in ([True, False], np.array([True, False]), np.array([True, False], object)):
        index = open_index({"x": X[:2], "y": y})
        assert (index.labels, target_of(index)) == ([], [True, False])
    assert open_index({"x": X[:2], "y": [datetime.date(2026, 1, 2)] * 2}).labels == ["2026-01-02"]


@pytest.mark.parametrize("missing", ["ignore", 0, -2, None, True, 1.5])
def test_missing_has_three_values(missing):
    with pytest.raises(DataError, match='it is "error", "drop"'):
        open_index({"x": X, "y": list(range(9))}, missing=missing)


def test_records_without_any_label():
    for missing, found in ((-1, [-1, -1]), ("drop", None)):
        source = {"x": X[:2], "y": [None, float("nan")]}
        if found is None:
            with pytest.raises(DataError, match='so missing="drop" would omit all'):
                open_index(source, missing=missing)
        else:
            assert target_of(open_index(source, missing=missing)) == found


def test_partitions_count_the_records_that_are_kept(tmp_path):
    for make in (make_csv, make_frame, make_list, make_files, make_tar, make_rec):
        parts = [
            opened(make, tmp_path, LABELLED["ints"], missing="drop", partition=p, partitions=2)
            for p in (0, 1)
        ]
        assert [len(part) for part in parts] == [2, 2]
        assert [target_of(part) for part in parts] == [[0, 0], [1, 1]]


def test_batches_have_the_records_that_are_kept():
    rows = np.arange(12.0).reshape(6, 2)
    source = {"x": rows, "y": LABELLED["ints"]}
    with sampled_batcher(source, batch_size=9, missing="drop") as batches:
        (batch,) = batches
    assert batch.input.input.tolist() == rows[[0, 1, 3, 5]].tolist()
    assert batch.target.input.tolist() == [0, 1, 0, 1]
    with sampled_batcher(source, batch_size=9, missing=-1) as batches:
        (batch,) = batches
    assert batch.target.input.tolist() == [0, 1, -1, 0, -1, 1]


# ---- whole numbers -------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [0, 7, -7, 2**53 + 1, 2**62, 2**63 - 1, 2**63, -(2**63), 2**64])
def test_integers_of_any_size_are_whole_also_as_text(number):
    spellings = number, str(number), f" {number:+d} ", f"{number}.0", f"0{number}".encode()
    for value in spellings[: 5 if number >= 0 else 4]:
        assert whole_number(value) == number


FLOATS = {  # None: not whole
    2.0**53: 2**53,
    2.0**62: 2**62,
    2.0**63 - 1024: 2**63 - 1024,
    2.0**63: None,
    -(2.0**63): -(2**63),
    -(2.0**63) - 2048: None,
    3.0: 3,
    -0.0: 0,
    3.5: None,
    1e300: None,
    float("inf"): None,
}


@pytest.mark.parametrize("value", FLOATS)
def test_floats_are_whole_if_they_equal_an_integer_of_64_bits(value):
    for spelling in (value, np.float64(value), Decimal(value), f"{value:.17e}"):
        assert whole_number(spelling) == FLOATS[value]
    assert are_whole(np.array([value, 1])).tolist() == [FLOATS[value] is not None, True]


@pytest.mark.parametrize(
    "value", [float("nan"), None, "", "x", "3x", "1_0", "0x1", "nan", (3,), 3j]
)
def test_other_values_are_not_whole(value):
    assert whole_number(value) is None
    assert whole_number(True) == whole_number(np.True_) == 1


@pytest.mark.parametrize("value", [-(2.0**63), 2.0**62, 2.0**63, 1e3, 1e30])
@pytest.mark.parametrize("make", [make for make in MAKERS if make is not make_npz], ids=case_ids)
def test_every_container_decides_alike_if_a_float_is_a_class(tmp_path, make, value):
    labels = [value, None, 7.0]
    if not MAKERS[make](labels):
        pytest.skip("the container does not hold such labels")
    index = opened(make, tmp_path, labels, missing=-1)
    ranks = [0, -1, 1] if value < 7 else [1, -1, 0]
    is_class = whole_number(value) is not None
    assert target_of(index) == (ranks if is_class else [np.float32(value), -1, 7])


# ---- order of classes ----------------------------------------------------------------------------

NAMES = {
    "text of ints": [str(n) for n in range(12)],
    "ints": list(range(12)),
    "negative": [-2, 10, -10, 0],
    "whole": [5.0, 10.0, 9.0],
    "text": ["b", "a", "C"],
    "mixed": ["10", "9", "cat"],
    "mixed types": [10, 9, "cat"],
    "zeros": ["7", "07", "10"],
}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("make", MAKERS, ids=case_ids)
def test_classes_have_the_same_numbers_in_every_source(tmp_path, monkeypatch, make, name):
    names = NAMES[name][::-1]
    if not MAKERS[make](names):
        pytest.skip("the container does not hold such labels")
    monkeypatch.setitem(globals(), "X", np.zeros((12, 2), np.float32))
    monkeypatch.setitem(globals(), "PATHS", [f"{number}.png" for number in range(12)])
    index = opened(make, tmp_path, names)
    if name == "whole" and make in (make_npz, make_column):  # the dtype says: targets
        assert target_of(index) == names
        return
    ordered = order_classes(map(str, names))
    found = dict(zip(map(str, names), target_of(index), strict=True))
    if make is make_folder:
        found = {record.label: rank for record, rank in zip(index, target_of(index), strict=True)}
    if name == "zeros" and make is make_tar:  # members cls are numbers, as in WebDataset
        assert [found[text] for text in ("7", "07", "10")] == [0, 0, 1]
        return
    assert [found[text] for text in ordered] == list(range(len(names)))


# ---- names of columns ----------------------------------------------------------------------------


def table(kind, folder, **columns):
    """Return a table of these columns as a csv, a data frame or a Parquet file."""
    if kind == "csv":
        rows = zip(*columns.values(), strict=True)
        lines = [",".join("" if cell is None else str(cell) for cell in row) for row in rows]
        (folder / "t.csv").write_text("\n".join([",".join(columns), *lines]) + "\n")
        return folder / "t.csv"
    if kind == "frame":
        return pandas().DataFrame(columns)
    pytest.importorskip("pyarrow.parquet")
    paths = {"filename", "file_name", "file", "path", "filepath", "image", "photo"}
    encoded = {
        name: [str(cell).encode() for cell in column] if name in paths else column
        for name, column in columns.items()
    }
    pandas().DataFrame(encoded).to_parquet(folder / "t.parquet")
    return folder / "t.parquet"


TABLES = pytest.mark.parametrize("kind", ["csv", "frame", "parquet"])


@TABLES
@pytest.mark.parametrize("name", ["filename", "file_name", "file", "path", "filepath", "image"])
def test_files_have_one_of_six_names(tmp_path, kind, name):
    index = open_index(table(kind, tmp_path, label=["b", "a"], **{name: PATHS[:2]}))
    assert (len(index), target_of(index)) == (2, [1, 0])


@TABLES
@pytest.mark.parametrize(
    "other", ["label_id", "labels", "label_name", "Label", "label 1", "labelx"]
)
def test_a_column_that_begins_with_label_is_no_label(tmp_path, kind, other):
    columns = {"filename": PATHS[:2], "label": [1, 0], other: ["ant", "bee"]}
    source = table(kind, tmp_path, **columns)
    with pytest.raises(DataError, match=rf"the column {other!r}.*columns={{'label': {other!r}}}"):
        open_index(source)
    assert target_of(open_index(source, columns={"label": other})) == [0, 1]
    assert target_of(open_index(source, columns={"label": "label"})) == [1, 0]
    assert open_index(source, columns={"label": None}).labels == []


@TABLES
@pytest.mark.parametrize("others", [["species"], ["width", "height"]])
def test_a_table_of_other_columns_states_them(tmp_path, kind, others):
    source = table(kind, tmp_path, path=PATHS[:2], **{name: [3, 2] for name in others})
    with pytest.raises(
        DataError, match=f"no column label or class; found path, {', '.join(others)}; say"
    ):
        open_index(source)
    assert target_of(open_index(source, columns={"label": others[0]})) == [1, 0]
    index = open_index(source, columns={"label": None})
    assert (len(index), index.labels, index.ranks(np.arange(2))) == (2, [], None)


@TABLES
def test_a_column_class_has_the_labels_if_no_column_is_called_label(tmp_path, kind):
    columns = {"path": PATHS[:2], "class": ["bee", "ant"], "split": ["train", "test"]}
    source = table(kind, tmp_path, **columns)
    assert target_of(open_index(source)) == [1, 0]
    assert target_of(open_index(source, classes=["cat", "bee", "ant"])) == [1, 2]
    source = table(kind, tmp_path, **columns, label=[5, 6])
    assert target_of(open_index(source)) == [0, 1]


@TABLES
def test_a_table_of_files_alone_has_no_labels(tmp_path, kind):
    index = open_index(table(kind, tmp_path, path=PATHS[:2]))
    assert (len(index), index.labels, index.ranks(np.arange(2))) == (2, [], None)


@TABLES
def test_two_columns_of_files_are_an_error(tmp_path, kind):
    source = table(kind, tmp_path, path=PATHS[:2], image=PATHS[2:4], label=[1, 0])
    with pytest.raises(DataError, match=r"several columns of files .*columns={'image': 'path'}"):
        open_index(source)
    assert target_of(open_index(source, columns={"image": "image"})) == [1, 0]


@TABLES
def test_columns_may_have_any_name(tmp_path, kind):
    source = table(kind, tmp_path, photo=PATHS[:2], breed=["b", "a"])
    if kind != "parquet":
        cure = r"open_index\(source, columns={'image': 'photo', 'label': 'breed'}\)"
        with pytest.raises(DataError, match=f"no column of files .*; found photo, breed; .*{cure}"):
            open_index(source)
    index = open_index(source, columns={"image": "photo", "label": "breed"})
    assert (len(index), index.labels, target_of(index)) == (2, ["a", "b"], [1, 0])
    with pytest.raises(DataError, match="no column 'king', but it needs one; found photo, breed"):
        open_index(source, columns={"image": "photo", "label": "king"})


@TABLES
def test_rows_with_several_labels(tmp_path, kind):
    source = table(kind, tmp_path, path=PATHS[:3], label=["b", None, "a"], label2=["c", "a", None])
    index = open_index(source)
    assert [record.label for record in index] == ["b", "c", "a", "a"]
    assert [record.labels for record in index] == [("b", "c"), ("b", "c"), ("a",), ("a",)]
    assert target_of(index) == [1, 2, 0, 0]
    source = table(kind, tmp_path, path=PATHS[:2], label=["b", None], label2=["c", None])
    assert [record.labels for record in open_index(source, missing=-1)] == [("b", "c")] * 2 + [()]
    assert [record.label for record in open_index(source, missing="drop")] == ["b", "c"]
    source = table(kind, tmp_path, path=PATHS[:2], label=[0.5, 1.5], label1=[2.5, 3.0])
    assert target_of(open_index(source)) == [[0.5, 2.5], [1.5, 3.0]]


@pytest.mark.parametrize(
    "labels",
    [["10", "9", "7"], ["b", "a", "b"], ["0.5", "2", "1"], ["5.0", "7.0", "5.0"], ["7", "", "8"]],
)
def test_a_csv_and_its_data_frame_agree(tmp_path, labels):
    for number in range(3):
        (tmp_path / f"{number}.png").touch()
    lines = [f"{tmp_path}/{number}.png,{label}\n" for number, label in enumerate(labels)]
    (tmp_path / "t.csv").write_text("path,label\n" + "".join(lines))
    options = {"missing": "drop"} if "" in labels else {}
    file = open_index(tmp_path / "t.csv", **options)
    frame = open_index(pandas().read_csv(tmp_path / "t.csv"), **options)
    assert [record.url for record in file] == [record.url for record in frame]
    assert (target_of(file), file.skipped) == (target_of(frame), frame.skipped)
    numbers = np.arange(len(file))
    if "0.5" in labels:
        assert file.targets(numbers).dtype == frame.targets(numbers).dtype == np.float32


# ---- Datasets and providers ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "target", [np.array([5, np.nan, 7]), np.array([5, None, 7], object)], ids=["float", "object"]
)
def test_datasets_and_array_providers(target):
    x = np.arange(6.0).reshape(3, 2)
    fields = {"input": x, "target": target}
    with pytest.raises(DataError, match="sample 1 of the Dataset has no target"):
        Dataset(fields)
    with pytest.raises(DataError, match="sample 1 of label has no label"):
        ArrayProvider(x, target)
    kept = Dataset(fields, missing="drop")
    assert (kept.input().tolist(), kept.target().tolist()) == (x[[0, 2]].tolist(), [5, 7])
    assert Dataset(fields, missing=-1).target().tolist() == [5, -1, 7]
    with ArrayProvider(x, target, missing="drop") as provider:
        (batch,) = provider
        assert (provider.skipped, batch.count) == (1, 2)
    assert batch.input.input.tolist() == x[[0, 2]].tolist()
    assert batch.target.input.tolist() == [5, 7]
    (batch,) = ArrayProvider(x, target, missing=-1)
    assert batch.target.input.tolist() == [5, -1, 7]
    with ArrayProvider(x, {"a": target, "c": [None, 2, 3]}, missing="drop") as provider:
        (batch,) = provider
        assert (provider.skipped, batch.count) == (2, 1)
    assert batch.input.input.tolist() == x[[2]].tolist()


def test_missing_text_has_no_minus_one():
    target = np.array(["a", None], object)
    with pytest.raises(DataError, match=r"text has no -1: give missing=-1 to open_index"):
        Dataset({"x": X[:2], "y": target}, missing=-1)
    assert Dataset({"x": X[:2], "y": target}, missing="drop").y().tolist() == ["a"]


@pytest.mark.parametrize("make", [lambda: Sample(X, missing=-1), lambda: Dataset(X, missing=-1)])
def test_missing_is_for_targets(make):
    with pytest.raises(DataError, match="missing=-1 is for a Dataset of a mapping"):
        make()


def test_providers_of_files(tmp_path):
    (tmp_path / "x.csv").write_text("1,2\n3,4\n5,6\n")
    (tmp_path / "y.csv").write_text("5\n\nnan\n7\n")
    rec = make_rec(tmp_path, [5, None, 7])

    def csv(**options):
        paths = tmp_path / "x.csv", (2,)
        return CSVProvider(*paths, label_csv=tmp_path / "y.csv", batch_size=3, **options)

    def records(**options):
        return ImageRecordProvider(rec, (3, 2, 2), batch_size=3, **options)

    with pytest.raises(DataError, match=r"y\.csv, line 3 has no label"):
        csv()
    with pytest.raises(DataError, match=r"a\.rec: the record at byte \d+ has no label"):
        records()
    with csv(missing="drop") as provider:
        (batch,) = provider
        assert (batch.input.input[:2].tolist(), provider.skipped) == ([[1, 2], [5, 6]], 1)
        assert batch.target.input.tolist() == [5, 7, 0]
    with csv(missing=-1) as provider:
        assert next(iter(provider)).target.input.tolist() == [5, -1, 7]
    for make in (csv, records):
        with make(missing="drop", num_parts=2, part_index=1) as part:
            assert (part.skipped, part.num_batches) == (1, 1)
    with records(label_name=None) as provider:
        assert (provider.skipped, provider.provide_label) == (0, [])


# ---- members of archives that are no labels ------------------------------------------------------


@pytest.mark.parametrize(
    ("suffix", "bad", "columns"),
    [
        ("cls", b"\xff", None),
        ("json", b"{", {"label": "json:y"}),
        ("json", b"{}", {"label": "json:y"}),
    ],
)
def test_one_bad_label_costs_one_record(tmp_path, suffix, bad, columns):
    good = {"cls": b"7", "json": b'{"y": 7}'}[suffix]
    members = [(f"{n}.jpg", b"i") for n in range(3)]
    members = [
        member
        for n, image in enumerate(members)
        for member in (image, (f"{n}.{suffix}", bad if n == 1 else good))
    ]
    (tmp_path / "a.tar").write_bytes(tar(members))
    with pytest.raises(DataError, match=rf"1\.{suffix} is not a label: .* \(1 of 3 records have"):
        open_index(tmp_path / "a.tar", columns=columns)
    index = open_index(tmp_path / "a.tar", columns=columns, missing="drop")
    assert (index.skipped, target_of(index)) == (1, [0, 0])
    assert target_of(open_index(tmp_path / "a.tar", columns=columns, missing=-1)) == [0, -1, 0]


def test_members_cls_are_numbers_or_words(tmp_path):
    assert target_of(opened(make_tar, tmp_path, [0.5, 2, 1])) == [0.5, 2, 1]
    assert opened(make_tar, tmp_path, ["bee", "ant", "bee"]).labels == ["ant", "bee"]
    assert opened(make_tar, tmp_path, [3, "ant", 12]).labels == ["12", "3", "ant"]


def test_a_member_that_no_sample_has_is_no_label(tmp_path):
    (tmp_path / "a.tar").write_bytes(tar([("0.jpg", b"i"), ("0.cls", b"1")]))
    with pytest.raises(DataError, match=r"sample 0 has no label \(1 of 1"):
        open_index(tmp_path / "a.tar", columns={"label": "class"})


# ---- masks, which are no labels ----------------------------------------------------------------


@pytest.mark.parametrize("as_path", [str, Path])
def test_names_of_images_are_no_labels(as_path, tmp_path):
    masks = [as_path(path.replace("photos", "masks")) for path in PATHS]
    with pytest.raises(DataError, match=r"names of images.*collate={'image': Collator"):
        open_index({"x": PATHS, "y": masks})
    table = tmp_path / "list.csv"
    table.write_text("filename,label\n1.png,masks/1.png\n2.png,masks/2.png\n")
    with pytest.raises(DataError, match=r"names of images, such as 'masks/1.png'"):
        open_index(str(table))
    names = ["a.png", *"bcdefghi"]  # one class may have such a name
    assert open_index({"x": PATHS, "y": names}).labels == names
