"""`CSVProvider`: batches of rows of numbers in text files."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import Any

import numpy as np

from ..._utils.validation import as_int, check_int, check_path, show
from ...converter import Converter
from ...errors import DataError, PatternError
from ...layout.parsing import parse_layout
from ...layout.pattern import parse_pattern
from ...memory import Array
from ...spaces.views import view_for_layout
from ...spec import DType, as_result_dtype
from ..io.csv import CSVRows, parsed_dtype
from ..labels import check_missing, fill_missing
from ..loader.batch import default_layout, result_layout
from .arguments import file_arguments, log_opened
from .array import Field, label_field
from .base import BaseProvider


class CSVProvider(BaseProvider):
    """A provider of rows of a CSV file of numbers, which may be larger than memory.

    >>> from tempfile import NamedTemporaryFile
    >>> file = NamedTemporaryFile("w+")
    >>> print("1,2,3,4\\n5,6,7,8\\n9,10,11,12", file=file, flush=True)
    >>> with CSVProvider(file.name, data_shape=(2, 2), batch_size=2, layout="btf") as provider:
    ...     for batch in provider:
    ...         print(batch.count, batch.input.input.tolist())
    2 [[[1.0, 2.0], [3.0, 4.0]], [[5.0, 6.0], [7.0, 8.0]]]
    1 [[[9.0, 10.0], [11.0, 12.0]], [[0.0, 0.0], [0.0, 0.0]]]

    A line is a row: numbers with commas between, `nan` and `inf` among them. Spaces around
    numbers, a trailing comma, blank lines, CRLF and a byte order mark are accepted. Anything else
    is a DataError with file and line, raised by the batch that has the line. Lines are located
    once, when the provider is created, at 16 bytes of memory per row; their text is read per batch.

    Parameters
    ----------
    data_csv : path
        The data, a local file.
    data_shape : tuple of int
        The shape of a row, `(784,)` or `(1, 28, 28)`: its product is the numbers per line.
    label_csv : path, optional
        The labels, with equally many rows, read at once. By default there is no label.
    label_shape : tuple of int
        `()` and `(1,)`: a number a row, batches (b,); `(n,)`: n numbers, (b, n). Always float32.
    batch_size : int
        The rows of every batch.
    layout : str, optional
        The layout of the batch, such as "btf"; by default `b`, `bf`, and `bchw` for 3-d rows.
        "bchw->bhwc" gives the layout in the file and the layout of batches.
    dtype : dtype
        Of the data. Whole numbers are read as such, exactly; floats are rounded as Python's
        `float`, then to the dtype. A number that is too large for it is an error.
    shuffle, seed
        A new order each epoch, a function of `seed` and the epoch alone.
    tail : str
        "pad" fills the last batch with rows of 0, "wrap" with the epoch's first rows, "drop" omits
        it. `round_batch=True` is "wrap", False is "pad".
    part_index, num_parts : int
        Only rows part_index, part_index + num_parts, ... are here; parts differ by at most one row.
    prefetch : int
        The number of batches that a thread reads ahead (`prefetch_buffer` is an alias).
    data_name, label_name : str
        Their names; `label_name=None` omits the label.
    missing : "error", "drop" or -1
        The handling of rows whose only label is nan: an error, omitted and counted in `skipped`,
        or with the label -1.
    **others
        Keywords of MXNet's CSVIter under their own names; `silent` and `verbose` control
        the log line when the file is opened.

    Raises
    ------
    DataError, PatternError, DtypeError
        A file cannot be read, is empty, or data and labels have different numbers of rows; an
        argument is invalid. Raised at once.
    TypeError
        A keyword is unknown; the message names the nearest one.
    """

    def __init__(
        self,
        data_csv: Any,
        data_shape: Any,
        *,
        label_csv: Any = None,
        label_shape: Any = (),
        batch_size: int,
        layout: str | None = None,
        dtype: Any = "float32",
        shuffle: bool = False,
        seed: int = 0,
        tail: str = "pad",
        part_index: int = 0,
        num_parts: int = 1,
        prefetch: int = 0,
        data_name: str = "data",
        label_name: str | None = "softmax_label",
        missing: str | int = "error",
        **others: Any,
    ) -> None:
        verbose, arguments = file_arguments(
            CSVProvider, others, (data_name, label_name), (part_index, num_parts),
            tail=tail, prefetch=prefetch,
        )  # fmt: skip
        row = _shape("data_shape", data_shape)
        filling = np.zeros((), as_result_dtype(dtype))
        layout, converter = _conversion(data_name, row, layout, filling.dtype)
        label = _label_shape(label_shape)
        rows = CSVRows(check_path("data_csv", data_csv))
        data = _CSVField(data_name, rows, (len(rows), *row), 0, layout, filling, converter)
        labels = []
        check_missing(missing)
        kept = None
        if label_csv is not None and label_name is not None:
            label_rows = CSVRows(check_path("label_csv", label_csv))
            _check_as_many(rows, label_rows)
            values, kept = _read_labels(label_rows, label, missing)
            labels = [label_field(label_name, values)]
        super().__init__(
            [data], labels, len(rows), batch_size=batch_size, shuffle=shuffle, seed=seed,
            kept=kept, **arguments,
        )  # fmt: skip
        log_opened(verbose, "%s: %d rows, %d of them here", rows.path, len(rows), self._records())


class _CSVField(Field):
    """The rows of a file, which are read per batch."""

    def close(self) -> None:
        self.source.close()

    def _read(self, numbers: Array) -> Array:
        row = self.sizes[1:]
        rows: Array = self.source.read(numbers, prod(row), self.filling.dtype).reshape(-1, *row)
        return rows if self.converter is None else self.converter(rows)


_ROWS_AT_ONCE = 1 << 16  # rows of labels whose text is in memory at once


def _read_labels(rows: CSVRows, shape: tuple[int, ...], missing: Any) -> tuple[Array, Array | None]:
    """Return all labels as float32, and the rows to keep (None: all)."""
    width, dtype = prod(shape), np.dtype(np.float32)
    starts = range(0, len(rows), _ROWS_AT_ONCE)
    parts = [
        rows.read(np.arange(start, min(start + _ROWS_AT_ONCE, len(rows))), width, dtype)
        for start in starts
    ]
    rows.close()
    values = np.concatenate(parts).reshape(len(rows), *shape)
    return fill_missing(values, missing, lambda row: f"{rows.describe(row)} has no label")


def _conversion(
    name: str, row: tuple[int, ...], layout: str | None, dtype: DType
) -> tuple[str, Converter | None]:
    """Return the layout of batches of rows of this shape, and the Converter that they need."""
    if layout is None:
        layout = "bchw" if len(row) == 3 else default_layout((1, *row), name)
    arrow = isinstance(layout, str) and "->" in layout
    source = str(parse_pattern(layout).left) if arrow else layout
    if parse_layout(source).groups[0] != "b":
        raise PatternError(f'layout is "{layout}"; rows are along the first axis, so begin with b')
    read, converter = parsed_dtype(dtype), None
    if arrow or read != dtype:
        converter = Converter(layout if arrow else f"{source}->{source}", dtype=dtype)
        converter.target_shape((1, *row))
        layout = result_layout(converter)
    view_for_layout(
        source, np.broadcast_to(np.zeros((), read), (1, *row))
    )  # raises if they do not fit
    return layout, converter


def _shape(name: str, shape: Any) -> tuple[int, ...]:
    """Return a shape as a tuple; a number is the shape of one axis."""
    if as_int(shape) is not None:
        shape = (shape,)
    if not isinstance(shape, Iterable) or isinstance(shape, str):
        raise DataError(f"{name}={show(shape)}; it must be a tuple of ints")
    return tuple(check_int(name, size, 1) for size in shape)


def _label_shape(shape: Any) -> tuple[int, ...]:
    """Return () or a tuple with one size of at least 2."""
    shape_ = _shape("label_shape", shape)
    if len(shape_) > 1:
        raise DataError(
            f"label_shape={shape_}; labels are (b,) or (b, n): give how many numbers, "
            f"({prod(shape_)},)"
        )
    return () if prod(shape_) == 1 else shape_


def _check_as_many(data: CSVRows, label: CSVRows) -> None:
    if len(data) != len(label):
        raise DataError(
            f"{data.path} has {len(data)} rows, "
            f"but {label.path} has {len(label)}; give as many of each"
        )
