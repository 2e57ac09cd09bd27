"""Conversions into zarr stores: chunk by chunk, resumable, on threads and on a cluster."""

import errno
import os
import signal
import threading
import time

import numpy as np
import pytest

from layoutkit import convert
from layoutkit.cli import main
from layoutkit.cli import zarr as stores
from layoutkit.data.io.reader import Reader

pytest.importorskip("dask.array", reason="chunks are converted by dask")
zarr = pytest.importorskip("zarr", reason="the stores are of zarr", minversion="3.1.3")

X = np.random.default_rng(0).integers(0, 255, (8, 6, 5, 3)).astype(np.uint8)
WANT = convert(X, "bhwc->bchw", dtype="float32", scale=0.5)
OPTIONS = ["--dtype", "float32", "--scale", "0.5", "bhwc->bchw"]


@pytest.fixture
def source(tmp_path):
    name = str(tmp_path / "x.zarr")
    zarr.create_array(name, data=X, chunks=(2, 3, 5, 3))
    return name


def run(*arguments):
    return main(["convert", *map(str, arguments), *OPTIONS])


def test_from_zarr_to_zarr_and_to_npy(source, tmp_path):
    target = tmp_path / "y.zarr"
    assert run(source, target) == 0
    result = zarr.open_array(target, mode="r")
    np.testing.assert_array_equal(result[:], WANT)
    assert result.chunks == (2, 3, 3, 5)
    assert result.metadata.dimension_names == ("b", "c", "h", "w")
    assert result.attrs["layoutkit"]["complete"]
    assert run(source, tmp_path / "y.npy") == 0
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), WANT)


def test_from_npy_and_on_urls_of_fsspec(tmp_path):
    fsspec = pytest.importorskip("fsspec", reason="the URLs are of fsspec")
    np.save(tmp_path / "x.npy", X)
    assert run(tmp_path / "x.npy", tmp_path / "y.zarr") == 0
    np.testing.assert_array_equal(zarr.open_array(tmp_path / "y.zarr", mode="r")[:], WANT)
    with fsspec.open("memory://stores/x.npy", "wb") as file:
        np.save(file, X)
    assert run("memory://stores/x.npy", "memory://stores/y.zarr") == 0
    np.testing.assert_array_equal(zarr.open_array("memory://stores/y.zarr", mode="r")[:], WANT)
    assert run("memory://stores/y.zarr", tmp_path / "z.npy") == 0
    np.testing.assert_array_equal(np.load(tmp_path / "z.npy"), convert(WANT, "bhwc->bchw") * 0.5)


@pytest.mark.parametrize(
    ("pattern", "names", "wanted"),
    [
        ("bhwc->bchw", ["time", "lat", "lon", None], ("time", "c", "lat", "lon")),
        ("bhwc->b(hw)c", ["time", "lat", "lon", "band"], ("time", "lat_lon", "band")),
        ("bhwc->bhw1c", ["time", "lat", "lon", "band"], ("time", "lat", "lon", "1", "band")),
        ("when y x k -> when k y x", ["time", "lat", "lon", "band"], ("when", "k", "y", "x")),
    ],
)
def test_names_of_dimensions_are_kept(tmp_path, pattern, names, wanted):
    zarr.create_array(tmp_path / "x.zarr", data=X, chunks=X.shape, dimension_names=names)
    command = ["convert", str(tmp_path / "x.zarr"), str(tmp_path / "y.zarr"), pattern]
    assert main(command) == 0
    result = zarr.open_array(tmp_path / "y.zarr", mode="r")
    assert result.metadata.dimension_names == wanted


def test_of_an_npy_at_a_url_each_part_is_read_once(tmp_path, monkeypatch):
    fsspec = pytest.importorskip("fsspec", reason="the URLs are of fsspec")
    with fsspec.open("memory://parts/x.npy", "wb") as file:
        np.save(file, X)
    lengths = []
    read = Reader.read

    def counted(self, url, offset=None, length=None, version=None):
        lengths.append(length)
        return read(self, url, offset, length, version)

    monkeypatch.setattr(Reader, "read", counted)
    monkeypatch.setattr(stores, "BLOCK_BYTES", 2 * X[0].nbytes)
    assert run("memory://parts/x.npy", tmp_path / "y.zarr") == 0
    np.testing.assert_array_equal(zarr.open_array(tmp_path / "y.zarr", mode="r")[:], WANT)
    assert lengths == [64, 128, *[2 * X[0].nbytes] * 4]
    with fsspec.open("memory://parts/f.npy", "wb") as file:
        np.save(file, np.asfortranarray(X))
    assert run("memory://parts/f.npy", tmp_path / "z.zarr") == 2


