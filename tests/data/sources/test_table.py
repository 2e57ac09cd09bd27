"""csv and tsv files as indexes."""

import bz2
import gzip
import io
import lzma
import re
import time
import zipfile

import numpy as np
import pytest

from layoutkit import DataError
from layoutkit.data import CSVProvider, Record, open_index
from layoutkit.data.io import filesystem
from tests.helpers.loopback import serving

# Files 1 to 20 with the labels A, B and C, as in the tests of the original library.
LABELLED = {
    "A": [1, 2, 3, 5, 6, 9, 10, 11, 12, 13, 14, 16, 18, 19, 20],
    "B": [3, 4, 7, 8, 9, 13, 14, 15, 17],
    "C": [9],
}


def written(folder, text, name="index.csv"):
    path = folder / name
    path.write_bytes(text.encode())
    return path


def rows_of(index):
    return [(record.url.rpartition("/")[2], record.label) for record in index]


@pytest.fixture
def table(tmp_path):
    rows = [
        ",".join([str(n), *(label for label in "ABC" if n in LABELLED[label])])
        for n in range(1, 21)
    ]
    return written(tmp_path, "\n".join(["filename,label1,label2,label3", *rows]) + "\n")


def test_records_stand_in_file_order_one_for_each_label(table):
    index = open_index(table)
    wanted = [(str(n), x) for n in range(1, 21) for x in "ABC" if n in LABELLED[x]]
    assert rows_of(index) == wanted
    assert (len(index), index.item_count(), index.kind) == (25, 25, "csv")
    assert index.labels == ["A", "B", "C"]
    assert index.label_index == {"A": 0, "B": 1, "C": 2}
    assert [index.item_count(label) for label in "ABC"] == [15, 9, 1]
    nine = [record for record in index if record.url.endswith("/9")]
    assert [record.label for record in nine] == ["A", "B", "C"]
    assert {record.labels for record in nine} == {("A", "B", "C")}
    assert [record.position for record in index] == list(range(25))
    for label, numbers in LABELLED.items():
        found = [index.item_at(i, label) for i in range(index.item_count(label))]
        assert [record.url for record in found] == [f"{table.parent}/{n}" for n in numbers]
        assert {record.label for record in found} == {label}


def test_an_index_is_a_sequence(table):
    index = open_index(str(table))
    assert index[-1] == index[24] == index.item_at(-1)
    assert [*index[2:5]] == [index[2], index[3], index[4]]
    assert next(reversed(index)) == index[24]
    assert index[3] in index
    assert index.index(index[3]) == 3
    assert index.item_at(-1, "B").url.endswith("/17")


@pytest.mark.parametrize("i", [25, -26, 10**30])
def test_a_record_that_is_not_there(table, i):
    with pytest.raises(DataError, match="there are 25") as caught:
        open_index(table)[i]
    assert isinstance(caught.value, IndexError)


@pytest.mark.parametrize("ask", ["item_count", "item_at"])
@pytest.mark.parametrize("label", ["D", ["A"]])
def test_a_label_that_is_not_there(table, ask, label):
    index = open_index(table)
    with pytest.raises(DataError, match="no label"):
        index.item_count(label) if ask == "item_count" else index.item_at(0, label)


def test_real_csv(tmp_path):
    text = (
        "\ufefflabel_b,filename,note,label_a\r\n"
        '"x, y",a.jpg,1,\r\n'
        "\r\n"
        ',"b ""2"".jpg",2,"two\nlines"\r\n'
        "   \r\n"
        "é,c.jpg,3,é\r\n"
        ",d.jpg\r\n"
    )
    columns = {"label": ["label_b", "label_a"]}
    index = open_index(written(tmp_path, text), columns=columns, missing=-1)
    assert rows_of(index) == [
        ("a.jpg", "x, y"),
        ('b "2".jpg', "two\nlines"),
        ("c.jpg", "é"),
        ("c.jpg", "é"),
        ("d.jpg", None),
    ]
    assert index[-1].labels == ()
    assert index[2].labels == ("é", "é")


def test_rows_without_labels_are_records_and_duplicates_stay(tmp_path):
    index = open_index(written(tmp_path, "filename\na\nb\na\n"))
    assert rows_of(index) == [("a", None), ("b", None), ("a", None)]
    assert index.labels == []
    mixed = open_index(written(tmp_path, "filename,label\na,X\nb,\na,X\n"), missing=-1)
    assert rows_of(mixed) == [("a", "X"), ("b", None), ("a", "X")]
    assert mixed.item_count("X") == 2


