"""`--others`: the rows' work with compilers and with pipelines of training.

XLA under `jax.jit` and `torch.compile` (inductor) make a program of each row, which takes seconds;
timm and albumentations do one row, photographs for a model, as their users have it done. Of these
results all are in new memory but those of `torch.compile`. Each is left out where it is not
installed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.metadata import version
from typing import Any

from ..spec import as_dtype
from .peers import Array, Call, Peer, TorchPeer, factor_and_term
from .rows import Row

__all__ = ["others"]


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
        views, target = self._views(row, sources), self._tensor(out)
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
        self._torch, self._loader, self._collate = torch, PrefetchLoader, fast_collate
        self.version = version("timm")

    def into(self, row: Row, sources: Sequence[Array], out: Array) -> Call | None:
        return None

    def fresh(self, row: Row, sources: Sequence[Array]) -> Call | None:
        if not _is_for_models(row):
            return None
        formula, cpu = row.formula, self._torch.device("cpu")
        # As its transforms hand pictures on: planes that are views.
        samples = [(image.transpose(2, 0, 1), 0) for image in sources[0]]

        def call() -> object:
            batches = [self._collate(samples)]
            mean, std = formula["mean"], formula["std"]
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
        self._library, self._to_tensor, self._stack = albumentations, ToTensorV2, torch.stack
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
