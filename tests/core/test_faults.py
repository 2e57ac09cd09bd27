"""Fault injection: every allocation and system call fails a single time, or from then on."""

import contextlib
import io
import logging
import os
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

from layoutkit import ArgumentError, LayoutkitError, buffers, collate, convert
from layoutkit.cli import main
from layoutkit.data import (
    CSVProvider,
    ImageRecordProvider,
    MNISTProvider,
    open_index,
    sampled_batcher,
)
from layoutkit.data.io.cache import DiskCache
from layoutkit.data.io.reader import Reader
from layoutkit.data.recordio import RecordWriter
from layoutkit.kernels.cpu import compiler, object_cache
from tests.helpers import faults
from tests.helpers.open_files import count_open_files, lists_open_files
from tests.helpers.record_files import image, write_rec

pytest.importorskip("PIL", reason="Pillow encodes and decodes the images")
pytest.importorskip("fsspec", reason="the data cache is of a URL of fsspec")
pytest.importorskip("dask.array", reason="chunks of stores are converted by dask")
pytest.importorskip("zarr", reason="the stores are of zarr", minversion="3.1.3")

X = np.random.default_rng(0).integers(0, 99, (8, 16, 16, 3), np.uint8)
LARGE = np.zeros((4, 512, 512, 3), np.uint8)  # its result gets a memory mapping of its own


@dataclass(frozen=True)
class Operation:
    """An operation of the table.

    prepare     writes the input files into the folder
    run         runs the operation and returns what has to be equal in every run
    old         output files that exist before; an error leaves them unchanged
    kinds       kinds of calls that the operation makes, each at least once
    cache       the operation uses a cache, and succeeds without the cache
    resumable   an error may leave complete parts, which the next run keeps
    skips       input files that cannot be read are left out and reported
    """

    prepare: Callable[[Path], Any]
    run: Callable[[Path], Any]
    kinds: str
    old: tuple[str, ...] = ()
    cache: bool = False
    resumable: bool = False
    skips: bool = False


def command(*words):
    """Run a command; raise ArgumentError with its message if it fails."""
    output = io.StringIO()
    with contextlib.redirect_stderr(output), contextlib.redirect_stdout(output):
        code = main([str(word) for word in words])
    if code == 2:
        raise ArgumentError(output.getvalue())
    assert code == 0, output.getvalue()
    return output.getvalue()


# ---- operations ------------------------------------------------------------------------------


def save_npy(folder):
    np.save(folder / "x.npy", X)


def save_images(folder):
    from PIL import Image

    for number, pixels in enumerate(X[:4]):
        path = folder / "images" / f"{number % 2}" / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(path)


def save_records(folder):
    save_images(folder)
    files = sorted((folder / "images").rglob("*.png"))
    payloads = [image(path.read_bytes(), number) for number, path in enumerate(files)]
    write_rec(folder / "x.rec", payloads)


def save_csv(folder):
    np.savetxt(folder / "x.csv", X[:, 0, 0], "%d", ",")
    np.savetxt(folder / "y.csv", np.arange(8), "%d")


def save_mnist(folder):
    head = bytes.fromhex("00000803 00000008 00000010 00000010")
    (folder / "x.idx").write_bytes(head + X[..., 0].tobytes())
    (folder / "y.idx").write_bytes(bytes.fromhex("00000801 00000008") + bytes(8))


def run_convert(folder):
    small = convert(X, "bhwc->bchw", dtype="float32", scale=2)
    return small.tobytes(), convert(LARGE, "bhwc->bchw").tobytes()


def run_collate(folder):
    return collate(list(X), "hwc->bchw", dtype="float32").tobytes()


def run_zarr(folder):
    import dask
    import zarr

    one_thread = {"async.concurrency": 1, "threading.max_workers": 1}
    with ThreadPoolExecutor(1) as pool, dask.config.set(pool=pool), zarr.config.set(one_thread):
        command("convert", folder / "x.npy", folder / "y.zarr", "bhwc->bchw", "--quiet")


def run_writer(folder):
    with RecordWriter(folder / "y.rec") as writer:
        for row in X:
            writer.write(row.tobytes())


def run_writer_of_named_files(folder):
    with pytest.MonkeyPatch.context() as patch:
        patch.delattr(os, "O_TMPFILE", raising=False)
        run_writer(folder)