def test_parts_of_files(tmp_path):
    text = "filename,offset,length,label\n1.txt,0,2,A\n2.txt,3,,B\n3.txt,,,B\n"
    index = open_index(written(tmp_path, text))
    assert [(r.offset, r.length) for r in index] == [(0, 2), (3, None), (None, None)]
    assert index.records(np.arange(3)) == [*index]
    assert index[0] == Record(f"{tmp_path}/1.txt", 0, 2, None, "A", ("A",), 0)


def test_tsv(tmp_path):
    text = "filename\tlabel1\tlabel2\na,b.jpg\t\tX\n"
    index = open_index(written(tmp_path, text, "index.tsv"))
    assert (rows_of(index), index.kind) == ([("a,b.jpg", "X")], "tsv")
    other = open_index(written(tmp_path, text, "index.txt"), kind="tsv")
    assert rows_of(other) == rows_of(index)


def test_file_names_begin_with_the_prefix_unless_they_are_absolute(tmp_path):
    path = written(tmp_path, "filename\na/b.jpg\n/c.jpg\nhttp://host/d.jpg\n")
    assert [r.url for r in open_index(path)] == [
        f"{tmp_path}/a/b.jpg",
        "/c.jpg",
        "http://host/d.jpg",
    ]
    written(tmp_path, "hostname\nhttps://cdn/dir\n", "index-meta.csv")
    index = open_index(path)
    assert (index.url_prefix, index[0].url) == ("https://cdn/dir", "https://cdn/dir/a/b.jpg")
    assert index[1].url == "/c.jpg"


@pytest.mark.parametrize(("index", "meta"), [("tsv", "tsv"), ("tsv", "csv"), ("csv", "tsv")])
def test_the_meta_file_is_csv_or_tsv(tmp_path, index, meta):
    path = written(tmp_path, "filename\na\n", f"i.{index}")
    written(tmp_path, "prefix\r\ns3://bucket/\r\n", f"i-meta.{meta}")
    assert open_index(path, schemes=("s3",))[0].url == "s3://bucket/a"


def test_a_meta_file_without_a_second_line(tmp_path):
    path = written(tmp_path, "filename\na\n")
    written(tmp_path, "hostname\n", "index-meta.csv")
    with pytest.raises(DataError, match="no second line"):
        open_index(path)


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("", 1, "filename"),
        ("name,label\na,b\n", 1, "no column of files .*; found name, label"),
        ("filename,filename\na,b\n", 1, "2 columns 'filename'"),
        ("filename,offset,offset\na,1,2\n", 1, "2 columns 'offset'"),
        ("filename,label\na,A\n\n,B\n", 4, "file name is empty"),
        ("filename,offset\na,1\nb,x\n", 3, "offset 'x' is not a number"),
        ("filename,offset\na,-1\n", 2, "offset '-1' is not a number"),
        ("filename,length\na,1.5\n", 2, "length '1.5' is not a number"),
        ("filename,label\na,A,B\n", 2, "3 cells under 2 columns"),
        ('filename,label\na,"A\n', 2, "unexpected end of data"),
    ],
)
def test_a_wrong_row_is_named_by_file_and_line(tmp_path, text, line, says):
    path = written(tmp_path, text)
    with pytest.raises(DataError, match=f"index.csv, line {line}: .*{says}"):
        open_index(path)


def test_a_table_at_a_url():
    fsspec = pytest.importorskip("fsspec")
    memory = fsspec.filesystem("memory")
    memory.pipe("/tables/index.csv", b"filename,label\na,X\n")
    index = open_index("memory://tables/index.csv")
    assert index[0] == Record("memory://tables/a", label="X", labels=("X",), position=0)
    memory.pipe("/tables/index-meta.csv", b"hostname\nhttp://host\n")
    assert open_index("memory://tables/index.csv")[0].url == "http://host/a"


def test_tables_and_parts_behind_http(site):
    site.files = {
        "/index.csv": b"filename,label\na,X\n",
        "/index-meta.csv": b"hostname\nhttp://cdn\n",
        "/parts/": b'<a href="one">one</a>',
        "/parts/one": b"1\n22\n",
    }
    with serving(site) as home:
        assert open_index(f"{home}/index.csv")[0].url == "http://cdn/a"
        index = open_index(f"{home}/parts/")
        assert [(r.url, r.length) for r in index] == [(f"{home}/parts/one", n) for n in (1, 2)]
        for name in ("none.csv", "none", "parts/one"):
            with pytest.raises(DataError, match=f"{name} cannot be read"):
                open_index(f"{home}/{name}")


@pytest.mark.parametrize(
    "path", ["nothing.csv", "memory://none/nothing.csv", "nosuch://x/y.csv", "nothing"]
)
def test_what_is_not_there(path, tmp_path):
    with pytest.raises(DataError, match=path):
        open_index(path if "://" in path else tmp_path / path)


