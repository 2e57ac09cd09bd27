"""Conversions of files: correct for every position of `b`, bounded memory, all or nothing."""

import contextlib
import errno
import itertools
import os
import pty
import re
import resource
import signal
import subprocess
import sys
import termios
import textwrap
import time

import numpy as np
import pytest

from layoutkit import convert
from layoutkit.cli import main, outputs, streaming
from layoutkit.cli.outputs import NpyFile
from layoutkit.cli.streaming import FileJob

pytestmark = pytest.mark.budget(4)

SIZES = {"b": 11, "h": 4, "w": 5, "c": 3}

# A pause at every chunk, so that the process does not end before a signal arrives on a busy
# machine.
PAUSES = """
import time
from layoutkit.cli import outputs
write = outputs.NpyFile.write
outputs.NpyFile.write = lambda *values: (write(*values), time.sleep(0.002))[0]
"""
# The command as a child process.
RUN = "import sys; from layoutkit.cli import main; sys.exit(main(sys.argv[1:]))"


def _array(layout, dtype="u1"):
    shape = [SIZES[axis] for axis in layout]
    return np.random.default_rng(3).integers(0, 256, shape).astype(dtype)


def _convert(tmp_path, array, pattern, *options):
    np.save(tmp_path / "x.npy", array)
    arguments = ["convert", str(tmp_path / "x.npy"), str(tmp_path / "y.npy"), pattern, "--quiet"]
    assert main([*arguments, *options]) == 0
    return np.load(tmp_path / "y.npy")


# ---- windows and channels ------------------------------------------------------------------


@pytest.mark.parametrize("chunk", [["--chunk", "2"], []])
@pytest.mark.parametrize("pattern", ["bhwc->bchw", "chwb->bhwc"])
def test_windows_flips_and_channels(tmp_path, pattern, chunk):
    left, right = pattern.split("->")
    array = _array(left)
    options = ["--crop", "2x3+1+2", "--flip", "--channels", "2,0", *chunk]
    window = {"h": slice(1, 3), "w": slice(4, 1, -1)}
    few = array[tuple(window.get(axis, slice(None)) for axis in left)]
    few = few.take([2, 0], left.index("c")).transpose([left.index(axis) for axis in right])
    np.testing.assert_array_equal(_convert(tmp_path, array, pattern, *options), few)
    middle = array[tuple({"h": slice(1, 3)}.get(axis, slice(None)) for axis in left)]
    middle = middle.transpose([left.index(axis) for axis in right])
    actual = _convert(tmp_path, array, pattern, "--crop", "2x5", *chunk)
    np.testing.assert_array_equal(actual, middle)
    np.testing.assert_array_equal(
        _convert(tmp_path, array, pattern, "--crop", "2x5+center", *chunk), middle
    )


def test_random_windows_are_of_the_seed_and_the_sample_alone(tmp_path):
    array = _array("bhwc")
    actual = [
        _convert(tmp_path, array, "bhwc->bhwc", "--crop", f"2x2+random:{seed}", "--chunk", chunk)
        for seed, chunk in [("7", "3"), ("7", "11"), ("8", "11")]
    ]
    np.testing.assert_array_equal(actual[0], actual[1])
    assert (actual[1] != actual[2]).any()
    found = set()
    for sample, window in zip(array, actual[0], strict=True):
        places = itertools.product(range(3), range(4))
        corners = {(y, x) for y, x in places if (sample[y : y + 2, x : x + 2] == window).all()}
        assert corners
        found |= corners
    # Every offset is drawn, the first and the last as well.
    assert [*map(set, zip(*found, strict=True))] == [{0, 1, 2}, {0, 1, 2, 3}]


def test_a_fold_with_channels_goes_in_chunks(tmp_path):
    array = _array("bhwc").reshape(11 * 4 * 5 * 3)
    words = ["--size", "h=4", "--size", "w=5", "--size", "c=3", "--channels", "2,0", "--chunk", "3"]
    actual = _convert(tmp_path, array, "(bhwc)->bchw", *words)
    np.testing.assert_array_equal(actual, _array("bhwc")[..., [2, 0]].transpose(0, 3, 1, 2))


