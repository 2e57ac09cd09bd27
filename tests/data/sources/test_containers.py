"""Tar archives, Parquet and TFRecord files as indexes."""

import gzip
import itertools
import json
import os
import pickle
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest

from layoutkit import Collator, DataError
from layoutkit.data import open_index, sampled_batcher
from layoutkit.data.io import crc32c as checksums
from layoutkit.data.io import parquet as parquetfiles
from layoutkit.data.io.reader import Reader
from layoutkit.data.labels import NumberLabels, label_columns, rank_whole_numbers
from layoutkit.data.sources.ranged import RecordColumns
from layoutkit.images import read
from tests.helpers.loopback import serving
from tests.helpers.photographs import encoded
from tests.helpers.record_files import contents, crc32c, tar, tfrecords


def sample(key, image=b"J", suffix="jpg", **more):
    return [(f"{key}.{suffix}", image), *((f"{key}.{name}", data) for name, data in more.items())]


@pytest.mark.parametrize(
    ("pattern", "images"),
    [
        ("s[1].tar", [b"1"]),
        ("s*.tar", [b"2"]),
        ("s?.tar", [b"2", b"0"]),
        ("s{[1],*}.tar", [b"1", b"2"]),
        ("{s[1],s[0-9],s1}.tar", [b"1", b"0", b"0"]),
        ("*", [b"2", b"0", b"1"]),
    ],
)
@pytest.mark.parametrize("prefix", ["", "file://"])
def test_what_exists_is_meant_and_no_pattern(tmp_path, pattern, images, prefix):
    odd = tmp_path / "x[1]"
    odd.mkdir()
    for number, name in enumerate(["s1", "s[1]", "s*"]):
        (odd / f"{name}.tar").write_bytes(tar(sample("a", str(number).encode())))
    assert contents(open_index(f"{prefix}{odd}/{pattern}", kind="tar")) == images


# ---- tar -------------------------------------------------------------------------------------


def test_neighbours_with_one_key_are_a_sample(tmp_path):
    members = [
        *sample("a/1", b"one", cls=b" 7\n", txt=b"text"),
        *sample("a/2", b"two", "PNG", cls=b"3"),
        ("a/2.seg.jpg", b"a mask, not the image"),
        *sample("b/2", b"three" * 300, "webp", cls=b"7"),
        ("b/none.cls", b"5"),
        ("b/empty.jpg", b""),
        ("README", b"no suffix"),
        (".hidden.jpg", b"x"),
        *sample("b/2", b"same name", cls=b"3"),
        *sample("b/2", b"same key", cls=b"4"),
        *sample("x", b"no label"),
    ]
    (tmp_path / "s.tar").write_bytes(tar(members))
    index = open_index(tmp_path / "s.tar", missing=-1)
    expected = [b"one", b"two", b"three" * 300, b"same name", b"same key", b"no label"]
    assert contents(index) == expected
    assert [record.label for record in index] == [7, 3, 7, 3, 4, None]
    assert [record.labels for record in index] == [(7,), (3,), (7,), (3,), (4,), ()]
    assert [record.position for record in index] == [0, 1, 2, 5, 6, 7]
    assert (index.kind, index.labels, index.skipped) == ("tar", [3, 4, 7], 2)
    data = (tmp_path / "s.tar").read_bytes()
    for record, image in zip(index, expected, strict=True):
        assert data[record.offset : record.offset + record.length] == image


@pytest.mark.parametrize(
    ("columns", "images", "labels"),
    [
        (None, [b"j1", b"j2"], ["bee", "ant"]),
        ({"image": "png"}, [b"p1"], ["bee"]),
        ({"image": ("png", "jpg")}, [b"p1", b"j2"], ["bee", "ant"]),
        ({"label": "json:n"}, [b"j1", b"j2"], [4, -1]),
        ({"label": ".json:word"}, [b"j1", b"j2"], ["x", "y"]),
        ({"label": "cls2"}, [b"j1", b"j2"], ["8", None]),
        ({"label": "json:half", "image": ".JPG"}, [b"j1", b"j2"], [None, 2]),
    ],
)
def test_columns_say_which_members_count(tmp_path, columns, images, labels):
    about = [{"n": 4, "word": "x", "half": 0.5}, {"n": -1, "word": "y", "half": 2}]
    first, second = (json.dumps(each).encode() for each in about)
    members = [
        *sample("1", b"j1", png=b"p1", txt=b"bee", json=first, cls2=b"8"),
        *sample("2", b"j2", txt=b"ant", json=second),
    ]
    (tmp_path / "s.tar").write_bytes(tar(members))
    index = open_index(tmp_path / "s.tar", columns=columns, missing=-1)
    assert contents(index) == images
    assert [record.label for record in index] == labels
    if columns and "half" in columns.get("label", ""):
        assert index.targets(np.arange(2)).tolist() == [0.5, 2.0]


