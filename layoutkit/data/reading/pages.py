"""The files of a folder that a web server lists: a page with a link to each.

Anybody may have written the page. So a file counts only where a browser would find it right in
the folder that was asked for, on the same host; and a page is parsed piece by piece, as the parser
of the standard library takes hours for some that never end a tag.

Knows HTML and URLs; asks nobody.
"""

from __future__ import annotations

from html.parser import HTMLParser
from urllib.parse import SplitResult, unquote, urljoin, urlsplit

__all__ = ["files_linked"]

_PIECE = 1 << 16  # characters that are parsed at once
_LONGEST = 1 << 18  # of a tag, comment or style sheet: looked at again with every piece
_PORTS = {"http": 80, "https": 443}


def files_linked(page: bytes, place: str) -> list[str]:
    """The names of the files right in a folder, as URLs write them; ValueError for no listing.

    Parameters
    ----------
    page : bytes
        What the server sent. It is taken as UTF-8; a server writes all but ASCII as %C3%A4.
    place : str
        The URL that sent it. Relative links begin below it, whether or not it ends in a slash.
    """
    # Never closed: that is where the parser takes its hours, over a last tag that has no end.
    parser = _Links(place)
    text = page.decode("utf-8", "replace")
    for start in range(0, len(text), _PIECE):
        parser.feed(text[start : start + _PIECE])
        if len(parser.rawdata) > _LONGEST:
            raise ValueError(f"its page has a tag of more than {_LONGEST} characters")
    if not parser.any_link:
        raise ValueError("its page has no links: the folder is empty, or it is none")
    return list(parser.names)


class _Links(HTMLParser):
    """Collects the names of files in the folder that a page is of."""

    def __init__(self, place: str) -> None:
        super().__init__()
        parts = urlsplit(place)
        self._folder = parts._replace(path=parts.path.rstrip("/") + "/", query="", fragment="")
        self._base = self._folder.geturl()
        self.names: dict[str, None] = {}  # each once, in the order of the page
        self.any_link = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note where a link leads."""
        link = dict(reversed(attrs)).get("href")  # of two the first one counts
        if tag != "a" or link is None:
            return
        self.any_link = True
        try:
            name = _name_in(self._folder, urlsplit(urljoin(self._base, link.strip())))
        except ValueError:  # brackets or a port that no URL has
            return
        if name is not None:
            self.names[name] = None


def _name_in(folder: SplitResult, target: SplitResult) -> str | None:
    """The name of a file right in the folder; None for what is elsewhere, or no file.

    Links with a query sort the page, or are answers of a program.
    """
    above, _, name = target.path.rpartition("/")
    there = _site(target) == _site(folder) and unquote(f"{above}/") == unquote(folder.path)
    if not there or target.query or target.scheme not in _PORTS:
        return None
    plain = unquote(name)
    return name if plain.strip(".") and "/" not in plain else None


def _site(url: SplitResult) -> tuple[str | None, int | None]:
    """The host, and its port where it is not the usual one."""
    return url.hostname, None if url.port == _PORTS.get(url.scheme) else url.port