@pytest.mark.parametrize(
    ("options", "output"),
    [
        (["--crop", "9x2"], "reaches beyond an image of 4x5"),
        (["--crop", "2x2+1+4"], "--crop 2x2 at 1,4 reaches beyond"),
        (["--crop", "2"], "is not a window such as 224x224"),
        (["--crop", "2x2+1"], "is not a window such as"),
        (["--channels", "0,3"], "selects channel 3, but x has the channels 0 to 2"),
        (["--channels", "r"], "is not channels such as 2,1,0"),
    ],
)
def test_what_is_no_window(tmp_path, capsys, options, output):
    np.save(tmp_path / "x.npy", _array("bhwc"))
    paths = [str(tmp_path / "x.npy"), str(tmp_path / "y.npy")]
    assert main(["convert", *paths, "bhwc->bchw", *options]) == 2
    assert output in capsys.readouterr().err
    assert not (tmp_path / "y.npy").exists()


@pytest.mark.parametrize("chunk", [["--chunk", "2"], []])
@pytest.mark.parametrize("pattern", ["bhwc->bchw", "chwb->bhwc", "bhwc->b(hwc)"])
@pytest.mark.parametrize(
    ("options", "keywords"),
    [
        ("--pad-to h=9,w=8 --fill 7", {"pad_to": {"h": 9, "w": 8}, "fill": 7}),
        ("--pad-to w=8 --fill 1,2,3 --center floor",
         {"pad_to": {"w": 8}, "fill": [1, 2, 3], "center": "floor"}),
        ("--pad-to b=13,c=4 --pad-before b=2,c=0",
         {"pad_to": {"b": 13, "c": 4}, "pad_before": {"b": 2, "c": 0}}),
    ],
)  # fmt: skip
def test_results_are_padded(tmp_path, pattern, chunk, options, keywords):
    array = _array(pattern.partition("->")[0])
    expected = convert(array, pattern, dtype="float32", scale=0.5, **keywords)
    options = [*options.split(), "--dtype", "float32", "--scale", "1/2", *chunk]
    np.testing.assert_array_equal(_convert(tmp_path, array, pattern, *options), expected)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--pad-to", "8x9"], "is not sizes of axes, such as h=640,w=640"),
        (["--pad-to", "h=8,h=9"], "has an axis twice"),
        (["--pad-to", "h=2"], "give a larger size"),
        (["--pad-before", "h=2"], "--pad-before: applies only to padded results; give --pad-to"),
        (["--fill", "2"], "--fill: applies to images, but"),
        (["--copy", "True"], "copy= is for Python only, as in layoutkit.convert"),
        (["--frames", "all"], "frames= is for Python only, as in layoutkit.images.read"),
        (["--memory", "bhwc"], "give that order as the right side of PATTERN"),
    ],
)
def test_options_that_files_do_not_have(tmp_path, capsys, options, message):
    np.save(tmp_path / "x.npy", _array("bhwc"))
    files = [str(tmp_path / name) for name in ("x.npy", "y.npy")]
    assert main(["convert", *files, "bhwc->bchw", *options]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "y.npy").exists()


def test_windows_want_axes_of_their_own(tmp_path, capsys):
    np.save(tmp_path / "x.npy", _array("bhwc").reshape(11, -1))
    paths = [str(tmp_path / "x.npy"), str(tmp_path / "y.npy")]
    words = ["--size", "h=4", "--size", "w=5", "--crop", "2x2"]
    assert main(["convert", *paths, "b(hwc)->bchw", *words]) == 2
    assert "has no separate axes h and w" in capsys.readouterr().err
    words = ["--size", "w=5", "--size", "c=3"]
    for option in (["--crop", "2x2"], ["--flip"]):
        assert main(["convert", *paths, "h(wc)->chw", *words, *option]) == 2
        assert "has no separate axes" in capsys.readouterr().err


# ---- right values --------------------------------------------------------------------------


