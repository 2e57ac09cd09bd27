"""A script that the build runs in separate processes to list and compile kernels for a wheel.

    objects.py levels                     print the levels of object_cache.py
    objects.py list LEVEL [FEATURE]       print the kernels for a CPU of a level, that has a feature
    objects.py compilers                  print the versions of the tools that compile kernels
    objects.py compile LEVEL FOLDER       compile the kernels on stdin into files of a folder

Output and stdin are JSON. Compiled code is neither run nor loaded, so a machine can compile for
newer CPUs than its own, and for other architectures.
"""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any


def main(command: str, *arguments: str) -> None:
    """Run a command and print its result as JSON."""
    commands: dict[str, Callable[..., Any]] = {
        "levels": _levels,
        "list": _list,
        "compilers": _compilers,
        "compile": _compile,
    }
    json.dump(commands[command](*arguments), sys.stdout)


def _levels() -> list[dict[str, str]]:
    from layoutkit.kernels.cpu.object_cache import LEVELS

    return [level._asdict() for level in LEVELS]


def _set_cpu_of_level(name: str) -> Any:
    """Make Numba and the planner treat this process as running on a CPU of a level."""
    from layoutkit.kernels.cpu.object_cache import LEVELS

    (level,) = (level for level in LEVELS if level.name == name)
    os.environ["NUMBA_CPU_NAME"] = level.cpu
    os.environ["NUMBA_CPU_FEATURES"] = level.flags
    if os.environ.get("LAYOUTKIT_MACHINE"):
        set_architecture(level.machine)
    return level


def set_architecture(machine: str) -> None:
    """Make Numba and layoutkit compile for an architecture other than this machine's.

    Both ask llvmlite for the triple of this process, which names architecture and system.
    """
    import llvmlite.binding as llvm

    if sys.platform != "linux":
        raise SystemExit(f"kernels for {machine} are compiled on Linux, for Linux")
    triple = f"{machine}-unknown-linux-gnu"
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    llvm.get_process_triple = lambda: triple
    llvm.Target.from_default_triple = classmethod(lambda target: target.from_triple(triple))


def _list(name: str, feature: str = "") -> list[tuple[str, tuple[int | str, ...]]]:
    level = _set_cpu_of_level(name)
    if feature:
        os.environ["NUMBA_CPU_FEATURES"] = f"{level.flags},+{feature}"
    from layoutkit.config import kernels

    return [(spec.family, spec.literals) for spec in kernels()]


def _compilers() -> dict[str, str]:
    import llvmlite
    import numba
    from llvmlite.binding import llvm_version_info

    llvm = ".".join(map(str, llvm_version_info))
    return {"numba": numba.__version__, "llvmlite": llvmlite.__version__, "LLVM": llvm}


def _compile(name: str, folder: str) -> int:
    level = _set_cpu_of_level(name)
    from layoutkit.kernels.cpu import compiler, object_cache

    specs = [compiler.KernelSpec(family, tuple(rest)) for family, rest in json.load(sys.stdin)]
    for spec in specs:
        key = object_cache.object_key(level, repr(spec), compiler.sources())
        path = Path(folder, object_cache.file_name(spec.family, key))
        path.write_bytes(object_cache.pack(key, compiler.compile_object(spec)))
    return len(specs)


if __name__ == "__main__":
    main(*sys.argv[1:])
