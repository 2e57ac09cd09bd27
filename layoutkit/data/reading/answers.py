"""What comes of asking for a URL: bytes in pieces, or a failure, which may pass or not.

Knows neither protocols nor files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from ...errors import DataError

__all__ = ["CHUNK", "Answer", "Unanswered", "too_large", "translating"]

CHUNK = 1 << 18


class Unanswered(Exception):  # noqa: N818  # never reaches a user
    """A failure that another try may cure."""


@dataclass(frozen=True)
class Answer:
    """The bytes that come, their number where it is known before, and how to do without them.

    `checked` is False where an answer that was cut short looks like one that was not.
    """

    size: int | None
    chunks: Iterator[bytes]
    close: Callable[[], None] = lambda: None
    checked: bool = True


def too_large(
    url: str,
    most: int,
    found: int | None = None,
    what: str = "a record",
    fix: str = "max_record_bytes= allows more",
) -> DataError:
    """The error of what has more bytes than it may have; `found`: how many, where that is known."""
    number = "" if found is None else f"{found} bytes, "
    return DataError(
        f"{url} cannot be read: it has {number}more than the {most} bytes that {what} may have; "
        f"{fix}"
    )


@contextmanager
def translating(url: str) -> Iterator[None]:
    """Tell failures that may pass from those that will not; none is an OSError any more."""
    try:
        yield
    except (FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError) as error:
        raise DataError(f"{url} cannot be read: {_words(error)}") from error
    except OSError as error:
        raise Unanswered(f"{url} cannot be read: {_words(error)}") from error
    except (DataError, Unanswered, MemoryError):
        raise
    except ImportError as error:
        fix = "pip install 'layoutkit[data]'"
        raise DataError(f"{url} cannot be read: {error}; {fix} reads most URLs") from error
    except ValueError as error:  # a scheme that nobody here knows, or no URL
        raise DataError(f"{url} cannot be read: {error}") from error
    except Exception as error:
        if type(error).__module__.partition(".")[0] != "urllib3":
            # Every remote file system has its own errors, and most are no OSErrors.
            raise DataError(f"{url} cannot be read: {type(error).__name__}: {error}") from error
        raise Unanswered(f"{url} cannot be read: {_words(error)}") from error


def _words(error: BaseException) -> str:
    """The error in words; of urllib3's, the reason alone."""
    return str(getattr(error, "reason", None) or error) or type(error).__name__