@pytest.mark.parametrize("chunk", ["1", "3", "11", "12", None], ids=lambda chunk: f"chunk-{chunk}")
@pytest.mark.parametrize("pattern", ["bhwc->bchw", "bhwc->chwb", "chwb->bhwc", "hbwc->whbc"])
def test_b_may_be_anywhere(tmp_path, pattern, chunk):
    left, right = pattern.split("->")
    array = _array(left)
    options = ["--chunk", chunk] if chunk else []
    result = _convert(tmp_path, array, pattern, *options)
    np.testing.assert_array_equal(result, array.transpose([left.index(axis) for axis in right]))
    assert result.dtype == np.uint8


@pytest.mark.parametrize(
    ("pattern", "order"),
    [
        ("NHWC->NCHW", (0, 3, 1, 2)),
        ("batch height width c -> batch c height width", (0, 3, 1, 2)),
        ("... b w c -> b ... c w", (1, 0, 3, 2)),
        ("b ... c -> c ... b", (3, 1, 2, 0)),
    ],
)
def test_names_dots_and_capitals_are_streamed(tmp_path, monkeypatch, pattern, order):
    monkeypatch.setattr(streaming, "CHUNK_BYTES", 400)
    monkeypatch.setattr(streaming, "RUN_BYTES", 400)
    array = _array("bhwc")
    chunks = []
    original = NpyFile.write
    monkeypatch.setattr(
        NpyFile, "write", lambda self, *where: chunks.append(where) or original(self, *where)
    )
    np.testing.assert_array_equal(_convert(tmp_path, array, pattern), array.transpose(order))
    assert len(chunks) > 1


@pytest.mark.parametrize("chunk", ["1", "4", "100", None])
@pytest.mark.parametrize(
    ("left", "pattern", "sizes", "moved"),
    [
        ("bhwc", "bhwc->(bh)wc", [], lambda x: x.reshape(44, 5, 3)),
        ("bhwc", "bhwc->c(bw)h", [], lambda x: x.transpose(3, 0, 2, 1).reshape(3, 55, 4)),
        ("bhwc", "bhwc->(bhwc)", [], lambda x: x.reshape(-1)),
        ("bhwc", "bhwc->(hb)wc", [], lambda x: x.swapaxes(0, 1).reshape(44, 5, 3)),
        ("bhwc", "batch h w c -> (batch h) w c", [], lambda x: x.reshape(44, 5, 3)),
        ("bhwc", "(bh)wc->bhcw", ["h=4"], lambda x: x.transpose(0, 1, 3, 2)),
        ("bhwc", "(bh)wc->bhcw", ["b=11"], lambda x: x.transpose(0, 1, 3, 2)),
        ("bhwc", "(bh)wc->(bc)hw", ["h=4"], lambda x: x.transpose(0, 3, 1, 2).reshape(33, 4, 5)),
        ("bhwc", "(bhw)c->bwhc", ["h=4", "b=11"], lambda x: x.swapaxes(1, 2)),
    ],
)
def test_b_may_be_the_outermost_of_a_fold(tmp_path, left, pattern, sizes, moved, chunk):
    array = _array(left)
    folded = {"(": array.reshape(44, 5, 3)}.get(pattern[0], array)
    folded = array.reshape(-1, 3) if pattern.startswith("(bhw)") else folded
    options = [word for size in sizes for word in ("--size", size)]
    options += ["--chunk", chunk] if chunk else []
    np.testing.assert_array_equal(_convert(tmp_path, folded, pattern, *options), moved(array))


def test_folds_with_b_outermost_are_in_chunks(tmp_path, monkeypatch):
    lengths = []
    original = NpyFile.write
    monkeypatch.setattr(
        NpyFile, "write", lambda self, *where: lengths.append(where[1:3]) or original(self, *where)
    )
    _convert(tmp_path, _array("bhwc"), "bhwc->(bh)wc", "--chunk", "5")
    assert lengths == [(0, 20), (20, 40), (40, 44)]


