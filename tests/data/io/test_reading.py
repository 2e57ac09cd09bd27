"""Bytes of records from files, HTTP and fsspec: whole files, ranges, and repeated attempts."""

import io
import uuid
from contextlib import nullcontext

import fsspec
import numpy as np
import pytest

from layoutkit import DataError
from layoutkit.data import open_index
from layoutkit.data.io import filesystem
from layoutkit.data.io import reader as reader_module
from layoutkit.data.io.reader import RangeFile, Reader, gather_bytes
from layoutkit.data.io.responses import FileVersion
from tests.helpers.loopback import serving

DATA = bytes(range(200)) * 3


@pytest.fixture
def home(site):
    site.files["/a.bin"] = DATA
    with serving(site) as home:
        yield home


@pytest.fixture(params=["path", "file", "memory", "http", "http without ranges"])
def url(request, tmp_path, site, home):
    if request.param.startswith("http"):
        site.ranges = "without" not in request.param
        return f"{home}/a.bin"
    if request.param == "memory":
        url = f"memory://{uuid.uuid4()}/a.bin"
        with fsspec.open(url, "wb") as file:
            file.write(DATA)
        return url
    path = tmp_path / "a b%20.bin"
    path.write_bytes(DATA)
    return str(path) if request.param == "path" else f"file://{path}"


@pytest.mark.parametrize(
    ("offset", "length"),
    [(None, None), (0, 600), (0, None), (None, 7), (5, 7), (599, 1), (598, None), (3, 0)],
)
def test_a_part_is_the_slice(url, offset, length):
    start = offset or 0
    stop = None if length is None else start + length
    assert Reader().read(url, offset, length) == DATA[start:stop]


@pytest.mark.parametrize("offset", [600, 700])
def test_a_part_without_length_behind_the_end_is_empty(url, offset):
    assert Reader().read(url, offset) == b""


@pytest.mark.parametrize(("offset", "length"), [(0, 601), (599, 2), (600, 1), (700, 1)])
def test_fewer_bytes_than_length_are_an_error(url, offset, length):
    with pytest.raises(DataError):
        Reader().read(url, offset, length)


@pytest.mark.parametrize("url", ["/no/such/file", "file:///no/such", "memory://no/such", "a\0b"])
def test_what_is_not_there_is_named(url):
    with pytest.raises(DataError, match="cannot be read"):
        Reader().read(url)


def test_a_scheme_that_nobody_knows():
    with pytest.raises(DataError, match="nosuch"):
        Reader().read("nosuch://a/b")


@pytest.mark.parametrize("answer", [500, 503, "reset", "cut"])
@pytest.mark.parametrize("part", [(None, None), (10, 50)])
def test_what_may_pass_is_tried_again(site, home, answer, part):
    site.script["/a.bin"] = [answer, answer]
    start, length = part
    wanted = DATA if length is None else DATA[start : start + length]
    assert Reader(retries=2).read(f"{home}/a.bin", *part) == wanted
    assert len(site.asked) == 3


@pytest.mark.parametrize("ranges", [True, False])
def test_an_answer_without_announced_length_is_known_to_be_cut_by_the_records_length(
    site, home, ranges
):
    site.ranges, site.script["/a.bin"] = ranges, ["open"]
    assert Reader().read(f"{home}/a.bin", 10, 500) == DATA[10:510]
    assert len(site.asked) == 2


@pytest.mark.parametrize("retries", [0, 1, 3])
def test_tries_are_bounded(site, home, retries):
    site.script["/a.bin"] = [500] * 10
    with pytest.raises(DataError, match="500"):
        Reader(retries).read(f"{home}/a.bin")
    assert len(site.asked) == retries + 1


@pytest.mark.parametrize("status", [400, 403, 404, 429])
def test_what_the_server_refuses_is_never_tried_again(site, home, status):
    site.script["/a.bin"] = [status]
    with pytest.raises(DataError, match=str(status)):
        Reader().read(f"{home}/a.bin")
    assert len(site.asked) == 1


def test_a_file_that_is_too_short_is_not_tried_again(site, home):
    with pytest.raises(DataError, match="600 bytes"):
        Reader().read(f"{home}/a.bin", 0, 601)
    assert len(site.asked) == 1


