"""PyTorch integration: a module, a `collate_fn`, a converting loader, and a search for copies.

    Convert("bhwc->bchw", dtype="float32", scale=1 / 255)     an nn.Module, and a transform
    DataLoader(data, collate_fn=Collator("hwc->bchw", ...))   samples of any size: crop, resize,
                                                              flip and convert in one pass
    DataLoader(data, collate_fn=FieldCollator({...}))         the same for several fields, such as
                                                              image and mask, in the same windows
    DataLoader(data, collate_fn=collate, num_workers=8)       workers stack uint8 samples,
    feed(loader, "bhwc->bchw", dtype="float32", ...)          the main process converts batches
    with watch() as report: train()                           lists copies because of layouts

A batch of uint8 has a quarter of the bytes of one of float32, and every batch of a worker goes
through shared memory to the main process. So `collate` stacks samples without a conversion, and
`feed` converts the batches that come out of the workers.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any, Never

import numpy as np

from ._utils.validation import check_int, describe_type, show, type_name
from ._utils.warnings import warn
from .backends.dispatch import as_array
from .backends.items import (
    Positioned,
    check_no_none,
    items_of,
    join_items,
    make_none_error,
    map_items,
    stack_values,
)
from .backends.torch import view_as_numpy
from .backends.torch.tensors import find_concrete_adapter
from .collator import Collator as _ArrayCollator
from .converter import Converter
from .data.loader.batch import Batch, map_arrays
from .data.loader.batcher import Batcher, find_input_layouts
from .errors import ArgumentError, LayoutkitError, ShapeError
from .fields import FieldCollators
from .layout.parsing import parse_layout, with_batch_axis
from .memory import in_native_order
from .options import check_key
from .planning.batch.layout import check_same_rank_and_dtype
from .views import DataView
from .watch.recorder import Recorder, count_workers
from .watch.report import MIN_BYTES, Report

__all__ = ["Collator", "Convert", "Feed", "FieldCollator", "Positions", "collate", "feed", "watch"]


def __dir__() -> list[str]:
    return sorted(__all__)


_torch: Any = import_module("torch")
_collating: Any = import_module("torch.utils.data._utils.collate")
_nothing = _torch.empty(0)
_collator = _ArrayCollator("...->b...")
_LARGE = 1 << 20  # bytes of a batch; torch stacks smaller ones faster


# ---- a module ----------------------------------------------------------------------------


class Convert(_torch.nn.Module):
    """A conversion as a module: a layer of a model, or a transform.

    Accepts the arguments of `layoutkit.Converter`. It does not have parameters or state. Additional
    arguments of a call, such as labels in transforms of torchvision, are returned unchanged.
    The result is always a tensor, also of PIL images and arrays. Works in `nn.Sequential`, in
    torchvision's `v2.Compose`, under `torch.compile` and `torch.export`, but not with
    `torch.jit.script`.

    >>> Convert("bhwc->bchw", dtype="float32", scale=1 / 255)(_torch.zeros(2, 4, 5, 3)).shape
    torch.Size([2, 3, 4, 5])
    """

    def __init__(self, pattern: str, *more: Never, **keywords: Any) -> None:
        super().__init__()
        self.converter = Converter(pattern, *more, **keywords)

    def forward(self, x: Any, *rest: Any) -> Any:
        """Return the converted tensor, or, with more arguments, a tuple of it and them."""
        y = self.converter(x)
        if not isinstance(y, _torch.Tensor):
            y = _as_tensor(y)
        return (y, *rest) if rest else y

    def extra_repr(self) -> str:
        """Return the arguments of the Converter."""
        return repr(self.converter).removeprefix("Converter(").removesuffix(")")

    def __prepare_scriptable__(self) -> Any:
        raise ArgumentError(
            "torch.jit.script cannot read a conversion; use torch.compile, torch.export or "
            "torch.jit.trace, or move the conversion out of the scripted code"
        )


# ---- samples of any size -----------------------------------------------------------------


class Collator(_ArrayCollator):
    """A Collator whose batches are tensors: a `collate_fn` for samples of any size.

    Accepts the arguments of `layoutkit.Collator`. Samples may be arrays, tensors or PIL images, or
    tuples and dicts of them and other items, such as (image, label). Numbers, and arrays of one
    shape, are stacked; arrays that differ in shape, such as boxes, are a list of tensors, and other
    items a list. In a worker of a DataLoader, the batch is written to shared memory at once.

    Random windows of a DataLoader differ between workers, epochs and calls. With `Positions`, they
    depend only on the seed, the epoch, and the position of the sample in the dataset.

    >>> images = [(np.zeros((40 + i, 50, 3), np.uint8), i) for i in range(3)]
    >>> to_batch = Collator("hwc->bchw", h=32, w=32, resize="bilinear", crop="random", seed=1)
    >>> x, y = to_batch(images)
    >>> x.shape, y
    (torch.Size([3, 3, 32, 32]), tensor([0, 1, 2]))
    """

    framework = "torch"

    @staticmethod
    def _stack_items(values: list[Any]) -> Any:
        return _as_tensors(stack_values(values, collate))

    def _collate(self, arrays: Sequence[Any], indices: Any, crops: Any, out: Any) -> Any:
        arrays = self._with_shapes(arrays)
        if self._targets_gpu:  # CuPy would make the batch of NumPy arrays
            arrays = [_as_tensor(x) for x in arrays]
        if out is None and _torch.utils.data.get_worker_info() is not None:
            batch = self._in_shared_memory(arrays, indices, crops)
            if batch is not None:
                return batch
        batch = super()._collate(arrays, indices, crops, out)
        return batch if isinstance(batch, _torch.Tensor) else _as_tensor(batch)

    @staticmethod
    def _export_packed(packed: Any) -> Any:
        is_tensor = isinstance(packed.data, _torch.Tensor)
        return packed if is_tensor else packed._replace(data=_as_tensor(packed.data))

    @staticmethod
    def _export_lengths(lengths: Any) -> Any:
        return _as_tensor(np.ascontiguousarray(lengths))

    def _in_shared_memory(self, arrays: Sequence[Any], indices: Any, crops: Any) -> Any:
        """Return the batch in shared memory; None if samples or batch are not plain CPU memory."""
        plain = _arrays(arrays)
        if plain is None or self.device not in (None, "cpu"):
            return None
        target = self._find_program(self._describe_samples(plain, indices), None).layout.plan.target
        if target.dtype.isbuiltin != 1:
            return None
        batch = _shared_tensor(target.shape, target.dtype)
        super()._collate(plain, indices, crops, batch.numpy())
        return batch


LIST = "list"  # in place of a Collator: the values of a field are never stacked


class FieldCollator:
    """A `collate_fn` for samples of several fields, such as image and mask, in equal windows.

    A batch is a dict of tensors and lists with the keys of a sample, and "placements", the
    `layoutkit.Placements` of the batch, which map boxes and points, or None if no Collator has
    windows. The batch of tuples is a tuple, with the placements as its last item.

    Parameters
    ----------
    collators : dict of Collators or "list"
        By key of a sample, or, if samples are tuples, by the number of the item. The first Collator
        that draws, or else the first one with windows, places all samples: the windows of other
        fields are the same along axes of equal names.

        "list" makes a list of a field, of tensors if its values are arrays. Fields that are not
        named are stacked, if they are numbers or arrays of one shape, and else are a list. So name
        fields whose shapes differ between samples, such as boxes: a batch may have equally many.

    Examples
    --------
    >>> from layoutkit import Collator
    >>> sizes = {"h": 32, "w": 32, "resize": "nearest"}
    >>> image, mask = np.zeros((40, 50, 3), np.uint8), np.zeros((40, 50), np.uint8)
    >>> draws = Collator("hwc->bchw", crop="random", **sizes)
    >>> to_batch = FieldCollator({"image": draws, "mask": Collator("hw->bhw", **sizes)})
    >>> batch = to_batch([{"image": image, "mask": mask, "label": 3}])
    >>> batch["image"].shape, batch["mask"].shape, batch["label"]
    (torch.Size([1, 3, 32, 32]), torch.Size([1, 32, 32]), tensor([3]))
    >>> batch["placements"][0].to_image([[0, 0, 32, 32]]).shape
    (1, 4)
    >>> x, boxes, placements = FieldCollator({0: draws, 1: "list"})([(image, np.zeros((2, 4)))])
    >>> [own.shape for own in boxes]
    [torch.Size([2, 4])]
    """

    def __init__(self, collators: Mapping[str | int, _ArrayCollator | str]) -> None:
        if not isinstance(collators, Mapping) or not collators:
            raise ArgumentError(
                f"collators is {show(collators)}; give a dict of one Collator or more by field, as "
                "in {'image': Collator(...), 'boxes': 'list'}, or, for tuples, in {0: ..., 1: ...}"
            )
        for name, collator in collators.items():
            if not isinstance(name, str | int):
                raise ArgumentError(
                    f"collators has the key {name!r}; a field is a key of a dict, or a number"
                )
            if collator != LIST and not isinstance(collator, _ArrayCollator):
                raise ArgumentError(
                    f'the field {name!r} has {show(collator)}; give a Collator, or "{LIST}"'
                )
        self._names = (*collators,)
        self._fields = FieldCollators(
            {
                name: Collator.from_dict(x.to_dict())
                for name, x in collators.items()
                if isinstance(x, _ArrayCollator)
            }
        )

    def __call__(self, samples: Sequence[Any]) -> Any:
        """Return the batch of samples: dicts, tuples, or the samples of `Positions`."""
        columns = self._split(samples)
        batches, placements = self._fields.collate(columns)
        for name in columns.keys() - batches.keys():
            values = [_without_position(value) for value in columns[name]]
            is_list = name in self._names
            batches[name] = _as_tensors(values if is_list else stack_values(values, collate))
        ordered = {name: batches[name] for name in columns}
        if isinstance(_without_position(samples[0]), Mapping):
            return ordered | {"placements": placements}
        return (*ordered.values(), placements)

    def warmup(self, samples: Sequence[Any], *, dtype: Any = "uint8") -> list[str]:
        """Compile, or load from disk, the kernels of batches, so that the first batch is fast.

        It makes batches of arrays of zeros, mirrored and not if the windows are flipped at random,
        with the placements of the first field for all. Neither the samples nor later random
        windows are changed.

        >>> from layoutkit import Collator
        >>> sizes = {"h": 32, "w": 32, "resize": "nearest"}
        >>> draws = Collator("hwc->bchw", crop="random", flip="random", **sizes)
        >>> to_batch = FieldCollator({"image": draws, "mask": Collator("hw->bhw", **sizes)})
        >>> shapes = {"image": (40, 50, 3), "mask": (40, 50)}
        >>> _ = to_batch.warmup([shapes] * 8, dtype={"image": "uint8", "mask": "int64"})
        >>> to_batch.warmup([shapes] * 8, dtype={"image": "uint8", "mask": "int64"})
        []

        Parameters
        ----------
        samples : sequence of dicts
            As for a call, or dicts of the shapes of the arrays that have a Collator, as tuples.
            Other values are ignored. Small and large batches have different kernels, so pass as
            many samples as a batch has.
        dtype : dtype, or dict of dtypes by key
            The dtype of arrays that are passed as shapes: one for all, or one for each key that has
            a Collator.

        Returns
        -------
        list of str
            The names of the kernels that were loaded, or compiled and cached on disk for later
            processes. Kernels for GPUs are compiled, too, but not listed.

        Raises the errors of a call; ArgumentError if `dtype` has other keys.
        """
        columns = self._split(samples)
        names = self._fields.collators.keys()
        dtypes = dtype if isinstance(dtype, Mapping) else dict.fromkeys(names, dtype)
        if dtypes.keys() != names:
            raise ArgumentError(
                f"dtype={show(dtype)}; give one dtype, or a dict with {', '.join(map(repr, names))}"
            )
        arrays = {name: [_without_position(x) for x in columns[name]] for name in names}
        return self._fields.warmup(arrays, dtypes)

    def _split(self, samples: Sequence[Any]) -> dict[Any, list[Any]]:
        """Return the values of each field, with the positions of the samples."""
        check_no_none(samples)
        check_no_none([*map(_without_position, samples)], test="x.sample")
        if not samples or not isinstance(_without_position(samples[0]), Mapping | tuple | list):
            raise ArgumentError(
                "a batch needs one sample or more, dicts or tuples with "
                f"{', '.join(map(repr, self._names))}"
            )
        first = _without_position(samples[0])
        names = [*items_of(first)]
        lacking = [repr(name) for name in self._names if name not in names]
        if lacking:
            raise ArgumentError(
                f"a sample, a {type_name(first)}, has {', '.join(map(repr, names))}, but not "
                f"{', '.join(lacking)}, which the FieldCollator names; give both one name"
            )
        if "placements" in names:
            raise ArgumentError(
                f"a sample, a {type_name(first)}, has 'placements', which in a batch are the "
                "placements of its windows; rename this field of the samples"
            )
        columns: dict[Any, list[Any]] = {name: [] for name in names}
        for number, sample in enumerate(samples):
            own = _without_position(sample)
            items = items_of(own) if isinstance(own, Mapping | tuple | list) else {}
            if items.keys() != columns.keys():
                raise ArgumentError(
                    f"sample {number} does not have {', '.join(map(repr, names))}, as sample 0 has"
                )
            for name, item in items.items():
                if item is None and name in self._names:
                    raise make_none_error(repr(name), number)
                is_positioned = isinstance(sample, Positioned)
                columns[name].append(sample._replace(sample=item) if is_positioned else item)
        return columns


def _without_position(sample: Any) -> Any:
    return sample.sample if isinstance(sample, Positioned) else sample


class Positions(_torch.utils.data.Dataset):
    """A dataset whose samples carry their position and the epoch, for random windows of a Collator.

    The windows are then the same for any number of workers, any batch size and order, and in a
    resumed program. Without `set_epoch`, every epoch has the same windows: a warning says once that
    most samples are read again under one epoch.

    >>> data = Positions([(np.zeros((40, 50, 3), np.uint8), 7)])
    >>> data.set_epoch(2)
    >>> len(data), data[0].position, data[0].epoch
    (1, 0, 2)
    """

    def __init__(self, dataset: Any) -> None:
        if not hasattr(dataset, "__len__") or not hasattr(dataset, "__getitem__"):
            raise ArgumentError(
                f"dataset is {describe_type(dataset)}; give one with a length, whose samples are "
                "dataset[0], dataset[1], ..."
            )
        self.dataset = dataset
        # In shared memory, so that workers see changes. Concurrent counts may lose a few reads.
        self._epoch = _torch.zeros((), dtype=_torch.int64).share_memory_()
        self._was_read = _torch.zeros(len(dataset), dtype=_torch.bool).share_memory_()
        self._counts = _torch.zeros(3, dtype=_torch.int64).share_memory_()

    def set_epoch(self, epoch: int) -> None:
        """Set the number of the epoch, before iterating over the DataLoader."""
        self._epoch.fill_(check_int("epoch", epoch, error=ArgumentError))
        self._was_read.zero_()
        self._counts[:2].zero_()

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, position: Any) -> Positioned:
        number = int(position)
        number += len(self.dataset) if number < 0 else 0
        sample = Positioned(self.dataset[number], number, int(self._epoch))
        self._count_read(number)
        return sample

    def _count_read(self, number: int) -> None:
        """Count the read of a sample; warn once if most samples are read again in this epoch."""
        was_read, counts = self._was_read.numpy(), self._counts.numpy()
        if number >= len(was_read):  # the dataset has grown
            return
        counts[int(was_read[number])] += 1
        was_read[number] = True
        first, again, has_warned = counts.tolist()
        # Samplers with replacement read 0.58 times as many samples again in a correct epoch.
        if has_warned or 4 * again < 3 * first or again < min(8, 0.75 * len(was_read)):
            return
        counts[2] = True
        warn(
            f"samples of Positions are read again under epoch {int(self._epoch)}, so that random "
            "windows of them are the same as before; call set_epoch(epoch) before each epoch, or "
            "omit Positions if no windows are random. A sampler that repeats samples in an epoch "
            "repeats their windows"
        )


def _refuse_positions(samples: Sequence[Any], *, collate_fn_map: Any = None) -> Any:
    raise ArgumentError(
        "samples of layoutkit.torch.Positions have a position and an epoch for the random windows "
        "of a Collator; give the DataLoader collate_fn=layoutkit.torch.Collator(...), or omit "
        "Positions"
    )


# torch's own collate functions would stack samples, positions and epochs.
_collating.default_collate_fn_map[Positioned] = _refuse_positions


# ---- stacking in the workers -------------------------------------------------------------


def collate(samples: Sequence[Any]) -> Any:
    """Stack samples without a conversion: a `collate_fn` for batches that `feed` converts.

    Parameters
    ----------
    samples : sequence
        Arrays of NumPy and other libraries, tensors, PIL images, numbers, or tuples, lists and
        dicts of these, all of one structure.

    Returns
    -------
    tensor, or the structure of a sample with tensors in it
        Equal to the result of torch's `default_collate`: a new first axis, dtypes unchanged, a
        tuple becomes a list. In a worker of a DataLoader the tensors are in shared memory.

    Raises
    ------
    ShapeError, DtypeError
        Two arrays that would be stacked differ in shape or dtype.
    ArgumentError
        A sample, or an item of one, is None.
    """
    if not isinstance(samples, Iterable):
        raise ArgumentError(f"samples is {describe_type(samples)}; give a list of samples")
    samples = list(samples)
    if not samples:
        raise ShapeError("there are no samples; pass at least one")
    check_no_none(samples, "collate")
    try:
        return _collating.collate(samples, collate_fn_map=_collators())
    except (ArgumentError, RuntimeError, TypeError):
        for number, sample in enumerate(samples):
            if (path := _find_none(sample)) is not None:
                raise make_none_error(path, number) from None
        raise


def _find_none(sample: Any) -> str | None:
    """Return the keys of an item that is None, such as "'image'" or "0.1"; None without one."""
    is_mapping = isinstance(sample, Mapping)
    if not is_mapping and not isinstance(sample, tuple | list):
        return None
    for key, item in sample.items() if is_mapping else enumerate(sample):
        if item is None:
            return repr(key)
        if (path := _find_none(item)) is not None:
            return f"{key!r}.{path}"
    return None


def _collators() -> dict[Any, Any]:
    """Return torch's collate functions by class, with ours for tensors, arrays and images."""
    functions = {**_collating.default_collate_fn_map, np.ndarray: _stack, _torch.Tensor: _stack}
    if "jax" in sys.modules:
        functions[sys.modules["jax"].Array] = _stack
    if "PIL.Image" in sys.modules:
        functions[sys.modules["PIL.Image"].Image] = _stack_images
    return functions


