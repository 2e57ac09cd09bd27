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


# OneToOneFeatureMixin is asked first, so that set_output finds names.
class Convert(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """A transformer that moves arrays to another layout, dtype and scale.

        make_pipeline(Convert("bhwc->bf", dtype="float32", scale=1 / 255), LogisticRegression())

    Parameters are those of `layoutkit.Converter`; `sizes` is a dict of the sizes of axes that x
    folds. X has any number of axes, and NaN and infinity pass; numbers in lists and tables become
    arrays as scikit-learn has it. Nothing is learned but the shape of X: `transform` works without
    `fit`, while `inverse_transform` and names of features need it where sizes are not given.

    Attributes
    ----------
    shape_, dtype_ : tuple of int, dtype
        Of the X of `fit`.
    n_features_in_, feature_names_in_
        Of an X with two axes.

    Raises
    ------
    PatternError, ShapeError, DtypeError, ArgumentError
        As `Converter`, when X is there; those of shapes and patterns are ValueErrors.
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
        self.pattern, self.dtype, self.scale, self.mean, self.std = pattern, dtype, scale, mean, std
        self.clip, self.casting, self.copy, self.memory = clip, casting, copy, memory
        self.threads, self.channels = threads, channels
        self.pad_to, self.pad_before, self.fill, self.sizes = pad_to, pad_before, fill, sizes

    def fit(self, X: Any, y: Any = None) -> Self:  # noqa: N803
        """Learn the shape of X, and refuse one that is not converted."""
        array = self._checked(X, reset=True)
        self._converter().plan(array)
        self.shape_, self.dtype_ = array.shape, array.dtype
        return self

    def transform(self, X: Any) -> Array:  # noqa: N803
        """X in the layout, dtype and scale that were asked; X itself where it is that already."""
        found: Array = self._converter()(self._checked(X, reset=False))
        return found

    def inverse_transform(self, X: Any) -> Array:  # noqa: N803
        """The array that `transform` makes X of, in the dtype of the X of `fit`.

        Integers are rounded and clipped to their range; what `clip` cut off is lost.

        Raises
        ------
        NotFittedError, ArgumentError
            There was no `fit`; scale is 0.
        """
        check_is_fitted(self, "shape_")
        back = self._converter(**self._folds()).inverse(self.dtype_)
        found: Array = back(check_array(X, **_AS_IT_IS, ensure_2d=False, estimator=self))
        return found

    def get_feature_names_out(self, input_features: Any = None) -> Array:
        """The names of the columns of a result with two axes.

        Those of X where its features only change in value, else `convert0`, `convert1`, ...
        """
        check_is_fitted(self, "shape_")
        converter = self._converter()
        shape = converter.target_shape(self.shape_)
        if len(shape) != 2:
            raise ShapeError(
                f'"{self.pattern}" makes arrays of shape {shape}, whose features have no names; '
                "ask for a layout with two axes, such as bf"
            )
        pattern = converter.task.pattern
        stays = converter.task.picked(self.shape_)[1] is None
        if stays and shape == self.shape_ and pattern.source == pattern.target:
            return super().get_feature_names_out(input_features)  # type: ignore[no-any-return]
        prefix = type(self).__name__.lower()
        return np.array([f"{prefix}{at}" for at in range(shape[1])], dtype=object)

    def _converter(self, **sizes: Any) -> Converter:
        """The Converter of these parameters, which may have been set anew."""
        asked = self.get_params(deep=False)
        sizes |= asked.pop("sizes") or {}
        return Converter(**asked, **sizes)

    def _folds(self) -> dict[str, int]:
        """The sizes that the way back needs: of each fold all but the first."""
        task = self._converter().task
        move = task.picked(self.shape_)[0]
        inner = {name for names in move.target.named for name in names[1:]}
        return {name: size for name, size in move.named_sizes.items() if name in inner}

    def _checked(self, X: Any, reset: bool) -> Array:  # noqa: N803
        """X as an array; that its features are those of `fit`, where it has two axes."""
        left = parse_pattern(self.pattern).left
        flat = left.ndim == 2 and not left.is_open  # sklearn has words of its own for others
        array: Array = check_array(X, **_AS_IT_IS, ensure_2d=flat, estimator=self)
        if array.ndim == 2:
            validate_data(self, X, reset=reset, skip_check_array=True)
        return array

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.requires_fit = False
        tags.input_tags.allow_nan = tags.input_tags.three_d_array = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"] if self.dtype is None else []
        return tags


_AS_IT_IS = {"dtype": "numeric", "allow_nd": True, "ensure_all_finite": False}