def test_tries_end_with_their_time(site, home, monkeypatch):
    monkeypatch.setattr(filesystem, "FIRST_PAUSE", 0.05)
    monkeypatch.setattr(filesystem, "SECONDS_IN_ALL", 0.01)
    site.script["/a.bin"] = [500] * 10
    with pytest.raises(DataError, match="500"):
        Reader(retries=9).read(f"{home}/a.bin")
    assert len(site.asked) == 1


def test_a_server_that_says_nothing_is_not_waited_for_longer(site, home, monkeypatch):
    monkeypatch.setattr(filesystem, "SECONDS_IN_ALL", 0.0)  # but the minimum is one second
    site.script["/a.bin"] = ["stall"]
    with pytest.raises(DataError, match="timed out"):
        Reader().read(f"{home}/a.bin")


def test_a_connection_is_used_again(site, home, monkeypatch):
    from urllib3.connectionpool import HTTPConnectionPool

    made = []
    new = HTTPConnectionPool._new_conn
    monkeypatch.setattr(HTTPConnectionPool, "_new_conn", lambda pool: made.append(1) or new(pool))
    reader = Reader()
    for offset in range(0, 50, 10):
        reader.read(f"{home}/a.bin", offset, 10)
    reader.read(f"{home}/a.bin")
    assert (len(site.asked), len(made)) == (6, 1)


