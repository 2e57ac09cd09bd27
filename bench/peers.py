"""The rows' work with other libraries, each the best way that it offers.

Every library writes into an output that exists (`into`), as layoutkit does; `fresh` is the same
work the way people usually write it, with a new output each time. A library that has nothing for
a row returns None. Imported only if installed, and HPTT if the environment says where it is;
`available` also lets them use as many threads as layoutkit does.

`--others`: the rows' work with compilers and with pipelines of training.

XLA under `jax.jit` and `torch.compile` (inductor) make a program of each row, which takes seconds;
timm and albumentations do one row, photographs for a model, as their users have it done. Of these
results all are in new memory but those of `torch.compile`. Each is left out where it is not
installed.

HPTT, the High-Performance Tensor Transposition library, through its C interface.

It is no package: build `libhptt.so` from github.com/springer13/hptt, and give its path in the
environment as `LAYOUTKIT_HPTT`. Its C functions transpose float32 and float64; they plan in every
call, by an estimate, which is all that the interface offers.

NVIDIA DALI's crop_mirror_normalize on the CPU, which runs without a GPU.
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
    from .collating import Work


HPTT_VARIABLE = "LAYOUTKIT_HPTT"
_FUNCTIONS = {"float32": ("sTensorTranspose", c_float), "float64": ("dTensorTranspose", c_double)}
_ROW_MAJOR = 1  # sizes and axes are in the order of NumPy's


def hptt(threads: int) -> Hptt | None:
    """HPTT where the environment names its library, else None.

    Raises
    ------
    ArgumentError
        The path is none of a library that has HPTT's functions.
    """
    path = os.environ.get(HPTT_VARIABLE)
    return Hptt(path, threads) if path else None


class Hptt:
    """Its transposition for pure moves of one float32 or float64 array; nothing else."""

    name = "HPTT"
    lingers = 0.01  # as torch's: threads of OpenMP, unless they are passive

    def __init__(self, path: str, threads: int) -> None:
        library = _loaded(path)
        self.version = Path(path).name  # the library does not tell
        self._threads = threads
        self._functions = {
            dtype: _declared(library, path, name, number)
            for dtype, (name, number) in _FUNCTIONS.items()
        }

    def into(self, row: Row, sources: Sequence[Array], out: Array) -> Call | None:
        """Transpose into `out`."""
        function = self._functions.get(row.dtype)
        if row.kind not in ("move", "call") or function is None:
            return None
        return partial(self._transpose, function, row.order(row.sources[0]), sources[0], out)

    def fresh(self, row: Row, sources: Sequence[Array]) -> Call | None:
        """Transpose into a new array of NumPy."""
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


def _loaded(path: str) -> CDLL:
    try:
        # By the path alone: the system would look for a bare name in its own folders.
        return CDLL(str(Path(path).absolute()))
    except OSError as error:
        raise ArgumentError(
            f"{HPTT_VARIABLE}: {path} cannot be loaded ({error}); give the path of libhptt.so, or "
            "leave it out"
        ) from error


def _declared(library: CDLL, path: str, name: str, number: Any) -> Any:
    """The C function `name`, its arguments declared; alpha and beta are of type `number`."""
    try:
        function = library[name]
    except AttributeError as error:
        raise ArgumentError(
            f"{HPTT_VARIABLE}: {path} has no {name}, so it is not HPTT; give the path of libhptt.so"
        ) from error
    sizes = POINTER(c_int)
    read = (number, c_void_p, sizes, sizes)
    write = (number, c_void_p, sizes)
    function.argtypes = (sizes, c_int, *read, *write, c_int, c_int)
    function.restype = None
    return function


class Peer(Protocol):
    """A library that can do some rows."""

    name: str
    version: str
    lingers: float  # see protocol.Variant

    def into(self, row: Row, sources: Sequence[Array], out: Array) -> Call | None:
        """Return a call that writes the row's result into `out`."""

    def fresh(self, row: Row, sources: Sequence[Array]) -> Call | None:
        """Return a call that returns the row's result in new memory."""


