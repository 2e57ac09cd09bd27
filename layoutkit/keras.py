"""`layoutkit.keras.Convert`: a conversion as a layer of a Keras model.

Works on the backends torch, jax and numpy. Importing this module imports keras, which wants to know
its backend: set KERAS_BACKEND before.
"""

from __future__ import annotations

import re
from math import prod
from typing import Any

import keras
import numpy as np

from .backends.registry import framework_named
from .converter import Converter
from .errors import ArgumentError, ShapeError
from .spec import CPU, ArraySpec, DType, as_dtype

__all__ = ["Convert"]

_BACKENDS = ("jax", "numpy", "torch")


@keras.saving.register_keras_serializable(package="layoutkit")
class Convert(keras.layers.Layer):  # type: ignore[misc]  # keras has no types
    """A layer that moves its input to another layout, dtype and scale.

        keras.Sequential([
            keras.Input((224, 224, 3), dtype="uint8"),
            layoutkit.keras.Convert("bhwc->bchw", dtype="float32", scale=1 / 255, mean=...),
            ...
        ])

    Takes what `layoutkit.Converter` takes, and Keras' `name`. `dtype` is that of the result, and
    nothing is cast before: bytes come in as bytes. The layer has no weights. It is saved and loaded
    with its model (import this module before loading), and gradients go back through it.

    Raises
    ------
    PatternError, ShapeError, DtypeError, ArgumentError
        As `Converter`, when the layer is made or the model is built; ArgumentError on a backend
        other than torch, jax and numpy.
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
        self.converter = Converter(pattern, **keywords)
        self.built = True

    def call(self, inputs: Any) -> Any:
        """The conversion of a tensor of the backend."""
        return self.converter(inputs)

    def compute_output_spec(self, inputs: Any) -> Any:
        """Shape and dtype of the result of a KerasTensor; sizes that are None may stay so."""
        dtype = as_dtype(keras.backend.standardize_dtype(inputs.dtype))
        left = self.converter.task.pattern.left
        stands = list(self._stand_ins(tuple(inputs.shape)))
        try:
            first, second = (
                self.converter.resolve(ArraySpec.of(left, shape, dtype, CPU)) for shape in stands
            )
        except ShapeError as error:  # in the words of a model, whose open sizes are None
            raise ShapeError(_opened(str(error), stands[0], inputs.shape)) from None
        sizes = zip(first.shape, second.shape, strict=True)
        shape = tuple(one if one == other else None for one, other in sizes)
        return keras.KerasTensor(shape, dtype=_as_backend_has(first.dtype).name)

    def compute_output_shape(self, input_shape: Any) -> Any:
        """The shape of the result."""
        return self.compute_output_spec(keras.KerasTensor(input_shape, dtype="bool")).shape

    def get_config(self) -> dict[str, Any]:
        """The arguments that make this layer."""
        base = {key: super(Convert, self).get_config()[key] for key in ("name", "trainable")}
        return {**base, "pattern": self.converter.pattern, **self.converter.task.keywords()}

    def _stand_ins(self, shape: tuple[int | None, ...]) -> Any:
        """Two shapes with numbers for sizes that are open: what differs in the results is open."""
        task = self.converter.task
        pattern = task.pattern.completed(len(shape))
        source, known = pattern.source, prod(task.sizes.values())  # folds are divided by these
        # Those that are dropped, and those whose size in the result is given.
        given = set() if task.canvas is None else set(dict(task.canvas.sizes))
        ones = {
            at
            for at, group in enumerate(source.groups)
            if not set(group) & set(pattern.target.letters) or set(source.named[at]) & given
        }
        for prime in (1009, 1013):
            yield tuple(
                size if size is not None else 1 if at in ones else prime * known
                for at, size in enumerate(shape)
            )


def _opened(text: str, stands: tuple[int, ...], shape: Any) -> str:
    """A message about numbers that stand for open sizes, as one about those."""
    for number, size in zip(stands, shape, strict=True):
        if size is None and number != 1:
            text = re.sub(rf"\b{number}\b", "None", text)
    return text


def _as_backend_has(dtype: DType) -> DType:
    """The dtype of the backend's results where `dtype` is asked for; JAX may have 32 bits only."""
    if keras.config.backend() != "jax":
        return dtype
    return np.dtype(framework_named("jax").width(dtype))
