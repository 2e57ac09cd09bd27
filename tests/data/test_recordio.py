"""RecordIO files written and read: the frames of known files, and errors of damaged files."""

import hashlib
import os
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layoutkit import DataError, ShapeError
from layoutkit.data import open_index, recordio
from layoutkit.data.io import recordio as framing
from layoutkit.data.io.image_record import pack_image, unpack_image
from layoutkit.data.io.reader import Reader
from layoutkit.data.recordio import RecordWriter, read_records
from tests.helpers.record_files import MAGIC, frames

# Payloads, and the frames that the writer of the original library makes of them.
GOLDEN = [
    (b"hello", "0a23d7ce 05000000 68656c6c 6f000000"),
    (b"", "0a23d7ce 00000000"),
    (b"abcd", "0a23d7ce 04000000 61626364"),
    (
        b"AAAA" + MAGIC + b"BBBBC",
        "0a23d7ce 04000020 41414141 0a23d7ce 05000060 42424242 43000000",
    ),
    (MAGIC + b"XY", "0a23d7ce 00000020 0a23d7ce 02000060 58590000"),
    (b"AB" + MAGIC + b"CD", "0a23d7ce 08000000 41420a23 d7ce4344"),
    (MAGIC + MAGIC, "0a23d7ce 00000020 0a23d7ce 00000040 0a23d7ce 00000060"),
    (b"AAAA" + MAGIC, "0a23d7ce 04000020 41414141 0a23d7ce 00000060"),
    (b"AAAA" + MAGIC[:3], "0a23d7ce 07000000 41414141 0a23d700"),
    (
        pack_image(bytes.fromhex("ffd8ffd9"), 3.0, 7),
        "0a23d7ce 1c000000 00000000 00004040 07000000 00000000 00000000 00000000 ffd8ffd9",
    ),
    (
        pack_image(bytes.fromhex("ffd8ffd9"), [1, 2, 0.5], 258),
        "0a23d7ce 28000000 03000000 00000000 02010000 00000000 00000000 00000000 0000803f 00000040"
        " 0000003f ffd8ffd9",
    ),
    (
        pack_image(b"z", 1.0, 0xCED7230A00000000),
        "0a23d7ce 0c000020 00000000 0000803f 00000000 0a23d7ce 09000060 00000000 00000000 7a000000",
    ),
]
OFFSETS = [0, 16, 24, 36, 64, 84, 100, 124, 144, 160, 196, 244]
DIGEST = "8089bf736b536baa548599b2c25f4fad13af9de750cf2f83e9e496833806904c"
MEAN = (
    "12010000 00000000 00000000 00000000 01000000 00000000 c9fa93f9 00000000 03000000 03000000"
    " 00000000 02000000 00000000 02000000 00000000 01000000 00000000 00000000 00002041 0000a041"
    " 00002041 0000a041 00002041 00002041 0000a041 0000a041 00000040 00000040 00000040 00000040"
    " 01000000 00000000 08000000 00000000 6d65616e 5f696d67"
)
VALUES = np.array([10, 20, 10, 20, 10, 10, 20, 20, 2, 2, 2, 2], np.float32).reshape(3, 2, 2)


def written(path, payloads, **options):
    with RecordWriter(path, **options) as writer:
        return [writer.write(payload) for payload in payloads]


# ---- Frames ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("payload", "golden"), GOLDEN)
def test_frames_are_those_of_the_original(payload, golden, tmp_path):
    written(tmp_path / "a.rec", [payload])
    assert (tmp_path / "a.rec").read_bytes() == bytes.fromhex(golden) == frames(payload)
    assert list(read_records(tmp_path / "a.rec")) == [payload]


def test_a_file_and_its_index_are_those_of_the_original(tmp_path):
    path = tmp_path / "a.rec"
    assert written(path, [payload for payload, _ in GOLDEN]) == OFFSETS
    assert hashlib.sha256(path.read_bytes()).hexdigest() == DIGEST
    lines = [f"{key}\t{offset}\n" for key, offset in enumerate(OFFSETS)]
    assert (tmp_path / "a.idx").read_text() == "".join(lines)


