"""Unusual arguments and file names: an error of one line, no traceback, no hang."""

import os
import re
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

from layoutkit import cli
from layoutkit.cli import main

RUN = [sys.executable, "-c", "import sys; from layoutkit.cli import main; sys.exit(main())"]


# Run many commands in one process, because most of the time of a command is its startup.
SEVERAL = [
    sys.executable,
    "-c",
    """
import itertools, sys
from layoutkit.cli import main
groups = itertools.groupby(sys.argv[1:], key=lambda word: word == "then")
codes = [main(list(words)) for ends, words in groups if not ends]
print("codes", *codes)
""",
]


def run(*words, cwd, encoding="utf-8:strict", start=RUN):
    """Run the command in a separate process and return its output."""
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    done = subprocess.run(
        [*start, *words], cwd=cwd, capture_output=True, timeout=60, env=environment, check=False
    )
    assert b"Traceback" not in done.stderr
    return done


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", np.ones((2, 4, 5, 3), "f4"))
    return tmp_path


def refused(capsys, *words):
    assert main(["convert", *words]) == 2
    output = capsys.readouterr().err
    assert output.startswith("layoutkit: error: ")
    assert output.count("\n") == 1
    return output


@pytest.mark.parametrize("option", ["--scale", "--mean", "--std"])
@pytest.mark.parametrize(
    "number", ["1e400", "1e99999999999", "-1e400", "nan", "inf", "1/0", "1e400/2", "9" * 9999]
)
def test_numbers_beyond_any_float(folder, capsys, option, number):
    output = refused(capsys, "x.npy", "y.npy", "bhwc->bchw", option, number)
    assert "is not a finite number" in output


@pytest.mark.parametrize("words", [["--chunk", ""], ["--size", "h="], ["--resize", "4x"]])
def test_numbers_of_too_many_digits(folder, capsys, words):
    words = [words[0], words[1] + "9" * 5000]
    assert "too many digits" in refused(capsys, "x.npy", "y.npy", "bhwc->bchw", *words)


@pytest.mark.parametrize("words", [["--mean", "-0.5,0.5,1"], ["--mean=-0.5,0.5,1"]])
def test_negative_numbers_need_no_equals_sign(folder, words):
    files = ["x.npy", "y.npy", "bhwc->bchw", "--quiet"]
    assert main(["convert", *files, *words, "--scale", "-2", "--std", ".5"]) == 0
    result = np.load("y.npy")
    np.testing.assert_array_equal(result[0, :, 0, 0], [-3.0, -5.0, -6.0])


def test_words_that_the_shell_has_split(folder, capsys):
    output = refused(capsys, "a.jpg", "b.jpg", "c.jpg", "y.npy", "bhwc->bchw")
    assert "a.jpg: no such file" in output
    output = refused(capsys, "x.npy", "y.npy", "bhwc->bchw", "--mean", "0.4", "0.5", "0.6")
    assert "separate numbers by commas" in output
    assert 'reads ">" as a redirection' in refused(capsys, "x.npy", "y.npy", "bhwc-")
    assert "--help" in refused(capsys, "x.npy", "y.npy", "bhwc->bchw", "--fast")


def test_links_in_a_circle(folder, capsys):
    (folder / "a.npy").symlink_to("b.npy")
    (folder / "b.npy").symlink_to("a.npy")
    assert "symbolic links" in refused(capsys, "x.npy", "a.npy", "bhwc->bchw")
    assert "symbolic links" in refused(capsys, "a.npy", "y.npy", "bhwc->bchw")
    assert main(["batches", "x.npy", "--preview", "a.png"]) == 2


def test_pipes_are_not_waited_for(folder):
    words = []
    for suffix in ("npy", "npz", "safetensors", "pt", "csv", "jpg", "unknown"):
        os.mkfifo(f"p.{suffix}")
        words += ["convert", f"p.{suffix}", "y.npy", "bhwc->bchw", "then"]
        words += ["batches", f"p.{suffix}", "then"]
    done = run(*words, cwd=folder, start=SEVERAL)
    assert done.stdout.splitlines()[-1] == b"codes" + b" 2" * 14, done.stderr
    lines = done.stderr.splitlines()
    assert len(lines) == 14
    assert all(b"file" in line for line in lines), done.stderr


