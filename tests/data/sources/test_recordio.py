"""RecordIO files as indexes: records, labels, and the remaining records of damaged files."""

import pickle
import uuid

import fsspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layoutkit import DataError
from layoutkit.data import open_index, sampled_batcher
from layoutkit.data.recordio import RecordWriter
from layoutkit.views import ClassView
from tests.helpers.loopback import serving
from tests.helpers.record_files import MAGIC, contents, frames, image, write_rec


def images(labels):
    """Return image records of equal length."""
    return [image(b"%04d" % n, label, 100 + n) for n, label in enumerate(labels)]


def batches(source, processor=None, **options):
    """Return the batches of image bytes that a Batcher yields, as plain values."""
    given = {"processor": lambda data, out: np.frombuffer(data, np.uint8), "num_workers": 0}
    with sampled_batcher(source, batch_size=3, **given | options) as batcher:
        return list(batcher)


@pytest.fixture(params=[True, False], ids=["idx", "walk"])
def with_index(request):
    return request.param


# ---- Records ---------------------------------------------------------------------------------


def test_a_record_spans_its_frames(tmp_path, with_index):
    path = tmp_path / "a.rec"
    payloads = [image(b"ab" * n + MAGIC * (n % 3), n % 4, n) for n in range(1, 30)]
    offsets = write_rec(path, payloads, with_index)
    index = open_index(path)
    assert (index.kind, index.url_prefix, index.skipped) == ("image", str(tmp_path), 0)
    assert [record.offset for record in index] == offsets
    assert [record.length for record in index] == [len(frames(p)) for p in payloads]
    assert [record.position for record in index] == list(range(29))
    assert {record.url for record in index} == {str(path)}
    assert contents(index) == [b"ab" * n + MAGIC * (n % 3) for n in range(1, 30)]
    raw = open_index(path, kind="raw")
    assert raw.labels == []
    assert contents(raw) == payloads


def test_an_index_gives_the_order_and_the_choice(tmp_path):
    path = tmp_path / "a.rec"
    offsets = write_rec(path, images([0, 1, 2, 3, 4]))
    chosen = [4, 0, 2]
    lines = "".join(f"word{n} {offsets[n]}\r\n\n" for n in chosen)
    (tmp_path / "some.idx").write_text(lines)
    index = open_index(path, index=tmp_path / "some.idx")
    assert [record.label for record in index] == chosen
    assert contents(index) == [b"%04d" % n for n in chosen]
    assert [record.length for record in index] == [36, 36, 36]
    assert [record.position for record in index] == [0, 1, 2]


@pytest.mark.parametrize("line", ["0", "0\tx", "0\t1.5", "0\t-4", "0\t1\t2", "0\t" + "9" * 19])
def test_a_line_that_is_none_is_named(tmp_path, line):
    path = tmp_path / "a.rec"
    write_rec(path, images([0]))
    (tmp_path / "a.idx").write_text(f"0\t0\n\n{line}\n1\t2\n")
    with pytest.raises(DataError, match=r"a\.idx, line 3"):
        open_index(path)


def test_a_line_of_more_than_a_mebibyte_is_named(tmp_path):
    path = tmp_path / "a.rec"
    write_rec(path, images([1]))
    with path.with_suffix(".idx").open("ab") as file:
        file.write(b" " * ((1 << 20) + 1))  # a blank line, if it were read
    with pytest.raises(DataError, match=r"a\.idx, line 2 has more than 1048576 bytes"):
        open_index(path)


def test_images_without_bytes_are_left_out(tmp_path, with_index):
    path = tmp_path / "a.rec"
    head = image(b"", [1.0, 5.0])
    write_rec(path, [head, *images([1, 2]), image(b"", 7), *images([3])], with_index)
    index = open_index(path)
    assert (len(index), index.skipped) == (3, 2)
    assert [record.position for record in index] == [1, 2, 4]
    assert [record.label for record in index] == index.labels == [1, 2, 3]
    assert open_index(path, partition=1, partitions=2)[0].position == 2


