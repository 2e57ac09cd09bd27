"""The comparison of data loaders: every variant delivers every record, and the printed table."""

import re
from contextlib import ExitStack

import numpy as np
import pytest

from layoutkit.bench import feeding
from layoutkit.bench.protocol import Times

COUNT = 50


@pytest.fixture
def rows():
    return feeding.make_records(COUNT)


@pytest.fixture
def table(tmp_path, rows):
    return feeding.write_table(rows, tmp_path)


def test_the_table_leads_to_every_record(table, rows):
    index = feeding.open_index(table)
    assert len(index) == COUNT
    got = [feeding.decode(feeding.read(record)) for record in index]
    assert np.array_equal(got, rows)


@pytest.mark.parametrize("workers", feeding.WORKERS)
@pytest.mark.parametrize("kind", ["table", "array"])
def test_our_epochs_have_every_record_in_a_new_order(kind, workers, table, rows):
    with ExitStack() as stack:
        result = feeding.epochs(stack, kind, table, rows, workers, 16)
        epoch = result[feeding.OURS]
        first, second = (np.concatenate(list(epoch())) for _ in range(2))
    assert not np.array_equal(first, second)
    for got in (first, second):
        assert np.array_equal(got[np.argsort(got[:, 0])], rows)


@pytest.mark.filterwarnings("ignore:The given NumPy array is not writable")
def test_torchs_epochs_have_every_record(table, rows):
    pytest.importorskip("torch")
    for kind, names in {
        "table": [feeding.TORCH],
        "array": [feeding.TORCH, feeding.BY_BATCHES],
    }.items():
        with ExitStack() as stack:
            result = feeding.epochs(stack, kind, table, rows, 0, 16)
            assert [*result] == [*names, feeding.OURS]
            for name in names:
                feeding.check(name, result[name], rows)


def test_a_variant_that_misses_or_repeats_a_record_ends_it(rows):
    feeding.check("whole", lambda: iter([rows[20:], rows[:20]]), rows)
    with pytest.raises(SystemExit, match="short: an epoch does not have every record once"):
        feeding.check("short", lambda: iter([rows[:-1]]), rows)
    with pytest.raises(SystemExit, match="twice"):
        feeding.check("twice", lambda: iter([rows[:-1], rows[:1]]), rows)


def test_speeds_and_ratios_of_a_line():
    times = {
        feeding.OURS: Times({0: 0.5, 1: 0.25}),
        feeding.TORCH: Times({0: 1.0, 1: 1.0}),
    }
    cells = feeding.format_line("table", 2, 3000, times).split()
    assert cells == ["table", "2", "8,000", "3,000", "x3.0"]


def test_the_whole_prints_a_line_for_each_source_and_number_of_workers(monkeypatch, capsys):
    monkeypatch.setattr(feeding, "_has_torch", lambda: False)
    monkeypatch.setattr(feeding.feeding_mnist, "main", lambda folder, count, rounds: print(count))
    arguments = ["--records", "40", "--images", "50", "--rounds", "1", "--batch-size", "16"]
    assert feeding.main(arguments) == 0
    openmp, first, head, *lines, images = capsys.readouterr().out.splitlines()
    assert images == "50"
    assert openmp.startswith("OMP_WAIT_POLICY=passive")
    assert first.startswith("40 records of 64 floats, batches of 16")
    assert head.split()[:3] == ["source", "workers", "layoutkit"]
    result = [re.fullmatch(r"(\w+) +(\d) +[\d,]+", line).groups() for line in lines]
    assert result == [(kind, str(n)) for kind in ("table", "array") for n in feeding.WORKERS]
