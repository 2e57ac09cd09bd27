"""The whole command: output, rejected arguments and error messages."""

import contextlib
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import layoutkit
from layoutkit.cli import explain, main


@pytest.fixture
def source(tmp_path):
    np.save(tmp_path / "x.npy", np.arange(2 * 4 * 5 * 3, dtype="f4").reshape(2, 4, 5, 3))
    return tmp_path / "x.npy"


def _refused(capsys, *arguments):
    """Return the error on stderr: one line, or a pattern with its caret."""
    assert main([str(argument) for argument in arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("layoutkit: error: ")
    assert "Traceback" not in captured.err
    return captured.err


# ---- sources and destinations --------------------------------------------------------------


def test_a_link_to_the_source_is_the_source(tmp_path, source, capsys):
    (tmp_path / "soft.npy").symlink_to(source)
    os.link(source, tmp_path / "hard.npy")
    before = source.read_bytes()
    for target in (source, tmp_path / "soft.npy", tmp_path / "hard.npy"):
        error = _refused(capsys, "convert", source, target, "bhwc->bchw")
        assert "the source itself" in error
        assert str(target) in error
    assert source.read_bytes() == before


def test_the_result_is_npy(tmp_path, source, capsys):
    error = _refused(capsys, "convert", source, tmp_path / "y.npz", "bhwc->bchw")
    assert f"{tmp_path}/y.npz" in error
    assert f"name it {tmp_path}/y.npy" in error
    assert os.listdir(tmp_path) == ["x.npy"]


def test_a_missing_folder_is_named(tmp_path, source, capsys):
    error = _refused(capsys, "convert", source, tmp_path / "new" / "y.npy", "bhwc->bchw")
    assert f"there is no folder {tmp_path}/new; create it" in error


def test_a_folder_is_no_file(tmp_path, source, capsys):
    (tmp_path / "y.npy").mkdir()
    assert "is not a file" in _refused(capsys, "convert", source, tmp_path / "y.npy", "bhwc->bchw")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_may_not_be_written(tmp_path, source, capsys):
    (tmp_path / "locked").mkdir(mode=0o500)
    target = tmp_path / "locked" / "y.npy"
    error = _refused(capsys, "convert", source, target, "bhwc->bchw")
    assert f"{target}: the folder {target.parent} is write-protected" in error


def test_a_write_protected_folder_is_seen_before_anything_is_read(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, _: path != tmp_path)
    target = tmp_path / "y.npy"
    error = _refused(capsys, "convert", tmp_path / "no.npy", target, "bhwc->bchw")
    assert f"{target}: the folder {tmp_path} is write-protected; choose another place" in error


def test_a_folder_that_nobody_may_write(source, capsys):
    target = "/proc/y.npy"
    error = _refused(capsys, "convert", source, target, "bhwc->bchw")
    assert error.startswith(f"layoutkit: error: {target}: ")


def test_a_write_protected_file_is_not_replaced(tmp_path, source, capsys, monkeypatch):
    monkeypatch.setattr(os, "access", lambda *_: False)  # as for users other than root
    (tmp_path / "y.npy").write_bytes(b"as it was")
    error = _refused(capsys, "convert", source, tmp_path / "y.npy", "bhwc->bchw")
    assert "write-protected" in error
    assert (tmp_path / "y.npy").read_bytes() == b"as it was"


def test_a_missing_source_is_named(tmp_path, capsys):
    error = _refused(capsys, "convert", tmp_path / "no.npy", tmp_path / "y.npy", "bhwc->bchw")
    assert f"{tmp_path}/no.npy: No such file or directory; check the path" in error
    assert os.listdir(tmp_path) == []


def test_an_array_needs_no_suffix(tmp_path, source):
    source.rename(tmp_path / "array")
    target = tmp_path / "y.npy"
    assert main(["convert", str(tmp_path / "array"), str(target), "bhwc->bchw", "--quiet"]) == 0
    assert np.load(target).shape == (2, 3, 4, 5)


# ---- invalid arguments ---------------------------------------------------------------------


def test_a_bad_pattern_is_shown_before_a_file_is_looked_for(tmp_path, capsys):
    error = _refused(capsys, "convert", tmp_path / "no.npy", tmp_path / "y.npy", "bhw?->bchw")
    assert "bhw?->bchw\n" in error
    assert "   ^\n" in error


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["bhw->bwh"], ["x.npy", "(2, 4, 5, 3)", "bhw"]),
        (["bhwc->bhw"], ["x.npy", "c", "3"]),
        (["bhwc->bchw", "--dtype", "uint8"], ["x.npy", "float32", "uint8", "saturate", "unsafe"]),
        (["bhwc->bchw", "--dtype", "float99"], ["float99"]),
        (["bhwc->bchw", "--dtype", "bfloat16"], ["--dtype bfloat16", "float16 or float32"]),
        (["bhwc->bchw", "--mean", "1,2"], ["x.npy", "mean", "2", "3"]),
        (["bhwc->bchw", "--size", "x=3"], ["x=3"]),
        (["bhwc->bchw", "--resize", "2x2"], ["--resize", "x.npy"]),
    ],
)
def test_what_does_not_fit_names_the_file_or_option(tmp_path, source, capsys, options, words):
    error = _refused(capsys, "convert", source, tmp_path / "y.npy", *options)
    for word in words:
        assert word in error
    assert os.listdir(tmp_path) == ["x.npy"]


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--scale", "1/0"),
        ("--scale", "nan"),
        ("--mean", "1;2"),
        ("--mean", ""),
        ("--std", "a,b"),
        ("--size", "h"),
        ("--size", "h=0"),
        ("--size", "3=h"),
        ("--resize", "224"),
        ("--resize", "0x5"),
        ("--resize", "2x-3"),
        ("--chunk", "0"),
        ("--chunk", "1.5"),
        ("--casting", "sane_kind"),
    ],
)
def test_values_that_cannot_be_read_name_their_option(tmp_path, capsys, option, value):
    error = _refused(capsys, "convert", "x.npy", "y.npy", "b->b", f"{option}={value}")
    assert option in error
    assert "layoutkit convert --help" in error


