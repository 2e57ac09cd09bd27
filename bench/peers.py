"""Conversions of the benchmark rows with other libraries, each in the fastest way that it offers.

Each library writes into an existing output (`into`), as layoutkit does; `fresh` does the conversion
as users usually write it, with a new output for each call. Both return None for a row that the
library does not support. `available` omits libraries that are not installed, and HPTT unless the
environment names it, and sets the libraries' number of threads to layoutkit's.

`--others` adds compilers and training pipelines. XLA under `jax.jit` and `torch.compile` (inductor)
compile a program for each row, which takes seconds. timm and albumentations support one row, images
for a model, and are called as in their documentation. All but `torch.compile` return new arrays.

HPTT, the High-Performance Tensor Transposition library, is used through its C interface. It has no
Python package: build `libhptt.so` from github.com/springer13/hptt, and set the environment variable
`LAYOUTKIT_HPTT` to its path. Its C functions transpose float32 and float64; every call plans by an
estimate, because the interface has no other way.

NVIDIA DALI's crop_mirror_normalize is used on the CPU; it does not need a GPU.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from ctypes import CDLL, POINTER, c_double, c_float, c_int, c_void_p
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

import layoutkit

from ..errors import ArgumentError
from ..spec import as_dtype
from .host import Array, Call
from .rows import MEAN, SCALE, STD, Row

if TYPE_CHECKING:
    from .collating import CollateCase


HPTT_VARIABLE = "LAYOUTKIT_HPTT"
_FUNCTIONS = {"float32": ("sTensorTranspose", c_float), "float64": ("dTensorTranspose", c_double)}
_ROW_MAJOR = 1  # order of sizes and axes, as in NumPy


def load_hptt(threads: int) -> Hptt | None:
    """Return HPTT if the environment names its library, else None.

    Raises
    ------
    ArgumentError
        The file is not a library with HPTT's functions.
    """
    path = os.environ.get(HPTT_VARIABLE)
    return Hptt(path, threads) if path else None


class Hptt:
    """The HPTT peer: transposition of one float32 or float64 array."""

    name = "HPTT"
    spin_seconds = 0.01  # its OpenMP threads spin like torch's

    def __init__(self, path: str, threads: int) -> None:
        library = _load_library(path)
        self.version = Path(path).name  # the library has no version function
        self._threads = threads
        self._functions = {
            dtype: _declare_function(library, path, name, scalar)
            for dtype, (name, scalar) in _FUNCTIONS.items()
        }

    def into(self, row: Row, sources: Sequence[Array], out: Array) -> Call | None:
        """Return a call that transposes into `out`, or None for an unsupported row."""
        function = self._functions.get(row.dtype)
        if row.kind not in ("move", "call") or row.dtype != row.to_dtype or function is None:
            return None
        return partial(self._transpose, function, row.order(row.sources[0]), sources[0], out)

    def fresh(self, row: Row, sources: Sequence[Array]) -> Call | None:
        """Return a call that transposes into a new array, or None for an unsupported row."""
        function = self._functions.get(row.dtype)
        if row.kind not in ("move", "call") or function is None:
            return None
        order = row.order(row.sources[0])
        shape = row.shape(row.target)

        def call() -> Array:
            out = np.empty(shape, row.dtype)
            self._transpose(function, order, sources[0], out)
            return out

        return call

    def _transpose(self, function: Any, order: Sequence[int], source: Array, out: Array) -> None:
        integers = c_int * len(order)
        read = (1.0, source.ctypes.data, integers(*source.shape), None)
        write = (0.0, out.ctypes.data, None)
        function(integers(*order), len(order), *read, *write, self._threads, _ROW_MAJOR)


def _load_library(path: str) -> CDLL:
    try:
        # An absolute path, because the system would search its own folders for a bare name.
        return CDLL(str(Path(path).absolute()))
    except OSError as error:
        raise ArgumentError(
            f"{HPTT_VARIABLE}: {path} cannot be loaded ({error}); give the path of libhptt.so, or "
            "unset the variable"
        ) from error


def _declare_function(library: CDLL, path: str, name: str, scalar: Any) -> Any:
    """Return the C function `name` with its argument types; alpha and beta are of type `scalar`."""
    try:
        function = library[name]
    except AttributeError as error:
        raise ArgumentError(
            f"{HPTT_VARIABLE}: {path} has no {name}, so it is not HPTT; give the path of libhptt.so"
        ) from error
    sizes = POINTER(c_int)
    read = (scalar, c_void_p, sizes, sizes)
    write = (scalar, c_void_p, sizes)
    function.argtypes = (sizes, c_int, *read, *write, c_int, c_int)
    function.restype = None
    return function


class Peer(Protocol):
    """A library that supports some of the rows."""

    name: str
    version: str
    spin_seconds: float  # see protocol.Variant

    def into(self, row: Row, sources: Sequence[Array], out: Array) -> Call | None:
        """Return a call that writes the row's result into `out`."""

    def fresh(self, row: Row, sources: Sequence[Array]) -> Call | None:
        """Return a call that returns the row's result in new memory."""


