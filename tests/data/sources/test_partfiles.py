"""Part files, whose lines are records, including regressions of the original library."""

import io
import itertools
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import numpy as np
import pytest

from layoutkit import DataError
from layoutkit.data import Record, open_index, sampler
from layoutkit.data.io import filesystem
from layoutkit.data.sources import partfiles

KINDS = ["part-linear", "part-linear-permutation", "part-permutation-permutation"]


def filled(folder, *contents):
    folder.mkdir(exist_ok=True)
    for number, content in enumerate(contents):
        (folder / f"part-{number:05}").write_bytes(content)
    return open_index(folder, kind="parts")


def read(record):
    with filesystem.open_binary(record.url) as file:
        return file.read()[record.offset : record.offset + record.length]


@pytest.fixture
def openings(monkeypatch):
    """Return a list that receives the names of opened part files, in order."""
    names = []

    @contextmanager
    def noted(path):
        names.append(path.rpartition("/")[2])
        with filesystem.open_binary(path) as file:
            yield file

    monkeypatch.setattr(partfiles, "open_binary", noted)
    return names


def test_lines_are_records(tmp_path):
    index = filled(tmp_path, b"ab\n\ncd", b"", b"e\r\nf\n", b"\n")
    assert [read(record) for record in index] == [b"ab", b"", b"cd", b"e\r", b"f", b""]
    assert [record.position for record in index] == [0, 1, 2, 0, 1, 0]
    assert index[3] == Record(index.parts[2], 0, 2, position=0)
    assert (index.kind, index.url_prefix, index.labels) == ("parts", str(tmp_path), [])
    assert index[-1] == index[5]


def test_lines_across_blocks(tmp_path, monkeypatch):
    monkeypatch.setattr(partfiles, "BLOCK_BYTES", 4)
    index = filled(tmp_path, b"abc\ndef\ng", b"\n\n\n\n\n", b"abcd")
    assert [read(record) for record in index] == [b"abc", b"def", b"g", *[b""] * 5, b"abcd"]


def test_every_small_block_finds_the_same_lines(tmp_path, monkeypatch):
    lines = [bytes([65 + n]) * size for n, size in enumerate([3, 0, 15, 16, 31, 1, 64, 0])]
    for block in range(1, 65):
        monkeypatch.setattr(partfiles, "BLOCK_BYTES", block)
        folder = tmp_path / str(block)
        folder.mkdir()
        index = filled(folder, b"\n".join(lines), b"\n".join(lines) + b"\n")
        assert [read(record) for record in index] == [*lines[:-1], *lines], block


def test_every_url_of_files_that_are_not_hidden(tmp_path):
    fsspec = pytest.importorskip("fsspec")
    memory = fsspec.filesystem("memory")
    for name in ("b", "a", "_SUCCESS", ".crc", "below/c"):
        memory.pipe(f"/records/{name}", b"1\n2\n")
    index = open_index("memory://records")
    assert index.parts == ["memory://records/a", "memory://records/b"]
    assert [read(record) for record in index] == [b"1", b"2"] * 2
    filled(tmp_path, b"x\n")
    assert read(open_index(f"file://{tmp_path}/")[0]) == b"x"


def test_parts_are_opened_when_reached_and_once(tmp_path, openings):
    index = filled(tmp_path, b"1\n2\n", b"3\n", b"4\n5\n")
    assert openings == []
    assert index[1].position == 1
    assert openings == ["part-00000"]
    assert index[2].position == 0
    assert openings == ["part-00000", "part-00001"]
    assert (index.item_count(), len(index), index[-1].position) == (5, 5, 1)
    assert openings == ["part-00000", "part-00001", "part-00002"]


def test_samplers_open_a_part_with_its_first_line(tmp_path, openings):
    order = sampler("part-linear", filled(tmp_path, b"1\n2\n", b"3\n"), batch_size=2)
    assert order.num_batches is None
    with pytest.raises(DataError, match="until every part") as caught:
        len(order)
    assert isinstance(caught.value, TypeError)
    loop = iter(order)
    next(loop), next(loop)
    assert openings == ["part-00000"]
    next(loop)
    assert openings == ["part-00000", "part-00001"]
    assert list(loop) == []
    assert (len(order), order.num_batches, order.unvisited) == (3, 2, 0)


@pytest.mark.parametrize("kind", KINDS)
def test_every_line_once_in_every_epoch(tmp_path, kind):
    contents = [b"".join(b"%d.%d\n" % (part, i) for i in range(part * 3)) for part in range(5)]
    index = filled(tmp_path, *contents)
    order = sampler(kind, index, seed=3)
    epochs = [[read(record) for record in order] for _ in range(3)]
    everything = sorted(b"".join(contents).split())
    assert all(sorted(epoch) == everything for epoch in epochs)
    # Lines of one file stay together.
    for epoch in epochs:
        files = [line.split(b".")[0] for line in epoch]
        assert len([a for a, b in itertools.pairwise(files) if a != b]) == 3
    assert (epochs[0] == epochs[1]) == (kind == "part-linear")
    files = [[line.split(b".")[0] for line in epoch] for epoch in epochs]
    assert (files[0] == files[1] == files[2]) == (kind != "part-permutation-permutation")


@pytest.mark.parametrize("kind", KINDS)
def test_a_part_of_one_line_before_a_larger_one_and_empty_parts(tmp_path, kind):
    index = filled(tmp_path, b"", b"a\n", b"b\nc\nd\n", b"", b"")
    order = sampler(kind, index, batch_size=2)
    for _ in range(20):
        batches = list(order.batches())
        assert [len(batch) for batch in batches] == [2, 2]
        assert sorted(read(r) for batch in batches for r in batch) == [b"a", b"b", b"c", b"d"]