@pytest.mark.parametrize("long", [1, 16, 1 << 16], ids=lambda long: f"long-{long}")
@pytest.mark.parametrize("nbytes", [1, 100, 400, 1000])
@pytest.mark.parametrize("order", ["C", "F"])
def test_any_axis_may_be_the_one_that_is_cut(tmp_path, monkeypatch, order, nbytes, long):
    """Convert to every order of the axes, in chunks of one index to nearly all."""
    monkeypatch.setattr(streaming, "CHUNK_BYTES", nbytes)
    monkeypatch.setattr(streaming, "RUN_BYTES", nbytes)
    monkeypatch.setattr(streaming, "LONG_RUN", 1 << 10)
    monkeypatch.setattr(outputs, "LONG_RUN", long)
    monkeypatch.setattr(outputs, "WIDE_BYTES", nbytes * 2)
    monkeypatch.setattr(outputs, "READ_BYTES", 50)
    array = np.asarray(_array("chwb"), order=order)
    for right in map("".join, itertools.permutations("bhwc")):
        result = _convert(tmp_path, array, f"chwb->{right}")
        expected = array.transpose(["chwb".index(axis) for axis in right])
        np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize(
    ("pattern", "options", "axis"),
    [
        ("bhwc->bchw", {}, "b"),
        ("chwb->bhwc", {}, "h"),
        ("bhwc->chwb", {}, "h"),
        ("cbhw->bhwc", {}, "b"),
        ("chwb->bhwc", {"chunk": 5}, "b"),
        ("hbwc->(hb)wc", {}, "w"),  # b is not an axis of the result's shape
        ("hwc->whc", {}, "h"),
        ("cb->bc", {}, "b"),
        ("cb->cb", {}, "c"),
        ("cb->cb", {"options": {"mean": [1.0]}}, "b"),
    ],
)
def test_which_axis_is_cut(pattern, options, axis):
    """The axis is `b`, unless another axis has longer runs in the file where `b` has short ones."""
    sizes = {"b": 4000, "h": 224, "w": 224, "c": 3} if "h" in pattern else {"b": 9000, "c": 9000}
    left, right = pattern.replace("(hb)", "h").split("->")
    files = [
        NpyFile(None, 0, tuple(map(sizes.get, text)), np.dtype("u1")) for text in (left, right)
    ]
    job = FileJob(pattern, **options)
    assert streaming.choose_axis(*files, streaming.StreamAxes(job, files[0].shape), job) == axis


@pytest.mark.parametrize("order", [*map("".join, itertools.permutations("dhw"))])
def test_a_sample_larger_than_the_memory_is_split(tmp_path, monkeypatch, order):
    """Convert arrays without a batch axis, and samples that are larger than a chunk."""
    monkeypatch.setattr(streaming, "CHUNK_BYTES", 4000)
    monkeypatch.setattr(streaming, "RUN_BYTES", 4000)
    written = []
    write = NpyFile.write
    monkeypatch.setattr(
        NpyFile, "write", lambda *values: (written.append(values[-1].nbytes), write(*values))
    )
    array = np.arange(20 * 21 * 22, dtype=np.int16).reshape(20, 21, 22)
    expected = array.transpose(["dhw".index(axis) for axis in order])
    np.testing.assert_array_equal(_convert(tmp_path, array, f"dhw->{order}"), expected)
    assert max(written) <= 2000
    samples = _convert(tmp_path, np.stack([array, array + 1]), f"bdhw->b{order}")
    np.testing.assert_array_equal(samples, np.stack([expected, expected + 1]))
    assert max(written) <= 2000


def test_a_size_of_the_axis_that_is_cut_is_that_of_the_whole(tmp_path, monkeypatch):
    monkeypatch.setattr(streaming, "CHUNK_BYTES", 200)
    monkeypatch.setattr(streaming, "LONG_RUN", 1 << 10)
    sizes = ["--size", "h=4", "--size", "w=5", "--size", "b=11"]
    array = _array("chwb")
    result = _convert(tmp_path, array, "chwb->bhwc", *sizes)
    np.testing.assert_array_equal(result, array.transpose(3, 1, 2, 0))