def available(threads: int) -> list[Peer]:
    """Return the installed libraries, NumPy first; raise ArgumentError for an invalid HPTT path."""
    peers: list[Peer] = [NumPy()]
    hptt_peer = load_hptt(threads)
    for peer_class in (TorchPeer, OpenCV):
        try:
            peers.append(peer_class(threads))
        except ImportError:
            continue
    return peers if hptt_peer is None else [*peers, hptt_peer]


def factor_and_term(row: Row) -> tuple[Array, Array]:
    """Return factor and term of the formula x * factor + term, float32 in the target's layout."""
    formula = row.formula
    shape = [-1 if letter == "c" else 1 for letter in row.target]
    factor = formula["scale"] / np.reshape(formula["std"], shape)
    term = -np.reshape(formula["mean"], shape) / np.reshape(formula["std"], shape)
    return factor.astype(np.float32), term.astype(np.float32)


class NumPy:
    """The NumPy peer: `copyto` of transposed views; formulas and sums in place."""

    name = "NumPy"
    version = np.__version__
    spin_seconds = 0.0

    def into(self, row: Row, sources: Sequence[Array], out: Array) -> Call | None:
        """Return a call that copies, computes or sums into `out`."""
        views = transposed_views(row, sources)
        if row.kind == "fused":
            return self._fused(row, views[0], out)
        if row.kind == "accumulate":
            return lambda: self._accumulate(views, out)
        return lambda: np.copyto(out, views[0])

    def fresh(self, row: Row, sources: Sequence[Array]) -> Call | None:
        """Return a call that allocates its result."""
        views = transposed_views(row, sources)
        if row.kind == "fused":
            factor, term = factor_and_term(row)
            dtype = as_dtype(row.to_dtype)
            return lambda: (views[0] * factor + term).astype(dtype, order="C")
        if row.kind == "accumulate":
            return lambda: np.ascontiguousarray(sum(views[1:], views[0]))
        return lambda: np.ascontiguousarray(views[0])

    @staticmethod
    def _accumulate(views: Sequence[Array], out: Array) -> None:
        np.copyto(out, views[0])
        for view in views[1:]:
            np.add(out, view, out=out)

    @staticmethod
    def _fused(row: Row, view: Array, out: Array) -> Call:
        factor, term = factor_and_term(row)
        # NumPy has no native bfloat16 arithmetic: compute in float32.
        computed = out if out.dtype == np.float32 else np.empty(out.shape, np.float32)

        def call() -> None:
            np.copyto(computed, view)
            np.multiply(computed, factor, out=computed)
            np.add(computed, term, out=computed)
            if computed is not out:
                np.copyto(out, computed, casting="unsafe")

        return call