def test_a_second_run_does_what_is_missing_and_half_a_store_is_recognized(
    source, tmp_path, monkeypatch, capsys
):
    target = tmp_path / "y.zarr"
    written = []
    write = stores.write_to_store

    def failing(block, name, window):
        if len(written) == 3:
            raise OSError("the disk is gone")
        written.append(window)
        write(block, name, window)

    with monkeypatch.context() as patch:
        patch.setattr(stores, "write_to_store", failing)
        import dask

        with dask.config.set(num_workers=1):
            assert run(source, target) == 2
    assert not zarr.open_array(target, mode="r").attrs["layoutkit"]["complete"]
    capsys.readouterr()
    assert run(target, tmp_path / "z.npy") == 2
    assert "is incomplete; repeat the `layoutkit convert` command" in capsys.readouterr().err
    assert main(["convert", str(source), str(target), "bhwc->bchw"]) == 2
    assert "holds another array" in capsys.readouterr().err
    before = {file: file.stat().st_mtime_ns for file in target.rglob("c/*/*/*/*")}
    assert len(before) == 3
    assert run(source, target) == 0
    assert "5 chunks" in (told := capsys.readouterr().err)
    assert "3 existed" in told
    assert before.items() <= {f: f.stat().st_mtime_ns for f in target.rglob("c/*/*/*/*")}.items()
    np.testing.assert_array_equal(zarr.open_array(target, mode="r")[:], WANT)
    assert run(source, target) == 0
    assert "0 chunks" in capsys.readouterr().err


def test_chunks_of_zeros_are_there_too(tmp_path, capsys):
    np.save(tmp_path / "x.npy", np.zeros_like(X))
    assert run(tmp_path / "x.npy", tmp_path / "y.zarr") == 0
    assert not zarr.open_array(tmp_path / "y.zarr", mode="r")[:].any()
    assert run(tmp_path / "x.npy", tmp_path / "y.zarr") == 0
    assert "0 chunks" in capsys.readouterr().err.splitlines()[-1]


def test_changes_of_sign_are_asked_for(source, tmp_path, capsys):
    words = ["convert", source, str(tmp_path / "y.zarr"), "bhwc->bchw", "--dtype", "int8"]
    assert main(words) == 2
    error = capsys.readouterr().err
    assert "uint8 to int8 would make values above 127 negative; choose --casting saturate" in error
    assert not (tmp_path / "y.zarr").exists()


def test_mistakes(source, tmp_path, capsys):
    (tmp_path / "some.zarr").mkdir()
    assert run(source, tmp_path / "some.zarr") == 2
    assert "is not a zarr array; choose another name" in capsys.readouterr().err
    assert run(tmp_path / "some.zarr", tmp_path / "y.npy") == 2
    assert "is not a zarr array (" in capsys.readouterr().err
    assert run(source, tmp_path / "y.npy", "--scheduler", "tcp://127.0.0.1:1") == 2
    assert "--scheduler" in capsys.readouterr().err
    assert run(source, source, tmp_path / "y.zarr") == 2
    assert "give one SRC" in capsys.readouterr().err
    for option in ("chunk 2", "crop 2x2", "flip", "resize 4x4", "fit pad", "fill 3"):
        assert run(source, tmp_path / "y.zarr", *f"--{option}".split()) == 2
        assert f"--{option.split()[0]}: does not apply to zarr" in capsys.readouterr().err
    assert not (tmp_path / "y.zarr").exists()


def test_a_store_that_cannot_be_read_is_not_called_something_else(
    source, tmp_path, capsys, monkeypatch
):
    def fail(*_, **__):
        raise OSError(errno.EIO, "Input/output error")

    assert run(source, tmp_path / "y.zarr") == 0
    capsys.readouterr()
    monkeypatch.setattr(zarr, "open_array", fail)
    assert run(source, tmp_path / "y.zarr") == 2
    assert f"{tmp_path / 'y.zarr'}: Input/output error" in capsys.readouterr().err


def slow(block, name, window):
    time.sleep(0.3)
    stores_written(block, name, window)


stores_written = stores.write_to_store


def deadly(block, name, window):
    os._exit(1)


def test_a_chunk_that_kills_each_of_its_workers_is_said(source, tmp_path, monkeypatch, capsys):
    distributed = pytest.importorskip("distributed", reason="the cluster is of distributed")
    import dask

    monkeypatch.setattr(stores, "write_to_store", deadly)
    deadly.__module__ = "__main__"  # pickled by value, because workers cannot import the tests
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 0}),
        distributed.LocalCluster(
            n_workers=1, threads_per_worker=1, processes=True, dashboard_address=None
        ) as cluster,
    ):
        told = run(source, tmp_path / "y.zarr", "--scheduler", cluster.scheduler_address)
    assert told == 2
    assert "has killed several workers" in capsys.readouterr().err


@pytest.mark.budget(0)
def test_a_killed_worker_costs_time_and_no_data(source, tmp_path, monkeypatch):
    distributed = pytest.importorskip("distributed", reason="the cluster is of distributed")
    target = tmp_path / "y.zarr"
    monkeypatch.setattr(stores, "write_to_store", slow)
    slow.__module__ = "__main__"  # pickled by value, because workers cannot import the tests
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        workers = client.run(os.getpid)
        killed = []

        def kill():
            while len(list(target.rglob("c/*/*/*/*"))) < 2:
                time.sleep(0.02)
            killed.append(next(iter(workers.values())))
            os.kill(killed[0], signal.SIGKILL)

        thread = threading.Thread(target=kill)
        thread.start()
        assert run(source, target, "--scheduler", cluster.scheduler_address) == 0
        thread.join()
        assert killed[0] not in client.run(os.getpid).values()
    result = zarr.open_array(target, mode="r")
    np.testing.assert_array_equal(result[:], WANT)
    assert result.attrs["layoutkit"]["complete"]