def test_a_pipe_among_images(folder):
    (folder / "p").mkdir()
    os.mkfifo("p/a.png")
    Image.new("RGB", (4, 4)).save("p/b.png")
    done = run("convert", "p", "y.npy", "bhwc->bchw", cwd=folder)
    assert done.returncode == 0
    assert b"skipped that are not images: 1" in done.stderr


NAMES = [  # escapes, a fake message, invalid text, right-to-left override
    b"\x1b]0;title\x07\x1b[2J",
    b"a\nlayoutkit: error: all is lost",
    b"\xff\xfe",
    "\u202e".encode(),
]


def commands_with(folder, name):
    """Yield commands on files of a name, with their exit codes."""
    cats = folder / os.fsdecode(name) / "cats"
    cats.mkdir(parents=True)
    Image.new("RGB", (4, 4)).save(cats / "a.png")
    (cats / os.fsdecode(name + b".png")).write_bytes(b"not an image")
    return {
        (b"batches", name, b"--size", b"4x4", b"--preview", name + b".png"): 0,
        (b"convert", name, name + b".npy", b"bhwc->bchw"): 2,
        (b"convert", name + b"/*/a.png", name + b".npy", b"bhwc->bchw"): 0,
        (b"convert", name + b".npy", b"y.npy", b"bhwc->bchw"): 0,
        (b"convert", name + b".none", b"y.npy", b"bhwc->bchw"): 2,
        (b"convert", b"x.npy", name, b"bhwc->bchw"): 2,
        (b"convert", b"x.npy", b"y.npy", name): 2,
        (b"convert", b"x.npy", b"y.npy", b"bhwc->bchw", b"--dtype", name): 2,
    }


@pytest.mark.budget(0)
@pytest.mark.parametrize("encoding", ["utf-8:strict", "ascii:strict"])
def test_names_do_not_write_to_the_terminal(folder, encoding):
    commands = {}
    for name in NAMES:
        commands |= commands_with(folder, name)
    words = [word for command in commands for word in (*command, b"then")]
    done = run(*words, cwd=folder, encoding=encoding, start=SEVERAL)
    codes = " ".join(map(str, commands.values()))
    assert done.stdout.splitlines()[-1].decode() == f"codes {codes}", done.stderr
    output = done.stdout + done.stderr.replace(b"\r", b"")
    assert not re.search(rb"[\x00-\x09\x0b-\x1f\x7f]", re.sub(rb"\x1b\[A", b"", output))
    assert not re.search(rb"^layoutkit: error: all is lost", output, re.MULTILINE)
    assert "\u202e".encode() not in output


def test_many_axes_are_explained_at_once(folder, capsys):
    letters = "abcdefghijklmnopqrstuvwxyz"
    shape = ",".join(["2"] * 26)
    pattern = f"{letters}->{letters[::-1]}"
    assert main(["explain", pattern, "--shape", shape, "--svg", "p.svg"]) == 0
    assert "a small example" in capsys.readouterr().out
    assert (folder / "p.svg").stat().st_size < 1e6


def test_what_nobody_has_thought_of_is_one_line(folder, capsys, monkeypatch):
    def fail(_):
        raise RecursionError("too\ndeep")

    monkeypatch.setitem(cli.COMMANDS, "info", fail)
    assert main(["info"]) == 70
    output = capsys.readouterr().err
    assert output.startswith("layoutkit: error: unexpected RecursionError: too\\ndeep; ")
    assert "LAYOUTKIT_TRACEBACK=1" in output
    assert output.count("\n") == 1
    monkeypatch.setenv("LAYOUTKIT_TRACEBACK", "1")
    with pytest.raises(RecursionError):
        main(["info"])
