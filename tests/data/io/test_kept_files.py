"""Containers stay open while records are read, and errors are the same as in every Reader."""

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from layoutkit import DataError
from layoutkit.data.io.filesystem import open_regular_file, read_at
from layoutkit.data.io.image_record import extract_image, pack_image, unpack_image
from layoutkit.data.io.reader import Reader
from layoutkit.data.io.recordio import pack_frames, unpack_frames
from tests.helpers.open_files import count_open_files, lists_open_files


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "a.bin"
    path.write_bytes(bytes(range(200)))
    return path


@lists_open_files
def test_a_file_is_opened_once_and_closed(path):
    reader, before = Reader(), count_open_files()
    for start in range(50):
        assert reader.read(str(path), start, 3) == bytes(range(start, start + 3))
    assert count_open_files() == before + 1
    reader.close()
    reader.close()
    assert count_open_files() == before
    assert reader.read(str(path), 7, 2) == b"\x07\x08"
    reader = Reader()
    reader.read(str(path), 0, 1)
    del reader
    assert count_open_files() == before


def test_threads_read_their_own_places(path):
    reader, wrong = Reader(), []

    def read(first):
        for start in range(first, 190, 3):
            if reader.read(str(path), start, 5) != bytes(range(start, start + 5)):
                wrong.append(start)

    threads = [threading.Thread(target=read, args=(first,)) for first in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    reader.close()
    assert wrong == []


@lists_open_files
def test_closing_during_a_read_does_not_change_its_file(path, tmp_path, monkeypatch):
    """A closed descriptor's number is free for the next file, whose bytes the read would return."""
    other = tmp_path / "b.bin"
    other.write_bytes(bytes(200))
    reader, before = Reader(), count_open_files()
    with ExitStack() as files:

        def close_then_read(descriptor, size, start):
            reader.close()
            files.enter_context(other.open("rb"))
            return read_at(descriptor, size, start)

        monkeypatch.setattr("layoutkit.data.io.reader.read_at", close_then_read)
        assert reader.read(str(path), 7, 2) == b"\x07\x08"
        assert count_open_files() == before + 1  # only the other file is open
    assert count_open_files() == before


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
def test_a_child_has_a_lock_of_its_own():
    reader = Reader()
    reader._lock.acquire()  # as if another thread held it during a fork
    pid = os.fork()
    if pid == 0:
        os._exit(reader._lock.locked())
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_threads_open_a_file_once(path, monkeypatch):
    opened = []

    def slow(name):
        opened.append(name)
        time.sleep(0.02)  # the other threads wait for the lock meanwhile
        return open_regular_file(name)

    monkeypatch.setattr("layoutkit.data.io.filesystem.open_regular_file", slow)
    reader = Reader()
    with ThreadPoolExecutor(8) as executor:
        list(executor.map(lambda start: reader.read(str(path), start, 5), range(8)))
    reader.close()
    assert opened == [str(path)]


@pytest.mark.parametrize("has_pread", [True, False])
def test_threads_share_a_descriptor(path, monkeypatch, has_pread):
    """Without `pread`, as on Windows, a thread must not read at another thread's position."""
    if not has_pread:
        monkeypatch.delattr(os, "pread", raising=False)
    seek = os.lseek
    monkeypatch.setattr(os, "lseek", lambda *words: (seek(*words), time.sleep(0.001)))
    with path.open("rb", buffering=0) as file, ThreadPoolExecutor(8) as executor:
        found = list(executor.map(lambda start: read_at(file.fileno(), 1, start), range(40)))
    assert b"".join(found) == bytes(range(40))


def test_what_cannot_be_read_is_said_as_by_a_reader(path, tmp_path):
    reader = Reader()
    assert reader.read(str(path)) == bytes(range(200))
    with pytest.raises(DataError, match=r"has 5 bytes from byte 195 on, but the record has 6"):
        reader.read(str(path), 195, 6)
    for name in (tmp_path / "none.bin", tmp_path):
        with pytest.raises(DataError, match="cannot be read"):
            reader.read(str(name), 0, 1)
    path.write_bytes(b"new")
    assert reader.read(str(path), 0, 3) == b"new"
    reader.close()


@pytest.mark.parametrize("label", [3, [1, 2, 0.5]])
@pytest.mark.parametrize("size", range(5))
def test_the_image_in_one_frame(label, size):
    frame = pack_frames(pack_image(b"x" * size, label, 9))
    assert extract_image(frame) == unpack_image(unpack_frames(frame))[1] == b"x" * size


def test_what_is_not_one_frame_of_an_image_record():
    magic = bytes.fromhex("0a23d7ce")
    split = pack_frames(pack_image(magic * 2, 1, 9))
    assert unpack_image(unpack_frames(split))[1] == magic * 2
    whole = pack_frames(pack_image(b"abcd", 1, 9))
    many = pack_frames(b"\xff\xff\x00\x00" + bytes(20))  # claims to have 65535 labels
    for frame in (
        split,
        b"",
        whole[:-4],
        whole + b"abcd",
        b"x" + whole[1:],
        pack_frames(b"short"),
        many,
    ):
        assert extract_image(frame) is None
