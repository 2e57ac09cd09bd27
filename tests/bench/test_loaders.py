"""`bench --loaders`: every variant delivers every image or record, and the tables."""

from contextlib import ExitStack

import numpy as np
import pytest

from layoutkit import ArgumentError
from layoutkit.bench import loader_records, loaders, main, photos

pytest.importorskip("PIL", reason="the files are JPEGs, which Pillow writes")

COUNT = 24


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return loaders.Files.write(COUNT, tmp_path_factory.mktemp("photos"))


@pytest.fixture
def records(tmp_path):
    rows = np.random.default_rng(0).integers(0, 256, (600, loader_records.RECORD_BYTES), np.uint8)
    return loader_records.RecordFiles(rows, tmp_path)


def test_photographs_have_the_sizes_that_the_page_says(files):
    from PIL import Image

    sizes = {Image.open(path).size[::-1] for path, _ in files.listed()}
    for axis in range(2):
        of_axis = [size[axis] for size in sizes]
        assert photos.MIN_SIZE[axis] <= min(of_axis)
        assert max(of_axis) <= photos.MAX_SIZE[axis]
    assert len(sizes) == COUNT
    assert [number for _, number in files.listed()] == sorted(n % photos.CLASSES for n in range(24))


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.filterwarnings("ignore")  # warnings of the other libraries
def test_every_variant_delivers_every_image(files, workers, monkeypatch):
    monkeypatch.delitem(loaders.PEERS, "DALI")  # DALI writes errors about missing decoders
    with ExitStack() as stack:
        found = loaders.epochs(files, workers, stack)  # also checks each epoch
        assert {"layoutkit, folder", "layoutkit, .rec", "layoutkit, tars"} <= {*found}
        for epoch in found.values():
            first, second = (np.concatenate([np.asarray(x) for x, _ in epoch()]) for _ in range(2))
            assert first.dtype == np.float32
            assert -3 < first.min() < -0.5 < 0.5 < first.max() < 3
            assert not np.array_equal(first, second)


def test_an_epoch_that_misses_an_image_ends_the_run(files):
    x = np.zeros((COUNT, 3, 224, 224), np.float32)
    classes = np.arange(COUNT) % photos.CLASSES
    loaders.check("all", lambda: [(x, classes)], COUNT)
    for name, batch in {
        "less": (x[1:], classes[1:]),
        "other": (x, np.zeros(COUNT)),
        "small": (x[..., :100], classes),
    }.items():
        with pytest.raises(SystemExit, match=f"{name}: an epoch does not have every image once"):
            loaders.check(name, lambda batch=batch: [batch], COUNT)


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.filterwarnings("ignore")
def test_every_variant_delivers_every_record(records, workers):
    with ExitStack() as stack:
        found = loader_records.epochs(records, workers, stack)
        assert {"layoutkit, .npy", "layoutkit, .rec", "layoutkit, .rec, ragged"} <= {*found}
        for name, epoch in found.items():
            loader_records.check(name, epoch, records.rows)
        with pytest.raises(SystemExit, match="does not have every record once"):
            loader_records.check("less", found["layoutkit, .rec"], records.rows[1:])


def test_the_tables(monkeypatch, capsys):
    monkeypatch.setattr(loaders, "PEERS", {})
    monkeypatch.setattr(loaders, "WORKERS", (0, 1))
    monkeypatch.setattr(loader_records, "WORKERS", (0,))
    write = loaders.Files.write
    monkeypatch.setattr(loaders.Files, "write", lambda count, folder: write(count // 50, folder))
    assert main(quick=True, loaders=True) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].startswith("4 JPEGs of about ")
    assert lines[2].split() == ["workers", "images/s", "share", "of", "work"]
    for first, workers in (3, "0"), (9, "1"):
        rows = [line.rsplit(maxsplit=3) for line in lines[first : first + 6]]
        assert rows[0][0].split() == [workers, "decoding", "alone"]
        assert rows[1][0].split() == [workers, "and", "resizing"]
        assert (rows[0][2], rows[1][3]) == ("1.00", "1.00")
        assert all(float(row[1].replace(",", "")) > 0 for row in rows)
        names = {row[0].split(maxsplit=1)[1] for row in rows[1:]}
        assert names >= {"layoutkit, folder", "layoutkit, tars", "layoutkit, .rec"}
    assert "10,000 records of 1000 bytes, batches of 256, 1 rounds" in lines


def test_options_that_cannot_be_combined():
    with pytest.raises(ArgumentError, match="--collate: prints one table; omit --loaders"):
        main(collate=True, loaders=True)
    with pytest.raises(ArgumentError, match="--loaders: prints one table; it can only be"):
        main(loaders=True, json="x.json")
    with pytest.raises(ArgumentError, match="--hptt57: measures rows of its own"):
        main(loaders=True, sweep="hptt57")