class TorchPeer:
    """The torch peer: `copy_` of a permuted tensor; formulas and sums in place, eager."""

    name = "torch"
    spin_seconds = 0.01  # OpenMP threads spin for 3 to 5 ms after a call, unless passive

    def __init__(self, threads: int) -> None:
        import torch

        self._torch = torch
        self.version = torch.__version__
        torch.set_num_threads(threads)

    def into(self, row: Row, sources: Sequence[Array], out: Array) -> Call | None:
        """Return a call that copies, computes or sums into `out`."""
        views = self._views(row, sources)
        target = self._tensor(out)
        if row.kind == "fused":
            return self._fused(row, views[0], target)
        if row.kind == "accumulate":
            return lambda: self._accumulate(views, target)
        return lambda: target.copy_(views[0])

    def fresh(self, row: Row, sources: Sequence[Array]) -> Call | None:
        """Return a call that allocates its result."""
        views = self._views(row, sources)
        if row.kind == "fused":
            factor, term = self._constants(row)
            dtype = getattr(self._torch, row.to_dtype)
            return lambda: (views[0].float() * factor + term).to(dtype).contiguous()
        if row.kind == "accumulate":
            return lambda: sum(views[1:], views[0]).contiguous()
        return lambda: views[0].contiguous()

    def _tensor(self, array: Array) -> Any:
        if array.dtype.name == "bfloat16":  # torch.from_numpy does not support it
            return self._torch.from_numpy(array.view(np.int16)).view(self._torch.bfloat16)
        return self._torch.from_numpy(array)

    def _constants(self, row: Row) -> tuple[Any, Any]:
        factor, term = factor_and_term(row)
        return self._torch.from_numpy(factor), self._torch.from_numpy(term)

    def _views(self, row: Row, sources: Sequence[Array]) -> list[Any]:
        pairs = zip(row.sources, sources, strict=True)
        return [self._tensor(source).permute(row.order(layout)) for layout, source in pairs]

    @staticmethod
    def _accumulate(views: Sequence[Any], target: Any) -> None:
        target.copy_(views[0])
        for view in views[1:]:
            target.add_(view)

    def _fused(self, row: Row, view: Any, target: Any) -> Call:
        factor, term = self._constants(row)
        # Compute in float32: a product rounded to bfloat16 would make the sum inaccurate.
        float32 = self._torch.float32
        is_float32 = target.dtype == float32
        computed = target if is_float32 else self._torch.empty_like(target, dtype=float32)

        def call() -> None:
            computed.copy_(view)
            computed.mul_(factor).add_(term)
            if computed is not target:
                target.copy_(computed)

        return call


class OpenCV:
    """The OpenCV peer: `blobFromImagesWithParams` for normalised images, `transpose` for matrices.

    `transposeND` supports all moves, but is not measured: it copies one element at a time, and was
    5 and 8 times slower than NumPy in two tests.
    """

    name = "OpenCV"
    spin_seconds = 0.0  # its threads sleep within 0.1 ms

    def __init__(self, threads: int) -> None:
        import cv2

        self._cv2 = cv2
        self.version = cv2.__version__
        cv2.setNumThreads(threads)

    def into(self, row: Row, sources: Sequence[Array], out: Array) -> Call | None:
        """Return a call for a matrix or a fused float32 row, else None."""
        source = sources[0]
        if row.kind == "move" and row.letters == "hw":
            return lambda: self._cv2.transpose(source, dst=out)
        if not self._has_blob(row):
            return None
        images = list(source)
        params = self._params(row)
        return lambda: self._cv2.dnn.blobFromImagesWithParams(images, out, params)

    def fresh(self, row: Row, sources: Sequence[Array]) -> Call | None:
        """Return a call for a fused float32 row, else None."""
        if not self._has_blob(row):
            return None
        images = list(sources[0])
        params = self._params(row)
        return lambda: self._cv2.dnn.blobFromImagesWithParams(images, param=params)

    @staticmethod
    def _has_blob(row: Row) -> bool:
        """Return True for the rows that OpenCV's function for images supports."""
        images = row.kind == "fused" and row.sources == ("bhwc",) and row.shape("c") == (3,)
        return images and (row.dtype, row.to_dtype, row.target) == ("uint8", "float32", "bchw")

    def _params(self, row: Row) -> Any:
        """Return the formula as OpenCV's (x - mean) * scale, with four channels for both."""
        formula = row.formula
        scale = formula["scale"]
        std = np.array([*formula["std"], 1.0])
        params = self._cv2.dnn.Image2BlobParams()
        params.mean = tuple(np.array([*formula["mean"], 0.0]) / scale)
        params.scalefactor = tuple(scale / std)
        params.ddepth = self._cv2.CV_32F
        return params