PIECES = st.lists(st.sampled_from([MAGIC, MAGIC[:3], b"AAAA", b"x", b"\0", b"\n#"]) | st.binary())


@given(st.lists(PIECES.map(b"".join), min_size=1, max_size=8), st.booleans())
def test_what_is_written_is_read_again(tmp_path_factory, payloads, index):
    path = tmp_path_factory.mktemp("records") / "a.rec"
    offsets = written(path, payloads, index=index)
    assert path.read_bytes() == b"".join(map(frames, payloads))
    assert list(read_records(str(path))) == payloads
    found = open_index(path, kind="raw")
    get = found.getter(Reader())
    assert [get(record) for record in found] == payloads
    assert [record.offset for record in found] == offsets
    assert [record.length for record in found] == [len(frames(p)) for p in payloads]


def test_records_larger_than_a_block_are_read(tmp_path):
    rng = np.random.default_rng(0)
    payloads = [rng.bytes(size) + MAGIC * 2 for size in (3_000_000, 4, 2_097_152, 70_000, 70_001)]
    written(tmp_path / "a.rec", payloads, index=False)
    assert list(read_records(tmp_path / "a.rec")) == payloads
    index = open_index(tmp_path / "a.rec", kind="raw")
    get = index.getter(Reader())
    assert [get(record) for record in index] == payloads


def test_every_small_block_reads_the_same_records(tmp_path, monkeypatch):
    payloads = [b"", b"x" * 20, b"AAAA" + MAGIC + b"B", b"yy", MAGIC * 3, b"z" * 70, b"end"]
    written(tmp_path / "a.rec", payloads, index=False)
    for block in range(8, 65):
        monkeypatch.setattr(recordio, "BLOCK", block)
        assert list(read_records(tmp_path / "a.rec")) == payloads, block


@pytest.mark.parametrize("cut", [1, 7, 8, 9, 17, 20, 39, 41])
def test_what_lies_before_a_cut_is_given(tmp_path, cut):
    path = tmp_path / "a.rec"
    written(path, [b"hello", b"AAAA" + MAGIC + b"BBBBC", b"end"])  # of 16, 28 and 12 bytes
    path.write_bytes(path.read_bytes()[:-cut])
    whole = [record for record, end in ((b"hello", 16), (b"AAAA" + MAGIC + b"BBBBC", 44))]
    whole = whole[: sum(end <= 56 - cut for end in (16, 44))]
    start = (0, 16, 44)[len(whole)]
    found = []
    with pytest.raises(DataError, match=rf"a.rec.* byte {start}"):
        for record in read_records(path):
            found.append(record)
    assert found == whole


def test_a_damaged_frame_is_named(tmp_path):
    path = tmp_path / "a.rec"
    written(path, [b"hello", b"there"])
    data = bytearray(path.read_bytes())
    data[16] ^= 1
    path.write_bytes(data)
    records = read_records(path)
    assert next(records) == b"hello"
    with pytest.raises(DataError, match=r"a\.rec.* byte 16"):
        next(records)


def test_files_that_are_not_there_are_said_at_the_call(tmp_path):
    with pytest.raises(DataError, match=r"none\.rec"):
        read_records(tmp_path / "none.rec")


# ---- The writer ------------------------------------------------------------------------------


def test_nothing_appears_before_the_writer_is_closed(tmp_path):
    path = tmp_path / "a.rec"
    path.write_bytes(b"before")
    writer = RecordWriter(path)
    writer.write(b"x" * 100_000)
    assert path.read_bytes() == b"before"
    assert not (tmp_path / "a.idx").exists()
    writer.close()
    writer.close()
    assert list(read_records(path)) == [b"x" * 100_000]
    assert (tmp_path / "a.idx").read_text() == "0\t0\n"
    with pytest.raises(DataError, match="closed"):
        writer.write(b"")


def test_after_an_exception_all_is_as_it_was(tmp_path):
    (tmp_path / "a.idx").write_text("before")
    with pytest.raises(ZeroDivisionError), RecordWriter(tmp_path / "a.rec") as writer:
        writer.write(b"x")
        raise ZeroDivisionError
    assert os.listdir(tmp_path) == ["a.idx"]
    assert (tmp_path / "a.idx").read_text() == "before"


