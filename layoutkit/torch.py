"""For programs of PyTorch: a module that converts, and what feeds a DataLoader's batches.

    Convert("bhwc->bchw", dtype="float32", scale=1 / 255)     an nn.Module, and a transform
    DataLoader(data, collate_fn=collate, num_workers=8)       bytes through the workers,
    feed(loader, "bhwc->bchw", dtype="float32", ...)          converted behind them

A batch of bytes is a quarter of one of floats, and every batch that a worker makes goes through
memory that it shares with the main process. So where the conversion runs decides more than how:
`collate` stacks samples as they are, and `feed` converts what comes out of the workers.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any

import numpy as np

from ._utils.validation import kind_text
from .backends.dispatch import as_array
from .backends.torch import memory_of
from .backends.torch.tensors import adapter_of_memory
from .collator import Collator
from .converter import Converter
from .errors import ArgumentError, DtypeError, ShapeError

__all__ = ["Convert", "Feed", "collate", "feed"]

_torch: Any = import_module("torch")
_collating: Any = import_module("torch.utils.data._utils.collate")
_nothing = _torch.empty(0)
_stack = Collator("...->b...")
_LARGE = 1 << 20  # bytes of a batch; a smaller one torch stacks in fewer microseconds


# ---- a module ----------------------------------------------------------------------------


class Convert(_torch.nn.Module):  # type: ignore[misc]  # torch has no types here
    """A conversion as a module: a layer of a model, or a transform.

    Takes what `layoutkit.Converter` takes. It has no parameters and no state. What is called with
    more than x, as transforms of torchvision are with labels, gets the others back as they came.
    Of pictures of Pillow and of arrays it makes tensors, which the transforms behind it want.
    Works in `nn.Sequential`, in torchvision's `v2.Compose`, under `torch.compile` and
    `torch.export`; torch.jit.script reads Python that it cannot, and is refused.

    >>> Convert("bhwc->bchw", dtype="float32", scale=1 / 255)(_torch.zeros(2, 4, 5, 3)).shape
    torch.Size([2, 3, 4, 5])
    """

    def __init__(self, pattern: str, **keywords: Any) -> None:
        super().__init__()
        self.converter = Converter(pattern, **keywords)

    def forward(self, x: Any, *others: Any) -> Any:
        """The converted tensor; with others a tuple of it and them."""
        y = self.converter(x)
        if not isinstance(y, _torch.Tensor):
            y = _as_tensor(y)
        return (y, *others) if others else y

    def extra_repr(self) -> str:
        """What was asked."""
        return repr(self.converter).removeprefix("Converter(").removesuffix(")")

    def __prepare_scriptable__(self) -> Any:
        raise ArgumentError(
            "torch.jit.script cannot read a conversion; use torch.compile, torch.export or "
            "torch.jit.trace, or leave the conversion outside of what is scripted"
        )


# ---- bytes through the workers -----------------------------------------------------------


def collate(samples: Sequence[Any]) -> Any:
    """Stack samples as they are: a `collate_fn` for bytes that `feed` converts later.

    Parameters
    ----------
    samples : sequence
        Arrays of NumPy and other libraries, tensors, pictures of Pillow, numbers, or tuples, lists
        and dicts of these, all of one structure.

    Returns
    -------
    tensor, or the structure of a sample with tensors in it
        What torch's `default_collate` makes: one axis more, in front, dtypes unchanged; in a worker
        of a DataLoader in memory that it shares with the main process. A tuple becomes a list.

    Raises
    ------
    ShapeError, DtypeError
        Two arrays that would be stacked have not the same shape or dtype.
    ArgumentError
        A sample is None.
    """
    samples = list(samples)
    for at, sample in enumerate(samples):
        if sample is None:
            raise ArgumentError(
                f"sample {at} is None; leave it out before, as with "
                "collate_fn=lambda s: collate([x for x in s if x is not None])"
            )
    return _collating.collate(samples, collate_fn_map=_collators())


def _collators() -> dict[Any, Any]:
    """Torch's own, and ours for all that is an array."""
    kinds = {**_collating.default_collate_fn_map, np.ndarray: _stacked, _torch.Tensor: _stacked}
    if "jax" in sys.modules:
        kinds[sys.modules["jax"].Array] = _stacked
    if "PIL.Image" in sys.modules:
        kinds[sys.modules["PIL.Image"].Image] = _stacked_pictures
    return kinds


def _stacked_pictures(samples: Sequence[Any], *, collate_fn_map: Any = None) -> Any:
    return _stacked([np.asarray(sample) for sample in samples], collate_fn_map=collate_fn_map)


def _stacked(samples: Sequence[Any], *, collate_fn_map: Any = None) -> Any:
    arrays = _arrays(samples) if len(samples) * samples[0].nbytes >= _LARGE else None
    if arrays is None:
        tensors = [_as_tensor(sample) for sample in samples]
        _check_alike(tensors)
        return _collating.collate_tensor_fn(tensors, collate_fn_map=collate_fn_map)
    _check_alike(arrays)
    to = _shared(arrays) if _torch.utils.data.get_worker_info() is not None else None
    if to is not None:
        _stack(arrays, out=to.numpy())
        return to
    return adapter_of_memory(_nothing).leave(_stack(arrays), _nothing)


