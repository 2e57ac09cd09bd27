"""Transformers of scikit-learn: `Convert` converts arrays, `Collate` images of any size.

A column of a data frame may be images, or paths of image files. Importing this module imports
sklearn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils import check_array
from sklearn.utils.validation import check_is_fitted, validate_data

from ._utils.validation import show
from .backends.dispatch import as_array
from .collator import Collator
from .converter import Converter
from .errors import ArgumentError, ShapeError
from .memory import Array

__all__ = ["Collate", "Convert"]


# OneToOneFeatureMixin is the first base, so that set_output finds names.
class Convert(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """A transformer that converts arrays to another layout, dtype and scale.

        make_pipeline(Convert("bhwc->bf", dtype="float32", scale=1 / 255), LogisticRegression())

    Accepts the arguments of `layoutkit.Converter`; `sizes` is a dict of the sizes of folded axes. X
    has any number of axes, and may have NaN and infinity; lists and tables become arrays as in
    scikit-learn. X may also be a column or list of arrays, or of paths of image files, of one
    shape; `Collate` accepts any sizes. `fit` only stores the shape and dtype of X: `transform`
    works without it, while `inverse_transform` and `get_feature_names_out` require it.

    Attributes
    ----------
    shape_, dtype_ : tuple of int, dtype
        Shape and dtype of the X of `fit`.
    n_features_in_, feature_names_in_
        Set if X has two axes.

    Raises
    ------
    PatternError, ShapeError, DtypeError, ArgumentError
        An argument is invalid for `Converter`, found when X is passed; PatternError and ShapeError
        are ValueErrors.
    """

    def __init__(
        self,
        pattern: str = "bf->bf",
        *,
        dtype: Any = None,
        scale: float | None = None,
        mean: float | Sequence[float] | None = None,
        std: float | Sequence[float] | None = None,
        clip: tuple[float | None, float | None] | None = None,
        casting: str = "same_kind",
        copy: bool | None = None,
        memory: str | None = None,
        threads: int | None = None,
        pad_to: Mapping[str, int] | None = None,
        pad_before: Mapping[str, int] | None = None,
        fill: Any = None,
        center: str = "round",
        channels: Sequence[int] | None = None,
        sizes: Mapping[str, int] | None = None,
    ) -> None:
        self.pattern = pattern
        self.dtype = dtype
        self.scale = scale
        self.mean = mean
        self.std = std
        self.clip = clip
        self.casting = casting
        self.copy = copy
        self.memory = memory
        self.threads = threads
        self.channels = channels
        self.pad_to = pad_to
        self.pad_before = pad_before
        self.fill = fill
        self.center = center
        self.sizes = sizes

    def fit(self, X: Any, y: Any = None) -> Self:
        """Store the shape and dtype of X; raise if X cannot be converted."""
        array = self._checked(X, reset=True)
        self._converter().plan(array)
        self.shape_ = array.shape
        self.dtype_ = array.dtype
        return self

    def transform(self, X: Any) -> Array:
        """Return X converted, or X itself if nothing has to be copied."""
        return self._converter()(self._checked(X, reset=False))

    def inverse_transform(self, X: Any) -> Array:
        """Return the array that `transform` converts to X, in the dtype of the X of `fit`.

        Integers are rounded and clipped to their range; values beyond `clip` are not restored.

        Raises
        ------
        NotFittedError, ArgumentError
            `fit` was not called; there is no `Converter.inverse`, as with a scale of 0.
        """
        check_is_fitted(self, "shape_")
        inverse = self._converter(**self._inner_sizes()).inverse(self.dtype_)
        return inverse(check_array(X, **_CHECK_OPTIONS, ensure_2d=False, estimator=self))

    def get_feature_names_out(self, input_features: Any = None) -> Array:
        """Return the names of the columns of a result with two axes.

        They are the names of X if the layout does not change, else `convert0`, `convert1`, ...
        """
        check_is_fitted(self, "shape_")
        converter = self._converter()
        shape = converter.target_shape(self.shape_)
        if len(shape) != 2:
            raise ShapeError(
                f'"{self.pattern}" makes arrays of shape {shape}, whose features have no names; '
                "ask for a layout with two axes, such as bf"
            )
        pattern = converter.options.pattern
        keeps_channels = converter.options.select_channels(self.shape_)[1] is None
        if keeps_channels and shape == self.shape_ and pattern.source == pattern.target:
            return super().get_feature_names_out(input_features)
        prefix = type(self).__name__.lower()
        return np.array([f"{prefix}{i}" for i in range(shape[1])], dtype=object)

    def _converter(self, **sizes: Any) -> Converter:
        """Return the Converter of the current parameters, which `set_params` may have changed."""
        params = self.get_params(deep=False)
        own_sizes = params.pop("sizes")
        if not isinstance(own_sizes, Mapping | None):
            raise ArgumentError(f'sizes={show(own_sizes)}; give a dict, as in sizes={{"h": 28}}')
        return Converter(**params, **{**sizes, **(own_sizes or {})})

    def _inner_sizes(self) -> dict[str, int]:
        """Return the sizes that the inverse needs: all but the first of each fold of the target."""
        options = self._converter().options
        move = options.select_channels(self.shape_)[0]
        inner = {name for names in move.target.named for name in names[1:]}
        return {name: size for name, size in move.named_sizes.items() if name in inner}

    def _checked(self, X: Any, reset: bool) -> Array:
        """Return X as an array; if it has two axes, check that its features match `fit`."""
        left = self._converter().options.pattern.left
        X = _stacked(X)
        is_2d = (
            left.ndim == 2 and not left.has_ellipsis
        )  # sklearn's error for another rank fits then
        array: Array = check_array(X, **_CHECK_OPTIONS, ensure_2d=is_2d, estimator=self)
        if array.ndim == 2:
            validate_data(self, X, reset=reset, skip_check_array=True)
        return array

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.requires_fit = False
        tags.input_tags.allow_nan = tags.input_tags.three_d_array = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"] if self.dtype is None else []
        return tags


class Collate(TransformerMixin, BaseEstimator):
    """A transformer of images of any size, or of paths of image files, into rows or batches.

        images = Collator("hwc->b(hwc)", h=32, w=32, resize="area", dtype="float32", scale=1 / 255)
        ColumnTransformer([("x", Collate(images), "photo"), ("age", StandardScaler(), ["age"])])

    X is a list, an array or a column of a data frame. `transform` works without `fit`, while
    `get_feature_names_out` requires it.

    Attributes
    ----------
    shape_ : tuple of int
        The shape of the result for one sample, without the axis of samples.

    Raises
    ------
    ArgumentError, ShapeError, DtypeError
        `collator` is not a Collator, or a sample cannot be collated.
    """

    def __init__(self, collator: Collator) -> None:
        self.collator = collator

    def fit(self, X: Any, y: Any = None) -> Self:
        """Store the shape of the result for the first sample."""
        self.shape_ = self._collate(_items(X)[:1]).shape[1:]
        return self

    def transform(self, X: Any) -> Array:
        """Return the batch of the images."""
        return self._collate(_items(X))

    def _collate(self, samples: list[Any]) -> Array:
        if not isinstance(self.collator, Collator):
            raise ArgumentError(
                f'collator is {show(self.collator)}; give a layoutkit.Collator("hwc->b(hwc)", ...)'
            )
        return self.collator([_pixels(sample) for sample in samples])

    def get_feature_names_out(self, input_features: Any = None) -> Array:
        """Return collate0, collate1, ..., of a Collator that makes rows."""
        check_is_fitted(self, "shape_")
        if len(self.shape_) != 1:
            raise ShapeError(
                f'"{self.collator.pattern}" makes samples of shape {self.shape_}, whose features '
                'have no names; fold all axes but b, as in "hwc->b(hwc)"'
            )
        return np.array([f"collate{i}" for i in range(self.shape_[0])], dtype=object)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.requires_fit = False
        tags.input_tags.two_d_array = False
        tags.input_tags.three_d_array = tags.input_tags.string = True
        return tags


def _column(X: Any) -> list[Any] | None:
    """Return a list, or one column, of images or paths as a list; None for anything else."""
    if hasattr(X, "columns") and hasattr(X, "to_numpy"):
        X = X.to_numpy()[:, 0] if len(X.shape) == 2 and X.shape[1] == 1 else None
    elif hasattr(X, "to_numpy"):
        X = X.to_numpy()
    if isinstance(X, np.ndarray) and X.ndim == 2 and X.shape[1] == 1 and X.dtype.kind == "O":
        X = X[:, 0]
    if isinstance(X, np.ndarray) and (X.ndim != 1 or X.dtype.kind not in "OUT"):
        return None
    if not isinstance(X, list | tuple | np.ndarray) or not len(X):
        return None
    first = X[0]
    is_item = isinstance(first, str | PathLike) or hasattr(first, "getbands")
    return [*X] if is_item or (hasattr(first, "shape") and len(first.shape) > 1) else None


def _items(X: Any) -> list[Any]:
    column = _column(X)
    return [*X] if column is None else column


def _pixels(sample: Any) -> Any:
    """Return the pixels of an image file, and other samples unchanged."""
    if not isinstance(sample, str | PathLike):
        return sample
    from .images import read

    return read(sample)


def _stacked(X: Any) -> Any:
    """Return a column or list of images or paths as one array, and anything else unchanged."""
    column = _column(X)
    if column is None:
        return X
    arrays = [as_array(_pixels(item), f"item {number}") for number, item in enumerate(column)]
    for number, array in enumerate(arrays):
        if array.shape != arrays[0].shape:
            raise ShapeError(
                f"item {number} of X has shape {array.shape}, but item 0 has {arrays[0].shape}; "
                'bring them to one size with layoutkit.sklearn.Collate(Collator("hwc->b(hwc)", '
                'h=32, w=32, resize="area"))'
            )
    return np.stack(arrays)


_CHECK_OPTIONS = {"dtype": "numeric", "allow_nd": True, "ensure_all_finite": False}
