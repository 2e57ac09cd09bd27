"""Kernels that come with the package: the level for a CPU, and misses."""

import os
import platform
import sys
from pathlib import Path

import pytest

from layoutkit.config import kernels
from layoutkit.kernels.cpu import compiler, object_cache
from layoutkit.kernels.cpu import compiler as notice
from layoutkit.kernels.cpu.compiler import KernelSpec
from tests.helpers.children import environment, python, start

BY_NAME = {level.name: level for level in object_cache.LEVELS}
SPEC = KernelSpec("engine", ("split-3", 1, "64", "", 0))
SOURCES = "a digest"


def features(name):
    return frozenset(BY_NAME[name].features.split(","))


@pytest.fixture
def objects(tmp_path, monkeypatch):
    """Return a function that adds objects to the package; each contains the name of its level."""
    monkeypatch.setattr(object_cache, "FOLDER", tmp_path)

    def fill(*names):
        for name in names:
            key = object_cache.object_key(BY_NAME[name], repr(SPEC), SOURCES)
            path = tmp_path / object_cache.file_name(SPEC.family, key)
            path.write_bytes(object_cache.pack(key, name.encode()))
        return tmp_path

    return fill


def found(having, spec=SPEC, sources=SOURCES):
    return object_cache.find(spec.family, repr(spec), sources, frozenset(having))


# ---- levels ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", BY_NAME)
def test_a_cpu_takes_the_object_of_its_level(objects, name):
    objects(*BY_NAME)
    assert found(features(name)) == name.encode()
    assert found(features(name) | {"amx-tile", "sve"}) == name.encode()


def test_a_cpu_that_lacks_one_feature_takes_a_lower_level_or_none(objects):
    objects(*BY_NAME)
    for feature in features("x86-64-v4"):
        left = features("x86-64-v4") - {feature}
        expected = b"x86-64-v3" if feature.startswith("avx512") else None
        assert found(left) == expected
    assert found(()) is None


def test_beside_a_level_the_next_one_is_asked(objects):
    """Kernels that do not use the instruction of a level exist only for the next lower level."""
    objects("x86-64-v4", "x86-64-v3")
    assert found(features("x86-64-v4-vbmi")) == b"x86-64-v4"
    assert found(features("x86-64-v4")) == b"x86-64-v4"
    objects("x86-64-v4-vbmi")
    assert found(features("x86-64-v4-vbmi")) == b"x86-64-v4-vbmi"


def test_a_level_that_has_no_such_kernel_is_a_miss(objects):
    objects("x86-64-v3")
    assert found(features("x86-64-v4")) is None


@pytest.mark.budget(1)
@pytest.mark.parametrize("name", BY_NAME)
def test_the_planner_of_a_level_knows_its_cpu(name):
    """The planner of a level uses the register width and float16 support that all its CPUs have."""
    level = BY_NAME[name]
    code = "from layoutkit.kernels.cpu.tiling import *; from layoutkit.cpu.program import *\n"
    code += "print(lanes(), vector_bytes(1), vector_bytes(4), supports_float16())"
    variables = {"NUMBA_CPU_NAME": level.cpu, "NUMBA_CPU_FEATURES": level.flags}
    expected = {
        "x86-64-v4-vbmi": "4 64 64 True\n", "x86-64-v4": "4 16 64 True\n",
        "x86-64-v3": "2 16 32 True\n", "armv8-a": "1 16 16 True\n",
    }  # fmt: skip
    assert python(code, **variables) == expected[name]


# ---- misses ------------------------------------------------------------------------------


def test_another_spec_and_other_sources_are_misses(objects):
    objects(*BY_NAME)
    having = features("x86-64-v4")
    assert found(having, KernelSpec("engine", ("split-3", 1, "64", "", 1))) is None
    assert found(having, sources="another digest") is None


@pytest.mark.parametrize("part", ["FORMAT", "platform", "maxsize"])
def test_another_format_or_system_is_a_miss(objects, monkeypatch, part):
    objects(*BY_NAME)
    where = object_cache if part == "FORMAT" else sys
    other = {"FORMAT": "0", "platform": "plan9", "maxsize": 2**31 - 1}
    monkeypatch.setattr(where, part, other[part])
    assert found(features("x86-64-v4")) is None


def test_any_flipped_byte_is_a_miss(objects):
    (path,) = objects("x86-64-v3").iterdir()
    whole = path.read_bytes()
    for at in range(len(whole)):
        damaged = bytearray(whole)
        damaged[at] ^= 0x40
        path.write_bytes(damaged)
        assert found(features("x86-64-v3")) is None
    for damaged in (b"", whole[:-1], whole + b"\0"):
        path.write_bytes(damaged)
        assert found(features("x86-64-v3")) is None


