"""The keywords of MXNet's iterators that providers take as they are, and those that nobody has.

Knows names, and what their values mean in ours.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ...checks import as_count, as_flag
from ...errors import DataError
from ..protocolerrors import no_such_argument

__all__ = ["in_our_words"]


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