def test_numbers_in_json_are_targets(tmp_path):
    members = [*sample("1", json=b'{"box": [1, 2.5]}'), *sample("2", json=b'{"box": [3, 4]}')]
    (tmp_path / "s.tar").write_bytes(tar(members))
    index = open_index(tmp_path / "s.tar", columns={"label": "json:box"})
    with sampled_batcher(
        index, batch_size=2, processor=lambda data, out: np.frombuffer(data, np.uint8)
    ) as batcher:
        (batch,) = batcher
    assert batch.target.input.tolist() == [[1.0, 2.5], [3.0, 4.0]]


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"photo": "jpg"}, "columns="),
        ("jpg", "columns="),
        ({"image": 3}, "suffix"),
        ({"image": [""]}, "suffix"),
        ({"label": "cls:key"}, "json:key"),
        ({"label": "json"}, "json:label"),
        ({"label": 4}, "suffix"),
    ],
)
def test_columns_that_make_no_sense_are_refused(tmp_path, columns, words):
    (tmp_path / "s.tar").write_bytes(tar(sample("1")))
    with pytest.raises(DataError, match=words):
        open_index(tmp_path / "s.tar", columns=columns)


@pytest.mark.parametrize(
    ("member", "columns", "words"),
    [
        (("2.cls", b"\xff"), None, r"s\.tar, 2\.cls is not a label"),
        (("2.txt", b"\xff"), None, r"s\.tar, 2\.txt is not a label"),
        (("2.json", b"{"), {"label": "json:a"}, r"2\.json is not a label"),
        (("2.json", b"[]"), {"label": "json:a"}, "it has no 'a'"),
        (("2.json", b'{"a": {}}'), {"label": "json:a"}, r"s\.tar, sample 2: the label {}"),
        (("2.json", b'{"a": [1]}'), {"label": "json:a"}, r"\[1\] is not a single label"),
        (("2.json", b"[" * 10_000), {"label": "json:a"}, r"2\.json is not a label"),
    ],
)
def test_what_is_no_label_is_named(tmp_path, member, columns, words):
    members = [*sample("1", json=b'{"a": 1}', cls=b"1"), *sample("2"), member]
    (tmp_path / "s.tar").write_bytes(tar(members))
    with pytest.raises(DataError, match=words):
        open_index(tmp_path / "s.tar", columns=columns)


@pytest.mark.parametrize("name", ["s.tar.gz", "s.tgz", "s.tar"])
def test_compressed_archives_are_refused(tmp_path, name):
    (tmp_path / name).write_bytes(gzip.compress(tar(sample("1"))))
    with pytest.raises(DataError, match=r"gzip.* unpack"):
        open_index(tmp_path / name)


@pytest.mark.parametrize("cut", [0, 1, 513, 1024, 1100, 1536, 2048, 2500])
def test_half_an_archive_gives_what_lies_before(tmp_path, cut):
    data = tar([*sample("1", b"a" * 600), *sample("2", b"b" * 600)])[: 2 * 1536]
    (tmp_path / "s.tar").write_bytes(data[: len(data) - cut])
    found = contents(open_index(tmp_path / "s.tar"))
    assert found[0] == b"a" * 600 if cut < 1960 else found[0] is None
    whole = 1 if cut < 425 else 0
    assert found[1:] == ([b"b" * 600] if whole else [None] if cut != 1536 and cut < 2000 else [])


def test_a_damaged_header_costs_what_lies_behind(tmp_path):
    data = bytearray(tar([*sample("1", b"a"), *sample("2", b"b"), *sample("3", b"c")]))
    data[1024 + 5] ^= 1  # in the second header, whose checksum then differs
    (tmp_path / "s.tar").write_bytes(data)
    index = open_index(tmp_path / "s.tar")
    assert contents(index) == [b"a", None]
    assert (index[1].offset, index[1].length) == (1024, None)
    (tmp_path / "s.tar").write_bytes(b"\1" * 5000)
    with pytest.raises(DataError, match=r"s\.tar is not a tar"):
        open_index(tmp_path / "s.tar")


def test_archives_at_urls_are_read_in_ranges(site):
    for part in range(3):
        members = [sample(f"{part}-{n}", b"%d" % n * 5000, cls=b"%d" % (n % 2)) for n in range(4)]
        site.files[f"/s-{part}.tar"] = tar([member for each in members for member in each])
    with serving(site) as home:
        index = open_index(f"{home}/s-{{0..2}}.tar", partition=1, partitions=2)
        assert site.asked == []  # no request before the first read
        assert contents(index) == [b"%d" % n * 5000 for n in (1, 3) * 3]
        assert index.labels == [0, 1]


@pytest.mark.parametrize("braces", [False, True])
@pytest.mark.parametrize("suffix", ["tar", "rec", "tfrecord", "npy", "csv", "safetensors"])
def test_the_error_for_a_missing_file_names_it_once(tmp_path, suffix, braces):
    if suffix == "safetensors":
        pytest.importorskip("safetensors", reason="it reads the file")
    name = "wd-{9..11}" if braces and suffix in ("tar", "rec", "tfrecord") else "wd-9"
    with pytest.raises(DataError, match=r"cannot be read: No such file or directory$") as error:
        open_index(tmp_path / f"{name}.{suffix}")
    assert str(error.value).count("wd-9") == 1


# ---- TFRecord --------------------------------------------------------------------------------


def test_tfrecords_are_those_of_the_original(tmp_path):
    golden = "0500000000000000 eab2043e 68656c6c6f bb1f1c19 0000000000000000 29039807 d8ea82a2"
    assert tfrecords([b"hello", b""]) == bytes.fromhex(golden)
    for name in ("a.tfrecord", "a.tfrecords", "a.tfrecord-00000-of-00001"):
        (tmp_path / name).write_bytes(bytes.fromhex(golden))
        index = open_index(tmp_path / name)
        assert (index.kind, index.labels) == ("tfrecord", [])
        assert contents(index) == [b"hello", b""]
        assert [(r.offset, r.length, r.label) for r in index] == [(0, 21, None), (21, 16, None)]


