"""The build backend: setuptools, and precompiled kernels in wheels.

An sdist, an editable installation and a checkout do not contain compiled kernels. A wheel contains
them if the environment variable `LAYOUTKIT_OBJECTS` selects kernels: `all`, or comma-separated
parts of kernel names. By default it contains none and works on all machines. With kernels it works
for one architecture and any Python: they are those listed in `layoutkit/config.py`, for every level
of that architecture in `kernels/cpu/object_cache.py`. The architecture is the building machine's,
or on Linux the one that `LAYOUTKIT_MACHINE` names, such as `aarch64`.

Equal sources, tools and settings give sdists and wheels of identical bytes: `SOURCE_DATE_EPOCH` is
the date of all entries (default: 1980, the first year of zip files), and modes do not depend on the
umask. A wheel with kernels has a bill of materials in `.dist-info/sboms` (PEP 770), in the format
CycloneDX.

Compiling needs the dependencies of layoutkit, so `get_requires_for_build_wheel` returns them. It
runs in separate processes (`objects.py`), since Numba compiles for one CPU per process.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tomllib
from concurrent.futures import ThreadPoolExecutor
from gzip import GzipFile
from pathlib import Path
from typing import Any

from setuptools import build_meta
from setuptools.build_meta import *  # noqa: F403 (every other hook is setuptools' own)
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

HOME = Path(__file__).parents[1]
OBJECTS = Path("layoutkit", "kernels", "cpu", "objects")
# Operating systems' names of the machines in LEVELS.
MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}
# Kernels call a few functions of the C library, all of them in the glibc of this version. The
# required wheels of llvmlite and Numba need a newer one.
LINUX = "manylinux_2_17"
# Only AMD's CPUs have this feature. With AVX-512, they use other tiles than Intel's CPUs.
AMD_FEATURE = "sse4a"
KERNELS_PER_PROCESS = 12  # with fewer, a process would mostly import Numba
FIRST_ZIP_DATE = "315532800"  # 1980-01-01, in seconds since 1970
# The tools that compile kernels. No code of theirs is in an object.
LICENSES = {
    "numba": "BSD-2-Clause",
    "llvmlite": "BSD-2-Clause AND Apache-2.0 WITH LLVM-exception",
    "LLVM": "Apache-2.0 WITH LLVM-exception",
}


def get_requires_for_build_wheel(config_settings: Any = None) -> list[str]:
    """Return the requirements of setuptools and of compiling the kernels."""
    needed: list[str] = build_meta.get_requires_for_build_wheel(config_settings)
    if _wants_kernels():
        project = tomllib.loads((HOME / "pyproject.toml").read_text(encoding="utf-8"))
        needed += project["project"]["dependencies"]
    return needed


def build_sdist(sdist_directory: str, config_settings: Any = None) -> str:
    """Call setuptools' hook, and make the archive reproducible."""
    name: str = build_meta.build_sdist(sdist_directory, config_settings)
    date = int(os.environ.get("SOURCE_DATE_EPOCH", FIRST_ZIP_DATE))
    path = Path(sdist_directory, name)
    with tarfile.open(path) as archive:
        members = sorted(archive.getmembers(), key=lambda member: member.name)
        files = [(member, archive.extractfile(member)) for member in members]
        with (
            GzipFile(path.with_suffix(".new"), "wb", mtime=date) as compressed,
            tarfile.open(fileobj=compressed, mode="w") as copy,
        ):
            for member, file in files:
                copy.addfile(_without_origin(member, date), file)
    path.with_suffix(".new").replace(path)
    return name


def _without_origin(member: tarfile.TarInfo, date: int) -> tarfile.TarInfo:
    """Return an archive member with this date, and without the builder's user and umask."""
    mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
    clean = member.replace(mtime=date, mode=mode, uid=0, gid=0, uname="", gname="", deep=False)
    clean.pax_headers = {}  # the exact date
    return clean


def prepare_metadata_for_build_editable(*arguments: Any, **named: Any) -> str:
    """Call setuptools' hook without kernels: editable installations compile them at run time."""
    os.environ["LAYOUTKIT_OBJECTS"] = "none"
    name: str = build_meta.prepare_metadata_for_build_editable(*arguments, **named)
    return name


def build_editable(*arguments: Any, **named: Any) -> str:
    """Call setuptools' hook without kernels: editable installations compile them at run time."""
    os.environ["LAYOUTKIT_OBJECTS"] = "none"
    name: str = build_meta.build_editable(*arguments, **named)
    return name


class BuildPy(build_py):
    """A build_py that also compiles the kernels."""

    def run(self) -> None:
        """Build; compile kernels unless the installation is editable."""
        super().run()
        if not self.editable_mode:
            folder = Path(self.build_lib, OBJECTS)
            shutil.rmtree(folder, ignore_errors=True)
            make_objects(folder)