def _stack_images(samples: Sequence[Any], *, collate_fn_map: Any = None) -> Any:
    return _stack([np.asarray(sample) for sample in samples], collate_fn_map=collate_fn_map)


def _stack(samples: Sequence[Any], *, collate_fn_map: Any = None) -> Any:
    arrays = _arrays(samples) if len(samples) * samples[0].nbytes >= _LARGE else None
    if arrays is None:
        tensors = [_as_tensor(sample) for sample in samples]
        _check_alike(tensors)
        return _collating.collate_tensor_fn(tensors, collate_fn_map=collate_fn_map)
    _check_alike(arrays)
    if _torch.utils.data.get_worker_info() is not None:
        batch = _shared_tensor((len(arrays), *arrays[0].shape), arrays[0].dtype)
        _collator(arrays, out=batch.numpy())
        return batch
    return find_concrete_adapter(_nothing).from_numpy(_collator(arrays), _nothing)


def _arrays(samples: Sequence[Any]) -> list[Any] | None:
    """Return the samples as NumPy arrays; None if torch must stack them itself.

    That is the case for tensors that are not plain CPU memory, and for dtypes that NumPy lacks.
    """
    tensors = [sample for sample in samples if isinstance(sample, _torch.Tensor)]
    views = view_as_numpy(tensors) if tensors else []
    if views is None:
        return None
    remaining = iter(views)
    arrays = [next(remaining) if isinstance(x, _torch.Tensor) else as_array(x) for x in samples]
    return arrays if arrays[0].dtype.isbuiltin == 1 else None


