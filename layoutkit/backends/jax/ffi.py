"""Conversions of traced arrays as foreign functions that XLA calls on the CPU.

Such a conversion is the JAX primitive `layoutkit_convert`. On the CPU it is lowered to a call of
layoutkit's kernel; elsewhere, for export and across several devices, to the operations of
`symbolic.py`. XLA calls the kernel with the addresses of both arrays, without the interpreter
(`kernels/cpu/xla.py`).

Each plan is a function of its own, whose name is a digest of the kernel and its parameters. No
address of this process is in the program, so JAX can keep compiled programs on disk: another
process lowers the same program first, which registers functions of the same names, and then
reads the compiled one.
"""

from __future__ import annotations

import ctypes
import hashlib
import re
from collections.abc import Sequence
from dataclasses import replace
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..._utils import fork, system
from ...converter import Converter, plan_spec
from ...kernels.cpu import xla_params as words
from ...kernels.cpu.params import LINE
from ...memory import Array, data_pointer
from ...spec import CPU, ArraySpec, as_dtype
from ...threads import pool
from ...threads.limits import get_num_threads
from ..symbolic import ArrayNamespace, convert_symbolic

if TYPE_CHECKING:
    from ...cpu.program import Program
    from ...options import ConvertOptions
    from ...planning.plan import Plan
    from ...threads.pool import Job

# Versions of the interface in which the words that the kernel "xla" reads are at the same places.
KNOWN_VERSIONS = {(0, minor) for minor in range(4)}
# XLA fuses smaller conversions with other operations, which takes less time than a call.
FEWEST_BYTES = 512 << 10  # read and written
# XLA's numbers of the dtypes that kernels convert (XLA_FFI_DataType). XLA packs several items of
# other dtypes, such as int4, into a byte; and the derivative of a cast of complex numbers to the
# real part is not linear.
TYPE_NUMBERS = {
    "bool": 1, "int8": 2, "int16": 3, "int32": 4, "int64": 5, "uint8": 6, "uint16": 7, "uint32": 8,
    "uint64": 9, "float16": 10, "float32": 11, "float64": 12, "bfloat16": 16, "float8_e5m2": 19,
    "float8_e4m3fn": 20, "float8_e4m3b11fnuz": 23, "float8_e5m2fnuz": 24, "float8_e4m3fnuz": 25,
    "float8_e4m3": 28, "float8_e3m4": 29, "float8_e8m0fnu": 33,
}  # fmt: skip
HUGE_BYTES = 4 << 20  # outputs for which huge pages are requested
# XLA fuses these with other operations, and is not slower.
FUSED = {"view", "copy", "cast"}
FAILED_PRECONDITION = 9  # XLA_FFI_Error_Code

# The state of the thread pool, 0 in a forked child, which has no workers.
board = np.zeros(1, np.int64)


def after_fork() -> None:
    """Forget the workers of the parent process."""
    board[0] = 0


system.register_at_fork(after_in_child=after_fork)


class ForeignFunction(NamedTuple):
    """A function registered with XLA, and all memory that its block refers to."""

    name: str
    address: int
    keep: tuple[Any, ...]


_registered: dict[str, ForeignFunction] = {}


def supports(options: ConvertOptions, plan: Plan, x: Any) -> bool:
    """Return True if a foreign function can convert a traced array, and XLA is slower."""
    if options.formula is not None and options.formula.is_traced:
        return False
    if not plan.is_one_pass or plan.kernel in FUSED or plan.bytes_moved < FEWEST_BYTES:
        return False
    if not {plan.source.dtype.name, plan.target.dtype.name} <= TYPE_NUMBERS.keys():
        return False
    return version() is not None and not any(_sharded_axes(x))


def _sharded_axes(x: Any) -> tuple[Any, ...]:
    """Return the mesh axes in the type of x, which has them for explicit shardings."""
    sharding = getattr(x.aval, "sharding", None)
    return tuple(getattr(sharding, "spec", ()))