@pytest.fixture(params=[True, False], ids=["library", "without"])
def checked(request, monkeypatch):
    """Run with and without a library for checksums of data."""
    found = crc32c if request.param else None
    monkeypatch.setattr(checksums, "library", lambda: found)
    monkeypatch.setattr("layoutkit.data.sources.tfrecord.library", lambda: found)
    return request.param


def test_large_and_small_records_are_found(tmp_path, monkeypatch):
    monkeypatch.setattr("layoutkit.data.sources.tfrecord.BLOCK", 1000)
    sizes = [*range(0, 300, 7), 5000, 3, 70_000, *[40_000] * 10, 1]
    payloads = [bytes([n % 251]) * size for n, size in enumerate(sizes)]
    monkeypatch.setattr(checksums, "library", lambda: None)
    monkeypatch.setattr("layoutkit.data.sources.tfrecord.library", lambda: None)
    # Zeros in place of checksums of the data, which take long to compute and are not checked here.
    parts = [_head(len(payload)) + payload + bytes(4) for payload in payloads]
    (tmp_path / "a.tfrecord").write_bytes(b"".join(parts))
    assert contents(open_index(tmp_path / "a.tfrecord")) == payloads


@pytest.mark.parametrize("bound", [-(1 << 24), 1 << 24])
@pytest.mark.parametrize("beside", [-1, 0, 1])
def test_integer_labels_are_exact_at_the_bound_of_float32(bound, beside):
    label = bound + beside
    assert list(label_columns([3, label, None, label]).names) == sorted([3, label])
    assert label_columns([3, label, None, label]).codes.tolist().count(-1) == 1


@pytest.mark.parametrize("numbers", [[5, 3, 5], [-2, 4, -2, 1], [1 << 61, -(1 << 61), 7, 7]])
def test_ranks_of_dense_and_of_sparse_numbers(numbers):
    labels, ranks = rank_whole_numbers(np.array(numbers))
    assert labels == sorted(set(numbers))
    assert [labels[rank] for rank in ranks] == numbers


@pytest.mark.parametrize("step", [1, 2, 3])
@pytest.mark.parametrize("width", [1, 2])
def test_labels_of_a_strided_part_are_those_of_the_records(width, step):
    """Test all positions of two records without labels."""
    rows = [tuple(float(10 * n + k) for k in range(width)) for n in range(9)]
    for without in itertools.combinations(range(9), 2):
        kept = [() if n in without else row for n, row in enumerate(rows)]
        widths = np.array([len(row) for row in kept])
        whole = NumberLabels(widths, np.array(sum(kept, ()), np.float32))
        for start in range(step):
            part = whole.chosen(slice(start, None, step))
            numbers = np.arange(len(kept[start::step]))
            assert part.tuples(numbers) == kept[start::step]


def test_a_partition_keeps_no_columns_of_the_whole():
    """A view of a column would keep the whole column in memory."""
    column = np.arange(9)
    whole = RecordColumns(["a.rec"], column, column, column, column, [0], column)
    part = whole.chosen(slice(1, None, 3))
    for kept in (part.file, part.offsets, part.lengths, part.positions, part.codes):
        assert kept.tolist() == [1, 4, 7]
        assert not np.shares_memory(kept, column)
    part = whole._replace(positions=None, file=None).chosen(slice(1, None, 3))
    assert (part.file, part.positions.tolist(), part.positions.base) == (None, [1, 4, 7], None)


@pytest.mark.parametrize("damaged", [None, 6])
def test_every_small_block_finds_the_same_records(tmp_path, monkeypatch, damaged):
    """Test all sizes of blocks, so that the end of a block cuts headers at every position."""
    payloads = [bytes([65 + n]) * size for n, size in enumerate([3, 0, 30, 8, 61, 1, 12, 5, 90, 4])]
    data = bytearray(tfrecords(payloads))
    if damaged is not None:
        data[sum(16 + len(payload) for payload in payloads[:damaged])] ^= 1
    (tmp_path / "a.tfrecord").write_bytes(data)
    expected = payloads if damaged is None else [*payloads[:damaged], None]
    found = {}
    for max_gap in (1 << 15, 0):  # read in blocks; header by header
        monkeypatch.setattr("layoutkit.data.io.reader._MAX_GAP_LOCAL", max_gap)
        for block in range(16, 65):
            monkeypatch.setattr("layoutkit.data.sources.tfrecord.BLOCK", block)
            found[max_gap, block] = contents(open_index(tmp_path / "a.tfrecord"))
    assert [key for key, records in found.items() if records != expected] == []


def test_small_records_are_read_in_blocks(tmp_path, monkeypatch, read_lengths):
    (tmp_path / "a.tfrecord").write_bytes(tfrecords([b"data"] * 500))
    monkeypatch.setattr("layoutkit.data.sources.tfrecord.BLOCK", 2000)
    assert len(open_index(tmp_path / "a.tfrecord")) == 500
    assert read_lengths == [2000] * len(read_lengths)
    assert len(read_lengths) == 5  # of 100 records of 20 bytes each


def _head(size):
    data = size.to_bytes(8, "little")
    checksum = crc32c(data)
    masked = ((checksum >> 15 | checksum << 17) + 0xA282EAD8) & 0xFFFFFFFF
    return data + masked.to_bytes(4, "little")


