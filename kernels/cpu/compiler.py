"""Compile kernels from Python source to machine code, and load them.

A `KernelSpec` describes a kernel: the family (a module of this folder) and the literals from which
the family's `build` makes a Python function. Numba compiles this function, llvmlite emits the
optimized IR as a native object, and the object is cached on disk. A later process loads the object
with llvmlite alone, because importing Numba takes longer than a first conversion may take.

Numba's own `cache=True` is not used. It shares an index between processes without a lock, uses keys
for closures with which it can return the code of another kernel, raises if the folder cannot
be written, and executes corrupt files, which have no checksum. In this cache:

- one file is one kernel; its name is the hash of everything that determines the code (sources of
  this folder, spec, compiler versions, CPU and its features), so a stale file is never read;
- a file that is incomplete, of another kernel or of another user is a cache miss
  (object_cache.py);
- a folder that other users could change is not used. As with a folder that cannot be read or
  written, each process then compiles the kernels that the wheel does not contain.

All kernels have one signature, `void(params, src, dst, lo, hi)`: `params` is the address of a
read-only block of 64-bit words written by the launcher, `src` and `dst` are the addresses of the
first elements, and [lo, hi) is the range of work units to process. Kernels are serial and
neither lock nor allocate. All but the shortest are called without the GIL.

The first slow compilation of a process prints a notice on a terminal.
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

from ..._utils import fork, system
from ...planning import centering, epilogue, fitting, yuv
from . import object_cache

NOTICE_SECONDS = 0.3  # shorter compilations need no notice

_notified = False


def notify_slow_compile(seconds: float, folder: Path | None) -> None:
    """Print on a terminal, once per process, that a kernel was compiled, and if it was cached."""
    global _notified
    if _notified or seconds <= NOTICE_SECONDS or not _is_terminal():
        return
    _notified = True
    location = (
        "not kept, `layoutkit info` says why"
        if folder is None
        else f"kept in {_display_path(folder)}"
    )
    with suppress(OSError, ValueError):  # the terminal is gone
        text = f"layoutkit: compiled a kernel for this CPU, once ({seconds:.1f} s); {location}"
        print(text, file=sys.stderr, flush=True)


def _is_terminal() -> bool:
    """Return True if stderr is a terminal; without a console, sys.stderr can be any object."""
    try:
        return bool(sys.stderr.isatty())
    except (AttributeError, ValueError):  # None; a closed file
        return False


def _display_path(folder: Path) -> str:
    """Return the path of a folder, with ~ for the user's home."""
    try:
        return f"~/{folder.relative_to(Path.home()).as_posix()}"
    except (ValueError, RuntimeError):  # not in the home folder; no home folder
        return str(folder)


# The return type and arguments of every kernel, for ctypes, which releases the GIL for functions of
# type PROTOTYPE and holds it for type PROTOTYPE_WITH_GIL.
TYPES = (
    None,
    ctypes.c_char_p,
    ctypes.c_void_p,
    ctypes.c_void_p,
    ctypes.c_ssize_t,
    ctypes.c_ssize_t,
)
PROTOTYPE = ctypes.CFUNCTYPE(*TYPES)
PROTOTYPE_WITH_GIL = ctypes.PYFUNCTYPE(*TYPES)
# The external symbols that an object may use: functions of the C library, none of Numba or Python.
ALLOWED_SYMBOLS = frozenset({"memcpy", "memmove", "memset"})
# Numba's settings while a kernel compiles. With the values that users set by environment variables
# for debugging, kernels would not compile, or would be slow.
NUMBA_SETTINGS = {"DISABLE_JIT": 0, "OPT": 3, "LOOP_VECTORIZE": 1, "DEBUGINFO_DEFAULT": 0}

_loaded: dict[KernelSpec, LoadedKernel] = {}


class KernelSpec(NamedTuple):
    """The family of a kernel, and the literals that it is built from."""

    family: str
    literals: tuple[int | str, ...]

    def __str__(self) -> str:
        return "-".join([self.family, *map(str, self.literals)])