def transposed_views(row: Row, sources: Sequence[Array]) -> list[Array]:
    """Return views of the sources with their axes in the target's order."""
    pairs = zip(row.sources, sources, strict=True)
    return [source.transpose(row.order(layout)) for layout, source in pairs]


def optional_peers(threads: int) -> list[Peer]:
    """Return the compilers and training pipelines that are installed."""
    peers: list[Peer] = []
    classes: tuple[Callable[[int], Peer], ...] = (XlaJit, TorchCompile, Timm, Albumentations)
    for peer_class in classes:
        try:
            peers.append(peer_class(threads))
        except ImportError:
            continue
    return peers


class XlaJit:
    """The XLA peer: one function under `jax.jit`; each call waits for its new array."""

    name = "XLA jit"
    spin_seconds = 0.0

    def __init__(self, threads: int) -> None:
        import jax

        self._jax = jax
        self.version = jax.__version__

    def into(self, row: Row, sources: Sequence[Array], out: Array) -> Call | None:
        """Return None, because JAX arrays are immutable."""
        return None

    def fresh(self, row: Row, sources: Sequence[Array]) -> Call | None:
        """Return a call of the compiled function."""
        orders = [row.order(layout) for layout in row.sources]
        dtype = as_dtype(row.to_dtype)
        factor, term = factor_and_term(row) if row.formula else (None, None)

        def compute(*arrays: Any) -> Any:
            views = [x.transpose(order) for x, order in zip(arrays, orders, strict=True)]
            if factor is not None:
                return (views[0].astype("float32") * factor + term).astype(dtype)
            return sum(views[1:], views[0])

        compiled = self._jax.jit(compute)
        arrays = [self._jax.device_put(source) for source in sources]
        return lambda: compiled(*arrays).block_until_ready()


class TorchCompile(TorchPeer):
    """The operations of `TorchPeer` as one expression, compiled by inductor for each row."""

    name = "torch.compile"

    def into(self, row: Row, sources: Sequence[Array], out: Array) -> Call | None:
        """Return a call of a compiled function that writes the expression into `out`."""
        views = self._views(row, sources)
        target = self._tensor(out)
        expression = self._expression(row)

        def compute(target: Any, *views: Any) -> None:
            target.copy_(expression(*views))

        return self._compiled(compute, target, *views)

    def fresh(self, row: Row, sources: Sequence[Array]) -> Call | None:
        """Return a call of the compiled expression."""
        expression = self._expression(row)

        def compute(*views: Any) -> Any:
            return expression(*views).contiguous()

        return self._compiled(compute, *self._views(row, sources))

    def _expression(self, row: Row) -> Callable[..., Any]:
        if not row.formula:
            return lambda *views: sum(views[1:], views[0])
        factor, term = self._constants(row)
        dtype = getattr(self._torch, row.to_dtype)
        return lambda view: (view.float() * factor + term).to(dtype)

    def _compiled(self, function: Callable[..., Any], *arguments: Any) -> Call:
        compiled = self._torch.compile(function, dynamic=False)
        return lambda: compiled(*arguments)


class Timm:
    """The timm peer: its collate function and the arithmetic of its PrefetchLoader, on the CPU."""

    name = "timm"
    spin_seconds = TorchPeer.spin_seconds

    def __init__(self, threads: int) -> None:
        import torch
        from timm.data.loader import PrefetchLoader, fast_collate

        torch.set_num_threads(threads)
        self._torch = torch
        self._loader = PrefetchLoader
        self._collate = fast_collate
        self.version = version("timm")

    def into(self, row: Row, sources: Sequence[Array], out: Array) -> Call | None:
        """Return None, because timm allocates its batches."""
        return None

    def fresh(self, row: Row, sources: Sequence[Array]) -> Call | None:
        """Return a call that collates and normalises images for a model; None for other rows."""
        if not _is_model_input(row):
            return None
        formula = row.formula
        cpu = self._torch.device("cpu")
        # timm's transforms return chw views of images.
        samples = [(image.transpose(2, 0, 1), 0) for image in sources[0]]

        def call() -> object:
            batches = [self._collate(samples)]
            mean = formula["mean"]
            std = formula["std"]
            (images, _), *_ = self._loader(batches, mean=mean, std=std, device=cpu)
            return images

        return call


