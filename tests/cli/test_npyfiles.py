"""Slabs of `.npy` files: every header, both orders, every axis, and invalid files."""

import os
import pickle

import numpy as np
import pytest
from numpy.lib import format as npy

from layoutkit._utils.files import replace_atomically
from layoutkit.cli import outputs
from layoutkit.cli.outputs import create_npy, is_npy, open_npy
from layoutkit.data.io.npy import StoredArray
from layoutkit.errors import DataError, DtypeError

SHAPE = (5, 4, 3, 2)


@pytest.fixture(params=[1, 1 << 20], ids=["many-windows", "one-window"])
def window_bytes(request, monkeypatch):
    """Use windows of one run, or one window for all, as for a file larger than the limit."""
    monkeypatch.setattr(outputs, "WINDOW_BYTES", request.param)
    monkeypatch.setattr(outputs, "WIDE_BYTES", 0)


def _numbers(dtype="<i4", order="C"):
    return np.asarray(np.arange(np.prod(SHAPE)).reshape(SHAPE).astype(dtype), order=order)


# ---- reading -----------------------------------------------------------------------------


@pytest.mark.budget(4)
@pytest.mark.usefixtures("window_bytes")
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("axis", range(4))
def test_a_slab_is_what_slicing_gives(tmp_path, order, axis):
    array = _numbers(order=order)
    np.save(tmp_path / "x.npy", array)
    with open_npy(StoredArray(tmp_path / "x.npy")) as file:
        for start, stop in [(0, 1), (1, 2), (0, SHAPE[axis])]:
            slab = file.read(axis, start, stop)
            expected = array[(slice(None),) * axis + (slice(start, stop),)]
            np.testing.assert_array_equal(slab, expected)
        np.testing.assert_array_equal(file.read(None, 0, 1), array)


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_every_header_version(tmp_path, version):
    array = _numbers()
    with (tmp_path / "x.npy").open("wb") as file:
        npy.write_array(file, array, version=version)
    with open_npy(StoredArray(tmp_path / "x.npy")) as file:
        assert (file.shape, file.dtype) == (array.shape, array.dtype)
        np.testing.assert_array_equal(file.read(0, 2, 4), array[2:4])


@pytest.mark.parametrize("dtype", [">f8", "?", "<c16", "<M8[s]", [("a", "u1"), ("b", "<f4")]])
def test_every_kind_of_dtype(tmp_path, dtype):
    array = _numbers().astype(dtype)
    np.save(tmp_path / "x.npy", array)
    with open_npy(StoredArray(tmp_path / "x.npy")) as file:
        slab = file.read(1, 1, 3)
        assert slab.dtype == array.dtype
        np.testing.assert_array_equal(slab, array[:, 1:3])


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1,)])
def test_small_and_empty_arrays(tmp_path, shape):
    array = np.ones(shape, "f4")
    np.save(tmp_path / "x.npy", array)
    with open_npy(StoredArray(tmp_path / "x.npy")) as file:
        np.testing.assert_array_equal(file.read(None, 0, 1), array)


def test_a_slab_is_no_window(tmp_path):
    """A slab does not share memory with the file: changes of either do not affect the other."""
    np.save(tmp_path / "x.npy", _numbers())
    with open_npy(StoredArray(tmp_path / "x.npy")) as file:
        slab = file.read(0, 0, 2)
        slab[...] = 7
        os.truncate(tmp_path / "x.npy", 0)
        assert (slab == 7).all()


@pytest.mark.usefixtures("window_bytes")
@pytest.mark.parametrize("gap", [0, 4096], ids=["run by run", "rows together"])
@pytest.mark.parametrize("most", [0, 1 << 30], ids=["mapped", "read"])
@pytest.mark.parametrize("axis", [None, 0, 1, 3])
def test_a_file_that_becomes_shorter(tmp_path, monkeypatch, axis, gap, most):
    monkeypatch.setattr(outputs, "GAP_BYTES", gap)
    monkeypatch.setattr(outputs, "MAX_READ_BYTES", most)
    array = _numbers()
    np.save(tmp_path / "x.npy", array)
    with open_npy(StoredArray(tmp_path / "x.npy")) as file:
        np.testing.assert_array_equal(
            file.read(axis, 1, 2), array if axis is None else array.take([1], axis)
        )
        os.truncate(tmp_path / "x.npy", 200)
        with pytest.raises(DataError, match=r"x\.npy: was truncated while it was read"):
            file.read(axis, 0, 1)