def _check_alike(samples: Sequence[Any]) -> None:
    facts = [(tuple(sample.shape), sample.dtype) for sample in samples]
    first, _ = facts[0]
    for i, (shape, _) in enumerate(facts):
        if shape != first:
            raise ShapeError(
                f"sample {i} has shape {shape}, but sample 0 has {first}; crop or resize all to "
                "one size with layoutkit.torch.Collator as collate_fn, or make batches of one"
            )
    check_same_rank_and_dtype(facts)


def _shared_tensor(shape: tuple[int, ...], dtype: Any) -> Any:
    first = _as_tensor(np.empty(0, dtype))
    storage = first._typed_storage()._new_shared(math.prod(shape))
    return first.new(storage).view(shape)


def _as_tensors(items: Any) -> Any:
    """Return items with tensors in place of arrays and Views; text and others as they are."""
    if isinstance(items, DataView):
        return _as_tensor(items.input)
    if isinstance(items, Mapping | tuple | list):
        return map_items(_as_tensors, items)
    if not hasattr(items, "shape") or isinstance(items, np.generic):
        return items
    try:
        return _as_tensor(items)
    except LayoutkitError:  # a dtype that torch does not have, such as a date's
        return items


def _as_tensor(sample: Any) -> Any:
    """Return an array as a tensor, without a copy if torch supports its memory."""
    if isinstance(sample, _torch.Tensor):
        return sample
    array = in_native_order(as_array(sample, "sample"))
    if not array.flags.writeable or min(array.strides, default=0) < 0:
        array = array.copy()  # torch supports neither
    return find_concrete_adapter(_nothing).from_numpy(array, _nothing)


