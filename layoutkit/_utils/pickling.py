"""Pickles that do not depend on what an object has been used for."""

from __future__ import annotations

from functools import cached_property
from typing import Any, ClassVar


class UncachedState:
    """A class whose pickles and copies omit the values of cached properties.

    So the pickle of an object is the same before and after its first use, as caches that are keyed
    by pickles need (joblib.Memory, datasets). `_pickled_caches` names properties whose values take
    long to compute, which are included.
    """

    _pickled_caches: ClassVar[frozenset[str]] = frozenset()

    def __getstate__(self) -> dict[str, Any]:
        """Return the attributes that are not the value of a cached property."""
        cls = type(self)
        return {
            name: value
            for name, value in vars(self).items()
            if name in self._pickled_caches
            or not isinstance(getattr(cls, name, None), cached_property)
        }