def available(threads: int) -> list[Peer]:
    """The libraries that are installed, NumPy first; ArgumentError for an HPTT that is none."""
    peers: list[Peer] = [NumPy()]
    found = hptt(threads)
    for make in (TorchPeer, OpenCV):
        try:
            peers.append(make(threads))
        except ImportError:
            continue
    return peers if found is None else [*peers, found]


def factor_and_term(row: Row) -> tuple[Array, Array]:
    """The formula as x * factor + term, float32, shaped for an array in the target's layout."""
    formula = row.formula
    shape = [-1 if letter == "c" else 1 for letter in row.target]
    factor = formula["scale"] / np.reshape(formula["std"], shape)
    term = -np.reshape(formula["mean"], shape) / np.reshape(formula["std"], shape)
    return factor.astype(np.float32), term.astype(np.float32)


class NumPy:
    """Transposed views and `copyto`; formulas and sums in place."""

    name = "NumPy"
    version = np.__version__
    lingers = 0.0

    def into(self, row: Row, sources: Sequence[Array], out: Array) -> Call | None:
        views = transposed(row, sources)
        if row.kind == "fused":
            return self._fused(row, views[0], out)
        if row.kind == "accumulate":
            return lambda: self._accumulate(views, out)
        return lambda: np.copyto(out, views[0])

    def fresh(self, row: Row, sources: Sequence[Array]) -> Call | None:
        views = transposed(row, sources)
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
        # NumPy has no arithmetic of its own in bfloat16: float32 on the way.
        computed = out if out.dtype == np.float32 else np.empty(out.shape, np.float32)

        def call() -> None:
            np.copyto(computed, view)
            np.multiply(computed, factor, out=computed)
            np.add(computed, term, out=computed)
            if computed is not out:
                np.copyto(out, computed, casting="unsafe")

        return call


class TorchPeer:
    """`copy_` of a permuted tensor; formulas and sums in place (eager)."""

    name = "torch"
    lingers = 0.01  # OpenMP's threads spin for 3 to 5 ms after a call, if they are not passive

    def __init__(self, threads: int) -> None:
        import torch

        self._torch = torch
        self.version = torch.__version__
        torch.set_num_threads(threads)

    def into(self, row: Row, sources: Sequence[Array], out: Array) -> Call | None:
        views = self._views(row, sources)
        target = self._tensor(out)
        if row.kind == "fused":
            return self._fused(row, views[0], target)
        if row.kind == "accumulate":
            return lambda: self._accumulate(views, target)
        return lambda: target.copy_(views[0])

    def fresh(self, row: Row, sources: Sequence[Array]) -> Call | None:
        views = self._views(row, sources)
        if row.kind == "fused":
            factor, term = self._constants(row)
            dtype = getattr(self._torch, row.to_dtype)
            return lambda: (views[0].float() * factor + term).to(dtype).contiguous()
        if row.kind == "accumulate":
            return lambda: sum(views[1:], views[0]).contiguous()
        return lambda: views[0].contiguous()

    def _tensor(self, array: Array) -> Any:
        if array.dtype.name == "bfloat16":  # unknown to torch's adapter to NumPy
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
        # In float32 on the way: a product rounded to bfloat16 would spoil the sum.
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
    """`blobFromImagesWithParams` for pictures to normalised planes, `transpose` for matrices.

    Its `transposeND` does all moves, one item at a time: it was 8 and 5 times slower than NumPy
    where it was tried, so it would only lengthen the benchmark.
    """

    name = "OpenCV"
    lingers = 0.0  # its own threads sleep within 0.1 ms

    def __init__(self, threads: int) -> None:
        import cv2

        self._cv2 = cv2
        self.version = cv2.__version__
        cv2.setNumThreads(threads)

    def into(self, row: Row, sources: Sequence[Array], out: Array) -> Call | None:
        source = sources[0]
        if row.kind == "move" and row.letters == "hw":
            return lambda: self._cv2.transpose(source, dst=out)
        if row.kind != "fused" or row.to_dtype != "float32":
            return None
        images = list(source)
        params = self._params(row)
        return lambda: self._cv2.dnn.blobFromImagesWithParams(images, out, params)

    def fresh(self, row: Row, sources: Sequence[Array]) -> Call | None:
        if row.kind != "fused" or row.to_dtype != "float32":
            return None
        images = list(sources[0])
        params = self._params(row)
        return lambda: self._cv2.dnn.blobFromImagesWithParams(images, param=params)

    def _params(self, row: Row) -> Any:
        """OpenCV computes (x - mean) * scale, with four channels for both."""
        formula = row.formula
        scale = formula["scale"]
        std = np.array([*formula["std"], 1.0])
        params = self._cv2.dnn.Image2BlobParams()
        params.mean = tuple(np.array([*formula["mean"], 0.0]) / scale)
        params.scalefactor = tuple(scale / std)
        params.ddepth = self._cv2.CV_32F
        return params


