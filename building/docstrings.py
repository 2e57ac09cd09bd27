"""What the reference of `make docs` makes of docstrings.

An example begins with `>>>` and ends with a blank line, wherever it stands. Markdown takes that for
a quotation, and the lists in it for links. And where parameters share a line, griffe says of all of
them what the first one's default and type are.
"""

import re
from typing import Any

import griffe

_EXAMPLE = re.compile(r"^( *)>>> .*\n?(?:^ *\S.*\n?)*", re.MULTILINE)


class Docstrings(griffe.Extension):
    """An extension of griffe, which reads the docstrings."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Put examples between fences, and defaults and types to their own parameters."""
        if obj.docstring is None:
            return
        obj.docstring.value = _EXAMPLE.sub(_fenced, obj.docstring.value)
        own = {each.name: each for each in getattr(obj, "parameters", ())}
        for section in obj.docstring.parsed:
            if section.kind is griffe.DocstringSectionKind.parameters:
                for said in section.value:
                    found = own.get(said.name.lstrip("*"))
                    said.value = found and found.default
                    if isinstance(said.annotation, griffe.Expr):  # of the signature
                        said.annotation = found and found.annotation


def _fenced(example: re.Match[str]) -> str:
    indent, lines = example[1], example[0].rstrip("\n")
    return f"{indent}```pycon\n{lines}\n{indent}```\n"