class LoadedKernel(NamedTuple):
    """A loaded kernel, called as `kernel.run(params, src, dst, lo, hi)`."""

    spec: KernelSpec
    address: int
    run: Any  # a ctypes function of type PROTOTYPE
    origin: str  # "cached", "shipped" or "compiled"


def load(spec: KernelSpec) -> LoadedKernel:
    """Return the kernel of `spec`: already loaded, from the cache or the wheel, or compiled."""
    kernel = _loaded.get(spec)
    if kernel is None:
        with fork.init_lock:
            kernel = _loaded.get(spec) or _loaded.setdefault(spec, _load(spec))
    return kernel


def loaded() -> list[LoadedKernel]:
    """Return the kernels that this process has loaded."""
    return list(_loaded.values())


def cache_dir() -> Path | None:
    """Return the folder of compiled kernels, or None if the home folder is unknown."""
    chosen = os.environ.get("LAYOUTKIT_CACHE_DIR")
    return Path(chosen) if chosen else system.cache_folder()


def _load(spec: KernelSpec) -> LoadedKernel:
    folder = cache_dir()
    folder = folder if folder is not None and object_cache.is_trusted(folder) else None
    code = None
    origin = "cached"
    # Reading the versions for a key takes 20 ms, a fifth of a first conversion on a new machine.
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
    """Return the file of a kernel in the cache, and its key."""
    key = "\n".join([fingerprint(), repr(spec)])
    return folder / object_cache.file_name(spec.family, key), key


def _compile_or_wait(spec: KernelSpec, folder: Path | None) -> tuple[bytes, str]:
    """Compile a kernel and cache it, or wait for another process; return its code and origin."""
    if folder is None:
        return _compile_and_notify(spec, None), "compiled"
    path, key = _cache_path(spec, folder)
    with object_cache.compile_lock(path):
        code = object_cache.read(path, key)  # another process may have compiled it
        if code is not None:
            return code, "cached"
        code = _compile_and_notify(spec, folder)
        object_cache.write(path, key, code)
    return code, "compiled"


def _compile_and_notify(spec: KernelSpec, folder: Path | None) -> bytes:
    """Compile a kernel, and print a notice if the compilation was slow."""
    start = time.perf_counter()
    code = compile_object(spec)
    notify_slow_compile(time.perf_counter() - start, folder)
    return code


@cache
def fingerprint() -> str:
    """Return everything besides the spec that determines machine code, as text."""
    name, features = target_cpu()
    versions = [package_version("numba"), package_version("llvmlite")]
    return "\n".join([sources(), *versions, sys.platform, name, features])


