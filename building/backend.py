"""The build: setuptools', and for wheels the compiled kernels that they bring along.

An sdist, an editable installation and a checkout have none. A wheel has those that
`layoutkit/config.py` names, for every level of `kernels/cpu/object_cache.py` that the building machine's
kind may be of, so it is for that kind of machine and any Python. `LAYOUTKIT_OBJECTS` in the
environment chooses: `none` for a wheel for every machine, which brings no kernel, or parts of the
names of kernels, with commas between.

Compiling takes what layoutkit needs to run, so `get_requires_for_build_wheel` asks for it. It is
done by processes of their own (`objects.py`), since Numba compiles for one CPU in a process.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from setuptools import build_meta
from setuptools.build_meta import *  # noqa: F403 (every other hook is setuptools' own)
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

HOME = Path(__file__).parents[1]
OBJECTS = Path("layoutkit", "kernels", "cpu", "objects")
# What systems call the machines of LEVELS.
MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}
AT_ONCE = 12  # kernels that a process compiles: fewer would mostly import Numba


def get_requires_for_build_wheel(config_settings: Any = None) -> list[str]:
    """What setuptools needs, and what compiles the kernels."""
    needed: list[str] = build_meta.get_requires_for_build_wheel(config_settings)
    if _wants():
        project = tomllib.loads((HOME / "pyproject.toml").read_text(encoding="utf-8"))
        needed += project["project"]["dependencies"]
    return needed


def prepare_metadata_for_build_editable(*arguments: Any, **named: Any) -> str:
    """setuptools' own: an editable installation goes on compiling, and needs nothing for it now."""
    os.environ["LAYOUTKIT_OBJECTS"] = "none"
    name: str = build_meta.prepare_metadata_for_build_editable(*arguments, **named)
    return name


def build_editable(*arguments: Any, **named: Any) -> str:
    """setuptools' own, likewise."""
    os.environ["LAYOUTKIT_OBJECTS"] = "none"
    name: str = build_meta.build_editable(*arguments, **named)
    return name


class BuildPy(build_py):
    """Copies the modules, and compiles the kernels beside them."""

    def run(self) -> None:
        """Build; an editable installation goes on compiling on its own."""
        super().run()
        if not self.editable_mode:
            folder = Path(self.build_lib, OBJECTS)
            shutil.rmtree(folder, ignore_errors=True)
            make_objects(folder)


class BdistWheel(bdist_wheel):
    """Names the wheel after the machine where it has machine code, and after no Python."""

    def finalize_options(self) -> None:
        """Let setuptools see that there is machine code, though no extension module."""
        if _levels():
            self.distribution.has_ext_modules = lambda: True
        super().finalize_options()

    def get_tag(self) -> tuple[str, str, str]:
        """Python, ABI and platform."""
        _, _, system = super().get_tag()
        return ("py3", "none", "any" if self.root_is_pure else system)


def make_objects(folder: Path) -> None:
    """Compile all kernels of this machine's levels into a folder, and say how many they are."""
    levels = _levels()
    if not levels:
        return
    folder.mkdir(parents=True)
    wanted: dict[str, list[Any]] = {}
    for level in reversed(levels):  # what a lower level has already comes first
        specs = _wanted(json.loads(_run("list", level["name"])))
        wanted[level["name"]] = [s for s in specs if s not in wanted.get(level["besides"], [])]
    tasks = [
        (name, specs[at : at + AT_ONCE])
        for name, specs in wanted.items()
        for at in range(0, len(specs), AT_ONCE)
    ]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        made = [pool.submit(_run, "compile", n, str(folder), given=json.dumps(s)) for n, s in tasks]
        for each in made:
            each.result()
    sizes = [path.stat().st_size for path in folder.iterdir()]
    counts = ", ".join(f"{len(specs)} for {name}" for name, specs in wanted.items())
    print(f"compiled kernels: {counts}; {sum(sizes) / 1e6:.1f} MB")


def _wants() -> bool:
    return os.environ.get("LAYOUTKIT_OBJECTS") != "none"


def _levels() -> list[dict[str, str]]:
    """The levels of this kind of machine, the highest first; none where no kernel is wanted."""
    if not _wants():
        return []
    found: list[dict[str, str]] = json.loads(_run("levels"))
    machine = platform.machine().lower()
    return [level for level in found if level["machine"] == MACHINES.get(machine, machine)]


def _wanted(specs: list[Any]) -> list[Any]:
    parts = os.environ.get("LAYOUTKIT_OBJECTS", "").split(",")
    return [s for s in specs if any(part in "-".join(map(str, (s[0], *s[1]))) for part in parts)]


def _run(*arguments: str, given: str = "") -> str:
    """What `objects.py` prints."""
    path = os.pathsep.join(filter(None, [str(HOME), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("objects.py")), *arguments],
        env={**os.environ, "PYTHONPATH": path},
        input=given,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return done.stdout