def test_checksums_are_looked_at(tmp_path, checked):
    data = bytearray(tfrecords([b"first", b"second", b"third"]))
    data[13] ^= 1  # in the first record's data
    path = tmp_path / "a.tfrecord"
    path.write_bytes(data)
    first = None if checked else b"girst"
    assert contents(open_index(path))[1:] == [b"second", b"third"]
    assert (contents(open_index(path))[0] is None) == (first is None)
    data[21] ^= 1  # in the length of the second record
    path.write_bytes(data)
    index = open_index(path)
    assert len(index) == 2
    assert (index[1].offset, index[1].length, contents(index)[1]) == (21, None, None)


@pytest.mark.parametrize(("size", "length"), [(1 << 40, (1 << 40) + 16), ((1 << 40) + 1, None)])
def test_a_length_of_more_than_a_tebibyte_is_no_length(tmp_path, size, length):
    """Write a length with the right checksum and no data."""
    (tmp_path / "a.tfrecord").write_bytes(tfrecords([b"hello"]) + _head(size))
    index = open_index(tmp_path / "a.tfrecord")
    assert [record.length for record in index] == [21, length]
    assert contents(index) == [b"hello", None]


@pytest.mark.parametrize("cut", [1, 16, 20, 21, 22, 30])
def test_a_cut_file_gives_what_lies_before(tmp_path, checked, cut):
    path = tmp_path / "a.tfrecord"
    path.write_bytes(tfrecords([b"hello", b"there"])[:-cut])  # of 21 bytes each
    whole = [b"hello"] * (cut <= 21)
    assert contents(open_index(path)) == whole + [None] * (cut != 21)


@pytest.mark.parametrize("level", [1, 6, 9])
@pytest.mark.parametrize("library", [gzip, zlib], ids=["gzip", "zlib"])
def test_a_compressed_file_is_named(tmp_path, library, level):
    (tmp_path / "a.tfrecord").write_bytes(library.compress(tfrecords([b"hello"]), level))
    name = library.__name__
    with pytest.raises(DataError, match=rf"a\.tfrecord is compressed \({name}\).*; unpack it"):
        open_index(tmp_path / "a.tfrecord")


def test_checksums_are_those_of_the_library():
    library = pytest.importorskip("google_crc32c", reason="google-crc32c is not installed")
    for length in (0, 5, 2**33 + 7):
        stored = checksums.masked(library.value(length.to_bytes(8, "little")))
        assert checksums.masked_of_length(length) == stored
        assert checksums.masked(crc32c(length.to_bytes(8, "little"))) == stored


# ---- Parquet ---------------------------------------------------------------------------------


@pytest.fixture
def parquet():
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    import pyarrow.parquet

    return pyarrow.parquet


def write_parquet(parquet, path, rows=3, **columns):
    import pyarrow as pa

    parquet.write_table(pa.table(columns), path, row_group_size=rows)


def test_images_as_a_hub_keeps_them_are_read(tmp_path, parquet):
    images = [{"bytes": b"%d" % n, "path": f"{n}.jpg"} for n in range(10)]
    images[4] = None
    images[5] = {"bytes": None, "path": "5.jpg"}
    labels = [n % 3 for n in range(9)] + [None]
    write_parquet(parquet, tmp_path / "a.parquet", image=images, label=labels)
    index = open_index(tmp_path / "a.parquet", missing=-1)
    assert (index.kind, index.labels) == ("parquet", [0, 1, 2])
    assert contents(index) == [None if n in (4, 5) else b"%d" % n for n in range(10)]
    assert [record.label for record in index] == labels
    assert {(record.offset, record.length) for record in index} == {(None, None)}
    copy = pickle.loads(pickle.dumps(index))
    assert (contents(copy), list(copy)) == (contents(index), list(index))
    with pytest.raises(DataError, match=r"a\.parquet, row 4: column image is null"):
        index.getter(Reader())(index[4])
    with pytest.raises(DataError, match="size="):
        sampled_batcher(index, batch_size=1)


def test_a_row_that_is_left_out_is_named_by_its_number(tmp_path, parquet, caplog):
    write_parquet(parquet, tmp_path / "a.parquet", image=[b"good", b"bad", b"well"])
    processor = lambda data, out: np.frombuffer(data, np.uint8)
    with sampled_batcher(tmp_path / "a.parquet", batch_size=3, processor=processor) as batcher:
        (batch,) = batcher
    assert [bytes(row) for row in batch.input.input] == [b"good", b"well"]
    assert "a.parquet, record 1: " in caplog.text


def test_arrays_of_one_shape_are_rows(tmp_path, parquet):
    import pyarrow as pa

    values = np.arange(60, dtype=np.float32).reshape(10, 3, 2)
    flat = pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), 2)
    nested = pa.FixedSizeListArray.from_arrays(flat, 3)
    tensor = pa.FixedShapeTensorArray.from_numpy_ndarray(values)
    words = ["bee", "ant"] * 5
    for column in (nested, tensor):
        write_parquet(parquet, tmp_path / "a.parquet", x=column, word=words)
        index = open_index(tmp_path / "a.parquet", columns={"image": "x", "label": "word"})
        assert index.labels == ["ant", "bee"]
        with sampled_batcher(index, batch_size=4, sampler="shuffle", layout="bhw") as batcher:
            for batch in batcher:
                places = [record.position for record in batch.item]
                np.testing.assert_array_equal(batch.input.input, values[places])
                assert batch.target.input.tolist() == [(n + 1) % 2 for n in places]