def test_an_index_of_the_file_before_does_not_stay(tmp_path):
    written(tmp_path / "a.rec", [b"1", b"2", b"3"])
    written(tmp_path / "a.rec", [b"x" * 100, b"y"], index=False)
    assert not (tmp_path / "a.idx").exists()
    assert len(open_index(tmp_path / "a.rec", kind="raw")) == 2


def test_keys_are_numbers_or_words(tmp_path):
    with RecordWriter(tmp_path / "a.rec", index=tmp_path / "other.idx") as writer:
        writer.write(b"1")
        writer.write(b"2", "cat")
        writer.write(b"3", 70)
        writer.write(b"4")
        for key in ("", "two words", "tab\t", True, "line\n", "\udcff", "a\ud800"):
            with pytest.raises(DataError, match="key"):
                writer.write(b"no", key)
    assert (tmp_path / "other.idx").read_text() == "0\t0\ncat\t12\n70\t24\n3\t36\n"
    assert len(list(read_records(tmp_path / "a.rec"))) == 4


@pytest.mark.parametrize("payload", ["text", 5, None, [1, 2]])
def test_only_bytes_are_written(payload, tmp_path):
    with RecordWriter(tmp_path / "a.rec") as writer:
        with pytest.raises(DataError, match="bytes"):
            writer.write(payload)
        writer.write(bytearray(b"ab"))
        writer.write(np.arange(3, dtype=np.uint8))
    assert list(read_records(tmp_path / "a.rec")) == [b"ab", b"\0\1\2"]


def test_what_is_too_long_for_a_record_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("layoutkit.data.io.recordio.LENGTH", 10)
    with RecordWriter(tmp_path / "a.rec") as writer:
        with pytest.raises(DataError, match=r"11 bytes.* at most 10"):
            writer.write(b"x" * 11)
        assert writer.write(b"x" * 10) == 0


# ---- Image records ---------------------------------------------------------------------------


def test_labels_and_ids_are_packed_and_unpacked():
    header, data = unpack_image(pack_image(b"data", 3, 7, 9))
    assert (header, data) == ((0, (3.0,), 7, 9), b"data")
    assert unpack_image(pack_image(b"", [5]))[0] == (1, (5.0,), 0, 0)
    assert unpack_image(pack_image(b"", np.float32([1, 0.5]), 2**64 - 1))[0].labels == (1.0, 0.5)
    # The field for a single label is ignored if several labels follow.
    odd = struct.pack("<IfQQ2f", 2, 9.0, 1, 0, 1.0, 2.0) + b"x"
    assert unpack_image(odd) == ((2, (1.0, 2.0), 1, 0), b"x")


@pytest.mark.parametrize(
    "given", [(b"", "3"), (b"", None), (b"", []), (b"", ["a"]), (b"", 1e40), (b"", 2**24 + 1)]
)
def test_what_is_no_label_is_refused(given):
    with pytest.raises(DataError, match="label"):
        pack_image(*given)


@pytest.mark.parametrize("number", [-1, 2**64, 1.5, "7"])
def test_what_is_no_id_is_refused(number):
    with pytest.raises(DataError, match="id="):
        pack_image(b"", 1, number)


@pytest.mark.parametrize("payload", [b"", bytes(23), struct.pack("<IfQQ", 2, 0, 0, 0) + bytes(7)])
def test_what_is_no_image_record_is_refused(payload):
    with pytest.raises(DataError, match="not an image record"):
        unpack_image(payload)


# ---- Mean images -----------------------------------------------------------------------------


def test_mean_files_are_those_of_the_original(tmp_path):
    recordio.write_mean(tmp_path / "mean.bin", VALUES.astype(np.float64))
    assert (tmp_path / "mean.bin").read_bytes() == bytes.fromhex(MEAN)
    found = recordio.read_mean(tmp_path / "mean.bin")
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, VALUES)
    found += 1  # the array is writable


