"""A wheel from the build, installed elsewhere: its kernels run without a compiler."""

import hashlib
import importlib.metadata
import json
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from layoutkit.kernels.cpu import object_cache
from tests.helpers.children import python
from tests.helpers.instruction_sets import lacking

HOME = Path(__file__).parents[2]
NEEDED = "layoutkit", "kernels", "bench", "building"
NEEDED += "pyproject.toml", "README.md", "LICENSE", "MANIFEST.in"
# One kernel for every level, because all kernels take minutes.
ONE = "engine-split-3-1-64-u1-f4-run-0-0-0,engine-split-3-1-16-u1-f4-run-0-0-0"
X86 = platform.machine().lower() in ("x86_64", "amd64")

CONVERT = """
import sys
import numpy as np
import layoutkit
from layoutkit.kernels.cpu import compiler
x = np.arange(2 * 8 * 8 * 3, dtype=np.uint8).reshape(2, 8, 8, 3)
y = layoutkit.convert(x, "bhwc->bchw", dtype="float32", scale=2.0)
assert (y == 2 * x.transpose(0, 3, 1, 2).astype("f4")).all()
print("numba" in sys.modules, *{kernel.origin for kernel in compiler.loaded()})
"""
SHIPPED, COMPILED = "False shipped\n", "True compiled\n"

if int(importlib.metadata.version("setuptools").partition(".")[0]) < 77:
    pytest.skip("builds need setuptools 77", allow_module_level=True)


def copied(folder):
    """Copy the sources of the build, so that pip writes its files into the copy."""
    source = folder / "source"
    source.mkdir()
    for name in NEEDED:
        if (HOME / name).is_dir():
            skipped = shutil.ignore_patterns("__pycache__", "*.egg-info")
            shutil.copytree(HOME / name, source / name, ignore=skipped)
        else:
            shutil.copy(HOME / name, source)
    return source


