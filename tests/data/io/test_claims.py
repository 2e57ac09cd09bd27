"""Files that claim sizes which they do not have: no reader loops or allocates because of them."""

import gzip
import json
import os
import struct

import numpy as np
import pytest

from layoutkit import ArgumentError, DataError, DataView, collate
from layoutkit.data import CSVProvider, open_index, sampled_batcher
from layoutkit.data.io.filesystem import open_binary
from layoutkit.data.io.idx import IdxFile
from layoutkit.data.io.image_record import read_mean
from layoutkit.data.io.recordio import MAGIC
from tests.helpers.loopback import serving

FILE_SIZE = b"00000000003\0"
BODY = b"abc" + bytes(509)


def base256(size):
    """Return a size as GNU tar writes it if it does not fit octal digits."""
    return (b"\xff" if size < 0 else b"\x80") + (size % 2**88).to_bytes(11, "big")


def tar_header(name, size, kind=b"0"):
    header = bytearray(512)
    header[: len(name)] = name
    header[100:108] = b"0000644\0"
    header[108:124] = b"0000000\0" * 2
    header[124:136] = size
    header[136:148] = b"00000000000\0"
    header[156:157] = kind
    header[257:265] = b"ustar\x0000"
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    return bytes(header)


def pax_header(size):
    record = f" size={size}\n".encode()
    length = len(record) + 1
    while len(str(length)) + len(record) != length:
        length = len(str(length)) + len(record)
    body = str(length).encode() + record
    return tar_header(b"pax", b"%011o\0" % len(body), b"x") + body.ljust(512, b"\0")


GOOD = tar_header(b"a.png", FILE_SIZE) + BODY
MEMBER = tar_header(b"x.png", FILE_SIZE) + BODY
LONG_NAME = tar_header(b"././@LongLink", b"00000000004\0", b"L") + b"x.pn" + bytes(508)
DAMAGED_MEMBERS = {
    "negative": tar_header(b"x.png", base256(-512)),
    "negative and unused": tar_header(b"x.xyz", base256(-512)),
    "negative of an unknown type": tar_header(b"x.png", base256(-512), b"Z"),
    "negative in a pax header": pax_header(-1536) + MEMBER,
    "10**30 in a pax header": pax_header(10**30) + MEMBER,
    "2**80": tar_header(b"x.png", base256(2**80)),
    "3,000 pax headers": pax_header(3) * 3000 + MEMBER,
    "5,000 long names": LONG_NAME * 5000 + MEMBER,
}


@pytest.mark.parametrize("name", DAMAGED_MEMBERS)
def test_a_tar_archive_ends_at_a_member_with_an_impossible_header(tmp_path, name):
    path = tmp_path / "a.tar"
    path.write_bytes(GOOD + DAMAGED_MEMBERS[name] + bytes(1024))
    records = list(open_index(str(path)))
    assert [(record.offset, record.length) for record in records] == [(512, 3), (1024, None)]
    path.write_bytes(DAMAGED_MEMBERS[name] + bytes(1024))
    with pytest.raises(DataError, match=r"is not a tar archive|no member"):
        index = open_index(str(path))
        index.getter(_reader())(index[0])


def _reader():
    from layoutkit.data.io.reader import Reader

    return Reader()


def test_a_long_name_of_gigabytes_is_not_read(tmp_path):
    path = tmp_path / "a.tar"
    path.write_bytes(GOOD + tar_header(b"././@LongLink", base256(3 << 30), b"L"))
    os.truncate(path, 3 << 30)  # a file with a hole
    assert [record.length for record in open_index(str(path))] == [3, None]


def test_a_label_of_more_than_16_mib_is_named(tmp_path):
    path = tmp_path / "a.tar"
    path.write_bytes(GOOD + tar_header(b"a.cls", b"%011o\0" % ((1 << 24) + 1)))
    os.truncate(path, 1 << 25)  # a file with a hole
    with pytest.raises(DataError, match=r"a\.cls is not a label: it has 16777217 bytes"):
        open_index(str(path))


def test_a_compressed_idx_file_is_not_unpacked_beyond_what_it_can_hold(tmp_path):
    path = tmp_path / "x.gz"
    with gzip.open(path, "wb") as file:
        file.write(struct.pack(">BBBBI", 0, 0, 8, 1, 1 << 31) + bytes(1000))
    with pytest.raises(DataError, match="compressed bytes cannot become the 2147483648 bytes"):
        IdxFile(str(path))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_pipes_and_devices_are_refused(tmp_path):
    pipe = tmp_path / "x"
    os.mkfifo(pipe)
    for path, noun in (
        (str(pipe), "device or pipe"),
        ("/dev/zero", "device or pipe"),
        (str(tmp_path), "folder"),
    ):
        with pytest.raises(DataError, match=f"it is a {noun}, not a file"):
            read_mean(path)
        with pytest.raises(DataError, match=f"it is a {noun}, not a file"), open_binary(path):
            pass


def test_a_line_of_numbers_without_an_end_is_named(tmp_path):
    path = tmp_path / "x.csv"
    path.write_bytes(b"1,2\n")
    os.truncate(path, 1 << 28)  # a file with a hole
    with pytest.raises(DataError, match="line 2 has more than 67108864 bytes"):
        CSVProvider(str(path), data_shape=(2,), batch_size=1)


def test_parts_of_a_record_are_found_in_blocks(tmp_path, read_lengths):

    def part(flag):
        return struct.pack("<II", MAGIC, flag << 29)

    path = tmp_path / "x.rec"
    path.write_bytes(part(1) + part(2) * 150_000 + part(3))
    index = open_index(str(path), kind="raw")
    assert [record.length for record in index] == [path.stat().st_size]
    assert len(read_lengths) < 2000


def test_items_without_bytes_are_refused(tmp_path):
    header = "{'descr': '|V0', 'fortran_order': False, 'shape': (1099511627776,), }".ljust(117)
    path = tmp_path / "x.npy"
    path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", 118) + f"{header}\n".encode())
    with pytest.raises(DataError, match="elements of dtype"):
        open_index(str(path))


def test_a_redirect_to_an_invalid_address_is_an_error(site):
    site.files["/x.csv"] = b"filename\na\n"
    site.script["/x.csv"] = ["//[::1"]
    with serving(site) as url, pytest.raises(DataError, match="Invalid IPv6 URL"):
        open_index(f"{url}/x.csv")


@pytest.mark.parametrize("partition", [None, [], {}, "x", "1", "0 of x", 3])
def test_the_partition_of_a_state_is_text(partition):
    batcher = sampled_batcher(np.arange(10), batch_size=2)
    state = batcher.state_dict()
    with pytest.raises(DataError, match="partition"):
        batcher.load_state_dict({**state, "partition": partition})
    assert batcher.state_dict() == state
    batcher.load_state_dict(json.loads(json.dumps(state)))


def test_samples_of_dask_are_collated():
    da = pytest.importorskip("dask.array", reason="the samples are arrays of dask")
    samples = [np.arange(6.0).reshape(2, 3), np.arange(3.0).reshape(1, 3)]
    keywords = {"h": 3, "fill": 2, "dtype": "float32"}
    batch = collate([da.from_array(x) for x in samples], "hw->bwh", **keywords)
    assert type(batch).__module__.startswith("dask")
    np.testing.assert_array_equal(batch.compute(), collate(samples, "hw->bwh", **keywords))


def test_copy_of_a_sub_batch_is_true_or_false():
    view = DataView("bf", np.zeros((4, 3), np.float32))
    with pytest.raises(ArgumentError, match="copy="):
        view.sub(0, 2, copy=np.zeros(3))
