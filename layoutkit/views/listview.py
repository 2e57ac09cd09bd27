"""`ListView`: several views as one batch; a call changes all of them or none.

All components are validated before the first is changed.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import repeat
from typing import Any, NoReturn, Self

from .._utils.indexing import normalize_indices, normalize_slice
from .._utils.tree import leaves, map_leaf_values, match_structure, unflatten
from .._utils.validation import show
from ..errors import ArgumentError, ShapeError, ViewError
from . import display
from .base import View, check_get, gradient_for, is_view_target
from .batch import BatchState, ConversionGradient, NestedBatchState
from .dataview import DataView


class ListView(View):
    """Views of one set of samples, such as inputs and targets, put and got together; they nest.

    >>> import numpy as np
    >>> from layoutkit import ClassView, ImageView
    >>> batch = ListView([ImageView(), ClassView()])
    >>> batch.forward_put(("bhwc", "b"), (np.zeros((8, 3, 3, 1)), np.arange(8)))
    >>> images, labels = batch.forward_get(("bchw", None), ("float32", None))
    >>> images.shape, labels.shape, len(batch)
    ((8, 1, 3, 3), (8,), 8)

    A layout or dtype is one for all components, or a sequence with one for each, nested as the
    components are. Arrays are such sequences too; results are nested tuples. Everything is
    validated for all components before any of them changes.

    Parameters
    ----------
    components : views
        At least one, and all different.
    """

    _joined: NestedBatchState | None  # of the last call; stale if a component began a new batch

    def __init__(self, components: Iterable[View]) -> None:
        self._compose(_validate_components(components))
        if len({id(leaf) for leaf in self._leaves}) != len(self._leaves):
            raise ArgumentError(
                "a view is in this ListView twice, and a batch put into one place would be lost "
                "in the other; give every place a view of its own"
            )
        counts = [len(leaf) for leaf in self._leaves if not leaf.is_empty]
        self._check_lengths(counts, "components")

    # -- forward and backward --------------------------------------------------------------

    def forward_put(self, layout: Any, array: Any) -> None:
        """Begin a batch in all components, which hold the arrays by reference.

        Raises the errors of the components, and ShapeError if arrays are missing or too many or
        differ in their number of samples; then no component has changed.
        """
        self._begin(layout, array, lambda leaf, of, x: leaf.prepare(of, x))

    def forward_get(
        self, layout: Any = None, dtype: Any = None, device: Any = None, **formula: Any
    ) -> Any:
        """Return the result of each component, as nested tuples; formulas are not supported.

        A CompositeSpace returns one array for each component; another Space joins them.
        """
        self._check_not_empty()
        if formula:
            raise ViewError(f"{', '.join(formula)}: ask one of view.components for a formula")
        if is_view_target(layout):
            return layout.get_from(self, dtype, device)
        requests = self._layouts_and_dtypes(layout, dtype)
        self._for_each_leaf(lambda leaf, of, to: check_get(leaf, of, to, device), *requests)
        triples = zip(self._leaves, *requests, strict=True)
        return self._nested(leaf.forward_get(of, to, device) for leaf, of, to in triples)

    def backward_put(self, layout: Any, grad: Any) -> None:
        """Add a gradient to every component; raises before any has changed."""
        self._check_not_empty()
        for leaf, gradient in zip(self._leaves, self._gradients(layout, grad), strict=True):
            leaf.batch.add(gradient)

    def _gradients(self, layout: Any, grad: Any) -> list[ConversionGradient]:
        if is_view_target(layout):
            return layout.gradients_for(self, grad)
        layouts = self._broadcast(layout, "layouts")
        grads = match_structure(self._nest, grad, "gradients")
        return self._for_each_leaf(gradient_for, layouts, grads)

    def backward_get(self, layout: Any = None, dtype: Any = None) -> Any:
        """Sum the gradients of each component; BackwardError if one has no gradient."""
        self._check_not_empty()
        requests = self._layouts_and_dtypes(layout, dtype)
        dtypes = self._for_each_leaf(
            lambda leaf, of, to: leaf.batch.check_sum_dtype(of, to), *requests
        )
        return self._nested(
            self._for_each_leaf(lambda leaf, to: leaf.batch.gradient_sum(to), dtypes)
        )

    # -- samples ---------------------------------------------------------------------------

    def index(self, indices: Any, out: Self | None = None) -> Self:
        """Return a ListView of copies of the samples at `indices`; see `DataView.index`."""
        self.check_out(out)
        positions = normalize_indices(indices, len(self), "samples")
        return self._with_samples(
            out, [leaf.batch.take_samples(positions) for leaf in self._leaves]
        )

    def sub(
        self, start: int | None, stop: int | None, out: Self | None = None, copy: bool = True
    ) -> Self:
        """Return a ListView of the samples from `start` to before `stop`; see `DataView.sub`."""
        self.check_out(out)
        window = normalize_slice(slice(start, stop), len(self))
        return self._with_samples(out, [leaf.batch.part(window, copy) for leaf in self._leaves])

    def replace(self, layout: Any, array: Any) -> None:
        """Replace the base of every component; see `DataView.replace`."""
        self._check_not_empty()
        self._begin(
            layout,
            array,
            lambda leaf, of, x: leaf.prepare(leaf.layout, leaf.batch.to_base_layout(of, x)),
        )

    def flush(self) -> None:
        """Drop the plans, results and gradients of every component."""
        self._check_not_empty()
        for leaf in self._leaves:
            leaf.flush()

    # -- properties ------------------------------------------------------------------------

    @property
    def components(self) -> tuple[View, ...]:
        """The views, in order."""
        return self._components

    @property
    def input(self) -> Any:
        """The base arrays, as nested tuples; setting them puts others in the bases' layouts."""
        self._check_not_empty()
        return self._nested(leaf.input for leaf in self._leaves)

    @input.setter
    def input(self, arrays: Any) -> None:
        self.forward_put(self.layout, arrays)

    @property
    def layout(self) -> Any:
        """The bases' layouts, as nested tuples."""
        self._check_not_empty()
        return self._nested(leaf.layout for leaf in self._leaves)

    @property
    def dtype(self) -> Any:
        """The bases' dtypes, as nested tuples."""
        self._check_not_empty()
        return self._nested(leaf.dtype for leaf in self._leaves)

    @property
    def shape(self) -> Any:
        """The bases' shapes, as nested tuples."""
        self._check_not_empty()
        return self._nested(leaf.shape for leaf in self._leaves)

    @property
    def device(self) -> Any:
        """The device of the bases: one name if there is one device, else nested tuples of names."""
        self._check_not_empty()
        names = [leaf.device for leaf in self._leaves]
        return names[0] if len(set(names)) == 1 else self._nested(names)

    @property
    def batch(self) -> NestedBatchState:
        """The states of all components' batches, flattened in order."""
        parts = self._for_each_leaf(lambda leaf: leaf.batch)
        held = self._joined
        if held is None or any(map(operator.is_not, held.parts, parts)):
            self._joined = held = NestedBatchState(parts, {})
        return held

    def __len__(self) -> int:
        self._check_not_empty()
        counts = [len(leaf) for leaf in self._leaves]
        self._check_lengths(counts, "components")
        return counts[0]

    def converter(self, layout: Any, dtype: Any = None) -> Any:
        """Return the components' Converters, as nested tuples."""
        self._check_not_empty()
        requests = self._layouts_and_dtypes(layout, dtype)
        return self._nested(
            self._for_each_leaf(lambda leaf, of, to: leaf.converter(of, to), *requests)
        )

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NoReturn:
        raise ViewError(
            "a ListView holds several arrays, not one; "
            "use view.input, or np.asarray of one of view.components"
        )

    # -- implementation: operations on the flat list of leaves -------------------------------

    def _compose(self, components: tuple[View, ...]) -> None:
        self._components = components
        self._joined = None
        self._nest = tuple(map(leaf_views, components))
        self._leaves: list[DataView] = leaves(self._nest)

    def _check_not_empty(self) -> None:
        """Raise ViewError unless every component holds a batch."""
        if any(leaf.is_empty for leaf in self._leaves):
            self._for_each_leaf(lambda leaf: leaf.batch)

    def _nested(self, values: Iterable[Any]) -> Any:
        return unflatten(self._nest, values)

    def _broadcast(self, value: Any, arg_name: str) -> list[Any]:
        return match_structure(self._nest, value, arg_name, shared=True)

    def _layouts_and_dtypes(self, layout: Any, dtype: Any) -> tuple[list[Any], list[Any]]:
        return self._broadcast(layout, "layouts"), self._broadcast(dtype, "dtypes")

    def _for_each_leaf(self, call: Callable[..., Any], *columns: Iterable[Any]) -> list[Any]:
        """Call a function with every leaf and its values; errors name the component."""
        return map_leaf_values(call, self._nest, self._leaves, *columns)

    def _begin(self, layout: Any, array: Any, prepare: Callable[..., BatchState]) -> None:
        """Begin a batch in all components after all of them were prepared."""
        layouts = self._broadcast(layout, "layouts")
        arrays = match_structure(self._nest, array, "arrays")
        batches: list[BatchState] = self._for_each_leaf(prepare, layouts, arrays)
        self._check_lengths([len(batch) for batch in batches], "arrays")
        for leaf, batch in zip(self._leaves, batches, strict=True):
            leaf.begin(batch)

    @staticmethod
    def _check_lengths(counts: Sequence[int], arg_name: str) -> None:
        if len(set(counts)) > 1:
            raise ShapeError(
                f"the {arg_name} have {', '.join(map(str, counts))} samples; "
                "give all the same number"
            )

    def check_out(self, out: Any) -> None:
        """Raise ViewError unless samples of all components can be put into `out`."""
        if out is None:
            return
        if type(out) is not type(self) or len(out._leaves) != len(self._leaves):
            raise ViewError(
                f"out is {show(out)}; give a {type(self).__name__} with equal components"
            )
        if out._nested(repeat(None)) != self._nested(repeat(None)):
            raise ViewError(f"out is {show(out)}, whose components nest otherwise; give equal ones")
        if not {id(leaf) for leaf in self._leaves}.isdisjoint(id(leaf) for leaf in out._leaves):
            raise ViewError("out has a component of this view; give one with components of its own")
        self._for_each_leaf(lambda leaf, other: leaf.check_out(other), out._leaves)

    def _with_samples(self, out: Self | None, samples: list[Any]) -> Self:
        out_leaves: Iterable[DataView | None] = repeat(None) if out is None else out._leaves
        views = [
            leaf.with_samples(part, other)
            for leaf, part, other in zip(self._leaves, samples, out_leaves, strict=False)
        ]
        return self._with_leaves(iter(views)) if out is None else out

    def _with_leaves(self, leaves: Iterator[DataView]) -> Self:
        view = type(self).__new__(type(self))
        view._compose(
            tuple(
                component._with_leaves(leaves) if isinstance(component, ListView) else next(leaves)
                for component in self._components
            )
        )
        return view

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_joined": None}  # like results, not pickled

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._compose(self._components)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(repr, self._components))})"

    def _repr_html_(self) -> str:
        return display.html_section(
            type(self).__name__, [c._repr_html_() for c in self._components]
        )


def leaf_views(view: Any) -> Any:
    """Return the single-array views inside a view: itself, or nested tuples."""
    return tuple(map(leaf_views, view.components)) if isinstance(view, ListView) else view


def _validate_components(components: Any) -> tuple[View, ...]:
    is_list = isinstance(components, Iterable) and getattr(components, "ndim", 1) != 0
    views = tuple(components) if is_list else ()
    if not views:
        raise ArgumentError("a ListView has at least one component; give a list of views")
    for index, component in enumerate(views):
        if not isinstance(component, DataView | ListView):
            type_name = type(component).__name__
            raise ArgumentError(f"component [{index}] is a {type_name}; give views")
    return views