@pytest.mark.skipif(not hasattr(os, "link"), reason="no hard links")
def test_whose_a_file_is_does_not_matter(objects):
    """Installers link files, and others may own the package."""
    (path,) = objects("x86-64-v3").iterdir()
    os.link(path, path.with_suffix(".second"))
    path.chmod(0o666)
    assert found(features("x86-64-v3")) == b"x86-64-v3"


def test_a_checkout_has_none():
    assert not object_cache.FOLDER.exists()
    assert found(features("x86-64-v4")) is None


# ---- the order in which kernels are searched ---------------------------------------------


@pytest.fixture
def loading(monkeypatch, tmp_path):
    """Return the origin of a kernel, with the cache in a folder and nothing linked."""
    monkeypatch.setenv("LAYOUTKIT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(compiler, "compile_object", lambda spec: b"compiled here")
    linked = []
    monkeypatch.setattr(compiler, "_link", lambda code, symbol: linked.append(code) or 64)
    return lambda: (compiler._load(SPEC).origin, linked[-1])


def test_the_cache_comes_first_then_the_package_then_the_compiler(loading, monkeypatch):
    monkeypatch.setattr(object_cache, "find", lambda *_: b"from the wheel")
    assert loading() == ("shipped", b"from the wheel")
    assert loading() == ("shipped", b"from the wheel")  # which the cache need not hold
    monkeypatch.setattr(object_cache, "find", lambda *_: None)
    assert loading() == ("compiled", b"compiled here")
    monkeypatch.setattr(object_cache, "find", lambda *_: b"from the wheel")
    assert loading() == ("cached", b"compiled here")


def test_without_a_folder_for_the_cache_the_package_is_asked(loading, monkeypatch):
    monkeypatch.setattr(object_cache, "find", lambda *_: b"from the wheel")
    monkeypatch.setenv("LAYOUTKIT_CACHE_DIR", os.devnull)
    assert loading() == ("shipped", b"from the wheel")


# ---- names of kernels --------------------------------------------------------------------


def test_the_usual_kernels_are_of_all_kinds():
    names = [str(spec) for spec in kernels()]
    assert len(names) == len(set(names))
    for part in ("serve", "run", "lend", "join", "clock"):
        assert f"threadpool-{part}" in names
    wanted = [
        "split-3-1-", "split-4-1-", "merge-3-1-", "merge-4-1-", "u1-f4-run-0-0-1", "runs-1-",
        "shortrows-1-", "shortruns-1-",
        "rows-1--u1-f4-each", "rows-4--f4-f2-", "rows-4--f4-bf-", "rows-4--u4-u4-", "f4-f4-add",
        *(f"transpose-{item}-" for item in (1, 2, 4, 8)), "accumulate-sum",
    ]  # fmt: skip
    assert [part for part in wanted if not any(part in name for name in names)] == []
    streaming = [name for name in names if name.endswith("--1")]
    assert all(any(f"transpose-{i}-" in name for name in streaming) for i in (1, 2, 4, 8))


BATCHES = """
import numpy as np
from layoutkit import Collator, collate, set_num_threads
from layoutkit.config import kernels
from layoutkit.kernels.cpu.compiler import loaded

set_num_threads(1)
photos = [np.zeros((40, 50, 3), np.uint8), np.zeros((33, 37, 3), np.uint8)]
masks = [np.zeros(photo.shape[:2], np.int64) for photo in photos]
size = {"h": 32, "w": 32}
norm = {"dtype": "float32", "scale": 1 / 255, "mean": (0.5, 0.4, 0.3), "std": (0.2, 0.3, 0.4)}
mirrored = {"w": [True, False]}
collate(photos, "hwc->bchw", **size, flip=mirrored, **norm)
collate(photos, "hwc->bchw", **size, resize="bilinear", **norm)
collate(photos, "hwc->bhwc", **size, resize="bicubic")
collate(masks, "hw->bhw", **size, resize="nearest", flip=mirrored)
random = Collator("hwc->bchw", **size, resize="bilinear", crop="random", flip="random", **norm)
random(photos)
collate(photos, "(hp)(wq)c->(bhw)(cpq)", p=14, q=14, resize="bicubic", multiple=28, **norm)
print({kernel.spec.family for kernel in loaded()} >= {"collate", "engine", "resize", "taps"})
print({kernel.spec for kernel in loaded()} - set(kernels()))
"""


@pytest.mark.budget(0)
def test_the_usual_kernels_include_all_of_common_batches():
    assert python(BATCHES) == "True\nset()\n"


LISTED = """
import json, sys
from building import backend

(level,) = (level for level in backend.list_levels() if level["name"] == "x86-64-v4")
print(*["-".join(map(str, [family, *rest])) for family, rest in backend.list_specs(level)])
"""


@pytest.mark.budget(0)
@pytest.mark.skipif(platform.machine() != "x86_64", reason="for x86-64")
def test_objects_of_avx512_have_the_tiles_of_intel_and_of_amd():
    names = python(LISTED, LAYOUTKIT_OBJECTS="all").split()
    tiles = {name.split("-")[3] for name in names if name.startswith("engine-transpose-4")}
    assert tiles >= {"4x1x4x0", "4x2x1x0"}


REPEATED = """
import hashlib, sys
from layoutkit.kernels.cpu.compiler import KernelSpec, compile_object
specs = [KernelSpec("engine", ("gather", size, "", "", 0)) for size in map(int, sys.argv[1:])]
print({spec: hashlib.sha256(compile_object(spec)).hexdigest() for spec in specs}[specs[-1]])
"""


@pytest.mark.budget(0)
def test_an_object_does_not_depend_on_what_was_compiled_before():
    """Numba numbers its functions, which must not make builds irreproducible."""
    assert python(REPEATED, ["4"]) == python(REPEATED, ["1", "4"])


# ---- the line on a terminal --------------------------------------------------------------

ONE = """
import numpy as np
import layoutkit
x = np.zeros((2, 5, 4, 3), np.uint16)
layoutkit.convert(x, "bhwc->bchw")
"""
TWO = ONE + 'layoutkit.convert(x, "bchw->bhwc")'


def on_a_terminal(code, **variables):
    """Return the output of `code` on stderr, which is a terminal."""
    pty = pytest.importorskip("pty")
    import subprocess

    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", code], env=environment(**variables), stderr=theirs
    )
    os.close(theirs)
    said = b""
    try:
        while piece := os.read(ours, 1024):
            said += piece
    except OSError:  # Linux reports the end of a terminal as an error
        pass
    finally:
        os.close(ours)
    assert process.wait(timeout=120) == 0
    return said.decode()


