"""Damaged .npy and .npz files: layoutkit's errors in every reader, in bounded time and memory."""

import io
import random
import zipfile

import numpy as np
import pytest
from numpy.lib import format as npy

from layoutkit import LayoutkitError
from layoutkit.cli import main
from layoutkit.data import Sample
from layoutkit.data.io.npy import StoredArray, read_npy
from tests.helpers.damage import damaged, through_index, through_sample

FILES = 2000
X = np.arange(48, dtype="<f4").reshape(4, 3, 2, 2)


def saved(how, **names):
    file = io.BytesIO()
    how(file, **names) if names else how(file, X)
    return file.getvalue()


def wholes():
    """Yield undamaged files of every kind, so small that damage is likely to hit the header."""
    yield ".npy", saved(np.save)
    yield ".npy", saved(lambda file, x: npy.write_array(file, x, version=(3, 0)))
    yield ".npy", saved(lambda file, x: np.save(file, np.zeros(3, [("a", "<f4"), ("b", "u1", 2)])))
    yield ".npz", saved(np.savez, x=X)
    yield ".npz", saved(np.savez_compressed, x=X)


def through_command(path):
    code = main(["convert", str(path), str(path.with_name("y.npy")), "bhwc->bchw", "--quiet"])
    assert code in (0, 2)
    if code:
        raise LayoutkitError


DOORS = [through_sample, through_index, through_command]


@pytest.mark.budget(0)
@pytest.mark.parametrize("door", DOORS)
def test_mutated_files(tmp_path, door, capsys):
    """No damaged file raises another exception; files that are valid by chance are read."""
    chance, refused = random.Random(20261122), 0
    kinds = list(wholes())
    # The command reads files as a sample does, and spends most of its time on other work.
    files = FILES // 4 if door is through_command else FILES
    for number in range(files):
        suffix, content = kinds[number % len(kinds)]
        path = tmp_path / f"x{suffix}"
        path.write_bytes(damaged(content, chance))
        try:
            door(path)
        except LayoutkitError:
            refused += 1
    assert files // 4 < refused < files
    said = capsys.readouterr().err
    assert "Traceback" not in said
    assert "unexpected" not in said


def with_header(text, data=b"\0" * 64):
    header = text.encode() + b" " * 40 + b"\n"
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + data


def with_shape(shape, descr="'<f4'"):
    return with_header(f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}}}")


HEADERS = {
    "unclosed": with_header("{'descr': '<f4', 'fortran_order': False, 'shape': (1,"),
    "deep": with_shape("(" * 3000 + ")" * 3000),
    "signs": with_shape("-" * 5000 + "1"),
    "sum": with_shape("(" + "1+" * 3000 + "1j,)"),
    "2^70": with_shape(f"({2**70},)"),
    "more digits than an int": with_shape("(" + "9" * 5000 + ",)"),
    "no elements, but 2^62": with_shape(f"(0, {2**62}, 4)"),
    "no bytes, but 2^62": with_shape(f"({2**62}, 4)", "'V0'"),
    "larger than the file": with_shape("(1000000, 1000000)"),
    "True as a size": with_shape("(True, 2)"),
    "no tuple": with_shape("[1, 2]"),
    "65 axes": with_shape((1,) * 65),
    "an array a dtype": with_shape("(2,)", "('<f4', (3,))"),
    "records in records": with_shape("(2,)", "[('a'," * 60 + "'<f4'" + ")]" * 60),
    "words": with_shape("(2,)", "__import__('os').abort()"),
    "20,000 blanks": with_shape("(1," + " " * 20_000 + ")"),
    "2 GiB of header": b"\x93NUMPY\x02\x00" + (1 << 31).to_bytes(4, "little") + b" " * 99,
}


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("name", HEADERS)
def test_hostile_headers(tmp_path, door, name):
    (tmp_path / "x.npy").write_bytes(HEADERS[name])
    with pytest.raises(LayoutkitError):
        door(tmp_path / "x.npy")
    with zipfile.ZipFile(tmp_path / "x.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", HEADERS[name])
    with pytest.raises(LayoutkitError):
        door(tmp_path / "x.npz")


@pytest.mark.parametrize("compression", [None, zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_a_shape_beyond_the_file_is_refused_before_it_is_read(tmp_path, compression):
    path = tmp_path / "x"
    if compression is None:
        path.write_bytes(HEADERS["larger than the file"])
    else:
        with zipfile.ZipFile(path, "w", compression) as archive:
            archive.writestr("x.npy", HEADERS["larger than the file"])
    with pytest.raises(LayoutkitError, match="it is truncated"):
        read_npy(str(path))


@pytest.mark.parametrize("door", DOORS)
def test_hostile_archives(tmp_path, door):
    plain, deflated = saved(np.savez, x=X), saved(np.savez_compressed, x=X)
    at = deflated.index(b"PK\x01\x02")
    changes = {
        "encrypted": deflated[: at + 8] + b"\x01" + deflated[at + 9 :],
        "unknown compression": deflated[: at + 10] + b"\x63" + deflated[at + 11 :],
        "a bomb by its own words": deflated[: at + 24] + b"\xff\xff\xff\x7f" + deflated[at + 28 :],
        "not where it says": plain[: at + 42] + b"\xff\xff\xff\x7f" + plain[at + 46 :],
        "sums do not agree": deflated[: at + 16] + b"\0\0\0\0" + deflated[at + 20 :],
        "cut": deflated[:at],
    }
    for name, content in changes.items():
        (tmp_path / "x.npz").write_bytes(content)
        with pytest.raises(LayoutkitError):
            door(tmp_path / "x.npz")
            pytest.fail(name)


@pytest.mark.parametrize("missing", [1, 100])
def test_a_compressed_member_that_is_too_short_is_refused_at_once(tmp_path, missing):
    with zipfile.ZipFile(tmp_path / "x.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", saved(np.save)[:-missing])
    with pytest.raises(LayoutkitError, match="truncated"):
        StoredArray(tmp_path / "x.npz", "x.npy")


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
@pytest.mark.parametrize(
    "dtype",
    ["<f4", ">i2", "?", "<c16", "S3", "<U2", "<M8[us]", "V5"]
    + [[("ä", "<f4"), ("b", "u1", (2, 3))], [("a", [("b", "<i2"), ("c", "S2")])]]
    + [{"names": ["a"], "formats": ["u1"], "offsets": [3], "itemsize": 8}],
    ids=str,
)
def test_every_header_that_numpy_writes_is_read_as_numpy_reads_it(tmp_path, dtype, version):
    for array in (np.zeros((2, 3), dtype), np.zeros((2, 3), dtype, "F"), np.zeros((), dtype)):
        with (tmp_path / "x.npy").open("wb") as file:
            npy.write_array(file, array, version)
        found, wanted = StoredArray(tmp_path / "x.npy"), np.load(tmp_path / "x.npy")
        assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
        np.testing.assert_array_equal(found.memmap(), wanted)


def test_a_header_of_python_2(tmp_path):
    (tmp_path / "x.npy").write_bytes(with_shape("(2L, 8L)"))
    assert StoredArray(tmp_path / "x.npy").shape == (2, 8)


def test_a_name_with_a_null_byte():
    with pytest.raises(LayoutkitError):
        Sample("a\0.npy")