def test_constants_of_channels_where_other_axes_are_cut(tmp_path, monkeypatch):
    monkeypatch.setattr(streaming, "CHUNK_BYTES", 200)
    monkeypatch.setattr(streaming, "LONG_RUN", 1 << 10)
    array = _array("chwb")
    formula = ["--dtype", "float32", "--mean", "1,2,3", "--std", "2,4,8"]
    result = _convert(tmp_path, array, "chwb->bhwc", *formula)
    expected = (array.transpose(3, 1, 2, 0) - np.float32([1, 2, 3])) / np.float32([2, 4, 8])
    np.testing.assert_allclose(result, expected, rtol=1e-6, atol=1e-6)


def test_fortran_order_is_read_right(tmp_path):
    array = np.asfortranarray(_array("bhwc"))
    result = _convert(tmp_path, array, "bhwc->bchw", "--chunk", "4")
    np.testing.assert_array_equal(result, array.transpose(0, 3, 1, 2))


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize("layout", ["bhwc", "hbwc"])
def test_a_file_of_one_array_in_another_format(tmp_path, save, layout):
    array = _array(layout)
    save(tmp_path / "x.npz", photos=array)
    arguments = [str(tmp_path / "x.npz"), str(tmp_path / "y.npy"), f"{layout}->bchw"]
    assert main(["convert", *arguments, "--quiet", "--chunk", "4"]) == 0
    wanted = array.transpose([layout.index(axis) for axis in "bchw"])
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), wanted)


def test_a_file_of_several_arrays_is_refused(tmp_path, capsys):
    np.savez(tmp_path / "x.npz", a=np.zeros(2), b=np.zeros(2))
    assert main(["convert", str(tmp_path / "x.npz"), str(tmp_path / "y.npy"), "b->b"]) == 2
    assert "x.npz: contains 2 arrays (a, b); give a file of one" in capsys.readouterr().err


def test_folds_within_a_sample_are_streamed(tmp_path):
    array = _array("bhwc")
    folded = _convert(tmp_path, array, "bhwc->bf", "--chunk", "4")
    np.testing.assert_array_equal(folded, array.reshape(11, 60))
    sizes = ["--size", "h=4", "--size", "w=5"]
    back = _convert(tmp_path, folded, "bf->bhwc", "--chunk", "4", *sizes)
    np.testing.assert_array_equal(back, array)


def test_a_size_of_b_is_that_of_the_whole(tmp_path, capsys):
    result = _convert(tmp_path, _array("bhwc"), "bhwc->bchw", "--chunk", "4", "--size", "b=11")
    assert result.shape == (11, 3, 4, 5)
    files = [str(tmp_path / "x.npy"), str(tmp_path / "y.npy")]
    assert main(["convert", *files, "bhwc->bchw", "--size", "b=4"]) == 2
    assert "b=4" in capsys.readouterr().err


@pytest.mark.parametrize("pattern", ["bhwc->(bh)wc", "bhwc->f", "bhwc->(wb)hc"])
def test_a_folded_b_goes_in_one_piece(tmp_path, pattern):
    array = _array("bhwc")
    expected = {
        "bhwc->(bh)wc": array.reshape(44, 5, 3),
        "bhwc->f": array.reshape(-1),
        "bhwc->(wb)hc": array.transpose(2, 0, 1, 3).reshape(55, 4, 3),
    }
    result = _convert(tmp_path, array, pattern, "--chunk", "2")
    np.testing.assert_array_equal(result, expected[pattern])


def test_without_b_it_goes_in_one_piece(tmp_path):
    array = _array("hwc")
    np.testing.assert_array_equal(
        _convert(tmp_path, array, "hwc->bchw"), array.transpose(2, 0, 1)[None]
    )


def test_an_empty_batch(tmp_path):
    result = _convert(tmp_path, np.empty((0, 4, 5, 3), "u1"), "bhwc->bchw", "--dtype", "float32")
    assert (result.shape, result.dtype) == ((0, 3, 4, 5), np.float32)