def transposed(row: Row, sources: Sequence[Array]) -> list[Array]:
    """The sources with their axes in the target's order, in place."""
    pairs = zip(row.sources, sources, strict=True)
    return [source.transpose(row.order(layout)) for layout, source in pairs]


def others(threads: int) -> list[Peer]:
    """The compilers and pipelines that are installed."""
    found: list[Peer] = []
    makers: tuple[Callable[[int], Peer], ...] = (XlaJit, TorchCompile, Timm, Albumentations)
    for make in makers:
        try:
            found.append(make(threads))
        except ImportError:
            continue
    return found


class XlaJit:
    """One function under `jax.jit`, whose results are new arrays; waited for."""

    name = "XLA jit"
    lingers = 0.0

    def __init__(self, threads: int) -> None:
        import jax

        self._jax = jax
        self.version = jax.__version__

    def into(self, row: Row, sources: Sequence[Array], out: Array) -> Call | None:
        return None  # nothing is written into an array of JAX

    def fresh(self, row: Row, sources: Sequence[Array]) -> Call | None:
        orders = [row.order(layout) for layout in row.sources]
        dtype = as_dtype(row.to_dtype)
        factor, term = factor_and_term(row) if row.formula else (None, None)

        def work(*arrays: Any) -> Any:
            views = [x.transpose(order) for x, order in zip(arrays, orders, strict=True)]
            if factor is not None:
                return (views[0].astype("float32") * factor + term).astype(dtype)
            return sum(views[1:], views[0])

        compiled = self._jax.jit(work)
        arrays = [self._jax.device_put(source) for source in sources]
        return lambda: compiled(*arrays).block_until_ready()


class TorchCompile(TorchPeer):
    """What `TorchPeer` does as one expression, compiled by inductor for the row's shape."""

    name = "torch.compile"

    def into(self, row: Row, sources: Sequence[Array], out: Array) -> Call | None:
        views = self._views(row, sources)
        target = self._tensor(out)
        expression = self._expression(row)

        def work(target: Any, *views: Any) -> None:
            target.copy_(expression(*views))

        return self._compiled(work, target, *views)

    def fresh(self, row: Row, sources: Sequence[Array]) -> Call | None:
        expression = self._expression(row)

        def work(*views: Any) -> Any:
            return expression(*views).contiguous()

        return self._compiled(work, *self._views(row, sources))

    def _expression(self, row: Row) -> Callable[..., Any]:
        if not row.formula:
            return lambda *views: sum(views[1:], views[0])
        factor, term = self._constants(row)
        dtype = getattr(self._torch, row.to_dtype)
        return lambda view: (view.float() * factor + term).to(dtype)

    def _compiled(self, work: Callable[..., Any], *arguments: Any) -> Call:
        compiled = self._torch.compile(work, dynamic=False)
        return lambda: compiled(*arguments)


