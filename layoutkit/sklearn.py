"""`layoutkit.sklearn.Convert`: a conversion as a transformer of scikit-learn.

Importing this module imports sklearn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils import check_array
from sklearn.utils.validation import check_is_fitted, validate_data

from .converter import Converter
from .errors import ShapeError
from .layout.pattern import parse_pattern
from .memory import Array

__all__ = ["Convert"]


# OneToOneFeatureMixin is the first base, so that set_output finds names.
class Convert(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """A transformer that converts arrays to another layout, dtype and scale.

        make_pipeline(Convert("bhwc->bf", dtype="float32", scale=1 / 255), LogisticRegression())

    Takes the arguments of `layoutkit.Converter`; `sizes` is a dict of the sizes of folded axes. X
    has any number of axes, and may have NaN and infinity; lists and tables become arrays as in
    scikit-learn. `fit` only stores the shape and dtype of X: `transform` works without it, while
    `inverse_transform` and `get_feature_names_out` require it.

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
        self.sizes = sizes

    def fit(self, X: Any, y: Any = None) -> Self:  # noqa: N803
        """Store the shape and dtype of X; raise if X cannot be converted."""
        array = self._checked(X, reset=True)
        self._converter().plan(array)
        self.shape_, self.dtype_ = array.shape, array.dtype
        return self

    def transform(self, X: Any) -> Array:  # noqa: N803
        """Return X converted, or X itself if nothing has to be copied."""
        result: Array = self._converter()(self._checked(X, reset=False))
        return result

    def inverse_transform(self, X: Any) -> Array:  # noqa: N803
        """Return the array that `transform` converts to X, in the dtype of the X of `fit`.

        Integers are rounded and clipped to their range; values beyond `clip` are not restored.

        Raises
        ------
        NotFittedError, ArgumentError
            `fit` was not called; scale is 0.
        """
        check_is_fitted(self, "shape_")
        inverse = self._converter(**self._inner_sizes()).inverse(self.dtype_)
        result: Array = inverse(check_array(X, **_CHECK_OPTIONS, ensure_2d=False, estimator=self))
        return result

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
            return super().get_feature_names_out(input_features)  # type: ignore[no-any-return]
        prefix = type(self).__name__.lower()
        return np.array([f"{prefix}{i}" for i in range(shape[1])], dtype=object)

    def _converter(self, **sizes: Any) -> Converter:
        """Return the Converter of the current parameters, which `set_params` may have changed."""
        params = self.get_params(deep=False)
        sizes |= params.pop("sizes") or {}
        return Converter(**params, **sizes)

    def _inner_sizes(self) -> dict[str, int]:
        """Return the sizes that the inverse needs: all but the first of each fold of the target."""
        task = self._converter().options
        move = task.select_channels(self.shape_)[0]
        inner = {name for names in move.target.named for name in names[1:]}
        return {name: size for name, size in move.named_sizes.items() if name in inner}

    def _checked(self, X: Any, reset: bool) -> Array:  # noqa: N803
        """Return X as an array; if it has two axes, check that its features are those of `fit`."""
        left = parse_pattern(self.pattern).left
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


_CHECK_OPTIONS = {"dtype": "numeric", "allow_nd": True, "ensure_all_finite": False}