def test_several_files_are_one_source(tmp_path):
    for part in range(11):
        write_rec(tmp_path / f"t.part{part:03}.rec", images([part, part + 1]), part % 2 == 0)
    expected = [label for part in range(11) for label in (part, part + 1)]
    for pattern in ("t.part*.rec", "t.part{000..010}.rec", "t.par{t0,t1}{00..10}.rec"):
        if "," in pattern:
            pattern = pattern.replace("t1", "t0")
            expected = expected * 2
        index = open_index(tmp_path / pattern)
        assert [record.label for record in index] == expected
        assert contents(index)[:4] == [b"0000", b"0001"] * 2
    backwards = open_index(tmp_path / "t.part{002..000}.rec")
    assert [record.label for record in backwards] == [2, 3, 1, 2, 0, 1]
    with pytest.raises(DataError, match=r"no\*\.rec matches no file"):
        open_index(tmp_path / "no*.rec")


# ---- Labels ----------------------------------------------------------------------------------


def test_one_integral_label_is_a_class(tmp_path, with_index):
    write_rec(tmp_path / "a.rec", images([3, [-5.0], 1e6, 3]), with_index)
    index = open_index(tmp_path / "a.rec")
    assert index.labels == [-5, 3, 1000000]
    assert [record.label for record in index] == [3, -5, 1000000, 3]
    assert [record.labels for record in index] == [(3,), (-5,), (1000000,), (3,)]
    assert index.label_width == 1
    assert index.label_values(np.array([1, 0])).tolist() == [-5.0, 3.0]
    assert index.item_count(3) == 2
    batch = batches(index)[0]
    assert isinstance(batch.target, ClassView)
    assert batch.target.input.tolist() == [1, 0, 2]
    assert list(batch.target.classes) == index.labels


@pytest.mark.parametrize(
    ("labels", "target"),
    [
        ([0.5, 2, float("inf")], [0.5, 2.0, float("inf")]),
        ([[1, 2], [3, 0.5], [5, 6]], [[1.0, 2.0], [3.0, 0.5], [5.0, 6.0]]),
    ],
)
def test_other_labels_are_numbers(tmp_path, with_index, labels, target):
    write_rec(tmp_path / "a.rec", images(labels), with_index)
    index = open_index(tmp_path / "a.rec")
    found = batches(index)[0].target
    assert found.input.tolist() == target
    assert found.input.dtype == np.float32
    assert [record.labels for record in index] == [
        tuple(row) if isinstance(row, list) else (row,) for row in target
    ]
    assert [record.label for record in index][1] == (2 if labels[1] == 2 else None)
    part = open_index(tmp_path / "a.rec", partition=1, partitions=2)
    assert batches(part)[0].target.input.tolist() == target[1::2]


def test_a_record_with_nan_and_numbers_has_labels(tmp_path, with_index):
    labels = [[1, 2], [np.nan, 3]]
    write_rec(tmp_path / "a.rec", images(labels), with_index)
    target = batches(open_index(tmp_path / "a.rec"))[0].target
    np.testing.assert_array_equal(target.input, labels)


def test_records_may_differ_in_how_many_labels_they_have(tmp_path, with_index):
    write_rec(tmp_path / "a.rec", images([[1, 2, 3], 7, [4], [5.5, 6]]), with_index)
    whole = [(1.0, 2.0, 3.0), (7,), (4,), (5.5, 6.0)]
    for parts in (1, 2, 3):
        for part in range(parts):
            index = open_index(tmp_path / "a.rec", partition=part, partitions=parts)
            assert [record.labels for record in index] == whole[part::parts]
            assert index.labels == [4, 7]
            assert index.label_width is None
            assert batches(index)[0].target is None
            with pytest.raises(DataError, match="differ"):
                index.label_values(np.array([0]))


