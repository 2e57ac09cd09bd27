"""What torch.compile puts into its graph in place of a conversion.

It follows Python's bytecode up to `put`, `put_call` and `put_sum`, and takes the functions below as
they are: they stand in the graph and are called with fake tensors when it is made ready, and only
then say what becomes of a tensor (`torch_traced`). They are given words, numbers and tensors, which
a graph can hold.

Imported while torch.compile looks at a conversion, as its own modules take seconds to import.
"""

from __future__ import annotations

import json
from importlib import import_module
from typing import Any

import numpy as np

from ..._compile import makers, words_of_windows
from ...accumulation import Accumulator
from ...converter import Converter
from ...planning.collate import make_windows
from ...planning.options import make_task
from ...spec import as_dtype
from .symbolic import options_from_json, told

_torch: Any = import_module("torch")


def put(asked: Any, x: Any, out: Any) -> Any:
    """What `asked(x, out)` is in a graph, of a Converter or of an Accumulator and its parts."""
    words: Any = _words_of(asked) if asked.words is None else asked.words
    if isinstance(asked, Accumulator):
        return _accumulate(x, out, *words)
    pattern, keywords, names, sizes = words
    return _convert(x, out, pattern, keywords, names, sizes, {})


def put_call(x: Any, pattern: str, out: Any, sizes: dict[str, Any], keywords: Any) -> Any:
    """What `convert` of these arguments is in a graph, which may hold symbols among the sizes."""
    traced = {
        name: _torch.as_tensor(constant)
        for name, constant in keywords.items()
        if isinstance(constant, _torch.Tensor | np.ndarray)
    }
    words = _words_of_call(
        pattern, **{name: each for name, each in keywords.items() if name not in traced}
    )
    return _convert(x, out, *words, list(sizes), list(sizes.values()), traced)


def put_batch(asked: Any, samples: Any, indices: Any, offset: Any, flip: Any, out: Any) -> Any:
    """What a Collator makes of samples in a graph."""
    words: Any = _words_of_windows(asked) if asked.words is None else asked.words
    return _like_samples(samples, _collate(samples, indices, offset, flip, out, *words))


def put_batch_call(samples: Any, pattern: str, windows: Any, sizes: Any, keywords: Any) -> Any:
    """What `collate` of these arguments is in a graph."""
    told = _told_of_call(pattern, tuple(sizes), **keywords)
    indices, offset, flip, out = windows
    values = list(sizes.values())
    found = _collate(samples, indices, offset, flip, out, pattern, told, list(sizes), values)
    return _like_samples(samples, found)


def _like_samples(samples: Any, found: Any) -> Any:
    """A batch of arrays of NumPy, which are tensors in a graph, as one of them."""
    first = samples[0] if isinstance(samples, list | tuple) else samples
    return found.numpy() if isinstance(first, np.ndarray) else found


def put_sum(
    parts: list[Any], out: Any, layouts: Any, layout: str, dtype: Any, sizes: dict[str, Any]
) -> Any:
    """What `accumulate` of these arguments is in a graph."""
    name = "" if dtype is None else _name_of(dtype)
    return _accumulate(parts, out, list(layouts), layout, name, list(sizes), list(sizes.values()))


def _name_of(dtype: Any) -> str:
    return as_dtype(dtype).name


def _words_of_call(pattern: str, **keywords: Any) -> tuple[str, str]:
    return pattern, told(make_task(pattern, **keywords))


def _words_of(asked: Any) -> tuple[Any, ...]:
    """What is asked of a Converter, in words, where it was made before torch was there."""
    task = asked.task
    return str(task.pattern), told(task), list(task.sizes), list(task.sizes.values())


def _words_of_windows(asked: Any) -> Any:
    return words_of_windows(asked.windows)


def _told_of_call(pattern: str, names: tuple[str, ...], **keywords: Any) -> str:
    asked = make_windows(pattern, **keywords, **dict.fromkeys(names, 1))
    return json.dumps(asked._replace(task=asked.task._replace(sizes={})).keywords())


def _collate(
    samples: Any, indices: Any, offset: Any, flip: Any, out: Any, pattern: str, keywords: str,
    names: list[str], sizes: list[int],
) -> Any:  # fmt: skip
    found = options_from_json(keywords, names, [*map(_concrete_sizes, sizes)])
    offset = {axis: _concrete_sizes(each) for axis, each in offset.items()} if offset else None
    return makers["Collator"](pattern, **found)(
        samples, indices=_concrete_sizes(indices), offset=offset, flip=flip, out=out
    )


def _concrete_sizes(value: Any) -> Any:
    """Symbols as the numbers that they stand for now: a graph is for these windows."""
    if isinstance(value, list | tuple):
        return [_concrete_sizes(each) for each in value]
    return int(value) if isinstance(value, _torch.SymInt) else value


def _convert(
    x: Any, out: Any, pattern: str, keywords: str, names: list[str], sizes: list[int],
    constants: dict[str, Any],
) -> Any:  # fmt: skip
    return Converter(pattern, **{**options_from_json(keywords, names, sizes), **constants})(x, out)


def _accumulate(
    parts: list[Any], out: Any, layouts: list[str], layout: str, dtype: str,
    names: list[str], sizes: list[int],
) -> Any:  # fmt: skip
    known: dict[str, Any] = dict(zip(names, sizes, strict=True))
    return Accumulator(tuple(layouts), layout, dtype=dtype or None, **known)(parts, out)


_words_of, _words_of_call, _name_of, _words_of_windows, _told_of_call = map(
    _torch.compiler.assume_constant_result,
    (_words_of, _words_of_call, _name_of, _words_of_windows, _told_of_call),
)
_convert, _accumulate, _collate = map(
    _torch.compiler.allow_in_graph, (_convert, _accumulate, _collate)
)