def _damage(path, kind):
    np.save(path, _numbers())
    content = path.read_bytes()
    damaged = {
        "empty": b"",
        "other": b"PK\x03\x04 not an array",
        "magic only": content[:6],
        "half a header": content[:40],
        "no data": content[:128],
        "last byte gone": content[:-1],
        "no such version": content[:6] + b"\x09\x00" + content[8:],
        "negative shape": content.replace(b"(5, 4", b"(-5,4"),
        "mangled header": content.replace(b"'descr'", b"'desc?'"),
        "pickle": pickle.dumps([1, 2]),
    }
    path.write_bytes(damaged[kind])


@pytest.mark.parametrize(
    "kind",
    ["empty", "other", "magic only", "half a header", "no data", "last byte gone"]
    + ["no such version", "mangled header", "negative shape", "pickle"],
)
def test_damaged_files_are_refused_by_name(tmp_path, kind):
    path = tmp_path / "broken.npy"
    _damage(path, kind)
    with (
        pytest.raises(DataError, match=r"broken\.npy cannot be .*numpy\.save"),
        open_npy(StoredArray(path)),
    ):
        pass


def test_object_arrays_are_refused(tmp_path):
    path = tmp_path / "x.npy"
    np.save(path, np.array([{}, 1], object), allow_pickle=True)
    with pytest.raises(DataError, match="plain numbers"), open_npy(StoredArray(path)):
        pass


def test_is_npy_goes_by_content(tmp_path):
    np.save(tmp_path / "x.npy", _numbers())
    (tmp_path / "y.npy").write_bytes(b"\x93NUM")
    assert is_npy(tmp_path / "x.npy")
    assert not is_npy(tmp_path / "y.npy")


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("axis", [1, 2, 3])
def test_scattered_slabs_of_a_small_file_are_parts_of_one_reading(tmp_path, axis, order):
    array = _numbers(order=order)
    axis = axis if order == "C" else 3 - axis
    np.save(tmp_path / "x.npy", array)
    with open_npy(StoredArray(tmp_path / "x.npy")) as file:
        for start in range(SHAPE[axis]):
            slab = file.read(axis, start, start + 1)
            np.testing.assert_array_equal(slab, array.take([start], axis))
            if start == 0:  # nothing is read after this
                os.truncate(tmp_path / "x.npy", 0)
    np.save(tmp_path / "x.npy", array)
    with open_npy(StoredArray(tmp_path / "x.npy")) as file:
        os.truncate(tmp_path / "x.npy", 200)
        with pytest.raises(DataError, match=r"x\.npy: was truncated while it was read"):
            file.read(axis, 1, 2)


# ---- writing -----------------------------------------------------------------------------


@pytest.mark.usefixtures("window_bytes")
@pytest.mark.parametrize("axis", [0, 1, 2, 3, None])
def test_slabs_make_up_the_file_that_numpy_loads(tmp_path, axis):
    array = _numbers()
    length = 1 if axis is None else SHAPE[axis]
    with replace_atomically(tmp_path / "x.npy") as file:
        target = create_npy(file, array.shape, array.dtype)
        for start in range(length):
            part = (
                array if axis is None else array[(slice(None),) * axis + (slice(start, start + 1),)]
            )
            target.write(axis, start, start + 1, np.ascontiguousarray(part))
    loaded = np.load(tmp_path / "x.npy")
    assert loaded.dtype == array.dtype
    np.testing.assert_array_equal(loaded, array)


@pytest.mark.parametrize("at_once", [7, 1 << 31])
def test_a_run_is_written_to_its_end(tmp_path, monkeypatch, at_once):
    """A write call may write less than requested."""
    write = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: write(fd, data[:at_once], at))
    array = _numbers("<f8")
    with replace_atomically(tmp_path / "x.npy") as file:
        target = create_npy(file, array.shape, array.dtype)
        target.write(0, 3, 5, array[3:])
        target.write(0, 0, 3, array[:3])
    np.testing.assert_array_equal(np.load(tmp_path / "x.npy"), array)


def test_a_header_too_long_for_version_1(tmp_path):
    dtype = np.dtype([(f"{number:05}" * 12, "u1") for number in range(1000)])
    with replace_atomically(tmp_path / "x.npy") as file:
        create_npy(file, (2,), dtype)
    loaded = np.load(tmp_path / "x.npy", max_header_size=1 << 20)
    assert (loaded.dtype, loaded.shape) == (dtype, (2,))


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn"])
def test_a_dtype_that_the_format_cannot_name_is_refused(tmp_path, name):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    dtype = np.dtype(getattr(ml_dtypes, name))
    with (
        pytest.raises(DtypeError, match="float16 or float32"),
        replace_atomically(tmp_path / "x") as file,
    ):
        create_npy(file, (2,), dtype)