@pytest.mark.parametrize(
    ("labels", "target"), [([0.5, 1.0, 2.0], [0.5, 1, 2]), ([[1, 2], [3, 4], [5, 6]], None)]
)
def test_labels_that_are_numbers_are_targets(tmp_path, parquet, labels, target):
    write_parquet(parquet, tmp_path / "a.parquet", image=[b"a", b"b", b"c"], label=labels)
    index = open_index(tmp_path / "a.parquet")
    assert index.targets(np.arange(3)).tolist() == (target or labels)
    write_parquet(parquet, tmp_path / "b.parquet", image=[b"a", b"b"], label=[2**24, 2**24 + 1])
    assert open_index(tmp_path / "b.parquet").labels == [2**24, 2**24 + 1]


def test_row_groups_are_read_once(tmp_path, parquet, monkeypatch):
    for name in "ab":
        images = [f"{name}{n}".encode() for n in range(10)]
        write_parquet(parquet, tmp_path / f"{name}.parquet", rows=4, image=images)
    asked, read_group = [], parquetfiles.RowGroups._read

    def counted(self, shard, group):
        asked.append((shard.url[-9:], group))
        return read_group(self, shard, group)

    monkeypatch.setattr(parquetfiles.RowGroups, "_read", counted)
    index = open_index(tmp_path / "*.parquet")
    processor = lambda data, out: np.frombuffer(data, np.uint8)
    with sampled_batcher(index, batch_size=3, num_workers=3, processor=processor) as batcher:
        rows = [bytes(row) for batch in batcher for row in batch.input.input]
    assert rows == [f"{name}{n}".encode() for name in "ab" for n in range(10)]
    assert sorted(asked) == [(f"{name}.parquet", group) for name in "ab" for group in range(3)]
    monkeypatch.setattr(parquetfiles, "MAX_CACHE_BYTES", 1)
    asked.clear()
    get = index.getter(Reader())
    assert [get(index[n]) for n in (0, 4, 0, 1)] == [b"a0", b"a4", b"a0", b"a1"]
    assert [group for _, group in asked] == [0, 1, 0]
    part = open_index(tmp_path / "*.parquet", partition=2, partitions=7)
    assert contents(part) == [b"a2", b"a9", b"b6"]
    assert [record.position for record in part] == [2, 9, 16]


def test_threads_that_read_row_groups_share_the_cache(monkeypatch):
    """Test columns with a slow `nbytes`, which the cache reads while it holds its lock."""

    class Column:
        @property
        def nbytes(self):
            time.sleep(0.001)
            return 1

    monkeypatch.setattr(parquetfiles.RowGroups, "_read", lambda *_: Column())
    monkeypatch.setattr(parquetfiles, "MAX_CACHE_BYTES", 3)
    groups = parquetfiles.RowGroups("image", Reader())
    shard = SimpleNamespace(url="a.parquet")
    with ThreadPoolExecutor(8) as executor:
        list(executor.map(lambda n: groups._read_group(shard, n), range(40)))
    assert len(groups._cache) == 3


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
def test_a_child_has_locks_and_a_cache_of_its_own_for_row_groups(parquet):
    """A fork replaces all locks; at the first read, two threads could do so at the same time."""
    groups = parquetfiles.RowGroups("image", Reader())
    groups._lock.acquire()  # as if another thread held it during a fork
    pid = os.fork()
    if pid == 0:
        os._exit(groups._lock.locked())
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_parquet_files_that_do_not_fit_are_named(tmp_path, parquet):
    path = tmp_path / "a.parquet"
    write_parquet(parquet, path, image=[b"a"], number=[1], words=["a"], lists=[[1]])
    with pytest.raises(DataError, match="no column 'photo', but it needs one; found image, number"):
        open_index(path, columns={"image": "photo", "label": None})
    with pytest.raises(DataError, match="no column 'class', but it needs one; found image, number"):
        open_index(path, columns={"label": "class"})
    for column in ("number", "words", "lists"):
        with pytest.raises(DataError, match=f"{column} is "):
            open_index(path, columns={"image": column, "label": None})
    write_parquet(parquet, tmp_path / "b.parquet", image=[{"bytes": b"a"}])
    with pytest.raises(DataError, match=r"b\.parquet: image is struct.* in .*a\.parquet"):
        open_index(tmp_path / "*.parquet", columns={"label": None})
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(DataError, match=r"a\.parquet cannot be read: Parquet magic"):
        open_index(path)


def test_rows_with_several_labels_name_their_files(tmp_path, parquet):
    write_parquet(parquet, tmp_path / "a.parquet", image=[b"a", b"b"], label=[2, 1], label2=[3, 3])
    write_parquet(parquet, tmp_path / "b.parquet", image=[b"c"], label=[1], label2=[2])
    for index in (open_index(tmp_path / "*.parquet"), open_index(tmp_path / "{a,b}.parquet")):
        names = [record.url.rpartition("/")[2] for record in index]
        assert names == ["a.parquet"] * 4 + ["b.parquet"] * 2
        assert [record.labels for record in index] == [(2, 3)] * 2 + [(1, 3)] * 2 + [(1, 2)] * 2
        assert contents(index) == [b"a", b"a", b"b", b"b", b"c", b"c"]
    half = open_index(tmp_path / "*.parquet", partition=1, partitions=2)
    assert [(record.label, record.url[-9:]) for record in half] == [
        (3, "a.parquet"),
        (3, "a.parquet"),
        (2, "b.parquet"),
    ]