def test_headers_in_several_parts_are_read(tmp_path, with_index):
    odd = [
        image(b"one", 1.0, 0xCED7230A00000000),
        image(b"two", 2.0, 0xCED7230A),
        image(b"", 9.0, 0xCED7230A),
        image(b"three", [1.0, np.frombuffer(MAGIC, "<f4")[0], 3.0], 5),
    ]
    write_rec(tmp_path / "a.rec", [*odd, *images([4.0])], with_index)
    index = open_index(tmp_path / "a.rec")
    assert [len(record.labels) for record in index] == [1, 1, 3, 1]
    assert [record.labels[0] for record in index] == [1, 2, 1.0, 4]
    assert (index.skipped, contents(index)) == (1, [b"one", b"two", b"three", b"0004"[:3] + b"0"])


def test_a_list_gives_the_labels(tmp_path, with_index):
    write_rec(tmp_path / "a.rec", [*images([[9, 9], 8, 7]), image(b"", 1, 3)], with_index)
    lines = "\ufeff100\t2\tx.jpg\n101\t1\ta\tb.jpg\n\n102\t1\tz.jpg\r\n77\t0\tn.jpg\n"
    (tmp_path / "a.lst").write_text(lines.replace("\ta\t", "\t"))
    index = open_index(tmp_path / "a.rec", list=tmp_path / "a.lst")
    assert [record.label for record in index] == [2, 1, 1]
    assert index.labels == [1, 2]
    (tmp_path / "b.lst").write_text("101\t1\t2\tx\n100\t0\t4\tx\n102\t5\t6\tx\n")
    index = open_index(tmp_path / "a.rec", list=tmp_path / "b.lst")
    assert [record.labels for record in index] == [(0, 4), (1, 2), (5, 6)]
    assert batches(index)[0].target.input.tolist() == [[0, 4], [1, 2], [5, 6]]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("100\t1\tx\n101\t1\tx\n", "no line with the id 102.* byte 72 of"),
        ("", "no line with the id 100"),
        ("100\t1\tx\n101\tx\n", "line 2: 2 columns"),
        ("100\t1\tx\n101\tone\tx\n", "line 2: 'one' is not a label"),
        ("100\t1_0\tx\n", "line 1: '1_0' is not a label"),
        ("x\t1\tx\n", "line 1: 'x' is not an id"),
        ("-1\t1\tx\n", "line 1: '-1' is not an id"),
        (f"{2**64}\t1\tx\n", "line 1: '18446744073709551616' is not an id"),
        ("100\t1\tx\n\n101\t1\tx\n100\t1\ty\n", "line 4: line 1 has the id 100, too"),
    ],
)
def test_a_list_that_does_not_fit_is_named(tmp_path, text, words):
    write_rec(tmp_path / "a.rec", images([1, 2, 3]))
    (tmp_path / "a.lst").write_text(text)
    with pytest.raises(DataError, match=r"a\.lst.*" + words):
        open_index(tmp_path / "a.rec", list=tmp_path / "a.lst")


@pytest.mark.parametrize(
    "options",
    [
        {"list": "x.lst", "kind": "raw"},
        {"columns": {}},
        {"missing": "drop", "kind": "raw"},
        {"index": 3},
        {"schemes": ["s3"]},
    ],
)
def test_options_of_other_kinds_are_refused(tmp_path, options):
    write_rec(tmp_path / "a.rec", images([1]))
    with pytest.raises(DataError, match=next(iter(options))):
        open_index(tmp_path / "a.rec", **options)
    with pytest.raises(DataError, match="index= is for an index of kind image, raw"):
        open_index(np.zeros(3), index="x.idx")


def test_bytes_of_images_are_no_rows(tmp_path):
    write_rec(tmp_path / "a.rec", images([1]))
    with pytest.raises(DataError, match="size="):
        sampled_batcher(tmp_path / "a.rec", batch_size=1)


# ---- Samplers, partitions, resuming ----------------------------------------------------------


