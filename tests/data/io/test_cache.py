"""The disk cache of remote files: bounded, only whole files, and never a cause of errors."""

import errno
import logging
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from layoutkit.data import sampled_batcher
from layoutkit.data.io import cache as cache_module
from layoutkit.data.io.cache import DiskCache
from layoutkit.data.io.filesystem import Remote
from layoutkit.data.io.reader import Reader
from layoutkit.errors import DataError
from tests.helpers.loopback import serving

SIZE = 1000
NAMES = "abcdef"


@pytest.fixture
def home(site):
    for name in NAMES:
        site.files[f"/{name}"] = name.encode() * SIZE
    with serving(site) as home:
        yield home


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "deep" / "cache"


def stored(folder):
    return sorted(path.stat().st_size for path in folder.iterdir())


def contents(folder):
    return sorted(chr(path.read_bytes()[0]) for path in folder.iterdir())


def reads(reader, home, names):
    for name in names:
        assert reader.read(f"{home}/{name}", 10, 20) == name.encode() * 20


def test_a_file_is_asked_for_once(site, home, folder):
    reader = Reader(cache=DiskCache(folder, 10 * SIZE))
    reads(reader, home, "aaab")
    assert reader.read(f"{home}/a") == b"a" * SIZE
    assert site.asked == ["/a", "/b"]
    reads(Reader(cache=DiskCache(folder, 10 * SIZE)), home, "ab")  # the files stay in the cache
    assert site.asked == ["/a", "/b"]


def test_nothing_is_kept_unless_a_folder_is_named(home, tmp_path, monkeypatch):
    """Let every new cache fail; only the Batcher with `cache_dir` makes one."""
    (tmp_path / "x.csv").write_text(f"filename\n{home}/a\n")
    options = {"batch_size": 1, "processor": lambda data, out: np.frombuffer(data, np.uint8)}
    monkeypatch.setattr(DiskCache, "__init__", None)
    with sampled_batcher(tmp_path / "x.csv", **options) as batches:
        assert [batch.input.input.shape for batch in batches] == [(1, SIZE)]
    with pytest.raises(TypeError):
        sampled_batcher(tmp_path / "x.csv", cache_dir=tmp_path / "kept", **options)


@pytest.mark.parametrize(("limit", "kept"), [(2999, "ac"), (3000, "acd"), (3001, "acd")])
def test_the_least_recently_used_go_first(home, folder, limit, kept):
    reader = Reader(cache=DiskCache(folder, limit))
    reads(reader, home, "abcad" if limit >= 3000 else "abac")
    assert contents(folder) == sorted(kept)
    assert sum(stored(folder)) <= limit


def test_the_order_of_use_survives(home, folder):
    reads(Reader(cache=DiskCache(folder, 3 * SIZE)), home, "abca")
    for at, name in enumerate("bca"):  # a coarse clock would give equal times
        path = DiskCache(folder, 3 * SIZE).find(f"{home}/{name}")
        os.utime(path, (at, at))
    reads(Reader(cache=DiskCache(folder, 3 * SIZE)), home, "d")
    assert contents(folder) == ["a", "c", "d"]


def test_a_smaller_limit_holds_at_once(home, folder):
    reads(Reader(cache=DiskCache.at(folder, 4 * SIZE)), home, "abcd")
    kept = DiskCache.at(folder, 2 * SIZE)
    assert contents(folder) == ["c", "d"]
    assert DiskCache.at(folder, 9 * SIZE) is kept  # users of one folder share the smallest limit
    reads(Reader(cache=kept), home, "e")
    assert contents(folder) == ["d", "e"]


@pytest.mark.parametrize("limit", [0, SIZE - 1])
def test_what_is_larger_than_the_limit_is_read_in_parts(site, home, folder, limit):
    reader = Reader(cache=DiskCache(folder, limit))
    reads(reader, home, "aaa")
    assert stored(folder) == []
    assert len(site.asked) == 4  # the whole file once, to learn its size


def test_a_size_that_is_not_announced_is_no_way_round_the_limit(site, home, folder):
    site.files["/big"] = b"x" * (1 << 20)
    site.script["/big"] = ["unannounced"] * 2
    reader = Reader(cache=DiskCache(folder, 400_000))
    assert reader.read(f"{home}/big", 5, 5) == b"xxxxx"
    assert stored(folder) == []


def test_a_cut_download_leaves_nothing(site, home, folder):
    site.script["/a"] = ["cut", 500]
    reader = Reader(cache=DiskCache(folder, 10 * SIZE))
    reads(reader, home, "a")
    assert stored(folder) == [SIZE]
    site.script["/b"] = ["cut"] * 4
    with pytest.raises(DataError):
        reader.read(f"{home}/b")
    assert stored(folder) == [SIZE]


def test_room_of_failed_downloads_comes_back(site, home, folder):
    site.script["/a"] = ["cut"] * 6
    reader = Reader(retries=6, cache=DiskCache(folder, 2 * SIZE))
    reads(reader, home, "abc")
    assert contents(folder) == ["b", "c"]