def test_row_groups_have_the_rows_that_the_footer_names(tmp_path, parquet):
    """Change the number of rows in the footer, which is followed by the list of row groups."""
    path = tmp_path / "a.parquet"
    write_parquet(parquet, path, image=[b"a", b"b", b"c"])
    data = path.read_bytes()
    rows = bytes.fromhex("1606 191c")  # of Thrift: 3 as i64, then a list of one struct
    assert data.count(rows) == 1
    path.write_bytes(data.replace(rows, bytes.fromhex("1608 191c")))
    with pytest.raises(DataError, match=r"row groups have \[3\] rows, the footer says 4"):
        open_index(path)


def test_parquet_at_urls_is_read_in_ranges(tmp_path, site, parquet):
    write_parquet(parquet, tmp_path / "a.parquet", image=[b"a", b"b"] * 9, label=[1, 2] * 9)
    site.files["/a.parquet"] = (tmp_path / "a.parquet").read_bytes()
    with serving(site) as home:
        index = open_index(f"{home}/a.parquet")
        assert contents(index) == [b"a", b"b"] * 9
        assert index.labels == [1, 2]


def test_without_pyarrow_it_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pyarrow.parquet", None)
    (tmp_path / "a.parquet").write_bytes(b"PAR1")
    with pytest.raises(DataError, match=r"layoutkit\[parquet\]"):
        open_index(tmp_path / "a.parquet")


def test_columns_of_a_dictionary_are_read(tmp_path, parquet):
    import pyarrow as pa

    images = pa.array([b"a", b"b", b"a"]).dictionary_encode()
    labels = pa.array(["bee", "ant", "bee"]).dictionary_encode()
    write_parquet(parquet, tmp_path / "a.parquet", image=images, label=labels)
    index = open_index(tmp_path / "a.parquet")
    assert pa.types.is_dictionary(index._field.type)
    assert contents(index) == [b"a", b"b", b"a"]
    assert ([record.label for record in index], index.has_images) == (["bee", "ant", "bee"], True)


def test_a_path_without_bytes_is_a_file_in_the_folder(tmp_path, parquet):
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "b.jpg").write_bytes(b"from a file")
    images = [{"bytes": b"a", "path": "a.jpg"}, {"bytes": None, "path": "photos/b.jpg"}]
    write_parquet(parquet, tmp_path / "a.parquet", image=images, label=[1, 2])
    assert contents(open_index(tmp_path / "a.parquet")) == [b"a", b"from a file"]


@pytest.mark.parametrize(
    "path",
    ["../b.jpg", "/etc/passwd", "x/../../b.jpg", "http://localhost/b", "C:\\b", "..\\b", "x//b"],
)
def test_a_path_that_leaves_the_folder_is_one_error(tmp_path, parquet, path):
    (tmp_path / "b.jpg").write_bytes(b"outside")
    (tmp_path / "in").mkdir()
    images = [{"bytes": b"a", "path": None}, {"bytes": None, "path": path}]
    write_parquet(parquet, tmp_path / "in" / "a.parquet", image=images)
    index = open_index(tmp_path / "in" / "a.parquet")
    message = r"row 1: column image has no bytes but the path .* not inside the folder .*; open the"
    with pytest.raises(DataError, match=message):
        index.getter(Reader())(index[1])


def test_a_missing_file_of_a_path_names_the_row(tmp_path, parquet):
    images = [{"bytes": None, "path": "lost.jpg"}, {"bytes": None, "path": ""}]
    write_parquet(parquet, tmp_path / "a.parquet", image=images)
    index = open_index(tmp_path / "a.parquet")
    with pytest.raises(DataError, match=r"row 0: column image has no bytes .* 'lost.jpg': .*lost"):
        index.getter(Reader())(index[0])
    with pytest.raises(DataError, match="row 1: column image is null"):
        index.getter(Reader())(index[1])


def test_views_of_bytes_are_read(tmp_path, parquet):
    import pyarrow as pa

    for kind in (pa.binary_view(), pa.large_binary()):
        images = pa.array([b"a", b"a longer value than a view holds"], kind)
        labels = pa.array(["bee", "ant"], pa.string_view())
        write_parquet(parquet, tmp_path / "a.parquet", image=images, label=labels)
        index = open_index(tmp_path / "a.parquet")
        assert parquet.read_schema(tmp_path / "a.parquet").field("image").type == kind
        assert contents(index) == images.to_pylist()
        assert [record.label for record in index] == ["bee", "ant"]


def test_a_column_of_paths_is_for_a_data_frame(tmp_path, parquet):
    write_parquet(parquet, tmp_path / "a.parquet", file=["a.jpg", "b.jpg"], label=[1, 2])
    with pytest.raises(DataError, match=r"file is string; .*open_index\(pandas.read_parquet"):
        open_index(tmp_path / "a.parquet")
    pandas = pytest.importorskip("pandas")
    index = open_index(pandas.read_parquet(tmp_path / "a.parquet"))
    assert [(record.url, record.label) for record in index] == [("a.jpg", 1), ("b.jpg", 2)]