@cache
def version() -> tuple[int, int] | None:
    """Return the version of XLA's foreign functions, or None if they cannot be used."""
    try:
        jax = import_module("jax")
        header = Path(jax.ffi.include_dir(), "xla/ffi/api/c_api.h").read_text(encoding="utf-8")
    except (AttributeError, OSError):  # another version of JAX
        return None
    parts = "MAJOR", "MINOR"
    matches = [re.search(rf"#define XLA_FFI_API_{part} (\d+)", header) for part in parts]
    major, minor = (-1 if match is None else int(match[1]) for match in matches)
    return (major, minor) if (major, minor) in KNOWN_VERSIONS else None


# ---- the primitive -----------------------------------------------------------------------


class KernelPrimitive:
    """The primitive `layoutkit_convert`, and its rules for JAX's transformations."""

    def __init__(self, namespace: ArrayNamespace) -> None:
        from jax.extend.core import Primitive
        from jax.interpreters import ad, batching, mlir

        self._namespace = namespace
        self._jax: Any = import_module("jax")
        self._zero = ad.Zero
        primitive = Primitive("layoutkit_convert")
        self._bind = primitive.bind
        primitive.def_impl(self._jax.jit(primitive.bind, static_argnames="converter"))
        primitive.def_abstract_eval(self.infer_type)
        self._lower_operations = mlir.lower_fun(self._operations, multiple_results=False)
        mlir.register_lowering(primitive, self._lower_operations)
        mlir.register_lowering(primitive, self._lower_on_cpu, platform="cpu")
        batching.primitive_batchers[primitive] = self._batch
        ad.primitive_jvps[primitive] = self._differentiate
        ad.primitive_transposes[primitive] = self._transpose

    def __call__(self, converter: Converter, x: Any) -> Any:
        return self._bind(x, converter=converter)

    def _operations(self, x: Any, *, converter: Converter) -> Any:
        return convert_symbolic(converter.options, x, self._namespace)

    def infer_type(self, x: Any, *, converter: Converter) -> Any:
        """Return the abstract value of the result; JAX calls it while it traces."""
        move, _, dtype = converter.options.infer_result(x.shape, as_dtype(x.dtype))
        return x.update(
            shape=move.target_shape,
            dtype=dtype,
            weak_type=False,
            sharding=x.sharding.update(spec=[None] * len(move.target_shape)),  # not along any axis
        )

    def _lower_on_cpu(self, ctx: Any, x: Any, *, converter: Converter) -> Any:
        """Lower to a call of the kernel if the program stays in this process, on one device."""
        context = ctx.module_context
        if context.lowering_parameters.for_export or not _is_local(context.axis_context):
            return self._lower_operations(ctx, x, converter=converter)
        plan = plan_spec(converter.options, _spec(converter, ctx.avals_in[0]))
        return self._jax.ffi.ffi_lowering(register(converter, plan).name)(ctx, x)

    def _batch(self, xs: tuple[Any], axes: tuple[int], *, converter: Converter) -> tuple[Any, int]:
        """Return the conversion of an array with one more axis, which becomes the first."""
        x = self._namespace.xp.moveaxis(xs[0], axes[0], 0)
        options = converter.options
        pattern = options.pattern.expand_ellipsis(x.ndim - 1).with_outer_axis()
        return self(Converter.from_options(replace(options, pattern=pattern)), x), 0

    def _differentiate(
        self, xs: tuple[Any], tangents: tuple[Any], *, converter: Converter
    ) -> tuple[Any, Any]:
        """Return the conversion and its derivative, which is a conversion unless there is `clip`.

        Integers have no derivative.
        """
        result = self(converter, xs[0])
        (tangent,) = tangents
        xp = self._namespace.xp
        if type(tangent) is self._zero or not xp.issubdtype(result.dtype, xp.inexact):
            return result, self._zero(self._jax.core.get_aval(result).to_tangent_aval())
        options = converter.options
        if options.formula is not None and options.formula.clip is not None:
            operations = partial(self._operations, converter=converter)
            return result, self._jax.jvp(operations, xs, tangents)[1]
        if options.formula is not None:
            options = replace(options, formula=options.formula.linear())
        return result, self(Converter.from_options(options), tangent)

    def _transpose(self, cotangent: Any, x: Any, *, converter: Converter) -> tuple[Any]:
        """Return the gradient of the argument of a linear conversion."""
        if type(cotangent) is self._zero:
            return (self._zero(x.aval),)
        return (converter.backward(cotangent, like=_spec(converter, x.aval)),)


