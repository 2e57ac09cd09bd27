"""What providers of files are asked for in one way: parts, names, and the keywords of MXNet.

Its iterators' keywords are taken as they are, where they have a meaning here; what nobody has is an
error. Knows names and values; what they do is not known here.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ...checks import as_count, as_flag
from ...errors import DataError
from ..indexes.partition import Partition
from ..protocolerrors import no_such_argument

__all__ = ["as_partition", "check_names", "in_our_words", "say"]

_log = logging.getLogger("layoutkit.data")


class _Word(NamedTuple):
    ours: str
    meant: Callable[[str, Any], Any]


def _tail(name: str, value: Any) -> str:
    return "wrap" if as_flag(name, value) else "pad"


def _not(name: str, value: Any) -> bool:
    return not as_flag(name, value)


_WORDS = {
    "round_batch": _Word("tail", _tail),
    "preprocess_threads": _Word("num_workers", as_count),
    "prefetch_buffer": _Word("prefetch", as_count),
    "verbose": _Word("verbose", as_flag),
    "silent": _Word("verbose", _not),
}
_ALWAYS = ("verbose",)  # said in these words only, as what it does is a line in a log


def in_our_words(
    provider: type, others: Mapping[str, Any], **given: Any
) -> tuple[bool, dict[str, Any]]:
    """Whether to log what was opened, and the arguments `given` as `others` change them.

    `others` are the keywords that the constructor of `provider` does not name.

    Raises
    ------
    DataError, TypeError
        An unknown keyword, with the nearest one there is; one that contradicts what is given.
    """
    parameters = inspect.signature(provider).parameters
    own = [name for name, each in parameters.items() if each.kind != each.VAR_KEYWORD]
    words = {name: word for name, word in _WORDS.items() if word.ours in (*own, *_ALWAYS)}
    said = dict(given)
    whose: dict[str, str] = {}
    for name, value in others.items():
        if name not in words:
            raise no_such_argument(provider.__name__, name, [*own, *words])
        ours, meant = words[name]
        found = meant(name, value)
        before = said.get(ours, found)
        untouched = ours in parameters and before == parameters[ours].default
        if before != found and not (untouched and ours not in whose):
            other = whose.get(ours, f"{ours}={before!r}")
            raise DataError(f"{other} and {name}={value!r} contradict each other; give one")
        said[ours], whose[ours] = found, f"{name}={value!r}"
    return bool(said.pop("verbose", True)), said


def as_partition(part_index: Any, num_parts: Any) -> Partition:
    """Records part_index, part_index + num_parts, ...; DataError where there is no such part."""
    parts = as_count("num_parts", num_parts, 1)
    part = as_count("part_index", part_index)
    if part >= parts:
        raise DataError(f"part_index={part}; of num_parts={parts} the last one is {parts - 1}")
    return Partition(part, parts)


def check_names(data_name: Any, label_name: Any) -> None:
    """DataError unless both are names (that of the label may be None), and not the same."""
    for what, name in (("data_name", data_name), ("label_name", label_name)):
        if not isinstance(name, str) and (name is not None or what == "data_name"):
            raise DataError(f"{what}={name!r}; a name is a str")
    if data_name == label_name:
        raise DataError(f"{data_name!r} is both data and label; give them different names")


def say(verbose: bool, text: str, *numbers: Any) -> None:
    """A line about what was opened, for those who listen to `layoutkit.data`."""
    if verbose:
        _log.info(text, *numbers)