# ---- converting batches ------------------------------------------------------------------


def feed(
    loader: Any,
    pattern: str,
    *,
    key: Any = None,
    device: str | None = None,
    **keywords: Any,
) -> Feed:
    """Return an iterable of a DataLoader's batches, converted on the consumer's thread.

    Parameters
    ----------
    loader : iterable
        A DataLoader whose `collate_fn` does not convert, a Batcher of `sampled_batcher`, or any
        iterable of batches. A batch is a tensor or array, or a tuple, list, named tuple or dict
        that contains one. Batches of a Batcher remain such, with tensors as input and target.
    pattern : str
        The pattern of a batch, as for `layoutkit.convert`: "bhwc->bchw".
    key : int or str, optional
        The item of a batch to convert. Default: the first array of the pattern's rank.
    device : str, optional
        "cuda", "cuda:1": the item is copied to the GPU through pinned memory and converted there;
        other tensors of the batch are copied too. That happens one batch ahead of the yielded one,
        except for a Batcher, whose threads read ahead and whose state would be ahead, too.
        `pin_memory=True` of a DataLoader lets the copies of other tensors overlap.
    **keywords
        dtype, scale, mean, std, casting, ..., and sizes of axes, as for `layoutkit.convert`.

    Returns
    -------
    Feed
        It can be iterated as often as the loader, and has its length.

    Raises
    ------
    ArgumentError
        The layout of a Batcher has the axes of the pattern in another order. During iteration: a
        batch does not have an item `key`, or an array of the pattern's rank.
    """
    return Feed(loader, Converter(pattern, device=device, **keywords), key)