def test_one_size_for_an_axis(capsys):
    error = _refused(capsys, "convert", "x", "y.npy", "bf->bhwc", "--size", "h=1", "--size", "h=2")
    assert "--size: the same axis twice" in error


@pytest.mark.parametrize(
    "arguments",
    [["paint"], ["convert"], ["convert", "a", "b"], ["info", "--all"], ["explain"]],
)
def test_usage_errors(capsys, arguments):
    assert "--help" in _refused(capsys, *arguments)


def test_no_words_at_all_give_the_help(capsys):
    with pytest.raises(SystemExit) as caught:
        main([])
    assert caught.value.code == 0
    out = capsys.readouterr().out
    assert "layoutkit convert photos/ batch.npy 'bhwc->bchw'" in out
    for command in ("convert", "batches", "explain", "bench", "info", "warmup"):
        assert f"\n    {command} " in out


def test_out_of_memory_names_the_chunk(source, tmp_path, capsys, monkeypatch):
    def exhaust(*_):
        raise MemoryError

    monkeypatch.setattr("layoutkit.cli.outputs.NpyFile.read", exhaust)
    assert "--chunk" in _refused(
        capsys, "convert", source, tmp_path / "y.npy", "bhwc->bchw", "--quiet"
    )


# ---- the other commands --------------------------------------------------------------------


def test_explain_prints_the_plan_and_both_orders(capsys):
    arguments = ["--shape", "64,224,224,3", "--from-dtype", "uint8", "--dtype", "float32"]
    assert main(["explain", "bhwc->bchw", *arguments, "--scale", "1/255"]) == 0
    out = capsys.readouterr().out
    plan = layoutkit.plan("bhwc->bchw", (64, 224, 224, 3), "uint8", dtype="float32", scale=1 / 255)
    assert out.startswith(str(plan))
    assert "R000 G000 B000" in out
    assert "R000 R001 R002" in out


def test_explain_draws(tmp_path, capsys):
    target = tmp_path / "figure.svg"
    arguments = ["--shape", "(4, 60)", "--size", "h=4", "--size", "w=5", "--svg", str(target)]
    assert main(["explain", "bf->bhwc", *arguments]) == 0
    assert target.read_text().startswith("<svg xmlns")
    assert "before bf" in capsys.readouterr().out


