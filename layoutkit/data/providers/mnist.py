"""`MNISTProvider`: batches of the images and labels of idx files."""

from __future__ import annotations

from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from ..._utils.validation import check_bool, check_path
from ...converter import Converter
from ...errors import DataError
from ...layout.parsing import require_text
from ...memory import Array
from ..io.idx import IdxFile
from .arguments import file_arguments, log_opened
from .array import Field, label_field
from .base import BaseProvider, TableOrder

_LAYOUT = "bchw"
# The bytes of batches that are made in one pass. Half of it is too small to wake threads for: an
# epoch of MNIST then took 1.5 times as long.
_GROUP_BYTES = 1 << 23


class MNISTProvider(BaseProvider):
    """A provider of MNIST images, or other idx files, normalized while they are copied.

    >>> from tempfile import NamedTemporaryFile
    >>> image, label = NamedTemporaryFile(), NamedTemporaryFile()
    >>> head = bytes.fromhex("00000803 00000003 00000002 00000002")
    >>> with image, label:
    ...     image.write(head + bytes(range(12))), image.flush()
    ...     label.write(bytes.fromhex("00000801 00000003 000102")), label.flush()
    ...     provider = MNISTProvider(
    ...         image.name, label.name, batch_size=2, shuffle=False, scale=1 / 256)
    (28, None)
    (11, None)
    >>> provider.provide_data, provider.provide_label
    ([('data', (2, 1, 2, 2))], [('softmax_label', (2,))])
    >>> for batch in provider:
    ...     print(batch.count, batch.target.input, batch.input.input[0, 0, 1])
    2 [0. 1.] [0.0078125  0.01171875]
    1 [2. 0.] [0.0390625  0.04296875]

    Files stay on disk and are read on demand; compressed ones (`.gz`) are decompressed into memory.
    They may have any of the six dtypes of idx and any number of axes after the batch axis: two
    (h, w) or three (c, h, w) for images, one or none for other data (`bf`, `b`).

    Parameters
    ----------
    image, label : path
        Local files; `label` None, or `label_name` None: no labels.
    batch_size : int
        The rows of every batch.
    flat : bool
        Provide (b, all pixels) instead of images.
    shuffle, seed
        A new order each epoch, a function of `seed` and the epoch alone.
    scale : number, optional
        The factor of pixels: 1 / 255 gives 0 to 1, 1 / 256 the values of MXNet's
        MNISTIter, None the file's values.
    dtype : dtype
        Of the data; labels are float32, (b,) or (b, n).
    layout : str
        The layout of images in batches.
    tail : str
        "pad" fills the last batch with rows of 0, "wrap" with the epoch's first rows, "drop" omits
        it. `round_batch=True` is "wrap", False is "pad".
    part_index, num_parts : int
        Only images part_index, part_index + num_parts, ... are here; parts differ by at most one.
    prefetch : int
        Groups of batches that a thread makes ahead (`prefetch_buffer` is an alias). Small
        batches are made some at a time, up to 8 MiB, and share that memory.
    data_name, label_name : str
        Their names in batches.
    **others
        Keywords of MXNet's MNISTIter under their own names; `silent` and `verbose` control
        the log line when the files are opened.

    Raises
    ------
    DataError, PatternError, ShapeError, DtypeError, ArgumentError
        A file is not an idx file or does not have the size in its header, there are not as many
        labels as images, or an argument is invalid. Raised at once; the file is named.
    TypeError
        A keyword is unknown; the message names the nearest one.
    """

    _order = TableOrder

    def __init__(
        self,
        image: Any = "./train-images-idx3-ubyte",
        label: Any = "./train-labels-idx1-ubyte",
        *,
        batch_size: int = 128,
        flat: bool = False,
        shuffle: bool = True,
        scale: float | None = 1 / 255,
        dtype: Any = "float32",
        layout: str = _LAYOUT,
        seed: int = 0,
        tail: str = "pad",
        part_index: int = 0,
        num_parts: int = 1,
        prefetch: int = 0,
        data_name: str = "data",
        label_name: str | None = "softmax_label",
        **others: Any,
    ) -> None:
        verbose, arguments = file_arguments(
            MNISTProvider, others, (data_name, label_name), (part_index, num_parts),
            tail=tail, prefetch=prefetch,
        )  # fmt: skip
        images = IdxFile(check_path("image", image))
        data = _image_field(data_name, images, flat, layout, dtype, scale)
        labels = []
        if label is not None and label_name is not None:
            labels = [_label_field(label_name, IdxFile(check_path("label", label)), images)]
        super().__init__(
            [data], labels, len(images.array), batch_size=batch_size, shuffle=shuffle, seed=seed,
            **arguments,
        )  # fmt: skip
        count, shape = len(images.array), images.array.shape[1:]
        log_opened(
            verbose, "%s: %d of %s, %d of them here", images.path, count, shape, self._records()
        )

    def _group_size(self) -> int:
        field: Any = self._data[0]
        if not field.layout.startswith("b"):
            return 1
        nbytes: int = prod(field.shape(self._size)) * field.filling.itemsize
        return max(1, _GROUP_BYTES // max(1, nbytes))


class _ImageField(Field):
    """The images of a file."""

    def close(self) -> None:
        self.source.close()

    @cached_property
    def _array(self) -> Array:
        return self.source.array.reshape(self.sizes)

    def _read(self, numbers: Array) -> Array:
        self.source.check()
        return super()._read(numbers)


def _image_field(
    name: str, file: IdxFile, flat: bool, layout: str, dtype: Any, scale: float | None
) -> _ImageField:
    array, source = file.array, "b" if file.array.ndim == 1 else "bf"
    require_text(layout, "a layout", _LAYOUT)
    if check_bool("flat", flat) and layout not in (_LAYOUT, "bf"):
        raise DataError(f'flat=True and layout="{layout}" contradict each other; give one')
    if array.ndim > 4 and not flat:
        raise DataError(f"{file.path} has {array.ndim} axes; give flat=True for more than four")
    if flat:
        array, source = array.reshape(len(array), prod(array.shape[1:])), "bf"
    elif array.ndim > 2:
        planes = array.shape[1:] if array.ndim == 4 else (1, *array.shape[1:])
        array, source = array.reshape(len(array), *planes), _LAYOUT
    target = layout if source == _LAYOUT else source
    converter = Converter(f"{source}->{target}", dtype=dtype, scale=scale)
    spec = converter.infer_spec(converter.spec_of(array))
    filling = np.zeros((), spec.dtype)
    return _ImageField(name, file, array.shape, 0, target, filling, converter)


def _label_field(name: str, file: IdxFile, images: IdxFile) -> Field:
    array, count = file.array, len(images.array)
    if array.ndim > 2:
        raise DataError(
            f"{file.path} has labels of {array.ndim} axes; there are (n,) and (n, width). Are "
            "image and label exchanged?"
        )
    if len(array) != count:
        raise DataError(
            f"{images.path} has {count} images, but {file.path} has {len(array)} labels; give "
            "the two files that belong together"
        )
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    return label_field(name, array.astype(np.float32))  # a small copy, so the file can be closed
