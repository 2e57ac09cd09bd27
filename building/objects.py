"""Run by the build in processes of their own: which kernels a wheel brings, and their objects.

    objects.py levels                     the levels of shipped.py
    objects.py list LEVEL                 the kernels that a CPU of a level wants
    objects.py compile LEVEL FOLDER       those on stdin, into files of a folder

All answers and stdin are JSON. Nothing compiled is run or loaded here, so that a machine can
compile for better CPUs than its own.
"""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any


def main(command: str, *arguments: str) -> None:
    """Do what is asked, and print the answer as JSON."""
    commands: dict[str, Callable[..., Any]] = {
        "levels": _levels,
        "list": _list,
        "compile": _compile,
    }
    json.dump(commands[command](*arguments), sys.stdout)


def _levels() -> list[dict[str, str]]:
    from layoutkit.kernels.cpu.object_cache import LEVELS

    return [level._asdict() for level in LEVELS]


def _become(name: str) -> Any:
    """Let Numba and the planner take this process for one on a CPU of a level."""
    from layoutkit.kernels.cpu.object_cache import LEVELS

    (level,) = (level for level in LEVELS if level.name == name)
    os.environ["NUMBA_CPU_NAME"], os.environ["NUMBA_CPU_FEATURES"] = level.cpu, level.flags
    return level


def _list(name: str) -> list[tuple[str, tuple[int | str, ...]]]:
    _become(name)
    from layoutkit.config import kernels

    return [(spec.family, spec.literals) for spec in kernels()]


def _compile(name: str, folder: str) -> int:
    level = _become(name)
    from layoutkit.kernels.cpu import compiler, object_cache

    specs = [compiler.KernelSpec(family, tuple(rest)) for family, rest in json.load(sys.stdin)]
    for spec in specs:
        key = object_cache.key_of(level, repr(spec), compiler.sources())
        path = Path(folder, object_cache.file_name(spec.family, key))
        path.write_bytes(object_cache.packed(key, compiler.compile_object(spec)))
    return len(specs)


if __name__ == "__main__":
    main(*sys.argv[1:])
