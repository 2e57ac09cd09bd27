"""The corpus of every input that ever failed, and random damage to these inputs.

`make fuzz` opens many more damaged inputs, in a process with limits on time and memory.
"""

import os
import random
import re
import signal
import struct
import time
from contextlib import suppress
from functools import partial

import numpy as np
import pytest

from layoutkit import LayoutkitError
from layoutkit.data import open_index
from tests.helpers import corpus, fuzz_files
from tests.helpers.damage import damaged, renumbered, with_checksums
from tests.helpers.record_files import tar, tfrecords

MUTATIONS = 400
KINDS = {each for each in corpus.READERS if each != "parquet"}


@pytest.fixture
def inputs():
    """Return the inputs of the corpus that this machine has readers for."""
    try:
        import pyarrow  # noqa: F401
    except ImportError:
        return [each for each in corpus.kept_inputs() if each.kind != "parquet"]
    return corpus.kept_inputs()


@pytest.fixture(autouse=True)
def _bounded():
    with corpus.bounded():
        yield


def test_every_kind_has_inputs(inputs):
    assert {each.kind for each in inputs} >= KINDS
    files = [path for path in corpus.FOLDER.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 300_000
    kept = {
        path.relative_to(corpus.FAILED).with_suffix("") for path in files if "failed" in path.parts
    }
    assert {*corpus.KNOWN} <= {path.as_posix() for path in kept}


def test_kept_inputs_end_with_a_result_or_an_error_of_layoutkit(inputs, tmp_path):
    wrong = {each.kept: corpus.failure(each, tmp_path) for each in inputs}
    assert {name: error for name, error in wrong.items() if error is not None} == {}


@pytest.mark.budget(0)
def test_damaged_inputs_end_with_a_result_or_an_error_of_layoutkit(inputs, tmp_path):
    wrong = {}
    for number in range(MUTATIONS):
        tried = corpus.mutated(inputs, "test", number)
        error = corpus.failure(tried, tmp_path)
        if error is not None and f"{tried.kind}/{fuzz_files.named(error)}" not in corpus.KNOWN:
            wrong[number] = tried.kept, error
    assert wrong == {}


# No reader accepts these answers of servers: every request has to raise for them.
REFUSED = {"http/missing.http", "http/redirect.http", "http/gzip.http"}


def test_valid_inputs_are_read(inputs, tmp_path, monkeypatch):
    """A reader that rejects every input would hide all failures."""
    done = []

    def count(*steps):
        for step in steps:
            with suppress(LayoutkitError):
                step()
                done.append(tried.kept)

    monkeypatch.setattr(corpus, "_every", count)
    valid = [each for each in inputs if not each.kept.startswith("failed")]
    for tried in valid:
        path = tried.write(tmp_path)
        if tried.kind in ("means", "states"):
            count(partial(corpus.READERS[tried.kind], path))
        else:
            corpus.READERS[tried.kind](path)
    assert {each.kept for each in valid}.difference(done) == REFUSED


# ---- the fuzzer itself -----------------------------------------------------------------------


def test_an_input_is_a_function_of_seed_and_number(inputs):
    drawn = [corpus.mutated(inputs, 1, number) for number in range(50)]
    assert drawn == [corpus.mutated(inputs, 1, number) for number in range(50)]
    assert drawn != [corpus.mutated(inputs, 2, number) for number in range(50)]
    assert len({each.kind for each in drawn}) > 5


def test_checksums_of_damaged_files_are_computed_anew(tmp_path):
    archive = bytearray(tar([("1.jpg", b"one"), ("2.jpg", b"two")]))
    archive[1024] = ord("3")  # in the name in the second header
    (tmp_path / "a.tar").write_bytes(archive)
    assert len(open_index(tmp_path / "a.tar")) == 2
    assert open_index(tmp_path / "a.tar")[1].length is None
    (tmp_path / "a.tar").write_bytes(with_checksums(".tar", bytes(archive)))
    assert [record.length for record in open_index(tmp_path / "a.tar")] == [3, 3]
    whole = tfrecords([b"first"])
    cut = struct.pack("<Q", 4) + whole[8:]
    assert with_checksums(".tfrecord", whole) == whole
    assert with_checksums(".tfrecord", cut)[8:12] == tfrecords([b"four"])[8:12]


def test_damage_changes_bytes_and_numbers():
    chance = random.Random(1)
    content = bytes(range(256)) * 4
    assert sum(damaged(content, chance) == content for _ in range(100)) < 5
    assert damaged(b"", chance) == b""
    assert {renumbered(b"a 12 b", chance)[:2] for _ in range(20)} == {b"a "}
    assert renumbered(b"no number", chance) == b"no number"


OUTCOMES = {
    "KeyError": lambda: {}["missing"],
    "hang": lambda: time.sleep(60),
    "SIGKILL": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "memory": lambda: np.ones(1 << 29, np.uint8),
}


@pytest.mark.budget(1)
@pytest.mark.skipif(not hasattr(os, "fork"), reason="inputs are opened in forked children")
@pytest.mark.parametrize("name", OUTCOMES)
def test_a_planted_outcome_is_reported(name, inputs, tmp_path, monkeypatch, capfd):
    chosen = [each for each in inputs if each.kind == "tables"]
    valid = {each.files for each in chosen}

    def read(path):
        if ((path.suffix, path.read_bytes()),) not in valid:
            OUTCOMES[name]()

    monkeypatch.setitem(corpus.READERS, "tables", read)
    monkeypatch.setattr(corpus, "FAILED", tmp_path)
    monkeypatch.setattr(fuzz_files, "TOLD", set())
    monkeypatch.setattr(fuzz_files, "INPUT_SECONDS", 1.0 if name == "hang" else 30.0)
    monkeypatch.setattr(fuzz_files, "MEMORY", 1 << 26)
    assert fuzz_files.hunt(chosen, 1, 0, 2, time.monotonic() + 30) == (2, 1)
    told = capfd.readouterr().out
    report = rf"{name}: number 0 of seed 1, from (failed/)?tables/.*\n.* --open \S+\n"
    assert re.fullmatch(report, told)
    (path,) = (tmp_path / "tables").iterdir()
    assert path.stem == name
    assert path.read_bytes() == corpus.mutated(chosen, 1, 0).files[0][1]