class Feed:
    """The batches of `loader`, with one item converted by `converter`; made by `feed`."""

    def __init__(self, loader: Any, converter: Converter, key: Any = None) -> None:
        check_key(key)
        if not hasattr(loader, "__iter__") and not hasattr(loader, "__getitem__"):
            raise ArgumentError(
                f"loader is {describe_type(loader)}; give a DataLoader, a Batcher of "
                "sampled_batcher, or another iterable of batches"
            )
        self.loader = loader
        self.converter = converter
        self.key = key
        if isinstance(loader, Batcher):
            self._check_layout(find_input_layouts(loader))

    def __len__(self) -> int:
        return len(self.loader)

    def __iter__(self) -> Iterator[Any]:
        batches = map(self._convert, self.loader)
        if not self.converter.targets_gpu or isinstance(self.loader, Batcher):
            yield from batches
            return
        ahead: list[Any] = []
        for batch in batches:  # queued on the GPU, which runs while the previous one is yielded
            yield from ahead
            ahead = [batch]
        yield from ahead

    def __repr__(self) -> str:
        return f"Feed({type_name(self.loader)}, {self.converter!r})"

    def _check_layout(self, layouts: Mapping[Any, str | None]) -> None:
        """Raise ArgumentError if the input has the axes of the pattern in another order.

        layouts    of the arrays of an input, by field or number; None if one is not known
        """
        pattern = self.converter.options.pattern
        left = with_batch_axis(pattern.left)
        names = [self.key] if self.key in layouts else [*layouts]
        parsed = [with_batch_axis(parse_layout(x)) for name in names if (x := layouts[name])]
        for layout in parsed:
            if layout.ndim == left.ndim:
                if left.is_permuted(layout):
                    raise ArgumentError(
                        f'batches of the Batcher are {layout}, but "{pattern.text}" converts '
                        f'{left}; give "{layout}->{with_batch_axis(pattern.right)}"'
                    )
                return

    def _convert(self, batch: Any) -> Any:
        if isinstance(batch, Batch):
            return self._convert_records(batch)
        if not isinstance(batch, Mapping | tuple | list):
            return self.converter(batch)
        items = dict(batch.items() if isinstance(batch, Mapping) else enumerate(batch))
        key = self._find_key(items)
        items = {
            name: self.converter(item) if name == key else self._to_device(item)
            for name, item in items.items()
        }
        return join_items(batch, items)

    def _convert_records(self, batch: Batch) -> Batch:
        """Return a batch of a Batcher with a converted input; without records it is unchanged."""
        if batch.input is None:
            return batch
        x, y = map_arrays(_as_tensors, (batch.input, batch.target))
        return batch.with_arrays(self._convert(x), self._to_device(y))

    def _find_key(self, items: dict[Any, Any]) -> Any:
        if self.key is not None:
            if self.key not in items:
                names = ", ".join(map(repr, items))
                raise ArgumentError(f"key={self.key!r}, but a batch has {names}; name one of them")
            return self.key
        left = self.converter.options.pattern.left
        for name, item in items.items():
            rank = getattr(item, "ndim", -1)
            if rank == left.ndim or (left.has_ellipsis and rank > left.ndim):
                return name
        shown = ", ".join(f"{name!r}: {_describe(item)}" for name, item in items.items())
        more = " or more" if left.has_ellipsis else ""
        raise ArgumentError(
            f'"{self.converter.pattern}" converts arrays of rank {left.ndim}{more}, and a batch '
            f"has none: {shown}; stack samples into one with collate_fn=layoutkit.torch.collate"
        )

    def _to_device(self, item: Any) -> Any:
        """Return another item of the batch, with its tensors copied to the GPU."""
        return map_arrays(self._move, item) if self.converter.targets_gpu else item

    def _move(self, item: Any) -> Any:
        if not isinstance(item, _torch.Tensor):
            return item
        return item.to(self.converter.device, non_blocking=True)