def test_formula_and_casting(tmp_path):
    array = _array("bhwc")
    formula = ["--scale", "1/255", "--mean", "0.5,0.4,0.3", "--std", "0.25"]
    result = _convert(tmp_path, array, "bhwc->bchw", "--dtype", "float32", *formula)
    expected = (array / 255 - [0.5, 0.4, 0.3]) / 0.25
    np.testing.assert_allclose(result, expected.transpose(0, 3, 1, 2), rtol=1e-5, atol=1e-6)
    back = _convert(
        tmp_path, result * 300, "bchw->bhwc", "--dtype", "uint8", "--casting", "saturate"
    )
    np.testing.assert_array_equal(back, np.rint(result * 300).clip(0, 255).transpose(0, 2, 3, 1))


# ---- a report and a progress bar -----------------------------------------------------------


def test_progress_and_summary_on_stderr(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    np.save(tmp_path / "x.npy", _array("bhwc"))
    files = [str(tmp_path / "x.npy"), str(tmp_path / "y.npy")]
    assert main(["convert", *files, "bhwc->bchw", "--dtype", "float32"]) == 0
    captured = capsys.readouterr()
    assert captured.out == ""
    for part in ["x.npy: 100%", "11/11", "sample/s", "GB/s"]:
        assert part in captured.err
    last = captured.err.splitlines()[-1]
    for part in ["(11, 4, 5, 3) uint8", "(11, 3, 4, 5) float32", "3.3 kB in"]:
        assert part in last


def test_a_log_has_one_line_of_it(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(streaming, "CHUNK_BYTES", 200)
    np.save(tmp_path / "x.npy", _array("bhwc"))
    files = [str(tmp_path / "x.npy"), str(tmp_path / "y.npy")]
    assert main(["convert", *files, "bhwc->bchw"]) == 0
    error = capsys.readouterr().err
    assert "\r" not in error
    assert error.count("\n") == 1
    assert "1.3 kB in" in error
    assert error.endswith(" GB/s\n")


def test_progress_counts_samples_where_another_axis_is_cut(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setattr(streaming, "CHUNK_BYTES", 200)
    monkeypatch.setattr(streaming, "LONG_RUN", 1 << 10)
    np.save(tmp_path / "x.npy", _array("chwb"))
    files = [str(tmp_path / "x.npy"), str(tmp_path / "y.npy")]
    assert main(["convert", *files, "chwb->bhwc"]) == 0
    assert "11/11" in capsys.readouterr().err


def test_quiet_says_nothing(tmp_path, capsys):
    _convert(tmp_path, _array("bhwc"), "bhwc->bchw")
    assert capsys.readouterr() == ("", "")


# ---- bounded memory ------------------------------------------------------------------------

MEASURE = """
    import resource, sys
    import numpy as np
    from layoutkit.cli import main

    folder, small, large, pattern = sys.argv[1], *map(eval, sys.argv[2:4]), sys.argv[4]

    def run(shape):
        # A sparse file has the size without the time to write it.
        x = np.lib.format.open_memmap(f"{folder}/x.npy", "w+", "u1", shape)
        del x
        assert main(["convert", f"{folder}/x.npy", f"{folder}/y.npy", pattern, "--quiet"]) == 0
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

    before = run(small)  # compiles, imports
    print(run(large) - before)
"""


@pytest.mark.budget(0)
@pytest.mark.parametrize(
    ("pattern", "small", "large"),
    [
        ("bhwc->bchw", (64, 64, 64, 5), (1 << 13, 64, 64, 5)),
        ("chwb->bhwc", (5, 64, 64, 64), (5, 64, 64, 1 << 13)),
        ("bhwc->chwb", (64, 64, 64, 5), (1 << 13, 64, 64, 5)),
        ("bhwc->(bh)cw", (64, 64, 64, 5), (1 << 13, 64, 64, 5)),
    ],
)
def test_memory_stays_at_a_chunk(tmp_path, pattern, small, large):
    """160 MiB are read and 160 MiB written, with about one chunk of 64 MiB in memory."""
    code = textwrap.dedent(MEASURE)
    arguments = [sys.executable, "-c", code, str(tmp_path), str(small), str(large), pattern]
    done = subprocess.run(arguments, capture_output=True, text=True, check=True)
    assert int(done.stdout) < 220 << 20


# ---- all or nothing ------------------------------------------------------------------------


@pytest.fixture
def slow(tmp_path):
    """Start a slow conversion, one sample at a time, over an existing DST."""
    x = np.lib.format.open_memmap(tmp_path / "x.npy", "w+", "u1", (1 << 14, 16, 16, 3))
    del x
    (tmp_path / "y.npy").write_bytes(b"as it was")
    files = [str(tmp_path / "x.npy"), str(tmp_path / "y.npy")]
    command = [sys.executable, "-c", PAUSES + RUN, "convert", *files, "bhwc->bchw", "--chunk", "1"]
    with _in_a_terminal(command) as process:
        yield process
        process.kill()


@contextlib.contextmanager
def _in_a_terminal(command):
    """Start a process whose stderr is a terminal, because otherwise there is no progress bar."""
    master, terminal = pty.openpty()
    termios.tcsetwinsize(terminal, (24, 80))
    with subprocess.Popen(command, stderr=terminal) as process:
        os.close(terminal)
        with os.fdopen(master, "rb", buffering=0) as process.stderr:
            yield process
        process.stderr = None


def _open_source_store(terminal):
    """Return the next output, or nothing at its end, which Linux reports as an error."""
    try:
        return terminal.read(1000)
    except OSError:
        return b""


def _rest_of(terminal):
    return b"".join(iter(lambda: _open_source_store(terminal), b""))


def _wait_until_under_way(process):
    seen = b""
    deadline = time.monotonic() + 60
    under_way = re.compile(rb"[1-9]\d?%")  # any progress that the bar shows first
    while not under_way.search(seen) and time.monotonic() < deadline:
        seen += _open_source_store(process.stderr)
    assert under_way.search(seen), seen
    assert process.poll() is None


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -signal.SIGKILL)],
)
def test_an_interruption_leaves_all_as_it_was(tmp_path, slow, number, code):
    if number == signal.SIGKILL and not hasattr(os, "O_TMPFILE"):
        pytest.skip("without unnamed files a killed process leaves its hidden file")
    _wait_until_under_way(slow)
    slow.send_signal(number)
    error = _rest_of(slow.stderr)
    assert slow.wait(30) == code
    assert b"Traceback" not in error
    assert sorted(os.listdir(tmp_path)) == ["x.npy", "y.npy"]
    assert (tmp_path / "y.npy").read_bytes() == b"as it was"


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_an_error_at_the_start(tmp_path, monkeypatch, capsys, code):
    def refuse(*_):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    np.save(tmp_path / "x.npy", _array("bhwc"))
    (tmp_path / "y.npy").write_bytes(b"as it was")
    files = [str(tmp_path / "x.npy"), str(tmp_path / "y.npy")]
    assert main(["convert", *files, "bhwc->bchw"]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"layoutkit: error: {tmp_path}/y.npy: no room for 0.7 kB")
    assert "make room" in error
    assert sorted(os.listdir(tmp_path)) == ["x.npy", "y.npy"]
    assert (tmp_path / "y.npy").read_bytes() == b"as it was"


