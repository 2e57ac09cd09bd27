"""A griffe extension that fixes docstrings for the reference of `make docs`.

An example begins with `>>>` and ends with a blank line. Markdown would render it as a quotation,
and lists in it as links, so it is put in a code fence. If parameters share a line, griffe gives all
of them the default and type of the first one. A parameter of the type Never exists for an error
only, and is omitted.
"""

import re
from typing import Any

import griffe

_EXAMPLE = re.compile(r"^( *)>>> .*\n?(?:^ *\S.*\n?)*", re.MULTILINE)


class Docstrings(griffe.Extension):
    """The griffe extension."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Put examples in code fences, and give each parameter its own default and type."""
        if obj.is_function:
            for parameter in [*obj.parameters]:
                if str(parameter.annotation) == "Never":
                    del obj.parameters[parameter.name]
        if obj.docstring is None:
            return
        obj.docstring.value = _EXAMPLE.sub(_fenced, obj.docstring.value)
        parameters = {p.name: p for p in getattr(obj, "parameters", ())}
        for section in obj.docstring.parsed:
            if section.kind is griffe.DocstringSectionKind.parameters:
                for documented in section.value:
                    parameter = parameters.get(documented.name.lstrip("*"))
                    documented.value = parameter and parameter.default
                    if isinstance(documented.annotation, griffe.Expr):  # of the signature
                        documented.annotation = parameter and parameter.annotation


def _fenced(example: re.Match[str]) -> str:
    indent = example[1]
    lines = example[0].rstrip("\n")
    return f"{indent}```pycon\n{lines}\n{indent}```\n"
