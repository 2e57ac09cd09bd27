"""The results and errors of remote readers, for every protocol."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

from ..._utils.errors import describe_error
from ...errors import DataError

CHUNK = 1 << 18


class RetryableError(Exception):  # never reaches a user
    """A failure that a retry may cure."""


class ChangedFileError(DataError):
    """The error for a file that was replaced on its server between two requests."""

    def __init__(self, url: str, before: FileVersion, after: FileVersion) -> None:
        super().__init__(
            f"{url} changed on its server after it was opened: "
            f"it was {before}, and is {after}; open it again"
        )


class FileVersion(NamedTuple):
    """The identity of the content of a remote file; None for what the server does not report."""

    etag: str | None = None
    modified: str | None = None
    size: int | None = None

    def __str__(self) -> str:
        parts = [
            None if self.etag is None else f"ETag {self.etag}",
            None if self.modified is None else f"Last-Modified {self.modified}",
            None if self.size is None else f"{self.size} bytes",
        ]
        return ", ".join(filter(None, parts)) or "without a version"

    def differs(self, other: FileVersion) -> bool:
        """Return True if both cannot be the same content: by ETag, else Last-Modified, and size."""
        if self.etag is not None and other.etag is not None:
            changed = self.etag.removeprefix("W/") != other.etag.removeprefix("W/")
        else:
            changed = None not in (self.modified, other.modified) and (
                self.modified != other.modified
            )
        return changed or (None not in (self.size, other.size) and self.size != other.size)

    def check(self, url: str, later: FileVersion) -> None:
        """Raise ChangedFileError if a later response is of another version."""
        if self.differs(later):
            raise ChangedFileError(url, self, later)


NO_VERSION = FileVersion()


@dataclass(frozen=True)
class Download:
    """The bytes of a response, their number if it is known in advance, and a way to cancel it.

    `checked` is False if a truncated response cannot be told from a complete one; `version` is
    the version of the whole file.
    """

    size: int | None
    chunks: Iterator[bytes]
    close: Callable[[], None] = lambda: None
    checked: bool = True
    version: FileVersion = NO_VERSION


def too_large(
    url: str,
    max_bytes: int,
    nbytes: int | None = None,
    noun: str = "a record",
    fix: str = "max_record_bytes= allows more",
) -> DataError:
    """Return the error for data larger than allowed; `nbytes` is its size, if known."""
    number = "" if nbytes is None else f"{nbytes} bytes, "
    return DataError(
        f"{url} cannot be read: it has {number}more than "
        f"the {max_bytes} bytes that {noun} may have; {fix}"
    )


@contextmanager
def convert_remote_errors(url: str) -> Iterator[None]:
    """Convert errors to RetryableError if a retry may help, else to DataError; never OSError."""
    try:
        yield
    except (FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError) as error:
        raise DataError(f"{url} cannot be read: {_error_text(error)}") from error
    except OSError as error:
        raise RetryableError(f"{url} cannot be read: {_error_text(error)}") from error
    except (DataError, RetryableError, MemoryError):
        raise
    except ImportError as error:
        fix = "pip install 'layoutkit[data]'"
        raise DataError(f"{url} cannot be read: {error}; {fix} reads most URLs") from error
    except ValueError as error:  # an unknown scheme, or an invalid URL
        raise DataError(f"{url} cannot be read: {error}") from error
    except Exception as error:
        if type(error).__module__.partition(".")[0] != "urllib3":
            # Every remote file system has its own errors, and most are not OSErrors.
            raise DataError(f"{url} cannot be read: {describe_error(error)}") from error
        raise RetryableError(f"{url} cannot be read: {_error_text(error)}") from error


def _error_text(error: BaseException) -> str:
    """Return the message of an error; only the reason of an error of urllib3."""
    return str(getattr(error, "reason", None) or error) or type(error).__name__