def test_urls_without_fsspec(monkeypatch):
    monkeypatch.setattr(
        filesystem, "_url_to_fs", filesystem._url_to_fs.__wrapped__.__wrapped__
    )  # without its cache, as at the first use
    monkeypatch.setitem(__import__("sys").modules, "fsspec.core", None)
    with pytest.raises(DataError, match=r"layoutkit\[data\]"):
        open_index("memory://tables/index.csv")


def test_sources_that_are_none():
    with pytest.raises(DataError, match="kind='xml'; it must be one of"):
        open_index("a.csv", kind="xml")
    with pytest.raises(DataError, match="kind='csv' needs a path"):
        open_index(np.zeros(3), kind="csv")
    with pytest.raises(TypeError):
        open_index("a.csv", partitons=2)


def test_a_hundred_thousand_rows_open_fast_and_stay_small(tmp_path):
    text = io.StringIO("filename,offset,length,label1,label2\n")
    text.seek(0, io.SEEK_END)
    for i in range(100_000):
        text.write(f"folder/file{i:06}.jpg,{i},10,L{i % 100},\n")
    path = written(tmp_path, text.getvalue())
    start = time.process_time()
    index = open_index(path)
    assert time.process_time() - start < 5  # 0.2 s; quadratic time would be far longer
    assert (len(index), index.item_count("L7")) == (100_000, 1000)
    assert index[99_999].url.endswith("folder/file099999.jpg")
    assert index.item_at(999, "L7").offset == 99_907


def test_offsets_that_fit_and_that_do_not(tmp_path):
    largest = 2**63 - 1
    assert open_index(written(tmp_path, f"filename,offset\na,{largest}\n"))[0].offset == largest
    for column in ("offset", "length"):
        path = written(tmp_path, f"filename,{column}\na,0\nb,{largest + 1}\n")
        with pytest.raises(DataError, match=f"index.csv, line 3: {column} '9223372036854775808'"):
            open_index(path)


@pytest.mark.parametrize("line", [1, 2, 4001])
def test_the_line_that_is_no_utf8(tmp_path, line):
    lines = [b"filename,label", *[b"abc.png,\xc3\xa4"] * 6000]
    lines[line - 1] += b"\xff"
    path = tmp_path / "index.csv"
    path.write_bytes(b"\n".join(lines))
    with pytest.raises(DataError, match=f"index.csv, line {line}: it is not UTF-8 text"):
        open_index(path)


def test_slices_that_are_none(tmp_path):
    index = open_index(written(tmp_path, "filename\na\nb\nc\n"))
    assert [record.position for record in index[::-2]] == [2, 0]
    assert [*index[5:]] == []


def zipped(data):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("index.csv", data)
    return file.getvalue()


COMPRESS = {"gzip": gzip.compress, "bzip2": bz2.compress, "xz": lzma.compress, "zip": zipped}


@pytest.mark.parametrize("name", COMPRESS)
def test_a_compressed_table_is_named(tmp_path, name):
    content = COMPRESS[name](b"filename,label\na.png,cat\n")
    (tmp_path / "index.csv").write_bytes(content)
    message = rf"index\.csv is compressed \({name}\); unpack it"
    with pytest.raises(DataError, match=message):
        open_index(tmp_path / "index.csv")
    with (
        pytest.raises(DataError, match=message),
        CSVProvider(tmp_path / "index.csv", (2,), batch_size=1) as provider,
    ):
        list(provider)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_a_table_in_another_encoding_is_named(tmp_path, encoding):
    (tmp_path / "index.csv").write_bytes("filename,label\na.png,cat\n".encode(encoding))
    with pytest.raises(DataError, match=r"index\.csv is UTF-16 or UTF-32 text.*; save it as UTF-8"):
        open_index(tmp_path / "index.csv")
    (tmp_path / "x.csv").write_bytes("1,2\n3,4\n".encode(encoding))
    with pytest.raises(DataError, match=r"x\.csv is UTF-16 or UTF-32 text.*; save it as UTF-8"):
        next(iter(CSVProvider(tmp_path / "x.csv", (2,), batch_size=1)))


@pytest.mark.parametrize("cell", ["Größe", "日本", "1,2é", "\u00a05"])
def test_cells_in_messages_are_utf8(tmp_path, cell):
    text = cell.partition(",")[2] or cell
    (tmp_path / "x.csv").write_text(f"1,2\n{cell},4\n", encoding="utf-8")
    with pytest.raises(DataError, match=re.escape(repr(text))):
        list(CSVProvider(tmp_path / "x.csv", (2,), batch_size=2))
