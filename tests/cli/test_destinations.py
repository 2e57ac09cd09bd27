"""Results at fsspec URLs: complete or absent, and rejected before any conversion."""

import sys

import numpy as np
import pytest

from layoutkit import convert
from layoutkit.cli import main, streaming

fsspec = pytest.importorskip("fsspec", reason="the URLs are of fsspec")
from fsspec.implementations.memory import MemoryFileSystem

X = np.random.default_rng(0).integers(0, 255, (8, 6, 5, 3)).astype(np.uint8)


class Recorded(MemoryFileSystem):
    """A file system in memory that records its calls."""

    protocol = "recorded"
    store, pseudo_dirs, calls, refused = {}, [""], [], set()

    def pipe_file(self, path, value, **kwargs):
        self._note("pipe", path)
        super().pipe_file(path, value, **kwargs)

    def put_file(self, lpath, rpath, **kwargs):
        self._note("put", rpath)
        super().put_file(lpath, rpath, **kwargs)

    def mv(self, path1, path2, **kwargs):
        self._note("mv", path2)
        super().mv(path1, path2, **kwargs)

    def rm_file(self, path):
        self._note("rm", path)
        super().rm_file(path)

    def _note(self, operation, path):
        self.calls.append((operation, path.endswith(".tmp") or path))
        if operation in self.refused:
            raise PermissionError("you may not")


class Objects(Recorded):
    """An object store in memory that records its calls."""

    protocol = ("s3", "s3a")


@pytest.fixture(params=[Recorded, Objects], ids=["renames", "objects"])
def system(request, monkeypatch):
    kind = request.param
    scheme = kind.protocol if isinstance(kind.protocol, str) else kind.protocol[0]
    monkeypatch.setitem(sys.modules["fsspec.registry"]._registry, scheme, kind)
    for name, value in [("store", {}), ("pseudo_dirs", [""]), ("calls", []), ("refused", set())]:
        monkeypatch.setattr(kind, name, value)
    kind.clear_instance_cache()
    yield kind, f"{scheme}://folder/y.npy"
    kind.clear_instance_cache()


def run(tmp_path, url):
    np.save(tmp_path / "x.npy", X)
    return main(["convert", str(tmp_path / "x.npy"), url, "bhwc->chwb"])


def test_a_result_is_seen_when_it_is_whole(tmp_path, system):
    kind, url = system
    assert run(tmp_path, url) == 0
    assert list(kind.store) == [url]
    with fsspec.open(url, "rb") as file:
        np.testing.assert_array_equal(np.load(file), convert(X, "bhwc->chwb"))
    if kind is Objects:
        assert kind.calls == [("pipe", True), ("put", url), ("rm", True)]
    else:
        assert kind.calls[:3] == [("pipe", True), ("put", True), ("mv", url)]


def test_nothing_is_left_of_what_was_broken_off(tmp_path, system, monkeypatch, capsys):
    kind, url = system
    kind.store[url] = before = object()
    with monkeypatch.context() as patch:

        def failing(*_):
            raise OSError("the disk is gone")

        patch.setattr(streaming.NpyFile, "write", failing)
        assert run(tmp_path, url) == 2
    assert kind.store == {url: before}
    kind.refused.add("put")
    assert run(tmp_path, url) == 2
    assert kind.store == {url: before}
    assert "y.npy: cannot be written (PermissionError: you may not)" in capsys.readouterr().err


def test_who_may_not_write_waits_for_nothing(tmp_path, system, monkeypatch, capsys):
    kind, url = system
    kind.refused.add("pipe")
    monkeypatch.setattr(streaming, "convert_chunks", None)  # must not be called
    assert run(tmp_path, url) == 2
    assert "cannot be written (PermissionError" in capsys.readouterr().err
    assert not kind.store


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("http://localhost/y.npy", "web servers are read-only"),
        ("nobody://folder/y.npy", "cannot be written (ValueError: Protocol not known"),
        ("memory://folder/y.png", "the result is a .npy file"),
    ],
)
def test_mistakes(tmp_path, capsys, url, words):
    assert run(tmp_path, url) == 2
    assert words in capsys.readouterr().err


def test_a_file_url_is_a_path(tmp_path):
    assert run(tmp_path, f"file://{tmp_path}/y.npy") == 0
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), convert(X, "bhwc->chwb"))
    assert main(["convert", "memory://u/x.npy", "memory://u/x.npy", "bhwc->chwb"]) == 2