@pytest.mark.parametrize("shape", ["64,224", "64,x", "", "-1,2,3,4"])
def test_explain_refuses_shapes_that_do_not_fit(capsys, shape):
    assert "shape" in _refused(capsys, "explain", "bhwc->bchw", f"--shape={shape}")


def test_explain_names_the_figure_it_cannot_write(tmp_path, capsys):
    target = tmp_path / "none" / "figure.svg"
    assert main(["explain", "b->b", "--shape", "3", "--svg", str(target)]) == 2
    assert capsys.readouterr().err.startswith(f"layoutkit: error: {target}: No such file")


def test_a_reader_that_has_seen_enough_is_no_error():
    """`layoutkit explain ... | head -1` ends without an error message."""
    code = "import sys; from layoutkit.cli import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", code, "explain", "bhwc->bchw", "--shape", "2,2,2,3"]
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, **pipes, env=buffered) as process:
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(60) == 0


def test_bench_hands_its_options_on(monkeypatch):
    bench = pytest.importorskip("layoutkit.bench")
    seen = {}
    monkeypatch.setattr(bench, "main", lambda **options: seen.update(options) or 0)
    assert main(["bench", "--quick", "--json", "r.json"]) == 0
    defaults = {"quick": False, "plot": None, "json": None, "device": "cpu"}
    defaults |= {"table": None, "only": None, "limit": None}
    defaults |= {"count": 0, "seed": 0, "conversion": None}
    assert seen == defaults | {"quick": True, "json": "r.json"}
    assert main(["bench", "bhwc->bchw", "--shape", "1,2,3,4", "--dtype", "uint8"]) == 0
    assert seen["conversion"] == ("bhwc->bchw", (1, 2, 3, 4), "float32", "uint8")
    assert main(["bench", "--device", "cuda", "--plot", "p.png"]) == 0
    assert seen == defaults | {"plot": "p.png", "device": "cuda"}
    assert main(["bench", "--loaders"]) == 0
    assert seen == defaults | {"table": "loaders"}
    assert main(["bench", "--random", "3", "--seed", "5"]) == 0
    assert seen == defaults | {"table": "random", "count": 3, "seed": 5}
    assert main(["bench", "--collate", "--floor"]) == 2


def test_info_prints_the_configuration(capsys):
    assert main(["info"]) == 0
    assert np.__version__ in capsys.readouterr().out


def test_warmup_says_what_it_compiled(capsys, monkeypatch):
    monkeypatch.setattr(layoutkit, "warmup", lambda **_: ["split 3", "transpose 4"])
    assert main(["warmup"]) == 0
    first, *rest = capsys.readouterr().out.splitlines()
    assert first.startswith("2 kernels are ready after ")
    assert rest == ["  split 3", "  transpose 4"]


def test_warmup_takes_a_conversion_of_ones_own(capsys, monkeypatch):
    seen = {}
    monkeypatch.setattr(
        layoutkit, "warmup", lambda **keywords: seen.update(keywords) or ["split 3"]
    )
    words = ["bhwc->bchw", "--shape", "64,224,224,3", "--from-dtype", "uint8", "--dtype", "float32"]
    words += ["--scale", "1/255", "--mean", "-1,0,1", "--std", "2", "--casting", "unsafe"]
    assert main(["warmup", *words]) == 0
    assert seen == {
        "pattern": "bhwc->bchw", "shape": (64, 224, 224, 3), "from_dtype": "uint8",
        "dtype": "float32", "scale": 1 / 255, "mean": [-1, 0, 1], "std": 2, "casting": "unsafe",
    }  # fmt: skip
    assert capsys.readouterr().out.startswith("1 kernel is ready after ")
    seen.clear()
    assert main(["warmup", "bf->bhwc", "--shape", "8,60", "--size", "h=4", "--size", "w=5"]) == 0
    assert seen == {"pattern": "bf->bhwc", "shape": (8, 60), "h": 4, "w": 5}