def test_other_files_are_left_alone(home, folder):
    folder.mkdir(parents=True)
    (folder / "mine.txt").write_bytes(b"m" * 5000)
    reads(Reader(cache=DiskCache(folder, SIZE)), home, "ab")
    assert (folder / "mine.txt").read_bytes() == b"m" * 5000
    assert sorted(stored(folder)) == [SIZE, 5000]


def warnings(caplog):
    return [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]


def test_a_full_disk_is_said_once_and_does_not_matter(home, folder, caplog, monkeypatch):
    def full(path):
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    monkeypatch.setattr(cache_module, "replace_atomically", full)
    reads(Reader(cache=DiskCache(folder, 10 * SIZE)), home, "aabb")
    assert len(warnings(caplog)) == 1
    assert "No space left on device" in warnings(caplog)[0]
    assert str(folder) in warnings(caplog)[0]


class FullFile:
    def __init__(self, file):
        self.file = file

    def write(self, data):
        raise OSError(errno.ENOSPC, "No space left on device")


def test_a_disk_that_fills_up_while_writing(home, folder, caplog, monkeypatch):
    from contextlib import contextmanager

    real = cache_module.replace_atomically

    @contextmanager
    def filling(path):
        with real(path) as file:
            yield FullFile(file)

    cache = DiskCache(folder, 10 * SIZE)
    reads(Reader(cache=cache), home, "a")
    monkeypatch.setattr(cache_module, "replace_atomically", filling)
    reads(Reader(cache=cache), home, "abc")
    assert stored(folder) == [SIZE]
    assert len(warnings(caplog)) == 1


def test_a_read_only_folder_gives_what_it_has(site, home, folder, caplog, monkeypatch):
    reads(Reader(cache=DiskCache(folder, 10 * SIZE)), home, "a")

    def read_only(*_, **__):
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(cache_module, "replace_atomically", read_only)
    monkeypatch.setattr(os, "utime", read_only)
    reads(Reader(cache=DiskCache(folder, 10 * SIZE)), home, "abb")
    assert site.asked == ["/a", "/b", "/b", "/b"]
    assert len(warnings(caplog)) == 1


def test_a_folder_that_cannot_be(home, tmp_path, caplog):
    (tmp_path / "file").write_bytes(b"")
    reads(Reader(cache=DiskCache(tmp_path / "file" / "cache", 10 * SIZE)), home, "ab")
    assert len(warnings(caplog)) == 1


def test_a_file_that_somebody_removed_comes_back(site, home, folder):
    reader = Reader(cache=DiskCache(folder, 2 * SIZE))
    reads(reader, home, "a")
    for path in folder.iterdir():
        path.unlink()
    reads(reader, home, "aaa")
    assert stored(folder) == [SIZE]
    assert len(site.asked) == 2
    reads(reader, home, "b")
    assert contents(folder) == ["a", "b"]  # the space of the removed file is free again