@pytest.mark.budget(0)
def test_the_first_compilation_is_said_once_on_a_terminal(tmp_path):
    home = tmp_path / "home"
    folder = home / ".cache" / "layoutkit"
    said = on_a_terminal(TWO, LAYOUTKIT_CACHE_DIR=folder, HOME=home)
    assert said.startswith("layoutkit: compiled a kernel for this CPU, once (")
    assert said.endswith(" s); kept in ~/.cache/layoutkit\r\n")
    assert said.count("\n") == 1
    assert on_a_terminal(TWO, LAYOUTKIT_CACHE_DIR=folder, HOME=home) == ""


@pytest.mark.budget(0)
def test_on_a_terminal_it_is_said_where_nothing_is_kept():
    said = on_a_terminal(ONE, LAYOUTKIT_CACHE_DIR=os.devnull)
    assert said.endswith("not kept, `layoutkit info` says why\r\n")


@pytest.mark.budget(0)
def test_nothing_is_said_where_stderr_is_no_terminal(tmp_path):
    process = start(ONE, LAYOUTKIT_CACHE_DIR=tmp_path)
    assert process.communicate(timeout=120) == ("", "")


class Terminal:
    def __init__(self, error=None):
        self.text = ""
        self.error = error

    def isatty(self):
        return True

    def write(self, text):
        if self.error:
            raise self.error
        self.text += text

    def flush(self):
        pass


@pytest.mark.parametrize("stderr", [None, object(), Terminal(OSError()), Terminal(ValueError())])
def test_programs_with_another_stderr_or_none_go_on(monkeypatch, stderr):
    monkeypatch.setattr(notice, "_notified", False)
    monkeypatch.setattr(sys, "stderr", stderr)
    notice.notify_slow_compile(1, None)


def test_what_is_short_is_not_said(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(notice, "_notified", False)
    monkeypatch.setattr(sys, "stderr", terminal)
    notice.notify_slow_compile(0.3, None)
    assert terminal.text == ""
    notice.notify_slow_compile(0.31, Path("/elsewhere"))
    notice.notify_slow_compile(9, Path("/elsewhere"))
    assert terminal.text == (
        "layoutkit: compiled a kernel for this CPU, once (0.3 s); kept in /elsewhere\n"
    )