@pytest.mark.parametrize(
    ("words", "output"),
    [
        (["bhwc->bchw"], "also give --shape,"),
        (["--shape", "1,2"], "also give PATTERN,"),
        (["--dtype", "uint8"], "also give PATTERN and --shape,"),
        (["--size", "h=4"], "PATTERN and --shape"),
        (["bhwc->bchw", "--shape", "1,2,x,3"], "is not a shape such as"),
        (["bhwc->bchw", "--shape", "1,2,3"], "3 axes|axes"),
        (["bhwc->bchw", "--shape", "1,2,3,4", "--dtype", "nothing"], "nothing"),
        (["bhwc->bchw", "--shape", "1,2,3,4", "--dtype", "uint8"], "uint8"),
        (["bhwc->bchw", "more", "--shape", "1,2,3,4"], "unrecognized arguments: more"),
        (["hwc->bchw", "--batch-size", "4"], "also give --shape,"),
        (["--batch-size", "4"], "also give PATTERN and --shape,"),
        (["hwc->bchw", "--shape", "9,9,3", "--filter", "area"], "--filter: .* --batch-size"),
        (["hwc->bchw", "--shape", "9,9", "--batch-size", "4"], "3 axes"),
    ],
)
def test_mistakes_of_warmup_are_one_line(capsys, words, output):
    assert main(["warmup", *words]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("layoutkit: error: ")
    assert err.count("\n") == 1
    assert re.search(output, err)


def test_warmup_of_a_batch(capsys, monkeypatch):
    calls = []
    warm = lambda collator, samples, dtype: calls.append((collator, samples, dtype)) or ["taps"]
    monkeypatch.setattr(layoutkit.Collator, "warmup", warm)
    words = "hwc->bchw --shape 30,40,3 --batch-size 2 --size h=8 --size w=9 --filter bicubic"
    words += " --short-side 9 --flip w --dtype float32 --scale 1/255"
    assert main(["warmup", *words.split()]) == 0
    assert capsys.readouterr().out.startswith("1 kernel is ready after ")
    collator = layoutkit.Collator(
        "hwc->bchw", h=8, w=9, resize="bicubic", short_side=9, flip={"w": "random"},
        dtype="float32", scale=1 / 255,
    )  # fmt: skip
    assert main(["warmup", "bhwc->bchw", "--shape", "5,9,9,3", "--batch-size", "5"]) == 0
    whole = layoutkit.Collator("bhwc->bchw")
    assert calls == [(collator, [(30, 40, 3)] * 2, "uint8"), (whole, (5, 9, 9, 3), "uint8")]


def test_warmup_of_the_options_in_a_file(tmp_path, capsys, monkeypatch):
    calls = []
    warm = lambda collator, samples, dtype: calls.append((collator, samples, dtype)) or []
    monkeypatch.setattr(layoutkit.Collator, "warmup", warm)
    monkeypatch.setattr(layoutkit, "warmup", lambda **keywords: calls.append(keywords) or [])
    path = tmp_path / "options.json"
    collator = layoutkit.Collator("hwc->bchw", h=8, w=9)
    path.write_text(json.dumps(collator.to_dict()))
    assert "also give --shape" in _refused(capsys, "warmup", "--options", path)
    words = ["warmup", "--options", str(path), "--shape", "30,40,3", "--from-dtype", "float32"]
    assert "--dtype" in _refused(capsys, *words, "--dtype", "uint8")
    assert main(words) == 0
    capsys.readouterr()
    path.write_text(json.dumps(layoutkit.Converter("b(hw)->bhw", h=30, dtype="float16").to_dict()))
    assert "--batch-size" in _refused(capsys, *words, "--batch-size", "4")
    assert main(words) == 0
    conversion = {"pattern": "b(hw)->bhw", "h": 30, "dtype": "float16"}
    assert calls == [
        (collator, [(30, 40, 3)] * 32, "float32"),
        conversion | {"shape": (30, 40, 3), "from_dtype": "float32"},
    ]


def test_cache_prints_the_folder_and_clears_it(tmp_path, capsys, monkeypatch):
    folder = tmp_path / "cache"
    monkeypatch.setenv("LAYOUTKIT_CACHE_DIR", str(folder))
    assert main(["cache"]) == 0
    assert capsys.readouterr().out == f"{folder}: 0 kernels, 0.0 MB\n"
    assert not folder.exists()
    folder.mkdir()
    kernel = folder / f"engine-{'0' * 32}.o"
    kernel.write_bytes(bytes(250_000))
    (folder / f"taps-{'1' * 32}.o").symlink_to(folder / "notes.txt")
    (folder / "notes.txt").write_text("mine")
    assert main(["cache", "show"]) == 0
    assert "2 kernels, 0.3 MB" in capsys.readouterr().out
    assert kernel.exists()
    assert main(["cache", "clear"]) == 0
    assert capsys.readouterr().out.startswith(f"{folder}: removed 2 kernels, 0.3 MB")
    assert [path.name for path in folder.iterdir()] == ["notes.txt"]
    (folder / "notes.txt").unlink()
    assert main(["cache", "clear"]) == 0
    assert not folder.exists()


@pytest.mark.parametrize(
    ("words", "fix"),
    [
        (["--memory=bhwc"], "give that order as the right side of PATTERN"),
        (["--copy", "True"], "layoutkit.convert(x, PATTERN, copy=...)"),
        (["--clip", "9"], "'9' is not LOW,HIGH, such as -160,240 or 0,"),
        (["--clip", ","], "',' is not LOW,HIGH"),
        (["--clip", "9,1"], "clip is (9, 1), which contains no number"),
    ],
)
def test_mistakes_of_convert_name_a_fix(capsys, words, fix):
    assert main(["convert", "a.npy", "b.npy", "bhwc->bchw", *words]) == 2
    assert fix in capsys.readouterr().err


@pytest.mark.budget(1)
@pytest.mark.parametrize(
    ("text", "clip"),
    [("-160,240", (-160, 240)), ("0,", (0, None)), (",99.5", (None, 99.5)), ("1/2,9", (0.5, 9))],
)
def test_a_window_of_values(tmp_path, text, clip):
    source, target = tmp_path / "scan.npy", tmp_path / "window.npy"
    x = np.random.default_rng(0).integers(-1000, 1000, (3, 4, 5), dtype=np.int16)
    np.save(source, x)
    words = ["convert", str(source), str(target), "dhw->hdw", "--clip", text, "--std", "400"]
    assert main([*words, "--quiet"]) == 0
    np.testing.assert_array_equal(
        np.load(target), layoutkit.convert(x, "dhw->hdw", clip=clip, std=400)
    )


def test_version_and_help(capsys):
    with pytest.raises(SystemExit) as caught:
        main(["--version"])
    assert caught.value.code == 0
    assert capsys.readouterr().out == f"layoutkit {layoutkit.__version__}\n"
    with pytest.raises(SystemExit) as caught:
        main(["convert", "--help"])
    assert caught.value.code == 0
    assert "--resize HxW" in capsys.readouterr().out


def test_the_command_starts_without_what_it_does_not_need():
    heavy = ["numba", "llvmlite", "PIL", "matplotlib", "tqdm", "ml_dtypes"]
    code = f"import sys, layoutkit.cli; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_termination_handler_is_not_left_behind(source, tmp_path):
    import signal

    before = signal.getsignal(signal.SIGTERM)
    assert main(["convert", str(source), str(tmp_path / "y.npy"), "bhwc->bchw", "--quiet"]) == 0
    assert signal.getsignal(signal.SIGTERM) is before


def test_it_runs_in_a_thread(source, tmp_path):
    import threading

    codes = []
    arguments = ["convert", str(source), str(tmp_path / "y.npy"), "bhwc->bchw", "--quiet"]
    thread = threading.Thread(target=lambda: codes.append(main(arguments)))
    thread.start()
    thread.join()
    assert codes == [0]


# ---- messages with command-line options ----------------------------------------------------


@pytest.mark.parametrize(
    ("words", "output"),
    [
        (
            ["x.npy", "y.npy", "bhwc-"],
            "write the pattern in quotes, such as 'bhwc->bchw', and remove",
        ),
        (["x.npy", "bhwc->bchw", "y.npy"], "PATTERN comes last"),
        (["x.npy", "y.npy", "bhwc->bchw", "--flip", "w"], "'w' follows it, and is the value of no"),
        (["x.npy", "y.npy"], "the following arguments are required: PATTERN"),
        (["x.npy"], "the following arguments are required: DST, PATTERN"),
        (["--mean", "1", "2", "3", "x.npy", "y.npy", "bhwc->bchw"], "separate numbers by commas"),
        (["x.npy", "y.npy", "bhwc->bchw", "--mean", "1", "2", "3"], "separate numbers by commas"),
        (["x.npy", "-", "bhwc->bchw"], "-: the result cannot be a stream"),
        (["-", "y.npy", "bhwc->bchw"], "-: is not a regular file; write its data into one first"),
    ],
)
def test_words_that_are_not_understood(tmp_path, source, capsys, monkeypatch, words, output):
    monkeypatch.chdir(tmp_path)
    assert output in _refused(capsys, "convert", *words)
    assert os.listdir(tmp_path) == ["x.npy"]


def test_messages_of_the_library_name_options(tmp_path, source, capsys):
    options = ["bhwc->bchw", "--dtype", "uint8", "--scale", "1/255"]
    error = _refused(capsys, "convert", source, tmp_path / "y.npy", *options)
    assert "--casting saturate" in error
    assert "=" not in error


@pytest.mark.budget(0)
@pytest.mark.parametrize(
    ("stored", "dtype"), [("u1", "int8"), ("u2", "int16"), ("u2", "int8"), ("u8", "int64")]
)
def test_changes_of_sign_are_asked_for(tmp_path, capsys, stored, dtype):
    x = np.array([[1, 100, 200, np.iinfo(stored).max]], stored)
    np.save(tmp_path / "x.npy", x)
    files = [tmp_path / "x.npy", tmp_path / "y.npy", "bf->fb", "--dtype", dtype]
    error = _refused(capsys, "convert", *files)
    assert f"{x.dtype} to {dtype} would make values above" in error
    assert "--casting saturate" in error
    clipped = np.minimum(x, np.iinfo(dtype).max).astype(dtype)
    for casting, expected in [("saturate", clipped), ("same_kind", x.astype(dtype))]:
        words = ["convert", *map(str, files), "--casting", casting, "--quiet"]
        assert main(words) == 0
        np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), expected.T)