def run_kernel_cache(folder):
    spec = compiler.KernelSpec("transpose", (1, 2, 3))
    code = []
    with (
        mock.patch.dict(os.environ, LAYOUTKIT_CACHE_DIR=str(folder / "kernels")),
        mock.patch.object(compiler, "compile_object", return_value=bytes(100_000)),
        mock.patch.object(compiler, "_link", lambda data, _: code.append(data) or 1),
        mock.patch.object(object_cache, "_warned", {}),
    ):
        compiler._load(spec)
        compiler._load(spec)
    return code


def run_data_cache(folder):
    import fsspec

    fsspec.filesystem("memory").pipe_file("/faults/x", bytes(range(256)) * 1000)
    results = []
    for _ in range(2):
        with contextlib.closing(Reader(cache=DiskCache(folder / "cache", 1 << 20))) as reader:
            results += [reader.read("memory://faults/x", start, 999) for start in (0, 500)]
    return results


def epoch(provider):
    with provider:
        return [(b.input.input.tobytes(), b.target.input.tobytes(), b.count) for b in provider]


def run_csv(folder):
    files = {"data_csv": folder / "x.csv", "label_csv": folder / "y.csv"}
    return epoch(CSVProvider(**files, data_shape=3, batch_size=3, prefetch=1))


def run_mnist(folder):
    return epoch(MNISTProvider(folder / "x.idx", folder / "y.idx", batch_size=3, verbose=False))


def run_image_record(folder):
    options = {"batch_size": 3, "num_workers": 2, "on_error": "raise", "verbose": False}
    return epoch(ImageRecordProvider(folder / "x.rec", (3, 8, 8), **options))


def run_batcher(folder):
    options = {"batch_size": 3, "num_workers": 2, "on_error": "raise", "layout": "bhwc"}
    index = open_index(folder / "images")
    with sampled_batcher(index, processor=decode, **options) as batches:
        return [batch.input.input.tobytes() for batch in batches]


def decode(data, out=None):
    from PIL import Image

    return np.array(Image.open(io.BytesIO(data)))


def convert_file(folder, *options):
    command("convert", folder / "x.npy", folder / "y.npy", *options, "--quiet")


def pack(folder, *options):
    return command("pack", folder / "images", folder / "y.rec", *options)


PACKED = ("y.rec", "y.idx", "y.lst")
OPERATIONS = {
    "convert": Operation(lambda folder: None, run_convert, "allocate mmap"),
    "collate": Operation(lambda folder: None, run_collate, "allocate"),
    "file to .npy": Operation(
        save_npy, lambda folder: convert_file(folder, "bhwc->bchw", "--chunk", "3"),
        "allocate open read write fsync rename", ("y.npy",),
    ),
    "file to .npy by columns": Operation(
        save_npy, lambda folder: convert_file(folder, "bhwc->hwcb", "--chunk", "3"),
        "allocate open read write fsync rename mmap", ("y.npy",),
    ),
    "file to zarr": Operation(save_npy, run_zarr, "open read write rename mmap", resumable=True),
    "record file": Operation(
        lambda folder: None, run_writer, "open write fsync rename", ("y.rec", "y.idx")
    ),
    "record file, named": Operation(
        lambda folder: None, run_writer_of_named_files, "open write fsync rename",
        ("y.rec", "y.idx"),
    ),
    "pack": Operation(
        save_images, pack, "open read write fsync rename", PACKED, skips=True,
    ),
    "pack in parts": Operation(
        save_images, lambda folder: pack(folder, "--parts", 2), "open read write fsync rename",
        ("y.part000.rec", "y.part001.lst"), skips=True,
    ),
    "index": Operation(
        save_records, lambda folder: command("index", folder / "x.rec"),
        "open read write fsync rename", ("x.idx",),
    ),
    "kernel cache": Operation(lambda folder: None, run_kernel_cache, "open read write rename",
                              cache=True),
    "data cache": Operation(lambda folder: None, run_data_cache, "open read write fsync rename",
                            cache=True),
    "CSVProvider": Operation(save_csv, run_csv, "open read"),
    "MNISTProvider": Operation(save_mnist, run_mnist, "allocate open read mmap"),
    "ImageRecordProvider": Operation(save_records, run_image_record, "allocate open read"),
    "sampled_batcher": Operation(save_images, run_batcher, "allocate open read"),
}  # fmt: skip
CASES = [(name, kind) for name, operation in OPERATIONS.items() for kind in operation.kinds.split()]


