"""Samples of .npy and .npz files: mapped, lazy, read-only."""

import pickle
import zipfile
from pathlib import Path

import numpy as np
import pytest

from layoutkit import DataError
from layoutkit.data import Dataset, Sample, open_index

X, Y = np.arange(24.0).reshape(4, 3, 2), np.arange(4)


def is_mapped(array):
    while array is not None and not isinstance(array, np.memmap):
        array = array.base
    return array is not None


@pytest.fixture
def npy(tmp_path):
    np.save(tmp_path / "x.npy", X)
    return tmp_path / "x.npy"


@pytest.fixture(params=[np.savez, np.savez_compressed])
def npz(tmp_path, request):
    request.param(tmp_path / "d.npz", input=X, target=Y, odd=np.asfortranarray(X[0]))
    return tmp_path / "d.npz"


@pytest.mark.parametrize("as_path", [str, lambda path: path])
def test_an_npy_file_is_mapped_and_read_only(npy, as_path):
    d = Dataset(as_path(npy), layout="bhw")
    assert (d._shape(), len(d), d._layout()) == (X.shape, 4, "bhw")
    assert is_mapped(d())
    assert is_mapped(d[1:3]())
    np.testing.assert_array_equal(d(), X)
    np.testing.assert_array_equal(d[[2, 0], 1](), X[[2, 0], 1])
    assert not d().flags.writeable
    with pytest.raises(DataError, match="read-only"):
        d[0] = 1
    np.testing.assert_array_equal(np.load(npy), X)


def test_an_npz_file_has_a_field_for_each_member(npz):
    d = Dataset(npz, meta={"target": {"classes": 4}})
    assert [name for name, _ in d._iter_fields()] == ["input", "target", "odd"]
    np.testing.assert_array_equal(d(), X)
    np.testing.assert_array_equal(d[1:3].target(), Y[1:3])
    np.testing.assert_array_equal(d.odd(), X[0])
    assert d.target._meta() == {"classes": 4}
    assert d[2].target() == 2
    with pytest.raises(DataError, match="read-only"):
        d.target += 1
    with pytest.raises(ValueError, match="read-only"):
        d.input()[0] = 1


def test_members_are_read_when_they_are_needed(tmp_path, monkeypatch):
    np.savez_compressed(tmp_path / "d.npz", a=X, b=Y)
    read = []
    load = np.load
    monkeypatch.setattr(np, "load", lambda *args: read.append(args) or load(*args))
    d = Dataset(tmp_path / "d.npz")
    assert (d.a[1:]._shape(), len(d.b), d[1].b._layout()) == ((3, 3, 2), 4, "")
    assert not read
    assert d.b() is not None
    assert d.b[2]() == 2
    assert len(read) == 1


def test_members_that_are_not_compressed_are_mapped(tmp_path):
    np.savez(tmp_path / "d.npz", a=X, long_name_of_a_member=np.asfortranarray(X))
    d = Dataset(tmp_path / "d.npz")
    assert is_mapped(d.a())
    assert is_mapped(d.long_name_of_a_member())
    np.testing.assert_array_equal(d.long_name_of_a_member(), X)


@pytest.mark.parametrize(
    "x",
    [np.zeros((0, 3)), np.zeros((3, 0), "i4"), np.array(5.0), np.zeros(2, "f4,i8"), X.T, X[::-1]],
    ids=lambda x: f"{x.dtype} {x.shape}",
)
def test_odd_arrays(tmp_path, x):
    np.save(tmp_path / "x.npy", x)
    np.savez(tmp_path / "x.npz", x=x)
    for s in (Sample(tmp_path / "x.npy"), Sample(tmp_path / "x.npz").x):
        assert s._shape() == x.shape
        np.testing.assert_array_equal(s(), x)