@pytest.mark.budget(1)
@pytest.mark.parametrize(("stored", "dtype"), [("u1", "int16"), ("i2", "int8"), ("u2", "uint8")])
def test_other_casts_are_numpys(tmp_path, stored, dtype):
    np.save(tmp_path / "x.npy", np.array([[1, 100, 200]], stored))
    files = [str(tmp_path / "x.npy"), str(tmp_path / "y.npy"), "bf->fb", "--dtype", dtype]
    assert main(["convert", *files, "--quiet"]) == 0
    expected = np.array([[1], [100], [200]], stored).astype(dtype)
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), expected)


def test_batches_may_not_change_the_sign(tmp_path, capsys):
    (tmp_path / "photos").mkdir()
    error = _refused(capsys, "batches", tmp_path / "photos", "--dtype", "int8")
    assert "uint8 to int8 would make values above 127 negative" in error


@pytest.mark.parametrize("command", ["convert", "batches", "explain", "bench", "info", "warmup"])
def test_the_help_of_every_command_has_examples_that_are_understood(capsys, command):
    from layoutkit.cli.parser import format_examples, parse

    with pytest.raises(SystemExit):
        main([command, "--help"])
    out = capsys.readouterr().out
    lines = format_examples(command).splitlines()[1:]
    assert lines
    for line in lines:
        assert line in out
        name, *words = shlex.split(line)
        assert name == "layoutkit"
        assert parse(words).command == command