def _spec(converter: Converter, aval: Any) -> ArraySpec:
    return ArraySpec.of(converter.options.pattern.left, aval.shape, as_dtype(aval.dtype), CPU)


def _is_local(axis_context: Any) -> bool:
    """Return True if a program runs on one device, or its shapes are local to one device."""
    mesh = getattr(axis_context, "mesh", None)
    if mesh is None:
        return bool(getattr(axis_context, "num_devices", 0) == 1)
    return mesh.size == 1 or set(axis_context.manual_axes) == set(mesh.axis_names)


# ---- functions of XLA --------------------------------------------------------------------


def register(converter: Converter, plan: Plan) -> ForeignFunction:
    """Return the function of a plan, registered with XLA once."""
    with fork.init_lock:
        from ...cpu.program import Program
        from ...kernels.cpu.compiler import KernelSpec, fingerprint, link_bound, load

        threads = converter.options.threads or get_num_threads()
        program = Program(plan, threads)
        jobs = [program.prepare(alignment) for alignment in (LINE, words.MINIMUM_ALIGNMENT)]
        content: list[Any] = [fingerprint(), version(), program.offsets, threads]
        content += [(spec.dtype.name, spec.size) for spec in (plan.source, plan.target)]
        content += [(job.kernel.spec, job.params, job.units) for job in jobs]
        name = f"layoutkit_{hashlib.sha256(repr(content).encode()).hexdigest()[:32]}"
        if name in _registered:
            return _registered[name]
        block = _make_block(program, jobs, threads)
        error = _make_error(plan)
        block[words.ERROR] = data_pointer(error[0])
        address = link_bound(name, load(KernelSpec("xla", ())).address, data_pointer(block))
        jax = import_module("jax")
        capsule = jax.ffi.pycapsule(ctypes.c_void_p(address))
        jax.ffi.register_ffi_target(name, capsule, platform="cpu")
        _registered[name] = ForeignFunction(name, address, (program, jobs, block, error))
        return _registered[name]


def _make_block(program: Program, jobs: Sequence[Job], threads: int) -> Array:
    """Return the block of the kernel "xla"; it refers to the words of both jobs, which follow."""
    source = program.plan.source
    target = program.plan.target
    job_words = np.frombuffer(b"".join(job.words for job in jobs), np.int64)
    block = np.concatenate([np.zeros(words.WORDS, np.int64), job_words])
    major, minor = version() or (0, 0)
    block[words.VERSION] = major | minor << 32
    if jobs[0].run_serial is None and threads > 1:
        block[words.RUN], board[0] = pool.pool.entry(threads)
    block[words.BOARD] = data_pointer(board)
    block[words.THREADS] = threads
    block[words.JOB] = data_pointer(block[words.WORDS :])
    block[words.JOB_UNALIGNED] = data_pointer(block[words.WORDS + len(job_words) // 2 :])
    block[[words.SRC_OFFSET, words.DST_OFFSET]] = program.offsets
    block[words.NBYTES] = target.nbytes
    block[[words.SRC_TYPE, words.SRC_COUNT]] = TYPE_NUMBERS[source.dtype.name], source.size
    block[[words.DST_TYPE, words.DST_COUNT]] = TYPE_NUMBERS[target.dtype.name], target.size
    if target.nbytes >= HUGE_BYTES:
        block[[words.MADVISE, words.ADVICE]] = system.huge_page_advice()
    return block


def _make_error(plan: Plan) -> tuple[Array, Array]:
    """Return the struct XLA_FFI_Error_Create_Args for unplanned arrays, and the text."""
    source, target = (f"{spec.size} items of {spec.dtype}" for spec in (plan.source, plan.target))
    message = np.frombuffer(
        f"this conversion of layoutkit is planned for {source} to {target}, but XLA passed other "
        "arrays, and nothing was written; trace and compile the function again in this "
        "process\0".encode(),
        np.uint8,
    )
    return np.array([28, 0, data_pointer(message), FAILED_PRECONDITION], np.int64), message