class Flaky(fsspec.AbstractFileSystem):
    """A file system with the failures in `failures`, which otherwise reads from memory."""

    protocol = "flaky"
    cachable = False
    failures: tuple = ()

    def cat_file(self, path, start=None, end=None, **_):
        failure = self._failure()
        data = DATA[start:end]
        return data[: len(data) // 2] if failure == "half" else data

    def _open(self, path, mode="rb", **_):
        import io

        self._failure()
        return io.BytesIO(DATA)

    def ls(self, path, detail=True, **_):
        self._failure()
        return [{"name": f"x/{name}", "type": "file"} for name in ("c", "b", ".a")]

    def isfile(self, path):
        self._failure()
        return True

    def _failure(self):
        failure, Flaky.failures = Flaky.failures[0], Flaky.failures[1:]
        if isinstance(failure, Exception):
            raise failure
        return failure


@pytest.fixture
def _flaky():
    fsspec.register_implementation("flaky", Flaky, clobber=True)


@pytest.mark.usefixtures("_flaky")
@pytest.mark.parametrize("first", [ConnectionResetError("lost"), TimeoutError(), OSError("x")])
def test_other_file_systems_are_tried_again(first):
    Flaky.failures = (first, None)
    assert Reader().read("flaky://x/y") == DATA
    Flaky.failures = (first, "half", None)
    assert Reader().read("flaky://x/y", 5, 10) == DATA[5:15]
    assert Flaky.failures == ()


@pytest.mark.usefixtures("_flaky")
@pytest.mark.parametrize("first", [FileNotFoundError("gone"), PermissionError("no")])
def test_what_will_not_pass_is_not_tried_again(first):
    Flaky.failures = (first, "not reached")
    with pytest.raises(DataError, match=str(first)):
        Reader().read("flaky://x/y")
    assert Flaky.failures == ("not reached",)


class SizedFile(io.BytesIO):
    """A file with an attribute `size`."""

    size = len(DATA)


class Sized(fsspec.AbstractFileSystem):
    """A file system that returns files with an attribute `size`, and keeps them."""

    protocol = "sized"
    cachable = False
    opened: tuple = ()

    def _open(self, path, mode="rb", **_):
        Sized.opened = (*Sized.opened, SizedFile(DATA))
        return Sized.opened[-1]


@pytest.mark.parametrize(
    ("options", "version", "message"),
    [
        ({}, None, None),
        ({"max_record_bytes": len(DATA) - 1}, None, "max_record_bytes"),
        ({}, FileVersion(size=3), "changed on its server"),
    ],
)
def test_files_of_other_file_systems_are_closed(options, version, message):
    fsspec.register_implementation("sized", Sized, clobber=True)
    Sized.opened = ()
    reader = Reader(retries=0, **options)
    with nullcontext() if message is None else pytest.raises(DataError, match=message):
        assert reader.read("sized://x/y", version=version) == DATA
    assert [file.closed for file in Sized.opened] == [True]


def test_close_ends_a_pause(site, home, monkeypatch):
    import threading

    monkeypatch.setattr(filesystem, "FIRST_PAUSE", 20.0)
    site.script["/a.bin"] = [500]
    reader, failures = Reader(), []

    def read():
        try:
            reader.read(f"{home}/a.bin")
        except DataError as error:
            failures.append(error)

    thread = threading.Thread(target=read)
    thread.start()
    while not site.asked:
        threading.Event().wait(0.001)
    reader.close()
    thread.join(5)
    assert not thread.is_alive()
    assert len(failures) == 1


# ---- files that are opened to find records ---------------------------------------------------


@pytest.mark.parametrize("ranges", [True, False])
def test_a_stream_goes_on_where_it_broke_off(site, home, ranges):
    site.files["/large.bin"] = large = DATA * 3000  # several chunks
    site.ranges, site.script["/large.bin"] = ranges, [500, "cut", "reset", "cut"]
    with filesystem.open_binary(f"{home}/large.bin") as file:
        assert file.read(700) == large[:700]
        assert file.read() == large[700:]
        assert file.read() == b""
    assert len(site.asked) == 5


def test_a_stream_is_not_tried_for_ever(site, home):
    site.script["/a.bin"] = [503] * 9
    with (
        pytest.raises(DataError, match=r"503.*tried 4 times"),
        filesystem.open_binary(f"{home}/a.bin"),
    ):
        pass
    assert len(site.asked) == 4
    site.asked.clear()
    with pytest.raises(DataError, match="404"), filesystem.open_binary(f"{home}/none"):
        pass
    assert len(site.asked) == 1


def test_indexes_are_opened_with_patience(site, home):
    site.files["/x.csv"] = b"filename,label\na,cat\nb,dog\n"
    site.files["/x.npy"] = npy_bytes(np.arange(6.0).reshape(3, 2))
    site.script = {"/x.csv": ["reset", 503], "/x.npy": [500, "cut"]}
    assert open_index(f"{home}/x.csv").labels == ["cat", "dog"]
    assert open_index(f"{home}/x.npy")[2].array.tolist() == [4, 5]


@pytest.mark.usefixtures("_flaky")
def test_folders_are_listed_with_patience():
    Flaky.failures = (ConnectionResetError("lost"), TimeoutError(), None)
    assert filesystem.list_files("flaky://x") == ["b", "c"]
    Flaky.failures = (OSError("x"), None)
    assert filesystem.exists("flaky://x/b")
    assert Flaky.failures == ()


def npy_bytes(array):
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


@pytest.mark.parametrize("one_call", [1, 2, 1 << 30])
@pytest.mark.parametrize("size", [0, 1, 2, 3])
def test_every_part_of_a_small_file(tmp_path, monkeypatch, size, one_call):
    monkeypatch.setattr(filesystem, "MAX_READ", one_call)
    data = b"abc"[:size]
    path = str(tmp_path / "small")
    (tmp_path / "small").write_bytes(data)
    reading = Reader()
    assert reading.read(path) == data
    with RangeFile(path) as file:
        for start in range(size + 2):
            for length in range(size + 2):
                assert file.read_at(start, length) == data[start : start + length]
                if start + length <= size:
                    assert reading.read(path, start, length) == data[start : start + length]
                elif length:
                    with pytest.raises(DataError, match="the file is truncated"):
                        reading.read(path, start, length)
    with pytest.raises(ValueError, match="small is closed"):
        file.read_at(0, 1)
    reading.close()


@pytest.mark.parametrize("block", [1, 7, 16, 17, 64, 1000])
def test_bytes_at_offsets_in_any_order(tmp_path, monkeypatch, block):
    """Read at any offsets, also at and past the end of the file, where zeros are returned."""
    data = bytes(range(1, 201))
    (tmp_path / "x").write_bytes(data)
    monkeypatch.setattr(reader_module, "BLOCK", block)
    offsets = np.concatenate([np.random.default_rng(0).permutation(210), [0, 199, 200, 1 << 40]])
    for max_gap in (1 << 15, 1):
        with RangeFile(str(tmp_path / "x")) as file:
            file.max_gap = max_gap
            for width in (1, 8):
                rows = gather_bytes(file, offsets, width)
                wanted = [data[at : at + width].ljust(width, b"\0") for at in offsets.tolist()]
                assert [row.tobytes() for row in rows] == wanted