def test_the_help_lists_dtypes(capsys):
    for command in ("convert", "batches", "explain"):
        with pytest.raises(SystemExit):
            main([command, "--help"])
        assert "float16, float32" in " ".join(capsys.readouterr().out.split())


def test_explain_without_a_shape_draws(capsys):
    assert main(["explain", "bhwc->bchw"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("a small example")
    assert "R000 G000 B000" in out
    assert "--shape" in out.splitlines()[-1]
    assert "give the --shape" in _refused(capsys, "explain", "bhwc->bchw", "--dtype", "float32")
    assert "give the --shape" in _refused(capsys, "explain", "bf->bhwc", "--size", "h=4")


def test_plan_and_drawing_agree(tmp_path, capsys):
    target = tmp_path / "e.svg"
    words = ["--shape", "2,1,64,128,128", "bcdhw->bdhwc", "--svg", str(target)]
    assert main(["explain", *words]) == 0
    out = capsys.readouterr().out
    assert "nothing has to move" in out
    before, after = out[out.index("before") :].split("  after")
    assert re.findall(r"\b[A-Z]\d+", before) == re.findall(r"\b[A-Z]\d+", after)
    assert "c=3" not in out + target.read_text()


def test_the_drawing_is_there_when_nobody_reads_the_words(tmp_path, monkeypatch):
    def closed(*_, **__):
        raise BrokenPipeError

    monkeypatch.setattr(explain, "print", closed, raising=False)
    svg = tmp_path / "e.svg"
    with pytest.raises(BrokenPipeError):
        explain.explain("bhwc->bchw", None, {}, {}, svg)
    assert svg.read_text().endswith("</svg>\n")


@pytest.mark.parametrize("name", ["e.png", "e"])
def test_a_figure_of_memory_is_svg(tmp_path, capsys, name):
    error = _refused(capsys, "explain", "bhwc->bchw", "--svg", tmp_path / name)
    assert f"name it {tmp_path}/e.svg" in error
    assert os.listdir(tmp_path) == []


def test_info_names_what_works_beside_it(capsys):
    assert main(["info"]) == 0
    out = capsys.readouterr().out
    from importlib.metadata import PackageNotFoundError, version

    (line,) = [line for line in out.splitlines() if line.startswith("beside")]
    assert f"scikit-learn {version('scikit-learn')}" in line
    for package in ("xarray", "pandas", "polars", "pyarrow", "h5py", "zarr", "onnxruntime"):
        with contextlib.suppress(PackageNotFoundError):
            assert f"{package} {version(package)}" in line


# ---- streams that are closed or full -------------------------------------------------------


def _shell(tmp_path, line):
    """Run a line of shell in a folder; `layoutkit` is the command of this interpreter."""
    command = f'layoutkit() {{ {shlex.quote(sys.executable)} -m layoutkit "$@"; }}; {line}'
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    return subprocess.run(
        ["sh", "-c", command], cwd=tmp_path, env=buffered, capture_output=True, text=True
    )


@pytest.mark.budget(1)
@pytest.mark.parametrize("redirection", ["2>&-", ">&-", "<&- >&- 2>&-", "2>/dev/full"])
def test_a_conversion_needs_no_stream(tmp_path, source, redirection):
    if "full" in redirection and not Path("/dev/full").exists():
        pytest.skip("needs /dev/full, a device of Linux")
    done = _shell(tmp_path, f"layoutkit convert x.npy y.npy 'bhwc->bchw' {redirection}")
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert "error" not in done.stderr
    expected = np.load(source).transpose(0, 3, 1, 2)
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), expected)


@pytest.mark.budget(1)
@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("info >&-", 0),
        ("explain 'bhwc->bchw' >&-", 0),
        ("convert none.npy y.npy 'bhwc->bchw' 2>&-", 2),
        ("convert none.npy y.npy 'bhwc->bchw' 2>/dev/full", 2),
        ("nothing 2>/dev/full", 2),
        ("--help >/dev/full", 0),
        ("explain 'bhwc->bchw' >/dev/full", 2),
        ("explain 'bhwc->bchw' >/dev/full 2>/dev/full", 2),
    ],
)
def test_exit_codes_without_streams(tmp_path, line, code):
    if "full" in line and not Path("/dev/full").exists():
        pytest.skip("needs /dev/full, a device of Linux")
    done = _shell(tmp_path, f"layoutkit {line}")
    assert (done.returncode, done.stdout) == (code, "")
    assert "Traceback" not in done.stderr