@pytest.mark.parametrize("parts", [1, 2, 7, 61])
def test_partitions_are_disjoint_and_complete(tmp_path, parts):
    write_rec(tmp_path / "a.rec", [image(b"", 0), *images(n % 5 for n in range(61))])
    each = [open_index(tmp_path / "a.rec", partition=p, partitions=parts) for p in range(parts)]
    whole = list(open_index(tmp_path / "a.rec"))
    assert [list(part) for part in each] == [whole[p::parts] for p in range(parts)]
    assert all(part.labels == [0, 1, 2, 3, 4] for part in each)
    assert sum(len(part) for part in each) == 61


def test_an_index_goes_to_another_process(tmp_path):
    write_rec(tmp_path / "a.rec", [*images([1, [2, 3]]), image(b"", 1)])
    index = open_index(tmp_path / "a.rec")
    copy = pickle.loads(pickle.dumps(index))
    assert (list(copy), copy.labels, contents(copy)) == (list(index), index.labels, contents(index))


def test_of_large_records_the_heads_alone_are_read(tmp_path, monkeypatch, read_lengths):
    path = tmp_path / "a.rec"
    with RecordWriter(path) as writer:
        offsets = [writer.write(image(bytes(100_000), n)) for n in range(30)]
    monkeypatch.setattr("layoutkit.data.io.recordio.BLOCK", 1 << 16)
    assert [record.offset for record in open_index(path)] == offsets
    assert sum(read_lengths) < 2_000
    path.with_suffix(".idx").unlink()
    read_lengths.clear()
    assert [record.offset for record in open_index(path)] == offsets
    assert sum(read_lengths) < 200_000


def test_small_records_are_read_in_blocks(tmp_path, monkeypatch, read_lengths, with_index):
    path = tmp_path / "a.rec"
    offsets = write_rec(path, images(range(500)), with_index)  # of 36 bytes each
    for module in ("io.recordio", "io.reader"):
        monkeypatch.setattr(f"layoutkit.data.{module}.BLOCK", 1800)
    assert [record.offset for record in open_index(path)] == offsets
    assert len(read_lengths) <= 25  # ten blocks, and their records' headers
    assert sum(read_lengths) <= 3 * path.stat().st_size


# ---- Damage ----------------------------------------------------------------------------------


def test_a_damaged_head_costs_its_record(tmp_path, with_index):
    """Only the record with the damaged header is lost; a scan continues at the next header."""
    path = tmp_path / "a.rec"
    payloads = images(range(50))
    offsets = write_rec(path, payloads, with_index)
    data = bytearray(path.read_bytes())
    data[offsets[20]] ^= 0xFF  # the header is no longer valid
    data[offsets[30] + 4] ^= 0x80  # a length beyond the next header
    path.write_bytes(data)
    index = open_index(path)
    bad = (20, 30)
    expected = [None if n in bad else b"%04d" % n for n in range(50)]
    assert [record.offset for record in index] == offsets
    assert contents(index) == expected
    labels = [record.label for record in index]
    assert [label for n, label in enumerate(labels) if n not in bad] == [
        n for n in range(50) if n not in bad
    ]
    with sampled_batcher(
        index, batch_size=50, processor=lambda data, out: np.frombuffer(data, np.uint8)
    ) as batcher:
        (batch,) = batcher
        assert [record.offset for record, _, _ in batch.dropped] == [offsets[n] for n in bad]
        assert (batch.count, batcher.dropped) == (48, 2)


@pytest.mark.parametrize("cut", range(1, 46, 4))
def test_a_cut_file_gives_what_lies_before(tmp_path, with_index, cut):
    path = tmp_path / "a.rec"
    write_rec(path, images([1, 2, 3]), with_index)  # of 36 bytes each
    path.write_bytes(path.read_bytes()[:-cut])
    found = contents(open_index(path))
    whole = (108 - cut) // 36
    assert found[:whole] == [b"0000", b"0001"][:whole]
    assert set(found[whole:]) == ({None} if with_index or cut != 36 else set())


SMALL_BLOCKS = range(16, 65, 4)  # the scanner reads whole words