def build(folder, what, objects, date=None):
    """Run pip with the arguments `what` on a copy of the sources, offline; return the copy.

    `date` is the date of all source files, in days after 2000.
    """
    source = copied(folder)
    for path in source.rglob("*") if date is not None else ():
        os.utime(path, (946684800 + date * 86400,) * 2)
    offline = "--no-build-isolation", "--no-deps", "--no-index"
    command = [sys.executable, "-m", "pip", what[0], *offline]
    done = subprocess.run(
        [*command, *what[1:], str(source)], cwd=folder, capture_output=True, text=True,
        env=os.environ | {"LAYOUTKIT_OBJECTS": objects, "PIP_DISABLE_PIP_VERSION_CHECK": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return source


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    build(folder, ["wheel", "--wheel-dir", str(folder / "dist")], ONE)
    (found,) = (folder / "dist").iterdir()
    return found


@pytest.fixture
def site(wheel, tmp_path):
    """Install the wheel into a folder, and return the folder."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    return tmp_path / "site"


def first(site, more="", **variables):
    """Return the output of a first conversion; by default, no kernels are cached."""
    return python(
        f"import os, sys; sys.path.remove(''); os.chdir({str(site.parent)!r})\n" + CONVERT + more,
        PYTHONPATH=site, LAYOUTKIT_CACHE_DIR=variables.pop("cache", os.devnull), **variables,
    )  # fmt: skip


def objects(site):
    return list((site / "layoutkit" / "kernels" / "cpu" / "objects").iterdir())


def of_level(name):
    """Return the variables that make a process treat its CPU as a CPU of this level."""
    (level,) = (level for level in object_cache.LEVELS if level.name == name)
    return {"NUMBA_CPU_NAME": level.cpu, "NUMBA_CPU_FEATURES": level.flags}


needs_avx2 = pytest.mark.skipif(not X86 or bool(lacking("avx2")), reason="no AVX2 here")
needs_avx512 = pytest.mark.skipif(not X86 or bool(lacking("avx512")), reason="no AVX-512 here")


@pytest.mark.budget(0)
def test_the_wheel_is_for_this_machine_and_any_python(wheel):
    assert wheel.name.split("-")[2:4] == ["py3", "none"]
    assert not wheel.name.endswith("any.whl")
    assert wheel.stat().st_size < 5e6
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/WHEEL"))
        assert "Root-Is-Purelib: false" in archive.read(name).decode()
        assert not any("building" in name for name in archive.namelist())


@pytest.mark.budget(0)
@needs_avx2
def test_a_first_conversion_takes_the_kernel_of_the_wheel(site, tmp_path):
    cache = tmp_path / "cache"
    assert first(site, cache=cache) == SHIPPED
    assert list(cache.iterdir()) == []


@pytest.mark.budget(0)
@needs_avx2
def test_pip_installs_it(wheel, tmp_path):
    site = tmp_path / "site"
    command = [sys.executable, "-m", "pip", "install", "--no-deps", "--no-index", "--quiet"]
    subprocess.run([*command, "--target", str(site), str(wheel)], check=True, capture_output=True)
    assert first(site) == SHIPPED


@pytest.mark.budget(0)
@needs_avx2
def test_every_level_of_this_machine_has_its_own(site):
    assert len(objects(site)) == len([x for x in object_cache.LEVELS if x.machine == "x86_64"])
    assert first(site, **of_level("x86-64-v3")) == SHIPPED


@pytest.mark.budget(0)
@needs_avx512
def test_avx512_takes_v4_and_avx2_takes_v3(site):
    """Run v4 with all objects, and v3 without the object that v4 uses."""
    for name in ("x86-64-v4", "x86-64-v3"):
        assert first(site, **of_level(name)) == SHIPPED
    (level,) = (level for level in object_cache.LEVELS if level.name == "x86-64-v4")
    away = set()
    for path in objects(site):
        kept = path.read_bytes()
        path.unlink()
        if first(site, **of_level(level.name)) == COMPILED:
            away.add(path)
        path.write_bytes(kept)
    assert len(away) == 1
    away.pop().unlink()
    assert first(site, **of_level("x86-64-v3")) == SHIPPED


@pytest.mark.budget(0)
@needs_avx2
def test_a_damaged_object_is_compiled_anew(site):
    for path in objects(site):
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
    assert first(site) == COMPILED


@pytest.mark.budget(0)
@needs_avx2
def test_other_sources_are_compiled(site):
    with (site / "layoutkit" / "kernels" / "cpu" / "walk.py").open("a") as file:
        file.write("\n")
    assert first(site) == COMPILED


@pytest.mark.budget(0)
@pytest.mark.skipif(not X86, reason="for x86-64")
def test_a_cpu_without_avx2_compiles(site):
    assert first(site, NUMBA_CPU_NAME="x86-64", NUMBA_CPU_FEATURES="+sse,+sse2") == COMPILED


@pytest.mark.budget(0)
@needs_avx2
def test_show_config_says_where_a_kernel_is_from(site):
    assert "-u1-f4-run-0-0-0 (shipped)" in first(site, "layoutkit.show_config()")


def test_the_bill_of_materials_lists_the_objects_and_their_compilers(wheel):
    """Check the CycloneDX file in the folder of the metadata that PEP 770 defines."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if "/sboms/" in name)
        assert name == "layoutkit-0.1.0.dist-info/sboms/layoutkit.cdx.json"
        sbom = json.loads(archive.read(name))
        objects = {name for name in archive.namelist() if "/objects/" in name}
        digests = {name: hashlib.sha256(archive.read(name)).hexdigest() for name in objects}
        assert f"{name},sha256=" in archive.read("layoutkit-0.1.0.dist-info/RECORD").decode()
    assert (sbom["bomFormat"], sbom["specVersion"]) == ("CycloneDX", "1.6")
    assert {part["name"]: part["hashes"][0]["content"] for part in sbom["components"]} == digests
    assert len(digests) > 0
    tools = {tool["name"]: tool for tool in sbom["metadata"]["tools"]["components"]}
    for package in ("numba", "llvmlite"):
        assert tools[package]["version"] == importlib.metadata.version(package)
    assert tools["LLVM"]["licenses"] == [{"expression": "Apache-2.0 WITH LLVM-exception"}]
    assert sbom["metadata"]["component"]["licenses"] == [{"license": {"id": "Apache-2.0"}}]


def built_twice(folder, objects):
    """Build twice, with different folders, dates of files and umasks; return both as bytes."""
    wheels = []
    for number, umask in enumerate((0o022, 0o077)):
        home = folder / str(number)
        home.mkdir()
        before = os.umask(umask)
        try:
            build(home, ["wheel", "--wheel-dir", str(home / "dist")], objects, date=number)
        finally:
            os.umask(before)
        (wheel,) = (home / "dist").iterdir()
        wheels.append((wheel.name, wheel.read_bytes()))
    return wheels


@pytest.mark.budget(0)
@pytest.mark.parametrize("objects", ["none", ONE], ids=["pure", "compiled"])
def test_two_builds_give_identical_bytes(tmp_path, objects):
    first, second = built_twice(tmp_path, objects)
    assert first == second


BUILD_SDIST = """
import sys
sys.path.insert(0, "building")
import backend
backend.build_sdist(sys.argv[1])
"""


@pytest.mark.budget(0)
def test_two_sdists_are_of_identical_bytes(tmp_path):
    """Build with different folders, dates of files and umasks."""
    sdists = []
    for number, umask in enumerate((0o022, 0o077)):
        folder = tmp_path / str(number)
        folder.mkdir()
        source = copied(folder)
        for path in source.rglob("*"):
            path.chmod((0o777 if path.is_dir() else 0o666) & ~umask)
            os.utime(path, (946684800 + number * 86400,) * 2)
        command = [sys.executable, "-c", BUILD_SDIST, str(folder)]
        subprocess.run(command, cwd=source, check=True, capture_output=True)
        (sdist,) = folder.glob("*.tar.gz")
        sdists.append(sdist.read_bytes())
    assert sdists[0] == sdists[1]
    with tarfile.open(sdist) as archive:
        names = archive.getnames()
        assert {member.mtime for member in archive} == {315532800}
    assert "layoutkit-0.1.0/kernels/cpu/engine.py" in names
    assert "layoutkit-0.1.0/pyproject.toml" in names


@pytest.mark.budget(0)
@pytest.mark.skipif(sys.platform != "linux", reason="compiles for another machine on Linux only")
def test_a_wheel_for_another_machine(tmp_path, monkeypatch):
    monkeypatch.setenv("LAYOUTKIT_MACHINE", "aarch64")
    build(tmp_path, ["wheel", "--wheel-dir", str(tmp_path / "dist")], ONE)
    (wheel,) = (tmp_path / "dist").iterdir()
    assert wheel.name.endswith("-py3-none-manylinux_2_17_aarch64.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    (path,) = objects(tmp_path / "site")
    data = path.read_bytes()
    elf = data[data.index(b"\x7fELF") :]
    assert int.from_bytes(elf[18:20], "little") == 183  # EM_AARCH64


@pytest.mark.budget(0)
def test_a_machine_without_kernels_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setenv("LAYOUTKIT_MACHINE", "riscv64")
    with pytest.raises(AssertionError, match="=riscv64: kernels exist for aarch64, x86_64"):
        build(tmp_path, ["wheel", "--wheel-dir", str(tmp_path / "dist")], ONE)


@pytest.mark.budget(0)
def test_without_objects_the_wheel_is_for_every_machine(tmp_path):
    build(tmp_path, ["wheel", "--wheel-dir", str(tmp_path / "dist")], "none")
    (wheel,) = (tmp_path / "dist").iterdir()
    assert wheel.name.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(wheel) as archive:
        assert not any("/objects/" in name or "/sboms/" in name for name in archive.namelist())


@pytest.mark.budget(0)
def test_an_editable_installation_has_none(tmp_path):
    site = tmp_path / "site"
    source = build(tmp_path, ["install", "--target", str(site), "--editable"], ONE)
    assert not list(source.rglob("objects"))
    assert not list(site.rglob("objects"))


REQUIRED = """
import sys
sys.path.insert(0, "building")
import backend
for kind in ("wheel", "sdist", "editable"):
    print(kind, "needs", getattr(backend, f"get_requires_for_build_{kind}")())
"""


@pytest.mark.budget(0)
def test_only_a_wheel_with_objects_needs_the_compiler(tmp_path):
    source = copied(tmp_path)
    for objects, compiler in (("all", True), ("", False), ("none", False)):
        done = subprocess.run(
            [sys.executable, "-c", REQUIRED], cwd=source, check=True, capture_output=True,
            env=os.environ | {"LAYOUTKIT_OBJECTS": objects}, text=True,
        )  # fmt: skip
        lines = [line for line in done.stdout.splitlines() if " needs " in line]
        needs = dict(line.split(" needs ") for line in lines)
        assert (needs["sdist"], needs["editable"]) == ("[]", "[]")
        assert ("'numba>=" in needs["wheel"], "'llvmlite>=" in needs["wheel"]) == (compiler,) * 2