def test_older_mean_files_are_read(tmp_path):
    """Read files without a storage type, and files that begin with the number of axes."""
    new = bytes.fromhex(MEAN)
    head, rest = new[:24], new[60:]
    middle = struct.pack("<II3q", 0xF993FAC8, 3, 3, 2, 2)
    oldest = struct.pack("<I3I", 3, 3, 2, 2)
    for about in (middle, oldest):
        (tmp_path / "mean").write_bytes(head + about + rest)
        np.testing.assert_array_equal(recordio.read_mean(tmp_path / "mean"), VALUES)


def test_a_mean_file_of_several_arrays_names_the_mean(tmp_path):
    data = bytes.fromhex(MEAN)
    head, array = data[:16], data[24:-24]
    for names, found in (((b"std_imgs", b"mean_img"), True), ((b"std_imgs", b"variance"), False)):
        tail = b"".join(struct.pack("<Q", len(name)) + name for name in names)
        content = head + struct.pack("<Q", 2) + array * 2 + struct.pack("<Q", 2) + tail
        (tmp_path / "mean").write_bytes(content)
        if found:
            np.testing.assert_array_equal(recordio.read_mean(tmp_path / "mean"), VALUES)
            continue
        with pytest.raises(DataError, match="std_imgs, variance, but none is named mean_img"):
            recordio.read_mean(tmp_path / "mean")


def test_a_sparse_mean_file_is_refused(tmp_path):
    data = bytes.fromhex(MEAN)
    (tmp_path / "mean").write_bytes(data[:28] + struct.pack("<i", 1) + data[32:])
    with pytest.raises(DataError, match="storage type 1; it must be dense"):
        recordio.read_mean(tmp_path / "mean")


@pytest.mark.parametrize("change", range(0, 144, 9))
def test_cut_mean_files_are_refused(change, tmp_path):
    (tmp_path / "mean").write_bytes(bytes.fromhex(MEAN)[:change])
    with pytest.raises(DataError, match="mean is not a mean-image file"):
        recordio.read_mean(tmp_path / "mean")


def test_a_mean_file_that_is_too_large_is_named(monkeypatch, tmp_path):
    data = bytes.fromhex(MEAN)
    (tmp_path / "mean").write_bytes(data)
    monkeypatch.setattr("layoutkit.data.io.image_record._MAX_MEAN_BYTES", len(data))
    assert recordio.read_mean(tmp_path / "mean").shape == VALUES.shape
    (tmp_path / "mean").write_bytes(data + b"\0")
    with pytest.raises(DataError, match=f"it has more than {len(data)} bytes"):
        recordio.read_mean(tmp_path / "mean")


@pytest.mark.parametrize("axes", [32, 33])
def test_a_mean_file_has_at_most_32_axes(axes, tmp_path):
    """Write an array of one element, without a storage type."""
    head, rest = bytes.fromhex(MEAN)[:24], bytes.fromhex(MEAN)[84:]
    shape = struct.pack(f"<II{axes}q", 0xF993FAC8, axes, *[1] * axes)
    element = struct.pack("<iiif", 1, 0, 0, 7.0)
    (tmp_path / "mean").write_bytes(head + shape + element + rest[-24:])
    if axes == 32:
        assert recordio.read_mean(tmp_path / "mean").shape == (1,) * 32
        return
    with pytest.raises(DataError, match="an array of 33 axes; the maximum is 32"):
        recordio.read_mean(tmp_path / "mean")


def test_a_mean_image_has_three_axes(tmp_path):
    with pytest.raises(ShapeError, match=r"\(c, h, w\)"):
        recordio.write_mean(tmp_path / "mean", np.zeros((2, 2)))
    assert os.listdir(tmp_path) == []


@given(
    pieces=st.lists(st.tuples(st.integers(0, 9), st.sampled_from([MAGIC, MAGIC[:3], b"x"]))),
    around=st.integers(-9, 9),
    start=st.sampled_from([0, 1, 8]),
)
def test_heads_are_found_in_short_and_in_long_data(pieces, around, start):
    """Test sizes near the limit from which NumPy searches, with magic words at any position."""
    body = b"".join(bytes(gap) + word for gap, word in pieces)
    size = start + framing._LONG + around
    data = body[:size].rjust(size, b"\0")
    places = range(start, len(data) - 3, 4)
    assert list(framing._find_magic(data, start)) == [
        place for place in places if data[place : place + 4] == MAGIC
    ]
