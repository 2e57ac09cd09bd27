"""Compile with Numba to optimized LLVM IR, and no further.

When Numba compiles a function, it also generates machine code, and code generation rewrites the IR
of the function: addresses become chains of `getelementptr`, for example. Callers are linked with
the rewritten IR and optimized again. The optimizer is not made for such IR: for CPUs by Intel,
LLVM 20 folded an address to `getelementptr i8, ptr null, i64 %address`, took the access for one of
a null pointer and dropped it.

Functions compiled by `IRCompiler` have no machine code, so callers are linked with their IR as the
optimizer left it. Compilation is also faster. The classes override private names of Numba; a test
reads the IR of kernels for signs of code generation.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from numba.core.codegen import JITCodeLibrary, JITCPUCodegen
from numba.core.compiler import Compiler


class IRLibrary(JITCodeLibrary):  # type: ignore[misc]
    """The functions of a module, optimized; none has an address."""

    def _finalize_specific(self) -> None:
        """Generate no machine code."""

    def get_pointer_to_function(self, name: str) -> int:
        """Return 0: no function has machine code."""
        self._ensure_finalized()
        return 0


class IRCodegen(JITCPUCodegen):  # type: ignore[misc]
    """Numba's settings of LLVM for this CPU, without an engine that modules are added to."""

    _library_class = IRLibrary

    def _add_module(self, module: Any) -> None:
        """Do not add a module to the engine, which would generate its machine code."""

    def set_env(self, env_name: str, env: Any) -> None:
        """Do not write the address of an environment into machine code: there is none."""


@cache
def _codegen() -> IRCodegen:
    return IRCodegen("layoutkit.kernels")


class IRCompiler(Compiler):  # type: ignore[misc]
    """Numba's compiler, for use as `pipeline_class`, whose results are IR only."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.state.targetctx._internal_codegen = _codegen()