@cache
def sources() -> str:
    """Return a digest of all compiled sources: this folder, and the planner's modules it uses."""
    digest = hashlib.sha256()
    for module in (centering, epilogue, fitting, yuv):
        digest.update(Path(str(module.__file__)).read_bytes())
    for folder in _source_folders():
        for path in sorted(folder.glob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()


def _source_folders() -> list[Path]:
    """Return the folders of this package's modules: one, unless a program extends `__path__`."""
    return [Path(folder) for folder in importlib.import_module(__package__).__path__]


def package_version(name: str) -> str:
    """Return the version of an installed package, or "unknown" if it has no metadata."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(name)
    except PackageNotFoundError:
        return "unknown"


# ---- LLVM --------------------------------------------------------------------------------


@cache
def _llvm() -> Any:
    """Return llvmlite's binding, initialized for this machine."""
    with fork.init_lock:
        import llvmlite.binding as llvm

        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        llvm.initialize_native_asmparser()  # bfloat instructions are inline assembly
    return llvm


@cache
def target_cpu() -> tuple[str, str]:
    """Return the CPU's LLVM name and features; Numba's environment variables override both."""
    llvm = _llvm()
    name = os.environ.get("NUMBA_CPU_NAME") or llvm.get_host_cpu_name()
    features = os.environ.get("NUMBA_CPU_FEATURES")
    if features is None:
        features = llvm.get_host_cpu_features().flatten()
    return name, features


@cache
def cpu_features() -> frozenset[str]:
    """Return the names of the instruction sets that kernels may use, such as "avx512f"."""
    return frozenset(f[1:] for f in target_cpu()[1].split(",") if f.startswith("+"))


def _target_machine() -> Any:
    llvm = _llvm()
    name, features = target_cpu()
    target = llvm.Target.from_default_triple()
    # Large by default, in which each use of a constant takes five instructions on AArch64. The
    # memory manager that llvmlite uses there allocates code and constants of an object together.
    model = "small" if re.match("aarch64.*linux", target.triple) else "jitdefault"
    return target.create_target_machine(
        cpu=name, features=features, opt=3, reloc="default", codemodel=model, jit=True
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


def link_bound(symbol: str, code: int, block: int) -> int:
    """Return the address of a C function of one pointer that calls `code(pointer, block, 0, 0, 0)`.

    The function exists until the process ends.
    """
    ir = f"""
        define i64 @{symbol}(i64 %pointer) {{
            %code = inttoptr i64 {code} to i64 (i64, i64, i64, i64, i64)*
            %result = tail call i64 %code(i64 %pointer, i64 {block}, i64 0, i64 0, i64 0)
            ret i64 %result
        }}
    """
    return _link(_target_machine().emit_object(_llvm().parse_assembly(ir)), symbol)


def symbol_name(spec: KernelSpec) -> str:
    """Return the symbol of a kernel in its object."""
    return "layoutkit_" + str(spec).replace("-", "_")


def compile_ir(spec: KernelSpec) -> str:
    """Return the optimized LLVM IR of a kernel, whose entry is named `symbol_name(spec)`."""
    from numba import cfunc, types

    from .pipeline import IRCompiler

    with _numba_settings():
        family = importlib.import_module(f".{spec.family}", __package__)
        function: Callable[..., None] = family.build(*spec.literals)
        result = types.intp if getattr(family, "RETURNS_NUMBER", False) else types.void
        signature = result(types.uintp, types.uintp, types.uintp, types.intp, types.intp)
        # Inlined into its C wrapper, the function needs no call of Python to report exceptions.
        options = {"error_model": "numpy", "boundscheck": False, "forceinline": True}
        compiled = cfunc(signature, pipeline_class=IRCompiler, **options)(function)
    text: str = compiled.inspect_llvm()
    return _renumber_tags(text.replace(compiled.native_name, symbol_name(spec)))


def _renumber_tags(ir: str) -> str:
    """Renumber Numba's counters in IR, so that the IR does not depend on earlier compilations."""
    tags = dict.fromkeys(re.findall(r"B\d+(v\d+)B", ir))
    new_tags = {tag: f"v{number}" for number, tag in enumerate(tags)}

    def renumber(match: re.Match[str]) -> str:
        new_tag = new_tags[match[1]]
        return f"B{len(new_tag)}{new_tag}B"

    return re.sub(r"B\d+(v\d+)B", renumber, ir)


@contextmanager
def _numba_settings() -> Iterator[None]:
    """Use NUMBA_SETTINGS while a kernel compiles, whatever settings the user has for other code."""
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
    """Compile a kernel to a native object that depends on the C library only."""
    module = _llvm().parse_assembly(compile_ir(spec))
    _check_symbols(module, spec)
    code: bytes = _target_machine().emit_object(module)
    return code


def _check_symbols(module: Any, spec: KernelSpec) -> None:
    """Raise RuntimeError if IR calls Numba or Python, which a process may not have loaded."""
    for function in module.functions:
        name = function.name
        is_external = function.is_declaration and not name.startswith("llvm.")
        if is_external and name not in ALLOWED_SYMBOLS:
            raise RuntimeError(f"kernel {spec} calls {name}, which another process cannot link")
