"""Errors of other libraries become layoutkit's, and name their file; errors of unknown keywords."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any

from ..errors import ArgumentError, DataError, LayoutkitError
from .spelling import find_similar

EMPTY: Mapping[str, str] = MappingProxyType({})
Exceptions = type[Exception] | tuple[type[Exception], ...]
_EXPLAINED = (OSError, ValueError, EOFError)  # classes whose messages are understood without them


@contextmanager
def as_data_errors(
    name: object, errors: Exceptions = Exception, *, noun: str = "", fix: str = ""
) -> Iterator[None]:
    """Convert `errors` into DataErrors: "a.png cannot be read as an image: why; fix".

    LayoutkitErrors and MemoryErrors are raised as they are. If a `noun` says what the file should
    be, so are OSErrors of files that cannot be opened.
    """
    try:
        yield
    except (LayoutkitError, MemoryError):
        raise
    except errors as error:
        if noun and getattr(error, "filename", None) is not None:
            raise
        kind = f" as {noun}" if noun else ""
        advice = f"; {fix}" if fix else ""
        text = f"{name} cannot be read{kind}: {reason(error, name)}{advice}"
        raise DataError(text.lstrip()) from error


def reason(error: BaseException, name: object = "") -> str:
    """Return why something failed, in one line that does not repeat the `name` of its file."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    text = str(error).partition("\n")[0].removesuffix(f": {name}").rstrip(".")[:200]
    if text and isinstance(error, _EXPLAINED):
        return text
    return f"{type(error).__name__}: {text}".removesuffix(": ")


def describe_error(error: BaseException) -> str:
    """Return the type and text of an error; only the type if `str(error)` fails."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:
        return type(error).__name__


@contextmanager
def prefix_errors(prefix: str, *errors: type[LayoutkitError]) -> Iterator[None]:
    """Raise these errors again with a prefix, such as the name of a file, before their message."""
    try:
        yield
    except errors as error:
        raise type(error)(f"{prefix}{error}") from error


@contextmanager
def name_in_errors(path: object, replace: bool = False) -> Iterator[None]:
    """Name `path` in OSErrors that have no file name, or in all if `replace` is True."""
    try:
        yield
    except OSError as error:
        if not replace and (error.filename is not None or error.errno is None):
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error


@contextmanager
def explain_missing(
    need: str, extra: str, error_class: type[LayoutkitError] = ArgumentError
) -> Iterator[None]:
    """Convert the ImportError of an optional package into advice: "images need Pillow, but ..."."""
    try:
        yield
    except ImportError as error:
        raise error_class(
            f'{need}, but {error.name} is not installed: pip install "layoutkit[{extra}]"'
        ) from error


def reject_unknown(
    function: Callable[..., Any],
    names: Iterable[str],
    cures: Mapping[str, str] = EMPTY,
    error_class: type[LayoutkitError] = ArgumentError,
) -> None:
    """Raise an error for the first of these keywords, which a function or class does not have.

    cures    what to give in place of keywords of other libraries
    """
    for name in names:
        parameters = inspect.signature(function).parameters.values()
        variable = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
        known = [p.name for p in parameters if p.kind not in variable and p.name != "self"]
        cure = cures.get(name) or find_keyword(name, known)
        raise error_class(f"{function.__name__} has no {name}=; {cure}")


def find_keyword(name: str, known: Iterable[str]) -> str:
    """Return the question if a known keyword was meant, or else all known ones."""
    similar = find_similar(name, known)
    return f"did you mean {similar}=?" if similar else f"there are {', '.join(known)}"