class Timm:
    """timm's collate and the arithmetic of its PrefetchLoader, on the CPU."""

    name = "timm"
    lingers = TorchPeer.lingers

    def __init__(self, threads: int) -> None:
        import torch
        from timm.data.loader import PrefetchLoader, fast_collate

        torch.set_num_threads(threads)
        self._torch = torch
        self._loader = PrefetchLoader
        self._collate = fast_collate
        self.version = version("timm")

    def into(self, row: Row, sources: Sequence[Array], out: Array) -> Call | None:
        return None

    def fresh(self, row: Row, sources: Sequence[Array]) -> Call | None:
        if not _is_for_models(row):
            return None
        formula = row.formula
        cpu = self._torch.device("cpu")
        # As its transforms hand pictures on: planes that are views.
        samples = [(image.transpose(2, 0, 1), 0) for image in sources[0]]

        def call() -> object:
            batches = [self._collate(samples)]
            mean = formula["mean"]
            std = formula["std"]
            (images, _), *_ = self._loader(batches, mean=mean, std=std, device=cpu)
            return images

        return call


class Albumentations:
    """`Normalize` and `ToTensorV2` for each picture, and `torch.stack`."""

    name = "albumentations"
    lingers = 0.0

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
        return None

    def fresh(self, row: Row, sources: Sequence[Array]) -> Call | None:
        if not _is_for_models(row):
            return None
        formula = row.formula
        normalise = self._library.Normalize(formula["mean"], formula["std"], 1 / formula["scale"])
        compose = self._library.Compose([normalise, self._to_tensor()])
        return lambda: self._stack([compose(image=image)["image"] for image in sources[0]])


def _is_for_models(row: Row) -> bool:
    """Whether photographs become the float32 planes that a model takes."""
    return row.kind == "fused" and row.pattern == "bhwc->bchw" and row.to_dtype == "float32"


Turn = dict[str, Any]


def collated(work: Work, expected: Array) -> Callable[[Turn], Any] | None:
    """What makes the batch of a turn; None where DALI is not installed, or has no way to.

    `expected` is the batch of the first turn, which DALI's is compared with.
    """
    try:
        from nvidia.dali import fn, pipeline_def, types
    except ImportError:
        return None
    known = {"float32": types.FLOAT, "uint8": types.UINT8}.get(str(expected.dtype))
    if known is None or work.to not in ("bchw", "bhwc") or work.more or not work.window:
        return None
    count = len(work.samples)
    now = dict[str, list[Any]]()
    normal = {"mean": [m / SCALE for m in MEAN], "std": [s / SCALE for s in STD]}

    def said(name: str) -> Callable[[], list[Any]]:
        return lambda: now[name]

    def pipeline() -> Any:
        pictures = fn.external_source(lambda: work.samples, batch=True, layout="HWC", no_copy=True)
        x, y, flip = (fn.external_source(said(name), batch=True) for name in "xyw")
        return fn.crop_mirror_normalize(
            pictures,
            crop=tuple(work.window.values()),
            crop_pos_x=x,
            crop_pos_y=y,
            mirror=flip,
            dtype=known,
            output_layout=work.to[1:].upper(),
            **(normal if work.keywords else {}),
        )

    made = pipeline_def(
        batch_size=count,
        num_threads=layoutkit.get_num_threads(),
        device_id=None,
        prefetch_queue_depth=1,
        exec_async=False,
        exec_pipelined=False,
    )(pipeline)()
    made.build()

    def run(turn: Turn) -> Any:
        for name, axis, at in ("y", "h", 0), ("x", "w", 1):
            room = [sample.shape[at] - work.window[axis] for sample in work.samples]
            places = turn["offset"][axis] / np.maximum(room, 1)
            now[name] = list(places.astype(np.float32))
        now["w"] = list(turn["flip"]["w"].astype(np.int32))
        return made.run()

    (batch,) = run(work.turns[0])
    np.testing.assert_allclose(batch.as_array().astype("f8"), expected.astype("f8"), atol=1e-5)
    return run