# ---- folders of containers -------------------------------------------------------------------


@pytest.mark.parametrize("suffix", ["parquet", "tar", "rec", "tfrecord"])
@pytest.mark.parametrize("folder", ["", "label=cat/", "a/split=train/"])
def test_a_folder_of_containers_is_opened_by_a_pattern(tmp_path, suffix, folder):
    for name in ("0", "1"):
        path = tmp_path / f"{folder}{name}.{suffix}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(tar(sample(name)) if suffix == "tar" else tfrecords([b"x"]))
    (tmp_path / "_SUCCESS").touch()
    with pytest.raises(DataError, match="with many records each") as error:
        open_index(tmp_path)
    pattern = f"{tmp_path}/**/*.{suffix}"
    assert f'"{pattern}"' in str(error.value)
    if suffix != "parquet":
        assert len(open_index(pattern)) == 2


def write_folders(parquet, root, values, **columns):
    """Write a file of two rows in the folder of each value, as `label=cat/0.parquet`."""
    for value in values:
        path = root / value / "0.parquet"
        path.parent.mkdir(parents=True)
        write_parquet(parquet, path, **{"image": [b"x", b"y"], **columns})


@pytest.mark.parametrize(
    "values",
    [["cat", "dog"], ["10", "9", "-3"], ["07", "x%20y", "a=b"], ["2147483647", "1"],
     ["2147483648", "1"], ["+1", "2"], ["1_0"], ["\u0661"], ["__HIVE_DEFAULT_PARTITION__", "5"]],
)  # fmt: skip
def test_labels_of_folders_equal_those_of_pyarrow(tmp_path, parquet, values):
    from pyarrow import dataset

    write_folders(parquet, tmp_path, [f"split=train/label={value}" for value in values])
    index = open_index(f"{tmp_path}/**/*.parquet", missing=-1)
    table = dataset.dataset(tmp_path, partitioning="hive").to_table()
    assert [record.label for record in index] == table["label"].to_pylist()
    named = open_index(f"{tmp_path}/**/*.parquet", columns={"label": "split"})
    assert [record.label for record in named] == table["split"].to_pylist()


def test_a_column_of_a_file_precedes_its_folder(tmp_path, parquet):
    write_folders(parquet, tmp_path, ["label=cat", "label=dog"], label=[1, 2])
    index = open_index(f"{tmp_path}/**/*.parquet")
    assert [record.label for record in index] == [1, 2, 1, 2]
    write_folders(parquet, tmp_path / "class=%ff", [""])
    with pytest.raises(DataError, match=r"class=%ff/0\.parquet cannot be read: 'utf-8'"):
        open_index(f"{tmp_path}/class*/*.parquet")
    write_folders(parquet, tmp_path, ["other"])
    with pytest.raises(DataError, match="differ in their columns of labels"):
        open_index(f"{tmp_path}/[lo]*/*.parquet")


# ---- Parquet of the library `datasets` -------------------------------------------------------


def test_files_of_datasets_have_its_classes_and_lists(tmp_path, parquet):
    datasets = pytest.importorskip("datasets", reason="its files are read")
    pixels = [np.full((4, 5, 3), 40 * number, np.uint8) for number in range(4)]
    images = [{"bytes": encoded(x), "path": None} for x in pixels]
    features = datasets.Features(
        images=datasets.Sequence(datasets.Image()),
        label=datasets.ClassLabel(names=["dog", "cat", "ant"]),
    )
    rows = {"images": [images[:1], images[1:3], images[3:], images], "label": [1, 0, -1, 1]}
    datasets.Dataset.from_dict(rows, features).to_parquet(tmp_path / "a.parquet")
    options = {"missing": "drop"}
    index = open_index(tmp_path / "a.parquet", columns={"image": "images:-1"}, **options)
    assert index.labels == ["dog", "cat", "ant"]
    assert ([record.label for record in index], index.skipped) == (["cat", "dog", "cat"], 1)
    with sampled_batcher(index, batch_size=3, size=(4, 5)) as batcher:
        (batch,) = batcher
        assert batch.target.forward_get("b").tolist() == [1, 0, 1]
        np.testing.assert_array_equal(
            batch.input.forward_get("bhwc"), [pixels[number] for number in (0, 2, 3)]
        )
    lists = open_index(tmp_path / "a.parquet", columns={"image": "images"}, **options)
    assert contents(lists) == [
        [x["bytes"] for x in row] for row in (images[:1], images[1:3], images)
    ]
    for step in ({}, {"size": (4, 5)}, {"collate": Collator("hwc->bchw")}):
        with pytest.raises(DataError, match=r"a\.parquet has lists of images; give the number of"):
            sampled_batcher(lists[1:], batch_size=1, **step)
    with sampled_batcher(
        lists[1:2],
        batch_size=1,
        layout="bnhwc",
        processor=lambda row: np.stack([read(data) for data in row]),
    ) as batcher:
        (batch,) = batcher
        np.testing.assert_array_equal(batch.input.forward_get("bnhwc"), [pixels[1:3]])


IMAGE = {"_type": "Image"}


