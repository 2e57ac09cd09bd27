"""The arguments of providers of files, also by the names of MXNet's iterators.

Unknown keywords are errors.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ..._utils.validation import check_bool, check_int, show
from ...errors import DataError
from ..errors import no_such_argument
from ..sources.base import Partition

_log = logging.getLogger("layoutkit.data")


class _Keyword(NamedTuple):
    target: str
    parse: Callable[[str, Any], Any]


def _parse_round_batch(name: str, value: Any) -> str:
    return "wrap" if check_bool(name, value) else "pad"


def _parse_silent(name: str, value: Any) -> bool:
    return not check_bool(name, value)


_MXNET_KEYWORDS = {
    "round_batch": _Keyword("tail", _parse_round_batch),
    "preprocess_threads": _Keyword("num_workers", check_int),
    "prefetch_buffer": _Keyword("prefetch", check_int),
    "verbose": _Keyword("verbose", check_bool),
    "silent": _Keyword("verbose", _parse_silent),
}
_MXNET_ONLY = ("verbose",)  # arguments that only MXNet keywords set


def _translate(
    provider: type, mxnet_kwargs: Mapping[str, Any], **arguments: Any
) -> tuple[bool, dict[str, Any]]:
    """Return the `verbose` flag, and the arguments updated by MXNet keywords."""
    parameters = inspect.signature(provider).parameters
    own_names = [
        name for name, parameter in parameters.items() if parameter.kind != parameter.VAR_KEYWORD
    ]
    keywords = {
        name: keyword
        for name, keyword in _MXNET_KEYWORDS.items()
        if keyword.target in (*own_names, *_MXNET_ONLY)
    }
    merged = dict(arguments)
    origin: dict[str, str] = {}
    for name, value in mxnet_kwargs.items():
        if name not in keywords:
            raise no_such_argument(provider.__name__, name, [*own_names, *keywords])
        target, parse = keywords[name]
        parsed = parse(name, value)
        current = merged.get(target, parsed)
        is_default = target in parameters and current == parameters[target].default
        if current != parsed and not (is_default and target not in origin):
            other = origin.get(target, f"{target}={current!r}")
            raise DataError(f"{other} and {name}={show(value)} contradict each other; give one")
        merged[target] = parsed
        origin[target] = f"{name}={show(value)}"
    return bool(merged.pop("verbose", True)), merged


def file_arguments(
    provider: type,
    mxnet_kwargs: Mapping[str, Any],
    names: tuple[Any, Any],
    part: tuple[Any, Any],
    **arguments: Any,
) -> tuple[bool, dict[str, Any]]:
    """Return the `verbose` flag, and the arguments of a provider of files, checked.

    provider, mxnet_kwargs    a class, and the keywords that its constructor does not name
    names                     `data_name`, `label_name`
    part                      `part_index`, `num_parts`; the arguments returned have `partition`

    Raises
    ------
    DataError, TypeError
        A keyword is unknown (the message suggests the most similar one) or contradicts an argument;
        a name or part is invalid.
    """
    verbose, merged = _translate(provider, mxnet_kwargs, **arguments)
    for arg_name, name in zip(("data_name", "label_name"), names, strict=True):
        if not isinstance(name, str) and (name is not None or arg_name == "data_name"):
            raise DataError(f"{arg_name}={show(name)}; a name must be a str")
    if names[0] == names[1]:
        raise DataError(f"{names[0]!r} is both data and label; give them different names")
    parts = check_int("num_parts", part[1], 1)
    number = check_int("part_index", part[0])
    if number >= parts:
        raise DataError(f"part_index={number}; with num_parts={parts} the last part is {parts - 1}")
    return verbose, {**merged, "partition": Partition(number, parts)}


def log_opened(verbose: bool, text: str, *numbers: Any) -> None:
    """Log a line about an opened source to the logger `layoutkit.data`."""
    if verbose:
        _log.info(text, *numbers)