def test_threads_share_a_download_and_the_limit(site, home, folder):
    reader = Reader(cache=DiskCache(folder, 2 * SIZE))
    most, failures, over = [], [], threading.Event()

    def look():
        while not over.is_set():
            if folder.exists():
                most.append(sum(path.stat().st_size for path in folder.glob("*.record")))

    def read(names):
        try:
            reads(reader, home, names)
        except BaseException as error:
            failures.append(error)

    def looking():
        try:
            look()
        except FileNotFoundError:  # the file was removed meanwhile
            looking()

    watcher = threading.Thread(target=looking)
    watcher.start()
    threads = [threading.Thread(target=read, args=("aabbccddeeff",)) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    over.set()
    watcher.join()
    assert failures == []
    assert max(most) <= 2 * SIZE
    assert len(site.asked) < 6 * 12


# ---- a folder that other users can write ------------------------------------------------------


def kept_file(folder):
    [path] = folder.iterdir()
    return path


def cut(path):
    path.write_bytes(path.read_bytes()[: SIZE // 2])


def emptied(path):
    path.write_bytes(b"")


def changed(path):
    path.write_bytes(b"z" * SIZE)


def link(path):
    secret = path.parent.parent / "secret"
    secret.write_bytes(b"s" * SIZE)
    path.unlink()
    path.symlink_to(secret)


def dangling(path):
    path.unlink()
    path.symlink_to(path.parent.parent / "authorized_keys")


def hard_link(path):
    secret = path.parent.parent / "secret"
    secret.write_bytes(b"s" * SIZE)
    path.unlink()
    path.hardlink_to(secret)


def pipe(path):
    path.unlink()
    os.mkfifo(path)


TRICKS = [cut, emptied, changed, link, dangling, hard_link, pipe]


@pytest.mark.parametrize("trick", TRICKS)
def test_what_somebody_put_into_the_place_of_an_entry_is_a_miss(site, home, folder, trick):
    reads(Reader(cache=DiskCache(folder, 10 * SIZE)), home, "a")
    trick(kept_file(folder))
    reads(Reader(cache=DiskCache(folder, 10 * SIZE)), home, "aa")
    assert site.asked == ["/a", "/a"]
    assert kept_file(folder).is_file()
    assert not kept_file(folder).is_symlink()
    secret = folder.parent / "secret"
    assert not secret.exists() or secret.read_bytes() == b"s" * SIZE
    assert not (folder.parent / "authorized_keys").exists()


@pytest.mark.parametrize("trick", [cut, emptied, link, dangling, hard_link, pipe])
def test_an_entry_that_is_replaced_while_it_is_used_is_a_miss(site, home, folder, trick):
    reader = Reader(cache=DiskCache(folder, 10 * SIZE))
    reads(reader, home, "a")
    trick(kept_file(folder))
    reads(reader, home, "aa")
    assert site.asked == ["/a", "/a"]
    assert not (folder.parent / "authorized_keys").exists()


def test_the_digest_is_checked_once_in_a_process(home, folder, monkeypatch):
    reads(Reader(cache=DiskCache(folder, 10 * SIZE)), home, "ab")
    checked, has_digest = [], cache_module.has_digest

    def noted(file, entry):
        checked.append(entry.size)
        return has_digest(file, entry)

    monkeypatch.setattr(cache_module, "has_digest", noted)
    reads(Reader(cache=DiskCache(folder, 10 * SIZE)), home, "aabba")
    assert checked == [SIZE] * 2


def test_a_link_at_a_name_that_can_be_guessed_is_not_written_through(home, folder):
    """Other writers of the folder may know the URLs, and so predict names derived from them."""
    folder.mkdir(parents=True)
    target = folder.parent / "authorized_keys"
    names = [cache_module.url_key(f"{home}/a"), cache_module.url_key("")]
    for name in names:
        (folder / f"{name}.record").symlink_to(target)
    reads(Reader(cache=DiskCache(folder, 10 * SIZE)), home, "a")
    assert not target.exists()


def test_an_answer_without_a_length_is_not_kept(site, home, folder):
    site.script["/a"] = ["unannounced"] * 3
    reads(Reader(cache=DiskCache(folder, 10 * SIZE)), home, "aa")
    assert stored(folder) == []


def test_a_file_of_another_user_is_a_miss(site, home, folder, monkeypatch):
    reads(Reader(cache=DiskCache(folder, 10 * SIZE)), home, "a")
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    reads(Reader(cache=DiskCache(folder, 10 * SIZE)), home, "a")
    assert len(site.asked) > 1  # the newly stored file belongs to another user, too


def test_entries_of_earlier_processes_go_first(home, folder):
    folder.mkdir(parents=True)
    old = folder / f"{'0' * 64}-{SIZE}-{'0' * 32}.record"
    old.write_bytes(b"o" * SIZE)
    os.utime(old, (1, 1))
    reads(Reader(cache=DiskCache(folder, 2 * SIZE)), home, "ab")
    assert not old.exists()
    assert stored(folder) == [SIZE, SIZE]


def test_threads_that_open_a_folder_together_share_one_cache(folder, monkeypatch):
    scan = DiskCache._scan

    def slow(cache):
        time.sleep(0.02)  # the other threads look for the cache meanwhile
        scan(cache)

    monkeypatch.setattr(DiskCache, "_scan", slow)
    barrier = threading.Barrier(8)

    def work(_):
        barrier.wait()
        return DiskCache.at(folder, SIZE)

    with ThreadPoolExecutor(8) as executor:
        caches = list(executor.map(work, range(8)))
    assert len({id(cache) for cache in caches}) == 1


class SlowNumber(int):
    """A number whose addition takes a while, in which other threads run."""

    def __radd__(self, other):
        time.sleep(0.002)
        return other + int(self)


def test_bytes_that_threads_reserve_together_are_all_counted(folder):
    cache = DiskCache(folder, 10 * SIZE)
    with ThreadPoolExecutor(8) as executor:
        list(executor.map(lambda _: cache._reserve(SlowNumber(100)), range(40)))
    assert cache._total == 40 * 100


def test_threads_that_want_a_file_together_download_it_once(site, home, folder):
    site.script["/a"] = [lambda: time.sleep(0.1) or "ok"]  # the other threads come meanwhile
    reader = Reader(cache=DiskCache(folder, 10 * SIZE))
    with ThreadPoolExecutor(4) as executor:
        list(executor.map(lambda _: reads(reader, home, "a"), range(4)))
    assert site.asked == ["/a"]


def test_the_total_is_that_of_the_files_after_a_replacement(site, home, folder):
    """A file that is downloaded again, in another size, is counted once."""
    cache = DiskCache(folder, 3 * SIZE)
    reader = Reader(cache=cache)
    reads(reader, home, "ab")
    remote = Remote()
    for size in (SIZE // 2, SIZE - 1, SIZE):
        site.files["/a"] = b"a" * size
        cache.store(f"{home}/a", remote.open(f"{home}/a", 0, None, 5))
        assert cache._total == sum(stored(folder)) == SIZE + size
    remote.close()
    reads(reader, home, "c")
    assert contents(folder) == ["a", "b", "c"]
