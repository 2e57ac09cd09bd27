"""`ListView`: several views as one batch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import repeat
from typing import Any, Self

from ..arrays.rows import as_positions, as_window
from ..errors import ArgumentError, LayoutkitError, ShapeError, ViewError
from ..spaces import joined
from ..spaces.viewing import is_space
from . import display
from .base import View
from .batch import Batch, Gradient
from .dataview import DataView

__all__ = ["ListView"]


class ListView(View):
    """Views of the same samples, such as inputs and targets, put and got together; it nests.

    >>> import numpy as np
    >>> from layoutkit import ClassView, ImageView
    >>> batch = ListView([ImageView(), ClassView()])
    >>> batch.forward_put(("bhwc", "b"), (np.zeros((8, 3, 3, 1)), np.arange(8)))
    >>> pictures, labels = batch.forward_get(("bchw", None), ("float32", None))
    >>> pictures.shape, labels.shape, len(batch)
    ((8, 1, 3, 3), (8,), 8)

    Parameters
    ----------
    components : views, at least one, none of them twice

    Layouts and dtypes are one for all components or a sequence with one for each, nested as the
    components are. Arrays are such sequences too; results are nested tuples. Everything is
    checked for all components before any of them changes.
    """

    def __init__(self, components: Iterable[View]) -> None:
        self._compose(_checked_components(components))
        leaves = {id(leaf): leaf for leaf in self._leaves}
        if len(leaves) != len(self._leaves):
            raise ArgumentError(
                "a view is in this ListView twice, and a batch put into one place would be lost "
                "in the other; give every place a view of its own"
            )
        counts = [len(leaf) for leaf in self._leaves if leaf._batch is not None]
        self._check_lengths(counts, "components")

    # -- forward and backward --------------------------------------------------------------

    def forward_put(self, layout: Any, array: Any) -> None:
        """Begin a batch in all components, which hold the arrays by reference.

        Raises what the components do, and ShapeError where arrays are missing or too many or
        have different numbers of samples; then no component has changed.
        """
        self._begin(lambda leaf, pair: leaf._checked(*pair), layout, array)

    def forward_get(self, layout: Any = None, dtype: Any = None, device: Any = None) -> Any:
        """What each component gives for its layout and dtype, as nested tuples.

        A CompositeSpace asks each for its component; another Space for all of them joined.
        """
        self._require()
        if is_space(layout):
            return joined.get(self, layout, dtype, device)
        asked = list(
            zip(self._spread(layout, "layouts"), self._spread(dtype, "dtypes"), strict=True)
        )
        self._each(lambda leaf, wanted: leaf._check_get(wanted[0], wanted[1], device), asked)
        return self._nested(
            leaf.forward_get(*wanted, device)
            for leaf, wanted in zip(self._leaves, asked, strict=True)
        )

    def backward_put(self, layout: Any, grad: Any) -> None:
        """Add a gradient to every component; raises before any has changed."""
        self._require()
        if is_space(layout):
            return joined.put(self, layout, grad)
        pairs = zip(self._spread(layout, "layouts"), self._arrays(grad, "gradients"), strict=True)
        self._add(self._each(lambda leaf, pair: leaf._checked_gradient(*pair), pairs))
        return None

    def backward_get(self, layout: Any = None, dtype: Any = None) -> Any:
        """The sums of the components' gradients; BackwardError unless each of them has one."""
        self._require()
        asked = zip(self._spread(layout, "layouts"), self._spread(dtype, "dtypes"), strict=True)
        dtypes = self._each(lambda leaf, wanted: leaf._held().check_total(*wanted), asked)
        return self._nested(self._each(lambda leaf, wanted: leaf._held().total(wanted), dtypes))

    def _add(self, gradients: list[Gradient]) -> None:
        for leaf, gradient in zip(self._leaves, gradients, strict=True):
            leaf._held().add(gradient)

    # -- samples ---------------------------------------------------------------------------

    def index(self, indices: Any, out: Self | None = None) -> Self:
        """A ListView of the samples at `indices` of every component; see `DataView.index`."""
        self._check_out(out)
        positions = as_positions(indices, len(self))
        return self._fill(out, [leaf._held().picked(positions) for leaf in self._leaves])

    def sub(
        self, start: int | None, stop: int | None, out: Self | None = None, copy: bool = True
    ) -> Self:
        """A ListView of the samples from `start` to before `stop`; see `DataView.sub`."""
        self._check_out(out)
        window = as_window(start, stop, len(self))
        return self._fill(out, [leaf._held().part(window, copy) for leaf in self._leaves])

    def replace(self, layout: Any, array: Any) -> None:
        """Replace the base of every component; see `DataView.replace`."""
        self._require()
        self._begin(lambda leaf, pair: leaf._replacement(*pair), layout, array)

    def flush(self) -> None:
        """Forget the plans, results and gradients of every component."""
        self._require()
        for leaf in self._leaves:
            leaf.flush()

    # -- what it is ------------------------------------------------------------------------

    @property
    def components(self) -> tuple[View, ...]:
        """The views, in order."""
        return self._components

    @property
    def input(self) -> Any:
        """The base arrays, as nested tuples; setting them puts others in the bases' layouts."""
        self._require()
        return self._nested(leaf.input for leaf in self._leaves)

    @input.setter  # noqa: A003
    def input(self, arrays: Any) -> None:
        self.forward_put(self.layout, arrays)

    @property
    def layout(self) -> Any:
        """The bases' layouts, as nested tuples."""
        self._require()
        return self._nested(leaf.layout for leaf in self._leaves)

    @property
    def dtype(self) -> Any:
        """The bases' dtypes, as nested tuples."""
        self._require()
        return self._nested(leaf.dtype for leaf in self._leaves)

    @property
    def device(self) -> str:
        """Where the bases are: "cpu"."""
        self._require()
        return {leaf.device for leaf in self._leaves}.pop()

    def __len__(self) -> int:
        self._require()
        counts = [len(leaf) for leaf in self._leaves]
        self._check_lengths(counts, "components")
        return counts[0]

    def converter(self, layout: Any, dtype: Any = None) -> Any:
        """The components' Converters, as nested tuples."""
        self._require()
        asked = zip(self._spread(layout, "layouts"), self._spread(dtype, "dtypes"), strict=True)
        return self._nested(self._each(lambda leaf, wanted: leaf.converter(*wanted), asked))

    # -- inside: one list for all leaves, however they nest ----------------------------------

    def _compose(self, components: tuple[View, ...]) -> None:
        self._components = components
        self._joined: tuple[list[Any], dict[Any, Any]] = ([], {})
        self._leaves: tuple[DataView, ...] = tuple(
            leaf for component in components for leaf in _leaves_of(component)
        )

    def _require(self) -> None:
        """Raise ViewError unless every component holds a batch."""
        self._each(lambda leaf, _: leaf._held(), self._leaves)

    def _nested(self, values: Iterable[Any]) -> tuple[Any, ...]:
        """Values of all leaves as tuples that nest as the components do."""
        rest = iter(values)
        return tuple(
            component._nested(rest) if isinstance(component, ListView) else next(rest)
            for component in self._components
        )

    def _spread(self, value: Any, what: str) -> list[Any]:
        """One value for each leaf, of one for all or a nest."""
        if not isinstance(value, tuple | list):
            return [value] * len(self._leaves)
        return self._flat(value, what, lambda component, one: component._spread(one, what))

    def _arrays(self, value: Any, what: str = "arrays") -> list[Any]:
        """One array for each leaf, of a nest."""
        return self._flat(value, what, lambda component, one: component._arrays(one, what))

    def _flat(
        self, value: Any, what: str, inner: Callable[[ListView, Any], list[Any]]
    ) -> list[Any]:
        count = len(self._components)
        if not isinstance(value, tuple | list) or len(value) != count:
            given = len(value) if isinstance(value, tuple | list) else f"a {type(value).__name__}"
            raise ShapeError(
                f"{what}: {given} given for {count} components; give a sequence of {count}, nested "
                "as the components are"
            )
        parts: list[Any] = []
        for component, one in zip(self._components, value, strict=True):
            parts += inner(component, one) if isinstance(component, ListView) else [one]
        return parts

    def _each(self, call: Callable[[DataView, Any], Any], values: Iterable[Any]) -> list[Any]:
        """Call with every leaf and its value; errors say which component they are about."""
        made = []
        for at, (leaf, value) in enumerate(zip(self._leaves, values, strict=True)):
            try:
                made.append(call(leaf, value))
            except LayoutkitError as error:
                raise type(error)(f"component {self._path(at)}: {error}") from None
        return made

    def _path(self, at: int) -> str:
        """Where a leaf is: "[1][0]"."""
        for number, component in enumerate(self._components):
            count = len(_leaves_of(component))
            if at < count:
                inside = component._path(at) if isinstance(component, ListView) else ""
                return f"[{number}]{inside}"
            at -= count
        return ""

    def _begin(self, check: Callable[[DataView, Any], Batch], layout: Any, array: Any) -> None:
        """Begin a batch in all components once all of it was checked."""
        pairs = zip(self._spread(layout, "layouts"), self._arrays(array), strict=True)
        found: list[Batch] = self._each(check, pairs)
        counts = [batch.array.shape[batch.plans.batch_axis] for batch in found]
        self._check_lengths(counts, "arrays")
        for leaf, batch in zip(self._leaves, found, strict=True):
            leaf._begin(batch)

    @staticmethod
    def _check_lengths(counts: Sequence[int], what: str) -> None:
        if len(set(counts)) > 1:
            raise ShapeError(
                f"the {what} have {', '.join(map(str, counts))} samples; give all the same number"
            )

    def _check_out(self, out: Any) -> None:
        """Raise ViewError unless parts of all components can be put into those of `out`."""
        self._require()
        if out is None:
            return
        if type(out) is not type(self) or len(out._leaves) != len(self._leaves):
            raise ViewError(f"out is {out!r}; give a {type(self).__name__} with equal components")
        if out._nested(repeat(None)) != self._nested(repeat(None)):
            raise ViewError(f"out is {out!r}, whose components nest otherwise; give equal ones")
        if not {id(leaf) for leaf in self._leaves}.isdisjoint(id(leaf) for leaf in out._leaves):
            raise ViewError("out has a component of this view; give one with components of its own")
        self._each(lambda leaf, other: leaf._check_out(other), out._leaves)

    def _fill(self, out: Self | None, samples: list[Any]) -> Self:
        others: Iterable[DataView | None]
        others = [None] * len(samples) if out is None else out._leaves
        filled = [
            leaf._fill(other, part)
            for leaf, other, part in zip(self._leaves, others, samples, strict=True)
        ]
        return self._rebuilt(iter(filled)) if out is None else out

    def _rebuilt(self, leaves: Iterator[DataView]) -> Self:
        """A ListView of other leaves that nest as these do."""
        view = type(self).__new__(type(self))
        view._compose(tuple(
            component._rebuilt(leaves) if isinstance(component, ListView) else next(leaves)
            for component in self._components
        ))  # fmt: skip
        return view

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(repr, self._components))})"

    def _repr_html_(self) -> str:
        return display.stack(type(self).__name__, [c._repr_html_() for c in self._components])


def _leaves_of(view: View) -> tuple[DataView, ...]:
    return view._leaves if isinstance(view, ListView) else (view,)  # type: ignore[return-value]


def _checked_components(components: Any) -> tuple[View, ...]:
    found = tuple(components) if isinstance(components, Iterable) else ()
    if not found:
        raise ArgumentError("a ListView has at least one component; give a list of views")
    for at, component in enumerate(found):
        if not isinstance(component, DataView | ListView):
            kind = type(component).__name__
            raise ArgumentError(f"component [{at}] is a {kind}; give views")
    return found