def test_a_limit_on_file_size_is_an_error_at_the_start(tmp_path):
    np.save(tmp_path / "x.npy", np.zeros((100, 100, 100, 3), "u1"))

    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))

    files = [str(tmp_path / "x.npy"), str(tmp_path / "y.npy")]
    command = [sys.executable, "-c", RUN, "convert", *files, "bhwc->bchw", "--dtype", "float32"]
    done = subprocess.run(command, capture_output=True, text=True, preexec_fn=limit)
    assert done.returncode == 2
    assert done.stderr.startswith(f"layoutkit: error: {tmp_path}/y.npy: no room for 12.0 MB")
    assert os.listdir(tmp_path) == ["x.npy"]


def test_a_failure_half_way_leaves_all_as_it_was(tmp_path, monkeypatch, capsys):
    from layoutkit.cli.outputs import NpyFile

    read = NpyFile.read

    def fail_late(self, axis, start, stop):
        if start >= 6:
            raise OSError(errno.EIO, "Input/output error")
        return read(self, axis, start, stop)

    monkeypatch.setattr(NpyFile, "read", fail_late)
    np.save(tmp_path / "x.npy", _array("bhwc"))
    (tmp_path / "y.npy").write_bytes(b"as it was")
    files = [str(tmp_path / "x.npy"), str(tmp_path / "y.npy")]
    assert main(["convert", *files, "bhwc->bchw", "--chunk", "2", "--quiet"]) == 2
    assert "Input/output error" in capsys.readouterr().err
    assert (tmp_path / "y.npy").read_bytes() == b"as it was"
    assert sorted(os.listdir(tmp_path)) == ["x.npy", "y.npy"]