@pytest.mark.parametrize("kind", KINDS)
def test_back_to_the_start_in_mid_epoch(tmp_path, kind):
    order = sampler(kind, filled(tmp_path, b"1\n2\n3\n", b"4\n5\n", b"6\n7\n"), batch_size=2)
    for stop in range(4):
        loop = iter(order.batches())
        for _ in range(stop):
            next(loop)
        order.set_epoch(0)
        batches = list(order.batches())
        assert sorted(read(r) for batch in batches for r in batch) == [
            b"%d" % i for i in range(1, 8)
        ]


def test_zero_length_records_are_records(tmp_path):
    index = filled(tmp_path, b"\n\n\n")
    assert [(r.offset, r.length) for r in sampler("part-linear", index)] == [(0, 0), (1, 0), (2, 0)]


def test_fewer_batches_and_too_many(tmp_path):
    index = filled(tmp_path, b"1\n2\n3\n", b"4\n5\n")
    few = sampler("part-linear", index, batch_size=2, num_batches=2)
    assert [len(batch) for batch in few.batches()] == [2, 2]
    many = sampler("part-linear", filled(tmp_path), batch_size=2, num_batches=4)
    with pytest.raises(DataError, match="5 records, which make 3 batches of 2"):
        list(many.batches())
    assert many.epoch == 0
    known = filled(tmp_path)
    assert len(known) == 5
    with pytest.raises(DataError, match="can give 3 batches"):
        sampler("part-linear", known, batch_size=2, num_batches=4)
    derived = sampler("part-linear", filled(tmp_path), num_batches=2)
    assert (derived.batch_size, [len(batch) for batch in derived.batches()]) == (3, [3, 2])


def test_a_state_opens_its_own_part_only(tmp_path, openings):
    contents = [b"%d\n" % i * 4 for i in range(5)]
    order = sampler("part-permutation-permutation", filled(tmp_path, *contents), seed=1)
    loop = iter(order)
    taken = [next(loop) for _ in range(14)]
    state, rest = order.state_dict(), list(loop)
    openings.clear()
    again = sampler("part-permutation-permutation", filled(tmp_path, *contents), seed=1)
    again.load_state_dict(state)
    assert next(iter(again)) == rest[0]
    assert openings == [taken[-1].url.rpartition("/")[2]]
    assert list(again) == taken + rest  # the whole epoch, with files before the resumed position


def test_a_part_that_vanished(tmp_path):
    index = filled(tmp_path, b"1\n", b"2\n")
    (tmp_path / "part-00001").unlink()
    order = sampler("part-linear", index)
    loop = iter(order)
    next(loop)
    with pytest.raises(DataError, match="part-00001 cannot be read"):
        next(loop)
    with pytest.raises(DataError, match="loop"):  # no silent end of the epoch
        next(loop)
    assert (order.epoch, order.state_dict()["position"]) == (0, 1)


@pytest.mark.parametrize("what", ["file", "nothing"])
def test_no_folder(tmp_path, what):
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match="cannot be read"):
        open_index(f"file://{tmp_path}/{what}")
    with pytest.raises(DataError, match="cannot be read"):
        open_index(tmp_path / what, kind="parts")


def test_numpy_integers_open_no_more_than_others(tmp_path, openings):
    index = filled(tmp_path / "parts", b"a\n", b"b\nc\n", b"d\n")
    assert read(index[np.int64(1)]) == b"b"
    assert openings == ["part-00000", "part-00001"]


class SlowDict(dict):
    """A dict whose assignments take a while, in which other threads run."""

    def __setitem__(self, key, value):
        time.sleep(0.01)
        super().__setitem__(key, value)


def test_the_first_scan_of_a_part_stays(tmp_path):
    index = filled(tmp_path, b"")
    index._versions = SlowDict()

    def store(number):
        return index._store_line_starts(0, np.arange(number), number)

    with ThreadPoolExecutor(4) as executor:
        found = list(executor.map(store, range(1, 5)))
    assert len({id(starts) for starts in found}) == 1
    assert index.file_version(index.parts[0]) == len(found[0])


def test_line_starts_and_version_belong_together(tmp_path, monkeypatch):
    """A server replaces a part between the scans of two threads, and the scans overlap."""
    index = filled(tmp_path, b"")
    contents = iter([b"n\ne\nw\n", b"old\n"])
    scanned, done = threading.Event(), threading.Event()
    other = threading.Thread(target=index.line_count, args=(0,))
    scan = partfiles.scan_line_starts

    @contextmanager
    def opened(path):
        yield io.BytesIO(next(contents))

    def scan_beside_the_other(file):
        starts = scan(file)
        if len(starts) == 4:
            other.start()
            assert scanned.wait(10)
        return starts

    def version(file):
        if file.getvalue() == b"old\n":
            scanned.set()
            assert done.wait(10)
        return file.getvalue()

    monkeypatch.setattr(partfiles, "open_binary", opened)
    monkeypatch.setattr(partfiles, "stream_version", version)
    monkeypatch.setattr(partfiles, "scan_line_starts", scan_beside_the_other)
    index.line_count(0)
    done.set()
    other.join()
    assert (index.line_count(0), index.file_version(index.parts[0])) == (3, b"n\ne\nw\n")