@pytest.mark.parametrize(
    ("features", "columns", "expected"),
    [
        ({"img": IMAGE}, None, "a"),
        ({"img": IMAGE, "mask": [IMAGE], "path": IMAGE, "more": IMAGE}, None, "a"),
        ({"mask": IMAGE}, None, "b"),
        ({"mask": IMAGE}, {"image": "img"}, "a"),
        ({"img": IMAGE, "mask": IMAGE}, None, "path is string; records are of bytes"),
        ({"img": None}, None, "path is string"),
        ({}, None, "path is string"),
        ([], None, '"huggingface" of its schema is damaged'),
    ],
)
def test_the_column_that_datasets_declares_as_images_is_read(
    tmp_path, parquet, features, columns, expected
):
    """A column of text is not read, although it is declared as images; a usual name comes first."""
    import pyarrow as pa

    table = pa.table({"img": [b"a"], "mask": [b"b"], "path": ["c"], "label": [1]})
    text = json.dumps({"info": {"features": features}})
    parquet.write_table(
        table.replace_schema_metadata({"huggingface": text}), tmp_path / "a.parquet"
    )
    columns = {"label": "label"} if columns is None else {**columns, "label": "label"}
    if len(expected) > 1:
        with pytest.raises(DataError, match=rf"a\.parquet.*{expected}"):
            open_index(tmp_path / "a.parquet", columns=columns)
        return
    index = open_index(tmp_path / "a.parquet", columns=columns)
    assert (contents(index), index[0].label) == ([expected.encode()], 1)
    usual = table.append_column("image", [[b"d"]]).replace_schema_metadata({"huggingface": text})
    parquet.write_table(usual, tmp_path / "a.parquet")
    index = open_index(tmp_path / "a.parquet", columns={"label": "label"})
    assert contents(index) == [b"d"]


def test_a_list_without_an_image_is_one_error_of_its_record(tmp_path, parquet):
    (tmp_path / "b.jpg").write_bytes(b"from a file")
    image = {"bytes": b"a", "path": None}
    images = [[image], [], None, [image, None], [image, {"bytes": None, "path": "b.jpg"}]]
    write_parquet(parquet, tmp_path / "a.parquet", image=images)
    index = open_index(tmp_path / "a.parquet", columns={"image": "image:1"})
    get = index.getter(Reader())
    assert get(index[4]) == b"from a file"
    for row, message in enumerate(
        ["has no image 1: its list has 1", "has no image 1: its list has 0", "is null",
         "image, image 1 is null"]
    ):  # fmt: skip
        with pytest.raises(DataError, match=f"row {row}: column .*{message}"):
            get(index[row])
    write_parquet(parquet, tmp_path / "a.parquet", **{"image": [b"a"], "image:1": [b"b"]})
    columns = {"image": "image:1", "label": None}
    assert contents(open_index(tmp_path / "a.parquet", columns=columns)) == [b"b"]
    with pytest.raises(DataError, match="image is binary, which is no list of images; omit the :0"):
        open_index(tmp_path / "a.parquet", columns={"image": "image:0", "label": None})


def with_metadata(parquet, path, text, labels=(0, 1)):
    import pyarrow as pa

    table = pa.table({"image": [b"x"] * len(labels), "label": pa.array(labels)})
    parquet.write_table(table.replace_schema_metadata({"huggingface": text}), path)
    return path


CLASSES = '{"info": {"features": {"label": {"names": %s, "_type": "ClassLabel"}}}}'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"\xff{", "is damaged"),
        ("[" * 100_000, "is damaged"),
        ("[]", "is damaged"),
        ('{"info": null}', "is damaged"),
        ('{"info": {"features": [1]}}', "is damaged"),
        ('{"info": {"features": {"label": {"_type": "ClassLabel"}}}}', "has None for label"),
        (CLASSES % "null", "has None for label"),
        (CLASSES % '["a", "a"]', "no list of different names"),
        (CLASSES % "[1, 2]", "no list of different names"),
        (CLASSES % '["a"]', "row 1: in label, 1 is not the number of one of the 1 classes"),
    ],
)
def test_metadata_of_classes_that_is_damaged_is_one_error(tmp_path, parquet, text, message):
    with pytest.raises(DataError, match=rf"a\.parquet.*{message}") as error:
        open_index(with_metadata(parquet, tmp_path / "a.parquet", text))
    assert len(str(error.value)) < 400


def test_classes_of_files_are_compared(tmp_path, parquet):
    classes = CLASSES % '["nan", "", "7"]'
    for name in "ab":
        with_metadata(parquet, tmp_path / f"{name}.parquet", classes, [2, None, 0, -1])
    index = open_index(tmp_path / "*.parquet", missing=-1)
    assert [record.label for record in index] == ["7", None, "nan", None] * 2
    with_metadata(parquet, tmp_path / "b.parquet", CLASSES % '["7", "nan"]')
    with pytest.raises(
        DataError, match=r"b\.parquet declares other classes of label than .*a\.par"
    ):
        open_index(tmp_path / "*.parquet")
    named = with_metadata(parquet, tmp_path / "c.parquet", classes, ["cat", "ant"])
    assert open_index(named).labels == ["ant", "cat"]
    folder = tmp_path / "label=2"
    folder.mkdir()
    path = with_metadata(parquet, folder / "d.parquet", classes)
    parquet.write_table(parquet.read_table(path, partitioning=None).drop(["label"]), path)
    assert open_index(path).labels == [2]  # the name of a folder is no number of a class
    untyped = with_metadata(parquet, tmp_path / "c.parquet", '{"info": {"features": {}}}')
    assert open_index(untyped).labels == [0, 1]
