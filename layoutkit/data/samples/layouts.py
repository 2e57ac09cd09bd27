"""Layouts of Samples: checked, by default, after a selection, and the View that they stand for.

Knows letters and keys; arrays only to make Views of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType
from typing import Any

from ... import forks
from ...errors import DataError, ShapeError
from ...layout import Layout
from ...notation import parse_layout
from .keys import kinds_of, spelled_out

__all__ = ["UNSAID", "after", "batch_layout", "checked", "default", "viewing"]

UNSAID = "?"  # the default of a Dataset whose rank is not known before it is read

_DEFAULTS = {1: "b", 2: "bf"}


@forks.once
def viewing() -> ModuleType:
    """The table of layouts and Views; here, as most samples are never viewed."""
    from ...spaces import viewing

    return viewing


def checked(layout: Any, rank: int | None, dataset: bool) -> str:
    """A layout without blanks, for data of a rank (None: not known).

    Raises PatternError, ShapeError, or DataError where that of a Dataset does not begin with b.
    """
    parsed = parse_layout(layout)
    if rank is not None and parsed.ndim != rank:
        raise ShapeError(
            f"layout {parsed} has {parsed.ndim} axes, but the data has {rank}; name each once"
        )
    if dataset and parsed.groups[0] != "b":
        raise DataError(
            f"layout {parsed} of a Dataset begins with {parsed.groups[0]}; its first axis counts "
            "samples and is b"
        )
    return str(parsed)


def default(rank: int, dataset: bool) -> str | None:
    """The layout of a Dataset, or of a sample of one, of which nothing was said."""
    found = _DEFAULTS.get(rank if dataset else rank + 1)
    return found if dataset or found is None else found[1:]


def after(layout: Any, key: Any) -> Any:
    """The layout of what a key selects; of a mapping, that of each field.

    >>> import numpy as np
    >>> after("bhwc", 3), after("bhwc", np.s_[:5, 0]), after("bhwc", np.s_[:, [0, 1]])
    ('hwc', 'bwc', None)
    >>> after("bhwc", np.s_[..., 0]), after("bhwc", np.s_[0, ..., :2])
    ('bhw', 'hwc')
    """
    if isinstance(layout, Mapping):
        return {name: after(inner, key) for name, inner in layout.items()}
    if layout is None:
        return None
    kinds = kinds_of(key)
    if layout == UNSAID:
        return UNSAID if len(kinds) == 1 and kinds[0] != "other" else None
    groups = parse_layout(layout).groups if layout else ()
    if "other" in kinds:
        kinds = kinds_of(spelled_out(key, len(groups)))
    if "other" in kinds or "list" in kinds[1:]:
        return None
    kinds += ("slice",) * (len(groups) - len(kinds))
    pairs = zip(groups, kinds, strict=False)
    return str(Layout(tuple(group for group, kind in pairs if kind != "int")))


def batch_layout(layout: str | None) -> str:
    """The layout; DataError for one without b, of which there is no View."""
    if not layout or "b" not in parse_layout(layout).groups:
        raise DataError(
            f"data in layout {layout} is no batch, and Views are; give a layout with b, such as "
            "layout='bhwc', or take d[i:j] in place of d[i]"
        )
    return layout