@pytest.mark.parametrize("damage", ["none", "magic", "length", "first part", "two"])
def test_every_small_block_finds_the_same_records(tmp_path, monkeypatch, damage):
    """Test block sizes whose ends cut headers and parts at every position."""
    path = tmp_path / "a.rec"
    sizes = [3, 0, 30, 8, 61, 1, 12, 5, 90, 4, 7]
    payloads = [bytes([65 + n]) * size for n, size in enumerate(sizes)]
    payloads[3] = b"AAAA" + MAGIC + b"BBBB" + MAGIC
    payloads[7] = MAGIC + b"CC"
    offsets = write_rec(path, payloads, index=False)
    data = bytearray(path.read_bytes())
    for number in {"magic": [2], "length": [2], "first part": [3], "two": [1, 6]}.get(damage, []):
        place = offsets[number] + (4 if damage == "length" else 0)
        data[place] ^= 0x81
    path.write_bytes(data)
    expected = contents(open_index(path, kind="raw"))
    lost = {"none": 0, "two": 2}.get(damage, 1)
    assert sum(record in expected for record in payloads) == len(payloads) - lost
    found = {}
    for max_gap in (1 << 15, 0):  # read in blocks; header by header
        monkeypatch.setattr("layoutkit.data.io.reader._MAX_GAP_LOCAL", max_gap)
        for block in SMALL_BLOCKS:
            monkeypatch.setattr("layoutkit.data.io.recordio.BLOCK", block)
            monkeypatch.setattr("layoutkit.data.io.reader.BLOCK", block)
            found[max_gap, block] = contents(open_index(path, kind="raw"))
    assert [key for key, records in found.items() if records != expected] == []


def test_every_small_block_reads_the_same_index(tmp_path, monkeypatch):
    path = tmp_path / "a.rec"
    offsets = write_rec(path, images(range(12)))
    for block in range(1, 65):
        monkeypatch.setattr("layoutkit.data.sources.recordio._BLOCK", block)
        monkeypatch.setattr("layoutkit.data.io.reader.BLOCK", block)
        index = open_index(path)
        assert [record.offset for record in index] == offsets, block
        assert contents(index) == [b"%04d" % n for n in range(12)], block
    with path.with_suffix(".idx").open("a") as file:
        file.write("x\n")
    with pytest.raises(DataError, match="line 13"):
        open_index(path)


def test_offsets_where_no_frame_begins_fail_alone(tmp_path):
    path = tmp_path / "a.rec"
    payloads = [image(b"one!", 1), image(b"AA" + MAGIC + MAGIC + b"B", 2), image(b"two!", 3)]
    payloads[1] = image(b"AAAA" + MAGIC + b"B", 2)
    first, second, third = write_rec(path, payloads)
    inside = second + len(frames(payloads[1])) - 12  # the second part
    assert path.read_bytes()[inside : inside + 4] == MAGIC
    wrong = [inside, first + 4, third + 1, 10**9, 10**17, second]
    places = [first, *wrong, third]
    (tmp_path / "a.idx").write_text("".join(f"0\t{place}\n" for place in places))
    found = contents(open_index(path))
    assert found == [b"one!", None, None, None, None, None, b"AAAA" + MAGIC + b"B", b"two!"]


def test_a_file_that_becomes_shorter_is_an_error(tmp_path, with_index):
    path = tmp_path / "a.rec"
    write_rec(path, images(range(10)), with_index)
    index = open_index(path)
    path.write_bytes(path.read_bytes()[:107])
    assert contents(index) == [b"0000", b"0001", *[None] * 8]
    path.write_bytes(b"")
    assert contents(index) == [None] * 10


def test_records_that_are_none_of_images_fail_alone(tmp_path, with_index):
    path = tmp_path / "a.rec"
    short, lying = b"x" * 23, image(b"", 1)[:24].replace(b"\0\0\0\0", b"\7\0\0\0", 1)
    write_rec(path, [*images([4, 5]), short, lying], with_index)
    index = open_index(path)
    assert [record.label for record in index] == [4, 5, None, None]
    assert [record.labels for record in index][2:] == [(), ()]
    assert contents(index) == [b"0000", b"0001", None, None]
    assert open_index(path, partition=1, partitions=2).label_width == 1
    assert open_index(path, partition=1, partitions=2)[1].labels == ()
    assert batches(index)[0].target.input.tolist() == [0, 1]


