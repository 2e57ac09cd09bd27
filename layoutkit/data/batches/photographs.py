"""The keywords of `sampled_batcher` for pictures: what `size` and `fit` stand for.

Knows the arguments, and that bytes of pictures make no batch; a Decoder makes pixels of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import DataError
from ..formats import PICTURES, suffix_of
from ..indexes import Index, PartsIndex

if TYPE_CHECKING:
    from .arguments import Arguments

__all__ = ["check_decoded", "with_decoder"]

_LAYOUT = "bhwc"


def with_decoder(given: Arguments) -> Arguments:
    """The arguments with a Decoder as the processor, where a size of pictures is given.

    Raises
    ------
    DataError
        Another argument says otherwise what a record becomes.
    """
    if given.size is None:
        if given.fit is not None:
            raise DataError(f"fit={given.fit!r} says how pictures become one size; give size, too")
        return given
    fixes = dict.fromkeys(
        ("processor", "input_dims", "batch_dims"), "A pictures.Decoder is a processor, too"
    )
    fixes["dtype"] = "Floats are made by scale=, mean= and std=, or by convert=, of each batch"
    for name, fix in fixes.items():
        if getattr(given, name) is not None:
            raise DataError(
                f"size= decodes pictures into uint8 (height, width, 3), and {name}= says otherwise "
                f"what a record becomes; give one of them. {fix}"
            )
    # Here, as its module is for pictures, and few records are.
    from ...pictures import Decoder

    decoder = Decoder(given.size, given.fit or "cover")
    if given.collate is not None:
        return replace(given, processor=decoder)  # which cuts windows of what is decoded
    return replace(
        given,
        processor=decoder,
        input_dims=decoder.input_dims,
        dtype=np.uint8,
        layout=_layout(given.layout),
    )


def check_decoded(given: Arguments, indexes: Sequence[Index]) -> None:
    """Raise DataError where batches would be of the bytes of pictures, each of another length.

    Or where there are several sources of pictures, which are no row either.
    """
    if given.size is not None and len(indexes) > 1:
        raise DataError(
            f"size= decodes the pictures of one source, and there are {len(indexes)}; give a "
            "processor that makes a row of what all of them have"
        )
    index = indexes[0]
    read = given.get is None and given.processor is None
    if not read or isinstance(index, PartsIndex) or index.in_memory or not len(index):
        return
    name = index[0].url
    is_picture = name is not None and suffix_of(name) in PICTURES
    if not is_picture and not index.of_pictures:
        return
    is_one = "is a picture" if is_picture else "has pictures"
    if given.collate is not None:
        raise DataError(
            f"{name} {is_one}, and collate takes pixels; processor=lambda data, out: "
            "layoutkit.pictures.read(data) decodes it"
        )
    raise DataError(
        f"{name} {is_one}, whose bytes are no row of a batch; size=(height, width) decodes "
        "pictures, and processor= takes bytes"
    )


def _layout(layout: Any) -> Any:
    """What layouts are given, with that of pictures where there is none."""
    pair = tuple(layout) if isinstance(layout, list | tuple) else (layout, None)
    if pair[0] not in (None, _LAYOUT):
        raise DataError(
            f"layout={layout!r}, but pictures are {_LAYOUT}, as they are decoded; a batch gives "
            f"them in any other: batch.input.forward_get({pair[0]!r})"
        )
    return (_LAYOUT, *pair[1:])