def _arrays(samples: Sequence[Any]) -> list[Any] | None:
    """The memory of samples; None where torch has more to say of one, or has its dtype alone."""
    tensors = [sample for sample in samples if isinstance(sample, _torch.Tensor)]
    quick = memory_of(tensors) if tensors else []
    if quick is None:
        return None
    found = iter(quick)
    arrays = [next(found) if isinstance(x, _torch.Tensor) else as_array(x) for x in samples]
    return arrays if arrays[0].dtype.isbuiltin == 1 else None


def _check_alike(samples: Sequence[Any]) -> None:
    first = samples[0]
    for at, each in enumerate(samples):
        if each.shape != first.shape:
            raise ShapeError(
                f"sample {at} has shape {tuple(each.shape)}, but sample 0 has "
                f"{tuple(first.shape)}; bring all to one size first, or take batches of one"
            )
        if each.dtype != first.dtype:
            raise DtypeError(
                f"sample {at} has dtype {each.dtype}, but sample 0 has {first.dtype}; give all "
                "one dtype"
            )


def _shared(arrays: Sequence[Any]) -> Any:
    """A tensor for the batch in memory that other processes can have."""
    first = _as_tensor(np.empty(0, arrays[0].dtype))
    shape = len(arrays), *arrays[0].shape
    storage = first._typed_storage()._new_shared(len(arrays) * arrays[0].size)
    return first.new(storage).view(shape)


def _as_tensor(sample: Any) -> Any:
    """A tensor of an array, in its memory where torch can have that."""
    if isinstance(sample, _torch.Tensor):
        return sample
    array = as_array(sample, "sample")
    if not array.flags.writeable or min(array.strides, default=0) < 0:
        array = array.copy()  # torch has neither
    return adapter_of_memory(_nothing).leave(array, _nothing)


# ---- converted behind them ---------------------------------------------------------------


def feed(
    loader: Any,
    pattern: str,
    *,
    key: Any = None,
    device: str | None = None,
    **keywords: Any,
) -> Feed:
    """The batches of a DataLoader, converted on the thread that asks for them.

    Parameters
    ----------
    loader : iterable
        A DataLoader whose `collate_fn` leaves bytes as they are, or any iterable of batches: a
        tensor or array, or a tuple, list, named tuple or dict that has one in it.
    pattern : str
        As for `layoutkit.convert`, of a whole batch: "bhwc->bchw".
    key : int or str, optional
        Which item of a batch is converted. Default: the first that is an array of the pattern's
        rank.
    device : str, optional
        "cuda", "cuda:1": bytes go there and are converted there, one batch ahead of the one that
        is handed out; the batch's other tensors go along. `pin_memory=True` of the DataLoader
        lets the copies of those overlap.
    **keywords
        dtype, scale, mean, std, casting, ..., and sizes of axes, as for `layoutkit.convert`.

    Returns
    -------
    Feed
        May be looped over as often as the loader, and is as long.

    Raises
    ------
    ArgumentError
        When a batch comes: it has no item `key`, or no array of the pattern's rank.
    """
    return Feed(loader, Converter(pattern, device=device, **keywords), key)


class Feed:
    """Batches of `loader`, of which `converter` has converted one item; `feed` makes it."""

    def __init__(self, loader: Any, converter: Converter, key: Any = None) -> None:
        self.loader, self.converter, self.key = loader, converter, key

    def __len__(self) -> int:
        return len(self.loader)

    def __iter__(self) -> Iterator[Any]:
        batches = map(self._fed, self.loader)
        if not self.converter.is_away:
            yield from batches
            return
        ahead: list[Any] = []
        for batch in batches:  # asked of the GPU, which runs while the one before is handed out
            yield from ahead
            ahead = [batch]
        yield from ahead

    def __repr__(self) -> str:
        return f"Feed({kind_text(self.loader)}, {self.converter!r})"

    def _fed(self, batch: Any) -> Any:
        if not isinstance(batch, Mapping | tuple | list):
            return self.converter(batch)
        items = dict(batch.items() if isinstance(batch, Mapping) else enumerate(batch))
        at = self._place(items)
        items = {
            name: self.converter(item) if name == at else self._beside(item)
            for name, item in items.items()
        }
        if isinstance(batch, Mapping):
            return items
        if hasattr(batch, "_fields"):
            return type(batch)(*items.values())
        return type(batch)(items.values())

    def _place(self, items: dict[Any, Any]) -> Any:
        """Which item is converted."""
        if self.key is not None:
            if self.key not in items:
                names = ", ".join(map(repr, items))
                raise ArgumentError(f"key={self.key!r}, but a batch has {names}; name one of them")
            return self.key
        left = self.converter.task.pattern.left
        for name, item in items.items():
            rank = getattr(item, "ndim", -1)
            if rank == left.ndim or (left.is_open and rank > left.ndim):
                return name
        found = ", ".join(f"{name!r}: {_looks(item)}" for name, item in items.items())
        more = " or more" if left.is_open else ""
        raise ArgumentError(
            f'"{self.converter.pattern}" converts arrays of rank {left.ndim}{more}, and a batch '
            f"has none: {found}; stack samples into one with collate_fn=layoutkit.torch.collate"
        )

    def _beside(self, item: Any) -> Any:
        """Another item, where the converted one is."""
        if not self.converter.is_away or not isinstance(item, _torch.Tensor):
            return item
        return item.to(self.converter.device, non_blocking=True)


def _looks(item: Any) -> str:
    shape = getattr(item, "shape", None)
    return kind_text(item) if shape is None else f"{kind_text(item)} {tuple(shape)}"