@pytest.mark.parametrize("size", [3, 8, 4096])
def test_files_of_something_else_have_no_records(tmp_path, size):
    path = tmp_path / "a.rec"
    path.write_bytes(b"\1" * size)
    assert contents(open_index(path)) == [None]
    with pytest.raises(DataError, match=r"none\.rec"):
        open_index(tmp_path / "none.rec")
    with pytest.raises(DataError, match=r"none\.idx"):
        open_index(path, index=tmp_path / "none.idx")


@given(st.data())
def test_whatever_is_in_a_file_nothing_but_records_fail(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("damaged") / "a.rec"
    payloads = images(range(6)) + [image(MAGIC * 3, [1, 2], 3)]
    write_rec(path, payloads, data.draw(st.booleans()))
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, max(len(content) - 1, 0)))
        end = place + data.draw(st.integers(0, 9))
        content[place:end] = data.draw(st.sampled_from([b"", b"\0", b"\xff" * 4, MAGIC, bytes(8)]))
    path.write_bytes(content)
    kind = data.draw(st.sampled_from(["image", "raw"]))
    index = open_index(path, kind=kind, missing="error" if kind == "raw" else -1)
    assert len(contents(index)) == len(index)
    for values in (index.ranks(np.arange(len(index))), index.targets(np.arange(len(index)))):
        assert values is None or len(values) == len(index)


# ---- URLs ------------------------------------------------------------------------------------


@pytest.fixture(params=["memory", "http", "http without ranges"])
def remote(request, site):
    """Yield the URL of a folder, and a function that puts files there."""
    with serving(site) as home:
        site.ranges = "without" not in request.param
        folder = f"memory://{uuid.uuid4()}" if request.param == "memory" else home

        def put(name, data):
            site.files[f"/{name}"] = data
            if request.param == "memory":
                with fsspec.open(f"{folder}/{name}", "wb") as file:
                    file.write(data)

        yield folder, put


def test_files_at_urls_are_read_in_parts(tmp_path, remote, with_index):
    folder, put = remote
    write_rec(tmp_path / "a.rec", [*images(range(9)), image(MAGIC * 2, 3)], with_index)
    for file in tmp_path.iterdir():
        put(file.name, file.read_bytes())
    (tmp_path / "a.lst").write_text(
        "".join(f"{100 + n}\t{n % 2}\tx\n" for n in range(9)) + "0\t1\tx"
    )
    put("a.lst", (tmp_path / "a.lst").read_bytes())
    index = open_index(f"{folder}/a.rec")
    assert index.labels == list(range(9))
    assert contents(index) == [*(b"%04d" % n for n in range(9)), MAGIC * 2]
    assert open_index(f"{folder}/a.rec", list=f"{folder}/a.lst").labels == [0, 1]
    options = {"batch_size": 4, "processor": lambda data, out: np.frombuffer(data[:4], np.uint8)}
    with sampled_batcher(index, cache_dir=tmp_path / "cache", **options) as batcher:
        assert sum(batch.count for batch in batcher) == 10
        assert len(list((tmp_path / "cache").glob("*.record"))) == 1


def test_a_server_that_drops_answers_is_asked_again(tmp_path, site):
    write_rec(tmp_path / "a.rec", images(range(9)), index=False)
    site.files["/a.rec"] = (tmp_path / "a.rec").read_bytes()
    site.script["/a.rec"] = ["reset", "ok", "cut", 503, "ok", "reset", "cut"]
    with serving(site) as home:
        index = open_index(f"{home}/a.rec")
        assert contents(index) == [b"%04d" % n for n in range(9)]
        site.script["/a.rec"] = [500] * 9
        with pytest.raises(DataError, match=r"a\.rec"):
            len(open_index(f"{home}/a.rec"))