def test_files_are_opened_again_by_pickled_samples(npz, npy, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    d, e = Dataset("d.npz"), Dataset("x.npy")[1:]
    stored = pickle.dumps((d, e))
    assert len(stored) < 2000
    monkeypatch.chdir("/")
    again, other = pickle.loads(stored)
    assert again == d
    assert again[1].target == d[1].target
    assert is_mapped(other())
    npz.unlink()
    with pytest.raises(DataError, match=r"d\.npz"):
        pickle.loads(stored)


def test_what_cannot_be_opened(tmp_path):
    (tmp_path / "text.npy").write_text("hello")
    (tmp_path / "empty.npy").write_bytes(b"")
    np.save(tmp_path / "short.npy", X)
    (tmp_path / "short.npy").write_bytes((tmp_path / "short.npy").read_bytes()[:150])
    np.save(tmp_path / "objects.npy", np.array([{}]), allow_pickle=True)
    (tmp_path / "broken.npz").write_bytes(b"PK\x03\x04" + b"x" * 50)
    with zipfile.ZipFile(tmp_path / "other.npz", "w") as archive:
        archive.writestr("a.txt", "hello")
    np.savez(tmp_path / "names.npz", **{"a b": X})
    for name in ("text.npy", "empty.npy", "objects.npy", "broken.npz", "other.npz", "names.npz"):
        with pytest.raises(DataError):
            Dataset(tmp_path / name)
    with pytest.raises(DataError):
        Dataset(tmp_path / "short.npy")()
    with pytest.raises(DataError) as caught:
        Dataset(tmp_path / "missing.npy")
    assert isinstance(caught.value.__cause__, OSError)
    with pytest.raises(DataError):
        Dataset(tmp_path)


class Payload:
    """An object whose pickle creates a file when it is loaded."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


@pytest.mark.parametrize("suffix", ["npy", "npz", "pt"])
def test_no_pickle_is_loaded(tmp_path, suffix):
    loaded, path = tmp_path / "loaded", tmp_path / f"x.{suffix}"
    if suffix == "pt":
        torch = pytest.importorskip("torch")
        torch.save(Payload(loaded), path)
    elif suffix == "npz":
        np.savez(path, x=np.array([Payload(loaded)]))
    else:
        np.save(path, np.array([Payload(loaded)]), allow_pickle=True)
    for opened in (Dataset, open_index):
        with pytest.raises(DataError):
            opened(path)
    assert not loaded.exists()


def test_a_mapping_of_files(npy, npz):
    d = Dataset({"a": str(npy), "b": npz, "c": Y})
    assert d[1].b.target() == 1
    np.testing.assert_array_equal(d.a[1:](), X[1:])


# ---- files that are written to ---------------------------------------------------------------


def test_what_is_assigned_lands_in_the_file(npy):
    d = Dataset(npy, read_only=False, layout="bhw", fields={"first": np.s_[:, 0]})
    assert is_mapped(d())
    d[1] = 7
    d.first += 100
    d()[3, 2, 1] = -1
    wanted = X.copy()
    wanted[1] = 7
    wanted[:, 0] += 100
    wanted[3, 2, 1] = -1
    np.testing.assert_array_equal(np.load(npy), wanted)
    again = pickle.loads(pickle.dumps(d))
    again[0] = 5
    assert np.all(np.load(npy)[0] == 5)
    locked = Dataset(d, read_only=True)
    with pytest.raises(DataError, match="read-only"):
        locked[0] = 1


def test_a_mapping_of_files_is_written_to(npy, tmp_path):
    np.save(tmp_path / "y.npy", np.asfortranarray(X))
    d = Dataset({"x": npy, "y": str(tmp_path / "y.npy")}, read_only=False)
    d.y[2, 1] = [3, 4]
    assert np.load(tmp_path / "y.npy")[2, 1].tolist() == [3, 4]
    assert np.load(tmp_path / "y.npy").flags.f_contiguous
    np.testing.assert_array_equal(np.load(npy), X)


def test_other_files_are_not_written_to(npz, tmp_path):
    before = npz.read_bytes()
    with pytest.raises(DataError, match=r"read_only=False.*\.npy"):
        Dataset(npz, read_only=False)
    assert npz.read_bytes() == before
    numpy = pytest.importorskip("safetensors.numpy")
    numpy.save_file({"x": X}, tmp_path / "x.safetensors")
    with pytest.raises(DataError, match=r"read_only=False.*\.npy"):
        Dataset(tmp_path / "x.safetensors", read_only=False)


def test_a_file_that_cannot_be_written_to_says_so_at_once(npy, monkeypatch):
    memmap = np.memmap

    def protected(path, dtype, mode, *args):
        if mode == "r+":
            raise PermissionError(13, "Permission denied", str(path))
        return memmap(path, dtype, mode, *args)

    monkeypatch.setattr(np, "memmap", protected)
    with pytest.raises(DataError, match=r"x\.npy.*Permission denied"):
        Dataset(npy, read_only=False)


def test_a_file_that_is_cut_is_not_made_longer(npy):
    npy.write_bytes(npy.read_bytes()[:-8])
    size = npy.stat().st_size
    with pytest.raises(DataError, match="8 bytes are missing"):
        Dataset(npy, read_only=False)
    assert npy.stat().st_size == size


# ---- one reader for indexes, Samples and the command line ------------------------------------


def test_samples_of_safetensors_are_read_only(tmp_path):
    numpy = pytest.importorskip("safetensors.numpy")
    numpy.save_file({"x": X, "y": Y}, tmp_path / "d.safetensors")
    d = Dataset(tmp_path / "d.safetensors")
    assert {name for name, _ in d._iter_fields()} == {"x", "y"}
    np.testing.assert_array_equal(d.x[1](), X[1])
    assert not d.x().flags.writeable
    with pytest.raises(DataError, match="read-only"):
        d.y[0] = 1


def test_names_that_only_utf_8_has(tmp_path):
    x = np.zeros(3, [("größe 漢", "f4")])
    with pytest.warns(UserWarning, match="format 3.0"):
        np.save(tmp_path / "x.npy", x)
    assert Dataset(tmp_path / "x.npy")._shape() == (3,)
    assert open_index(tmp_path / "x.npy")[0].array.dtype == x.dtype