# ---- checks ----------------------------------------------------------------------------------


def tree(folder):
    """Return the files of a folder and their bytes."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def resources():
    """Return the number of open descriptors, the threads, and the pool's bytes in use."""
    files = count_open_files()
    # Threads of zarr and of dask stay for the next call.
    threads = [t.name for t in threading.enumerate() if not t.name.startswith(("zarr", "asyncio"))]
    return files, Counter(threads), buffers.stats()["held"]


def check_resources(before):
    """Check that nothing was added; leftovers of earlier tests may disappear meanwhile."""
    deadline = time.monotonic() + 5
    while (leaks := leaked(before)) and time.monotonic() < deadline:
        time.sleep(0.001)
    assert leaks == []


def leaked(before):
    files, threads, held = resources()
    leaks = [("descriptors", files - before[0])] * (files > before[0])
    leaks += [("threads", threads - before[1])] * bool(threads - before[1])
    return leaks + [("bytes of the pool", held - before[2])] * (held > before[2])


def reset(folder, original):
    for name in tree(folder).keys() - original.keys():
        (folder / name).unlink()
    for path in sorted(folder.rglob("*"), reverse=True):
        if path.is_dir() and not any(path.iterdir()):
            path.rmdir()
    for name, data in original.items():
        (folder / name).write_bytes(data)
    buffers.clear()


def check_error(error, folder, names):
    assert isinstance(error, LayoutkitError | OSError | MemoryError), repr(error)
    if not isinstance(error, MemoryError) and "out of memory" not in str(error):
        assert any(str(folder / name) in str(error) for name in names), repr(error)


def check_failure(operation, error, folder, original, final, is_undone):
    """Check the error, and the files that the operation leaves.

    If every renaming fails from now on, the first of several files cannot get its old content back.
    """
    assert not operation.cache
    names = [Path(name).parts[0] for name in final]
    check_error(error, folder, names)
    left = tree(folder)
    if operation.resumable:
        assert left.keys() <= final.keys()
        assert all(data == final[name] for name, data in left.items() if "zarr.json" not in name)
    elif is_undone:
        assert left == original
    else:
        assert left.keys() <= original.keys() | final.keys()
        assert all(data in (original.get(name), final[name]) for name, data in left.items())


def check_success(operation, kind, left, final, caplog):
    """Check the files of an operation that has succeeded in spite of an error."""
    if not operation.cache:
        assert left == final
        return
    assert left.keys() <= final.keys()
    if kind in ("write", "fsync", "rename"):
        assert "cannot be written" in caplog.text


@pytest.fixture(autouse=True)
def fsync_takes_no_time(monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


@pytest.mark.budget(32)
@lists_open_files
@pytest.mark.parametrize("lasting", [False, True], ids=["once", "lasting"])
@pytest.mark.parametrize(("name", "kind"), CASES)
def test_each_call_fails(name, kind, lasting, tmp_path, caplog, request):
    operation = OPERATIONS[name]
    operation.prepare(tmp_path)
    for old in operation.old:
        (tmp_path / old).write_bytes(b"old")
    original = tree(tmp_path)
    limit = 1000 if request.config.getoption("--all") else 2 if lasting else 6
    expected = operation.run(tmp_path)
    final = tree(tmp_path)
    reset(tmp_path, original)
    caplog.set_level(logging.WARNING)
    before = resources()
    count = 0
    for number in range(1, limit + 1):
        caplog.clear()
        error = result = None
        with faults.injected(kind, number, lasting) as injected:
            try:
                result = operation.run(tmp_path)
            except Exception as caught:
                error = caught
        count += injected.injected
        if not injected.injected:
            assert error is None
            break
        if error is None and operation.skips and "left out" in result:
            assert str(tmp_path / "images") in result
        elif error is None:
            assert result == expected
            check_success(operation, kind, tree(tmp_path), final, caplog)
        else:
            is_undone = not lasting or kind != "rename" or len(operation.old) < 2
            check_failure(operation, error, tmp_path, original, final, is_undone)
        del error
        check_resources(before)
        if not (operation.resumable or operation.cache):
            reset(tmp_path, original)
        assert operation.run(tmp_path) == expected
        assert tree(tmp_path) == final
        reset(tmp_path, original)
    print(f"{name}, {kind}: {count} faults")
    assert count
