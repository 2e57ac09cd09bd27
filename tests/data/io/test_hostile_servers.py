"""Servers with wrong, oversized or endless answers: a whole record or an error, in time."""

import gzip
import os
import threading
import time

import pytest

from layoutkit import DataError
from layoutkit.data import sampled_batcher
from layoutkit.data.io import filesystem, http
from layoutkit.data.io.cache import DiskCache
from layoutkit.data.io.reader import Reader
from tests.helpers.lying import BODY, SLOW, answering, head, sent

DATA = bytes(range(250)) * 16


@pytest.fixture(params=[False, True], ids=["", "cached"])
def reader(request, tmp_path):
    return Reader(cache=DiskCache(tmp_path / "kept", 1 << 20) if request.param else None)


CUT = {
    "unasked part": sent(206, DATA[:10], f"Content-Range: bytes 0-9/{len(DATA)}"),
    "unasked whole part": sent(206, DATA, f"Content-Range: bytes 0-3999/{len(DATA)}"),
    "nothing there": sent(416, b"", f"Content-Range: bytes */{len(DATA)}"),
    "packed": sent(200, gzip.compress(DATA)[:-30], "Content-Encoding: gzip"),
    "packed whole": sent(200, gzip.compress(DATA), "Content-Encoding: gzip"),
}


@pytest.mark.parametrize("answer", CUT)
def test_a_file_is_whole_or_an_error(reader, answer, tmp_path):
    with answering(CUT[answer]) as url, pytest.raises(DataError, match="cannot be read"):
        reader.read(url)
    assert not list(tmp_path.glob("kept/*"))


@pytest.mark.parametrize("more", [
    {"Content-Range": "bytes 100-109/4000"},
    {"Content-Range": "bytes 100-109/*"},
    {"Content-Range": "bytes 100-109/10"},
    {"Content-Range": "bytes 100-"},
    {},
])  # fmt: skip
def test_an_open_part_goes_to_the_end(more):
    answer = sent(206, DATA[100:110], *(f"{key}: {value}" for key, value in more.items()))
    with (
        answering(answer) as url,
        pytest.raises(DataError, match="byte range that was not"),
    ):
        Reader().read(url, 100)


@pytest.mark.parametrize(
    "line", ["Content-Range: bytes */4000", "Content-Range: bytes */x", "X: y"]
)
def test_nothing_behind_the_end_is_what_the_server_says_itself(line):
    with answering(sent(416, b"", line)) as url:
        with pytest.raises(DataError, match="416"):
            Reader().read(url, 100)
        if "4000" in line:
            assert Reader().read(url, 4000) == b""


def test_a_chunked_part_that_ends_early_is_asked_for_again():
    lines = "Content-Range: bytes 100-119/4000", "Transfer-Encoding: chunked", "Connection: close"
    with (
        answering(head(206, *lines) + b"a\r\n0123456789\r\n0\r\n\r\n") as url,
        pytest.raises(DataError, match="10 of 20 bytes"),
    ):
        Reader().read(url, 100, 20)


# ---- bounds ----------------------------------------------------------------------------------


@pytest.mark.budget(6)
@pytest.mark.parametrize("case", SLOW)
def test_an_answer_has_an_end(reader, case, monkeypatch):
    monkeypatch.setattr(filesystem, "SECONDS_IN_ALL", 0.2)  # but the minimum is one second
    pieces, endless, every = SLOW[case]
    began = time.monotonic()
    with (
        answering(*pieces, endless=endless, every=every) as url,
        pytest.raises(DataError, match="cannot be read"),
    ):
        reader.read(url)
    assert time.monotonic() - began < 8


def test_each_64_kib_extend_the_deadline_by_a_second(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(http, "monotonic", lambda: now[0])
    deadline = http.Deadline(30)
    deadline.extend(5 << 16, 0)
    now[0] = 34.5
    assert deadline.remaining() == 0.5
    deadline.extend(0, 60)  # a pause of the consumer is not the server's time
    assert deadline.remaining() == 30
    now[0] = 95.5
    with pytest.raises(TimeoutError, match="takes too long"):
        deadline.remaining()


def test_a_deadline_is_that_of_its_thread():
    mine, seen = http.Deadline(30), []

    def respond():
        seen.append(getattr(http._thread_state, "deadline", None))
        with http.Deadline(5).active():
            pass

    with mine.active():
        thread = threading.Thread(target=respond)
        thread.start()
        thread.join()
        assert http._thread_state.deadline is mine
    assert seen == [None]


@pytest.mark.parametrize("case", BODY)
def test_a_record_has_no_more_bytes_than_it_may(case, tmp_path):
    start, endless = BODY[case]
    cache = DiskCache(tmp_path / "kept", 1 << 20)
    for reader in (Reader(max_record_bytes=10**6), Reader(cache=cache, max_record_bytes=10**6)):
        with (
            answering(start, endless=endless) as url,
            pytest.raises(DataError, match="1000000 bytes that a record may have"),
        ):
            reader.read(url)


def test_the_record_may_have_as_many_as_it_may():
    with answering(sent(200, DATA)) as url:
        assert Reader(max_record_bytes=len(DATA)).read(url) == DATA
        with pytest.raises(DataError, match="max_record_bytes"):
            Reader(max_record_bytes=len(DATA) - 1).read(url)
        with pytest.raises(DataError, match="max_record_bytes"):
            Reader(max_record_bytes=9).read(url, 0, 10)
        assert Reader().read(url, 0, 10) == DATA[:10]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no devices of this kind")
@pytest.mark.parametrize("length", [None, 10, 2**62])
def test_devices_and_pipes_are_no_records(tmp_path, length):
    os.mkfifo(tmp_path / "pipe")
    for path in ("/dev/zero", tmp_path / "pipe"):
        with pytest.raises(DataError, match="device or pipe"):
            Reader().read(str(path), 0, length)


def test_no_memory_is_taken_for_a_length_that_a_file_has_not(tmp_path):
    (tmp_path / "x").write_bytes(DATA)
    with pytest.raises(DataError, match="has 4000 bytes from byte 0 on"):
        Reader().read(str(tmp_path / "x"), 0, 2**62)
    with pytest.raises(DataError, match="max_record_bytes"):
        Reader(max_record_bytes=3999).read(str(tmp_path / "x"))
    assert Reader(max_record_bytes=4000).read(str(tmp_path / "x")) == DATA


@pytest.mark.parametrize("workers", [0, 1])
def test_a_batcher_hands_the_bound_on(tmp_path, workers):
    (tmp_path / "x.csv").write_text("filename\nsmall\nlarge\n")
    (tmp_path / "small").write_bytes(b"abc")
    (tmp_path / "large").write_bytes(b"abcd")
    options = {"batch_size": 2, "num_workers": workers, "max_record_bytes": 3}
    with sampled_batcher(tmp_path / "x.csv", **options) as batches:
        [batch] = batches
    assert [record.url.rpartition("/")[2] for record in batch.item] == ["small"]
    with pytest.raises(DataError, match="max_record_bytes=-1"):
        sampled_batcher(tmp_path / "x.csv", batch_size=2, max_record_bytes=-1)
