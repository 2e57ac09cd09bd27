"""`layoutkit.keras.Convert`: a conversion as a layer of a Keras model.

Works on the backends torch, jax and numpy. Importing this module imports keras, so set
KERAS_BACKEND before.
"""

from __future__ import annotations

import re
from math import prod
from typing import Any

import keras
import numpy as np

from .backends.registry import import_framework
from .converter import Converter
from .errors import ArgumentError, ShapeError
from .spec import CPU, ArraySpec, DType, as_dtype

__all__ = ["Convert"]

_BACKENDS = ("jax", "numpy", "torch")


@keras.saving.register_keras_serializable(package="layoutkit")
class Convert(keras.layers.Layer):
    """A layer that converts its input to another layout, dtype and scale.

        keras.Sequential([
            keras.Input((224, 224, 3), dtype="uint8"),
            layoutkit.keras.Convert("bhwc->bchw", dtype="float32", scale=1 / 255, mean=...),
            ...
        ])

    Accepts the arguments of `layoutkit.Converter`, and Keras' `name`. `dtype` is the dtype of the
    result, or a DTypePolicy or its name, whose compute dtype it is. Without it, the result of
    `scale`, `mean` or `std` has the compute dtype of Keras' global policy, such as float16 for
    "mixed_float16", and other results have the dtype of the input; the input is not cast before,
    so uint8 stays uint8. The layer does not have weights. It is saved and loaded with its model
    (import this module before loading), and supports gradients.

    Raises
    ------
    PatternError, ShapeError, DtypeError, ArgumentError
        An argument is invalid for `Converter`, found when the layer is made or the model is built;
        ArgumentError on a backend other than torch, jax and numpy.
    """

    def __init__(
        self, pattern: str, *, name: str | None = None, trainable: bool = False, **keywords: Any
    ) -> None:
        if keras.config.backend() not in _BACKENDS:
            raise ArgumentError(
                f"Keras runs on {keras.config.backend()}, whose arrays layoutkit does not convert; "
                f"set KERAS_BACKEND to one of {', '.join(_BACKENDS)}"
            )
        super().__init__(name=name, trainable=trainable, autocast=False)
        self.converter = Converter(pattern, **keywords | {"dtype": _result_dtype(keywords)})
        self.built = True

    def call(self, inputs: Any) -> Any:
        """Convert a tensor of the backend."""
        return self.converter(inputs)

    def compute_output_spec(self, inputs: Any) -> Any:
        """Return a KerasTensor of the result's shape and dtype; unknown sizes are None."""
        dtype = as_dtype(keras.backend.standardize_dtype(inputs.dtype))
        left = self.converter.options.pattern.left
        shapes = list(self._example_shapes(tuple(inputs.shape)))
        try:
            first, second = (
                self.converter.infer_spec(ArraySpec.of(left, shape, dtype, CPU)) for shape in shapes
            )
        except ShapeError as error:  # show unknown sizes as None
            raise ShapeError(_with_none(str(error), shapes[0], inputs.shape)) from None
        sizes = zip(first.shape, second.shape, strict=True)
        shape = tuple(one if one == other else None for one, other in sizes)
        return keras.KerasTensor(shape, dtype=_as_backend_has(first.dtype).name)

    def compute_output_shape(self, input_shape: Any) -> Any:
        """Return the shape of the result."""
        return self.compute_output_spec(keras.KerasTensor(input_shape, dtype="bool")).shape

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of this layer."""
        base = {key: super(Convert, self).get_config()[key] for key in ("name", "trainable")}
        return {**base, "pattern": self.converter.pattern, **self.converter.keywords}

    def _example_shapes(self, shape: tuple[int | None, ...]) -> Any:
        """Yield two shapes with numbers for unknown sizes.

        Sizes of the results that differ between the two are unknown.
        """
        options = self.converter.options
        pattern = options.pattern.expand_ellipsis(len(shape))
        source = pattern.source
        divisor = prod(options.sizes.values())  # folded axes are divided by these sizes
        # Dropped axes, and axes that are padded to a size.
        padded = set() if options.padding is None else set(dict(options.padding.sizes))
        ones = {
            axis
            for axis, group in enumerate(source.groups)
            if not set(group) & set(pattern.target.letters) or set(source.named[axis]) & padded
        }
        for prime in (1009, 1013):
            yield tuple(
                size if size is not None else 1 if axis in ones else prime * divisor
                for axis, size in enumerate(shape)
            )


def _result_dtype(keywords: dict[str, Any]) -> Any:
    """Return the argument `dtype` of the Converter of a layer with these keywords."""
    dtype: Any = keywords.get("dtype")
    if dtype is None and any(keywords.get(name) is not None for name in ("scale", "mean", "std")):
        dtype = keras.config.dtype_policy()
    if isinstance(dtype, str) and dtype.startswith("mixed_"):
        dtype = keras.dtype_policies.get(dtype)
    is_policy = isinstance(dtype, keras.dtype_policies.DTypePolicy)
    return dtype.compute_dtype if is_policy else dtype


def _with_none(text: str, example: tuple[int, ...], shape: Any) -> str:
    """Return a message with None in place of the numbers for unknown sizes."""
    for number, size in zip(example, shape, strict=True):
        if size is None and number != 1:
            text = re.sub(rf"\b{number}\b", "None", text)
    return text


def _as_backend_has(dtype: DType) -> DType:
    """Return the backend's dtype for `dtype`; JAX may be limited to 32 bits."""
    if keras.config.backend() != "jax":
        return dtype
    return np.dtype(import_framework("jax").width(dtype))
