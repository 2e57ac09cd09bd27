"""From a kernel's Python source to machine code that any later process can load.

A kernel is described by a `KernelSpec`: the family (a module of this folder) and the
literal parameters that the family's `build` turns into a Python function. Numba compiles
that function, llvmlite turns the optimised IR into a native object, and the object is kept
on disk. A later process loads the object through llvmlite alone: it never imports Numba,
whose import and registry cost more than a first conversion may take.

Numba's own `cache=True` is not used. It shares an index between processes without a lock,
keys closures in a way that can return another kernel's code, raises where the folder cannot
be written, and executes corrupt files (they carry no checksum). Here:

- one file is one kernel; its name is the hash of everything that shaped the code (sources of
  this folder, spec, compiler versions, CPU and its features), so nothing stale is ever read;
- a file that is not whole, not this kernel's or not this user's is a miss (disk.py);
- a folder that others could change is not used (trust.py); like one that cannot be read or
  written, that costs a compilation in each process of what the package lacks (shipped.py).

All kernels have one signature, `void(params, src, dst, lo, hi)`: `params` is the address of
a read-only block of 64-bit words that the planner filled, `src` and `dst` are addresses of
the first element, and [lo, hi) is the share of the work units to do. They are serial, take
no lock, allocate nothing, and are called without the GIL, but for the shortest.

Who waits at a terminal for the first compilation is told what for, once a process.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib
import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from ..._utils import fork
from ...planning import epilogue
from . import object_cache

NOTICE_SECONDS = 0.3  # below it nobody has noticed anything

_notified = False


def notify_slow_compile(seconds: float, folder: Path | None) -> None:
    """Say on a terminal that a kernel was compiled, and whether that was the last time."""
    global _notified
    if _notified or seconds <= NOTICE_SECONDS or not _is_terminal():
        return
    _notified = True
    kept = (
        "not kept, `layoutkit info` says why"
        if folder is None
        else f"kept in {_display_path(folder)}"
    )
    with suppress(OSError, ValueError):  # a terminal that is gone; nobody waits at it
        text = f"layoutkit: compiled a kernel for this CPU, once ({seconds:.1f} s); {kept}"
        print(text, file=sys.stderr, flush=True)


def _is_terminal() -> bool:
    """Whether stderr is one; programs without a console have none, or put there what they like."""
    try:
        return bool(sys.stderr.isatty())
    except (AttributeError, ValueError):  # None; a closed file
        return False


def _display_path(folder: Path) -> str:
    """A folder as a shell would show it."""
    try:
        return f"~/{folder.relative_to(Path.home()).as_posix()}"
    except (ValueError, RuntimeError):  # elsewhere; no home
        return str(folder)


# The return type and arguments of every kernel, for ctypes. It drops the GIL for functions of the
# first kind, and keeps it for those of the second.
TYPES = (
    None,
    ctypes.c_char_p,
    ctypes.c_void_p,
    ctypes.c_void_p,
    ctypes.c_ssize_t,
    ctypes.c_ssize_t,
)
PROTOTYPE = ctypes.CFUNCTYPE(*TYPES)
HOLDING = ctypes.PYFUNCTYPE(*TYPES)
# What a finished object may ask of the process it is loaded into: nothing of Numba or Python.
ALLOWED_SYMBOLS = frozenset({"memcpy", "memmove", "memset"})
# Environment variables turn these for debugging; kernels do not compile, or stay slow, under them.
NUMBA_SETTINGS = {"DISABLE_JIT": 0, "OPT": 3, "LOOP_VECTORIZE": 1, "DEBUGINFO_DEFAULT": 0}

_loaded: dict[KernelSpec, LoadedKernel] = {}


class KernelSpec(NamedTuple):
    """A family of kernels and the literals that make one kernel of it."""

    family: str
    literals: tuple[int | str, ...]

    def __str__(self) -> str:
        return "-".join([self.family, *map(str, self.literals)])


class LoadedKernel(NamedTuple):
    """A loaded kernel: call it as `kernel.run(params, src, dst, lo, hi)`."""

    spec: KernelSpec
    address: int
    run: Any  # a ctypes function of type PROTOTYPE
    origin: str  # "cached", "shipped" or "compiled"


def load(spec: KernelSpec) -> LoadedKernel:
    """Return the kernel of `spec`: loaded, from the disk cache or the package, or compiled now."""
    kernel = _loaded.get(spec)
    if kernel is None:
        with fork.making:
            kernel = _loaded.get(spec) or _loaded.setdefault(spec, _load(spec))
    return kernel


def loaded() -> list[LoadedKernel]:
    """The kernels that this process has loaded so far."""
    return list(_loaded.values())


def cache_dir() -> Path | None:
    """The folder that holds compiled kernels, or None where no home folder is known."""
    chosen = os.environ.get("LAYOUTKIT_CACHE_DIR")
    if chosen:
        return Path(chosen)
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA")
        return Path(base, "layoutkit", "Cache") if base else None
    if os.environ.get("XDG_CACHE_HOME"):
        return Path(os.environ["XDG_CACHE_HOME"], "layoutkit")
    try:
        return Path.home() / ".cache" / "layoutkit"
    except RuntimeError:  # a user without an entry in the system's list
        return None


def _load(spec: KernelSpec) -> LoadedKernel:
    folder = cache_dir()
    folder = folder if folder is not None and object_cache.is_trusted(folder) else None
    code = None
    origin = "cached"
    # The versions in a key take 20 ms, a fifth of a first conversion on a new machine.
    if folder is not None and object_cache.has_family(folder, spec.family):
        code = object_cache.read(*_cache_path(spec, folder))
    if code is None:
        code = object_cache.find(spec.family, repr(spec), sources(), cpu_features())
        origin = "shipped"
    if code is None:
        code, origin = _compile_or_wait(spec, folder)
    address = _link(code, symbol_name(spec))
    return LoadedKernel(spec, address, PROTOTYPE(address), origin)


def _cache_path(spec: KernelSpec, folder: Path) -> tuple[Path, str]:
    """The file of a kernel in the cache, and its key."""
    key = "\n".join([fingerprint(), repr(spec)])
    return folder / object_cache.file_name(spec.family, key), key


def _compile_or_wait(spec: KernelSpec, folder: Path | None) -> tuple[bytes, str]:
    """The code of a kernel and where it came from, kept in a folder for later processes."""
    if folder is None:
        return _compile_and_notify(spec, None), "compiled"
    path, key = _cache_path(spec, folder)
    with object_cache.compile_lock(path):
        if (
            code := object_cache.read(path, key)
        ) is not None:  # another process may have had its turn
            return code, "cached"
        code = _compile_and_notify(spec, folder)
        object_cache.write(path, key, code)
    return code, "compiled"


def _compile_and_notify(spec: KernelSpec, folder: Path | None) -> bytes:
    """Compile a kernel, and say so if it took long."""
    began = time.perf_counter()
    code = compile_object(spec)
    notify_slow_compile(time.perf_counter() - began, folder)
    return code


@cache
def fingerprint() -> str:
    """Everything besides the spec that shapes machine code, as text."""
    name, features = target_cpu()
    versions = [package_version("numba"), package_version("llvmlite")]
    return "\n".join([sources(), *versions, sys.platform, name, features])


@cache
def sources() -> str:
    """A digest of all that is compiled: this folder, and the planner's table of dtypes."""
    digest = hashlib.sha256(Path(epilogue.__file__).read_bytes())
    for folder in _source_folders():
        for path in sorted(folder.glob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()


def _source_folders() -> list[Path]:
    """Where the modules of this package are, which is one folder unless somebody adds to it."""
    return [Path(folder) for folder in importlib.import_module(__package__).__path__]


def package_version(name: str) -> str:
    """The version of an installed package, "unknown" where it came without metadata."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(name)
    except PackageNotFoundError:
        return "unknown"


# ---- LLVM --------------------------------------------------------------------------------


@cache
def _llvm() -> Any:
    """llvmlite's binding, ready to make code for this machine."""
    with fork.making:
        import llvmlite.binding as llvm

        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        llvm.initialize_native_asmparser()  # llvmlite has no bfloat
    return llvm


@cache
def target_cpu() -> tuple[str, str]:
    """The CPU's LLVM name and feature string; Numba's variables override both, as in Numba."""
    llvm = _llvm()
    name = os.environ.get("NUMBA_CPU_NAME") or llvm.get_host_cpu_name()
    features = os.environ.get("NUMBA_CPU_FEATURES")
    if features is None:
        features = llvm.get_host_cpu_features().flatten()
    return name, features


@cache
def cpu_features() -> frozenset[str]:
    """Names of the instruction sets that kernels may use, such as "avx512f"."""
    return frozenset(f[1:] for f in target_cpu()[1].split(",") if f.startswith("+"))


def _target_machine() -> Any:
    llvm = _llvm()
    name, features = target_cpu()
    target = llvm.Target.from_default_triple()
    return target.create_target_machine(
        cpu=name, features=features, opt=3, reloc="default", codemodel="jitdefault", jit=True
    )


@cache
def _engine() -> Any:
    llvm = _llvm()
    return llvm.create_mcjit_compiler(llvm.parse_assembly(""), _target_machine())


def _link(code: bytes, symbol: str) -> int:
    engine = _engine()
    engine.add_object_file(_llvm().ObjectFileRef.from_data(code))
    engine.finalize_object()
    address: int = engine.get_function_address(symbol)
    return address


def symbol_name(spec: KernelSpec) -> str:
    """The name that the kernel has inside its object."""
    return "layoutkit_" + str(spec).replace("-", "_")


def compile_ir(spec: KernelSpec) -> str:
    """The optimised LLVM IR of a kernel, its entry named `symbol_name(spec)`."""
    from numba import cfunc, types

    with _numba_settings():
        family = importlib.import_module(f".{spec.family}", __package__)
        function: Callable[..., None] = family.build(*spec.literals)
        signature = types.void(types.uintp, types.uintp, types.uintp, types.intp, types.intp)
        # Inlined into its C wrapper, which would else call into Python to report an exception.
        options = {"error_model": "numpy", "boundscheck": False, "forceinline": True}
        compiled = cfunc(signature, **options)(function)
    text: str = compiled.inspect_llvm()
    return _renumber_tags(text.replace(compiled.native_name, symbol_name(spec)))


def _renumber_tags(ir: str) -> str:
    """IR in which what Numba compiled before does not count, so that a build can be repeated."""
    tags = dict.fromkeys(re.findall(r"B\d+(v\d+)B", ir))
    new = {old: f"v{number}" for number, old in enumerate(tags)}
    return re.sub(r"B\d+(v\d+)B", lambda found: f"B{len(new[found[1]])}{new[found[1]]}B", ir)


@contextmanager
def _numba_settings() -> Iterator[None]:
    """Numba's own settings for as long as a kernel compiles, whatever the user debugs elsewhere."""
    from numba import config

    before = {name: getattr(config, name) for name in NUMBA_SETTINGS}
    for name, value in NUMBA_SETTINGS.items():
        setattr(config, name, type(before[name])(value))
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(config, name, value)


def compile_object(spec: KernelSpec) -> bytes:
    """Compile a kernel to a native object that needs nothing but the C library."""
    module = _llvm().parse_assembly(compile_ir(spec))
    _check_symbols(module, spec)
    code: bytes = _target_machine().emit_object(module)
    return code


def _check_symbols(module: Any, spec: KernelSpec) -> None:
    """Refuse IR that would call into Numba or Python: another process could not load it."""
    for function in module.functions:
        name = function.name
        outside = function.is_declaration and not name.startswith("llvm.")
        if outside and name not in ALLOWED_SYMBOLS:
            raise RuntimeError(f"kernel {spec} refers to {name}; it would not load alone")