class BdistWheel(bdist_wheel):
    """A bdist_wheel whose tag has the platform if there is machine code, and any Python 3."""

    def finalize_options(self) -> None:
        """Tell setuptools that there is machine code, although there is no extension module."""
        if list_levels():
            self.distribution.has_ext_modules = lambda: True
        super().finalize_options()

    def get_tag(self) -> tuple[str, str, str]:
        """Return the Python, ABI and platform tags."""
        _, _, platform_tag = super().get_tag()
        if self.root_is_pure:
            platform_tag = "any"
        elif platform_tag.startswith("linux_"):
            platform_tag = f"{LINUX}_{target_machine()}"
        return ("py3", "none", platform_tag)

    def write_wheelfile(self, wheelfile_base: str, **named: Any) -> None:
        """Write WHEEL, the last file before the archive, and make the archive reproducible."""
        super().write_wheelfile(wheelfile_base, **named)
        objects = sorted(Path(self.bdist_dir, OBJECTS).glob("*"))
        if objects:
            folder = Path(wheelfile_base, "sboms")
            folder.mkdir()
            text = json.dumps(make_sbom(self.distribution.get_version(), objects), indent=1)
            (folder / "layoutkit.cdx.json").write_text(text + "\n", encoding="utf-8")
        os.environ.setdefault("SOURCE_DATE_EPOCH", FIRST_ZIP_DATE)
        for path in Path(self.bdist_dir).rglob("*"):
            path.chmod(0o755 if path.is_dir() else 0o644)


def make_sbom(version: str, objects: list[Path]) -> dict[str, Any]:
    """Return the bill of materials of compiled kernels, in the format CycloneDX 1.6."""
    licenses = [{"license": {"id": "Apache-2.0"}}]
    tools = [
        {
            "type": "application",
            "name": name,
            "version": tool_version,
            "licenses": [{"expression": LICENSES[name]}],
        }
        for name, tool_version in json.loads(_run("compilers")).items()
    ]
    kernels = [
        {
            "type": "file",
            "name": (OBJECTS / path.name).as_posix(),
            "hashes": [
                {"alg": "SHA-256", "content": hashlib.sha256(path.read_bytes()).hexdigest()}
            ],
            "licenses": licenses,
        }
        for path in objects
    ]
    library = {
        "type": "library",
        "name": "layoutkit",
        "version": version,
        "purl": f"pkg:pypi/layoutkit@{version}",
        "licenses": licenses,
    }
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": library, "tools": {"components": tools}},
        "components": kernels,
    }


def make_objects(folder: Path) -> None:
    """Compile all kernels of the architecture's levels into a folder, and print their number."""
    levels = list_levels()
    if not levels:
        return
    folder.mkdir(parents=True)
    specs_by_level: dict[str, list[Any]] = {}
    for level in reversed(levels):  # lower levels first: higher ones skip their kernels
        known = specs_by_level.get(level["base_level"], [])
        specs_by_level[level["name"]] = [s for s in list_specs(level) if s not in known]
    tasks = [
        (name, specs[start : start + KERNELS_PER_PROCESS])
        for name, specs in specs_by_level.items()
        for start in range(0, len(specs), KERNELS_PER_PROCESS)
    ]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        futures = [
            pool.submit(_run, "compile", n, str(folder), stdin=json.dumps(s)) for n, s in tasks
        ]
        for future in futures:
            future.result()
    sizes = [path.stat().st_size for path in folder.iterdir()]
    counts = ", ".join(f"{len(specs)} for {name}" for name, specs in specs_by_level.items())
    print(f"compiled kernels: {counts}; {sum(sizes) / 1e6:.1f} MB")


def list_specs(level: dict[str, str]) -> list[Any]:
    """Return the selected kernels for all CPUs of a level."""
    specs = json.loads(_run("list", level["name"]))
    if level["machine"] == "x86_64":
        of_amd = json.loads(_run("list", level["name"], AMD_FEATURE))
        specs += [spec for spec in of_amd if spec not in specs]
    return _selected_specs(specs)


def _wants_kernels() -> bool:
    return os.environ.get("LAYOUTKIT_OBJECTS", "") not in ("", "none")


def list_levels() -> list[dict[str, str]]:
    """Return the levels of the architecture, highest first; none if no kernels are wanted."""
    if not _wants_kernels():
        return []
    levels: list[dict[str, str]] = json.loads(_run("levels"))
    machine = target_machine()
    known = sorted({level["machine"] for level in levels})
    if os.environ.get("LAYOUTKIT_MACHINE") and machine not in known:
        raise SystemExit(f"LAYOUTKIT_MACHINE={machine}: kernels exist for {', '.join(known)}")
    return [level for level in levels if level["machine"] == machine]


def target_machine() -> str:
    """Return the name, as in LEVELS, of the architecture that the wheel's kernels are for."""
    machine = (os.environ.get("LAYOUTKIT_MACHINE") or platform.machine()).lower()
    return MACHINES.get(machine, machine)


def _selected_specs(specs: list[Any]) -> list[Any]:
    selected = os.environ["LAYOUTKIT_OBJECTS"]
    parts = [""] if selected == "all" else selected.split(",")
    return [s for s in specs if any(part in "-".join(map(str, (s[0], *s[1]))) for part in parts)]


def _run(*arguments: str, stdin: str = "") -> str:
    """Run `objects.py` and return its output."""
    path = os.pathsep.join(filter(None, [str(HOME), os.environ.get("PYTHONPATH")]))
    process = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("objects.py")), *arguments],
        env={**os.environ, "PYTHONPATH": path},
        input=stdin,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return process.stdout