class Albumentations:
    """The albumentations peer: `Normalize` and `ToTensorV2` for each image, and `torch.stack`."""

    name = "albumentations"
    spin_seconds = 0.0

    def __init__(self, threads: int) -> None:
        import albumentations
        import torch
        from albumentations.pytorch import ToTensorV2

        torch.set_num_threads(threads)
        self._library = albumentations
        self._to_tensor = ToTensorV2
        self._stack = torch.stack
        self.version = albumentations.__version__

    def into(self, row: Row, sources: Sequence[Array], out: Array) -> Call | None:
        """Return None, because albumentations allocates its results."""
        return None

    def fresh(self, row: Row, sources: Sequence[Array]) -> Call | None:
        """Return a call that normalises and stacks images for a model; None for other rows."""
        if not _is_model_input(row):
            return None
        formula = row.formula
        normalise = self._library.Normalize(formula["mean"], formula["std"], 1 / formula["scale"])
        compose = self._library.Compose([normalise, self._to_tensor()])
        return lambda: self._stack([compose(image=image)["image"] for image in sources[0]])


def _is_model_input(row: Row) -> bool:
    """Return True if the row converts images to the float32 planes that a model expects."""
    return row.kind == "fused" and row.pattern == "bhwc->bchw" and row.to_dtype == "float32"


Turn = dict[str, Any]


def dali_pipeline(case: CollateCase, expected: Array) -> Callable[[Turn], Any] | None:
    """Return a function that makes the batch of a turn with DALI, or None if DALI cannot.

    `expected` is the batch of the first turn; DALI's batch is compared with it.
    """
    try:
        from nvidia.dali import fn, pipeline_def, types
    except ImportError:
        return None
    dali_dtype = {"float32": types.FLOAT, "uint8": types.UINT8}.get(str(expected.dtype))
    if dali_dtype is None or case.to not in ("bchw", "bhwc") or case.more or not case.window:
        return None
    count = len(case.samples)
    inputs = dict[str, list[Any]]()
    normalization = {"mean": [m / SCALE for m in MEAN], "std": [s / SCALE for s in STD]}

    def input_source(name: str) -> Callable[[], list[Any]]:
        return lambda: inputs[name]

    def pipeline() -> Any:
        images = fn.external_source(lambda: case.samples, batch=True, layout="HWC", no_copy=True)
        x, y, flip = (fn.external_source(input_source(name), batch=True) for name in "xyw")
        return fn.crop_mirror_normalize(
            images,
            crop=tuple(case.window.values()),
            crop_pos_x=x,
            crop_pos_y=y,
            mirror=flip,
            dtype=dali_dtype,
            output_layout=case.to[1:].upper(),
            **(normalization if case.keywords else {}),
        )

    pipe = pipeline_def(
        batch_size=count,
        num_threads=layoutkit.get_num_threads(),
        device_id=None,
        prefetch_queue_depth=1,
        exec_async=False,
        exec_pipelined=False,
    )(pipeline)()
    pipe.build()

    def run(turn: Turn) -> Any:
        for name, axis, dim in ("y", "h", 0), ("x", "w", 1):
            margins = [sample.shape[dim] - case.window[axis] for sample in case.samples]
            positions = turn["offset"][axis] / np.maximum(margins, 1)
            inputs[name] = list(positions.astype(np.float32))
        inputs["w"] = list(turn["flip"]["w"].astype(np.int32))
        return pipe.run()

    (batch,) = run(case.turns[0])
    np.testing.assert_allclose(batch.as_array().astype("f8"), expected.astype("f8"), atol=1e-5)
    return run