def _describe(item: Any) -> str:
    shape = getattr(item, "shape", None)
    return type_name(item) if shape is None else f"{type_name(item)} {tuple(shape)}"


# ---- copies of a program -----------------------------------------------------------------


@contextmanager
def watch(min_bytes: int = MIN_BYTES) -> Iterator[Report]:
    """Record the copies in a `with` block that exist only because of layouts.

    >>> images = _torch.zeros(4, 64, 64, 3)
    >>> with watch() as report:
    ...     planes = images.permute(0, 3, 1, 2).contiguous()
    >>> [(row.kind, row.count, row.replacement) for row in report.rows()]
    [('permute + contiguous', 1, 'layoutkit.convert(x, "bhwc->bchw")')]

    It sees PyTorch's operations in the calling thread, and the casts and arithmetic before and
    after a copy, which one conversion can replace too. It does not see code compiled by
    `torch.compile`, NumPy's own copies, and worker processes. An operation takes some
    microseconds more.

    Parameters
    ----------
    min_bytes : int
        Copies that read and write fewer bytes are omitted.

    Yields
    ------
    Report
        Complete after the block. `print` shows it; `rows()` are the copies by line, and
        `to_json()` and `to_html()` are texts.
    """
    min_bytes = check_int("min_bytes", min_bytes, 0, error=ArgumentError)
    report = Report(min_bytes)
    recorder = Recorder(min_bytes)
    try:
        with count_workers(report.workers), recorder:
            yield report
    finally:
        report.close(recorder.copies, recorder.errors)