@pytest.mark.parametrize("wide", [0, 128 << 20], ids=["chunk by chunk", "wide"])
@pytest.mark.parametrize("chunk", [["--chunk", "4"], []], ids=["of b", "of any axis"])
@pytest.mark.parametrize("pattern", ["bhwc->bchw", "hbwc->bchw", "chwb->bhwc"])
def test_a_source_that_becomes_shorter(tmp_path, monkeypatch, capsys, pattern, chunk, wide):
    """Truncate the source during the conversion: the error names it, and DST is unchanged."""
    if wide and pattern == "chwb->bhwc" and chunk:
        pytest.skip("all of it is one wide slab, read at the start")
    np.save(tmp_path / "x.npy", np.zeros((64, 64, 5, 128), "f4"))
    (tmp_path / "y.npy").write_bytes(b"as it was")
    monkeypatch.setattr(streaming, "CHUNK_BYTES", 1 << 20)
    monkeypatch.setattr(streaming, "RUN_BYTES", 1 << 20)
    monkeypatch.setattr(outputs, "WIDE_BYTES", wide)
    write = NpyFile.write
    monkeypatch.setattr(
        NpyFile,
        "write",
        lambda *values: (write(*values), os.truncate(tmp_path / "x.npy", 5000))[0],
    )
    files = [str(tmp_path / "x.npy"), str(tmp_path / "y.npy")]
    assert main(["convert", *files, pattern, "--quiet", *chunk]) == 2
    assert "x.npy: was truncated while it was read; convert it when" in capsys.readouterr().err
    assert (tmp_path / "y.npy").read_bytes() == b"as it was"


@pytest.mark.budget(0)
@pytest.mark.parametrize("pattern", ["bhwc->bchw", "chwb->bhwc"])
def test_another_process_makes_the_source_shorter(tmp_path, pattern):
    """Truncate the source while a thread reads ahead: an error, no signal, and no file remains."""
    shape = (1 << 17, 16, 16, 3) if pattern[0] == "b" else (3, 1 << 19, 4, 16)
    x = np.lib.format.open_memmap(tmp_path / "x.npy", "w+", "u1", shape)
    del x
    (tmp_path / "y.npy").write_bytes(b"as it was")
    files = [str(tmp_path / "x.npy"), str(tmp_path / "y.npy")]
    small = "from layoutkit.cli import outputs, streaming; outputs.WIDE_BYTES = 0; "
    code = f"{small}streaming.CHUNK_BYTES = streaming.RUN_BYTES = 1 << 12\n{RUN}"
    command = [sys.executable, "-c", code, "convert", *files, pattern]
    with _in_a_terminal(command) as process:
        _wait_until_under_way(process)
        os.truncate(tmp_path / "x.npy", 200)
        error = _rest_of(process.stderr)
        assert process.wait(60) == 2
    assert b"x.npy: was truncated while it was read" in error
    assert b"Traceback" not in error
    assert (tmp_path / "y.npy").read_bytes() == b"as it was"
    assert sorted(os.listdir(tmp_path)) == ["x.npy", "y.npy"]
