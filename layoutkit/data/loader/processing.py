"""The steps from the data of a record to a row of a batch, and from rows or results to Views.

With `size=`, a Decoder decodes images; for a Collator, a Reader does. A Converter converts rows; a
Collator makes a batch of results of any size.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ..._utils.errors import prefix_errors
from ..._utils.random import make_key
from ..._utils.validation import check_bool, check_choice, show
from ..._utils.warnings import warn
from ...backends.registry import FRAMEWORKS, import_framework
from ...backends.symbolic import NUMPY, Library
from ...collator import Collator
from ...converter import Converter
from ...errors import ArgumentError, DataError
from ...fields import FieldCollators
from ...layout.parsing import ARROW, parse_layout, with_batch_axis
from ...layout.pattern import as_shape, check_rank
from ...memory import Array
from ...options import ConvertOptions
from ...planning.resize import FIT_MODES
from ...spec import CPU, DType, as_result_dtype
from ...threads.limits import get_num_threads
from ..formats import is_image_name
from ..sources import ONE_SOURCE, Index
from .batch import (
    TARGET,
    ArrayFactory,
    ViewFactory,
    check_convert,
    default_layout,
    pin_array,
)
from .collate import RAGGED, BatchStep, CollateStep, FieldsStep, MultiCollateStep, RaggedStep
from .pixel_options import PixelOptions

Shape = tuple[int, ...]


class Factories(NamedTuple):
    """The functions that make Views, or arrays of a framework, of a batch's arrays."""

    inputs: Any  # a tuple, one for each Collator or one; by field if there are fields
    target: Callable[[Array], Any]
    labels: Callable[[Array], Any]


@dataclass(frozen=True)
class Processing:
    """The checked arguments of `sampled_batcher` about the data of records."""

    # Called with the data of a record and out=; of a dict of sources, one for each of some fields.
    processor: Any
    input_dims: Shape | Callable[[int], Any] | None  # the shape of a row, or of rows of batch k
    dtype: DType | None  # of rows
    layouts: tuple[str | None, ...]  # of each input of a batch; None: the default layout
    target_layout: str | None  # None: the default layout
    convert: Converter | None  # converts a batch of rows
    # A Collator, a tuple of several, "ragged", a dict of Collators and "ragged" by field, or None:
    # results are rows.
    collate: Any
    library: Library | None = None  # of the arrays of batches; None: batches are Views
    is_pinned: bool = False  # True: tensors of torch are in page-locked memory

    def dims(self, batch: int) -> Shape | None:
        """Return the shape of a row of batch number `batch`; None: the shape of results."""
        dims = self.input_dims
        return _parse_shape(dims(batch)) if callable(dims) else dims

    @property
    def keeps_results(self) -> bool:
        """True if the processor never reuses the memory of results, as an `images.Reader`."""
        if self.processor is None:
            return False
        from ...images import Reader  # lazy: few Batchers decode images

        return all(step is None or type(step) is Reader for step in self.processors.values())

    @property
    def processors(self) -> dict[str, Any]:
        """The processors by field, None for data that stay as they are; one alone is named ""."""
        if isinstance(self.processor, _FieldProcessor):
            return dict(zip(self.processor.names, self.processor.steps, strict=True))
        return {"": self.processor}

    def split_decoding(self) -> tuple[Processing, tuple[Any, ...]]:
        """Return the steps after images are decoded, and the decoder of each source (or None).

        Functions of the caller stay among the steps.
        """
        from ...images import Decoder, Reader  # lazy: few Batchers decode images

        steps = self.processors
        decoders = {n: step for n, step in steps.items() if type(step) in (Decoder, Reader)}
        if isinstance(self.processor, _ImageTransform):
            decoders = {"": self.processor.decode}
        elif isinstance(self.processor, _FieldProcessor):
            rest = tuple(None if name in decoders else step for name, step in steps.items())
            return (
                replace(self, processor=replace(self.processor, steps=rest)),
                tuple(map(decoders.get, steps)),
            )
        elif decoders:
            return replace(self, processor=None), (*decoders.values(),)
        return self, tuple(map(decoders.get, steps))

    @property
    def fields(self) -> Mapping[str, Any] | None:
        """The Collator or "ragged" of each field of results; None if they are single arrays."""
        return self.collate if isinstance(self.collate, Mapping) else None

    @property
    def collators(self) -> dict[Any, Collator]:
        """The Collators that make the inputs of a batch, by field or number; {} without any."""
        if isinstance(self.collate, Collator):
            return {0: self.collate}
        collate = self.collate or ()
        named = collate.items() if isinstance(collate, Mapping) else enumerate(collate)
        return {name: step for name, step in named if isinstance(step, Collator)}

    def with_collators(self, collators: Mapping[Any, Collator]) -> Processing:
        """Return the steps with other Collators, by the keys of `collators`."""
        if isinstance(self.collate, Mapping):
            return replace(self, collate={**self.collate, **collators})
        if isinstance(self.collate, tuple):
            return replace(self, collate=tuple(collators.values()))
        return replace(self, collate=collators[0]) if collators else self

    @property
    def pixel_options(self) -> PixelOptions:
        """The options that decide the pixels of batches."""
        is_one = isinstance(self.collate, Collator)
        steps: dict[str, Any] = {
            "Collator" if is_one else f"Collator {name}": step
            for name, step in self.collators.items()
        }
        if self.convert is not None:
            steps["Converter"] = self.convert
        return PixelOptions.of(steps, self._image_decoders)

    @property
    def _image_decoders(self) -> dict[str, Any]:
        """The Readers and Decoders of images by class and field, such as "Reader mask"."""
        if self.processor is None:
            return {}
        from ...images import Decoder, Reader  # lazy: few Batchers decode images

        return {
            f"{type(step).__name__} {name}".rstrip(): step
            for name, step in self.processors.items()
            if type(step) in (Decoder, Reader)
        }

    def with_seeds(self, seed: Any, first_seed: int) -> Processing:
        """Return the steps with a seed for each Collator that draws and has none of its own.

        The first Collator draws by `first_seed`, others by seeds that are derived from it, so that
        their crops are independent. Raises DataError if a Collator has another seed than `seed`,
        the argument of `sampled_batcher` (or None).
        """
        self._check_seeds(seed)
        return self.with_collators(
            {
                name: _with_options(
                    collator, seed=make_key("collate", first_seed, i) if i else first_seed
                )
                if collator.windows.crops.is_random and collator.windows.crops.seed is None
                else collator
                for i, (name, collator) in enumerate(self.collators.items())
            }
        )

    def _check_seeds(self, seed: Any) -> None:
        for collator in self.collators.values():
            crops = collator.windows.crops
            if crops.is_random and None not in (seed, crops.seed) and crops.seed != seed:
                options = {k: value for k, value in collator.to_dict().items() if k != "seed"}
                raise DataError(
                    f"sampled_batcher has seed={seed}, but its Collator has seed={crops.seed}; "
                    f"omit one of them, as in sampled_batcher(..., seed={seed}, "
                    f"collate={type(collator).from_dict(options)})"
                )

    def with_framework(self, framework: Any) -> Processing:
        """Return the steps whose batches are arrays of a framework.

        None: of the framework of a Collator, or Views. Raises DataError if a Collator or Converter
        makes other arrays, ArgumentError if the framework is unknown or not installed.
        """
        own = {collator.framework for collator in self.collators.values()} - {None}
        name = next(iter(own), None) if framework is None else framework
        if name is None:
            return self
        check_choice("framework", name, ("numpy", *FRAMEWORKS), ArgumentError)
        if own - {name}:
            raise DataError(
                f"framework={name!r}, but batches of a layoutkit.{next(iter(own))}.Collator are of "
                f"{next(iter(own))}; give a layoutkit.Collator, or omit framework="
            )
        for collator in self.collators.values():
            _check_step(name, collator, collator.windows.convert, collator.framework)
        if self.convert is not None:  # converts tensors, so that it makes tensors on a GPU
            own_framework = "torch" if name == "torch" else None
            _check_step(name, self.convert, self.convert.options, own_framework)
        return replace(self, library=NUMPY if name == "numpy" else import_framework(name))

    def with_pinned_memory(self, pin_memory: Any) -> Processing:
        """Return the steps whose tensors are in page-locked memory, if `pin_memory` is True.

        Warns that it has no effect without CUDA. Raises DataError if batches are not tensors.
        """
        if not check_bool("pin_memory", pin_memory):
            return self
        torch: Any = getattr(self.library, "xp", None)
        if getattr(torch, "__name__", "") != "torch":
            raise DataError(
                "pin_memory=True is for tensors, but batches have Views or arrays of another "
                'library; give framework="torch", or omit it'
            )
        if not torch.cuda.is_available():
            warn("pin_memory=True has no effect, because torch finds no CUDA")
            return self
        return replace(self, is_pinned=True)

    @property
    def pin(self) -> Callable[[Any], Any] | None:
        """The function of worker threads that pins arrays which no Converter converts after it."""
        library = self.library
        if library is None or not self.is_pinned or self.convert is not None:
            return None
        return partial(pin_array, library)

    def make_batch_step(self, workers: int) -> BatchStep | None:
        """Return the step that makes batches of results of any size; None if results are rows.

        The `workers` read the next records while a batch is made, so a Collator without a number of
        threads uses the ones that are left.
        """
        if isinstance(self.collate, str):
            return RaggedStep()
        threads = max(1, get_num_threads() - workers)
        steps = {
            name: CollateStep(
                _with_options(collator, threads=threads)
                if workers and collator.windows.convert.threads is None
                else collator
            )
            for name, collator in self.collators.items()
        }
        if self.fields is not None:
            return FieldsStep({name: steps.get(name, RaggedStep()) for name in self.fields})
        if isinstance(self.collate, tuple):
            return MultiCollateStep(tuple(steps.values()))
        return steps.get(0)

    def make_factories(self, index: Index) -> Factories:
        """Return the factories of the arrays of batches; `index` has the labels."""
        make = partial(self._make_factory, arg_name="the input of a batch", convert=self.convert)
        inputs: Any = tuple(map(make, self.layouts))
        if self.fields is not None:
            layouts = dict(zip(self.collators, self.layouts, strict=True))
            inputs = {name: make(layouts.get(name)) for name in self.fields}
        return Factories(
            inputs,
            self._make_factory(self.target_layout, TARGET, index.target_classes or None),
            self._make_factory("b", "the labels of a batch", index.labels or None),
        )

    def _make_factory(
        self,
        layout: str | None,
        arg_name: str,
        classes: Any = None,
        convert: Converter | None = None,
    ) -> ViewFactory | ArrayFactory:
        if self.library is not None:
            return ArrayFactory(self.library, layout, convert, self.is_pinned)
        return ViewFactory(layout, arg_name, classes, convert=convert)


def parse_processing(
    processor: Any,
    *,
    size: Any,
    fit: Any,
    input_dims: Any,
    dtype: Any,
    layout: Any,
    convert: Any,
    collate: Any,
) -> Processing:
    """Return the checked arguments.

    Raises
    ------
    DataError, ShapeError, DtypeError, PatternError, ArgumentError
        An argument is invalid, or two contradict each other.
    """
    layout, target_layout = _parse_layouts(layout)
    _check_processor_type(processor)
    processing = Processing(
        processor,
        input_dims if input_dims is None or callable(input_dims) else _parse_shape(input_dims),
        None if dtype is None else as_result_dtype(dtype),
        (layout,),
        target_layout,
        convert,
        collate,
    )
    if isinstance(processor, Mapping) and not isinstance(collate, Mapping):
        raise DataError(
            f"processor is a dict of the fields {', '.join(map(str, processor))}, but collate= is "
            "not; give one function"
        )
    if isinstance(collate, str) and collate == RAGGED:
        _check_ragged(processing, size)
        return processing
    if collate is not None:
        processing = _parse_collators(processing)
    if size is not None and processing.fields is not None:
        raise DataError(
            "size= decodes images into one array of a record, but collate= is a dict; omit size=, "
            'and give the Collator of the images a size and resize="bilinear"'
        )
    if size is None:
        if fit is not None:
            raise DataError(f"fit={show(fit)} has no effect without size; give size as well")
        if processor is not None and collate is None:
            processing = _fill_decoded_rows(processing)
    else:
        processing = _with_decoder(processing, size, fit)
    return processing if collate is not None else _parse_rows(processing)


def complete_processing(
    processing: Processing,
    indexes: Sequence[Index],
    has_getter: bool,
    has_size: bool,
    names: Sequence[str] | None = None,
) -> Processing:
    """Return the steps for these sources; a Reader is added if a Collator receives images.

    Parameters
    ----------
    has_getter : bool
        True if a function of the caller reads records.
    has_size : bool
        True if images are decoded to one size.
    names : sequence of str, optional
        The fields that the sources are, if the caller gave a dict of sources.

    Raises
    ------
    DataError
        Batches would hold undecoded images, whose bytes differ in length, or the processor cannot
        combine the results of several sources.
    """
    if has_size and len(indexes) > 1:
        raise DataError(
            f"size= decodes the images of one source, but there are {len(indexes)}; {ONE_SOURCE}"
        )
    if processing.fields is not None and isinstance(processing.processor, Mapping | None):
        processing = _with_field_processor(processing, indexes, has_getter, names)
    if not has_getter and any(index.has_image_lists for index in indexes):
        _check_image_lists(processing, indexes)
    if len(indexes) > 1 and processing.processor is None:
        raise DataError(
            f"{len(indexes)} sources need a processor that joins their results; {ONE_SOURCE}; for "
            "a batch of each, such as images and masks in the same windows, give two dicts, "
            "{'image': ..., 'mask': ...}, of sources and, as collate=, of their Collators"
        )
    is_raw = not has_getter and processing.processor is None and processing.collate != RAGGED
    if is_raw and processing.collate is None and (shapes := indexes[0].differing_shapes):
        raise DataError(
            f"records differ in shape, such as {shapes[0]} and {shapes[1]}, and a batch is one "
            "array; make them equal by collate=Collator(...) or a processor, or give "
            'collate="ragged" if they differ in length only'
        )
    if is_raw and (content := _describe_images(indexes[0])):
        if processing.collate is None:
            raise DataError(
                f"{content}, but encoded bytes are not a row of a batch; decode images with "
                "size=(height, width), or process the bytes with processor="
            )
        for collator in processing.collators.values():
            _check_decoded(collator, content)
        from ...images import Reader  # lazy: few Batchers decode images

        processing = replace(processing, processor=Reader())
    return replace(processing, processor=_accept_out(processing.processor, len(indexes)))


def _check_image_lists(processing: Processing, indexes: Sequence[Index]) -> None:
    """Raise DataError if records are lists of images, and no function of the caller reads them."""
    from ...images import Decoder, Reader  # lazy: few Batchers decode images

    steps = [*processing.processors.values()]
    for number, index in enumerate(indexes):
        step = steps[number] if len(steps) == len(indexes) else steps[0]
        if index.has_image_lists and (step is None or type(step) in (Decoder, Reader)):
            raise DataError(
                f"{index[0].url} has lists of images; give the number of one, as in open_index("
                "source, columns={'image': 'images:0'}), or a processor= that receives the list of "
                "bytes"
            )


_IMAGE_AXES = 3  # of decoded images: h, w, c


def _check_decoded(collator: Collator, content: str, field: str | None = None) -> None:
    """Raise DataError if images that are decoded to RGB do not have the axes of a sample."""
    pattern = collator.windows.convert.pattern
    ndim = pattern.left.ndim - 1  # without the axis of samples
    if ndim != _IMAGE_AXES and not pattern.left.has_ellipsis:
        reader = 'images.Reader(mode="index")'
        processor = reader if field is None else f'{{"{field}": {reader}}}'
        raise DataError(
            f'"{collator.pattern}" collates samples of {ndim} axes, but {content}, which is '
            f"decoded to red, green and blue in hwc; give processor={processor} for the class "
            'numbers of masks (hw), or one of mode="gray" (hwc)'
        )


def _with_field_processor(
    processing: Processing,
    indexes: Sequence[Index],
    has_getter: bool,
    names: Sequence[str] | None,
) -> Processing:
    """Return the steps with a processor that joins the data of sources, one for each field."""
    processors = processing.processor  # of some fields, or None
    if names is None:
        if has_getter and processors is None:
            return processing
        fields = tuple(processing.fields or ())
        function = "a function as processor= or get= that returns such a dict"
        if indexes[0].kind == "items":
            function = (
                "get=lambda record: source[record.position] if its items are such dicts, or, of "
                f"tuples, get=lambda record: dict(zip({fields}, source[record.position]))"
            )
        raise DataError(
            f"collate= names the fields {', '.join(fields)}; give a dict of sources with these "
            f"keys, or {function}"
        )
    from ...images import Reader  # lazy: few Batchers decode images

    steps: dict[str, Callable[..., Any] | None] = dict.fromkeys(names)
    for name, index in zip(names, indexes, strict=True):
        if not has_getter and (content := _describe_images(index)):
            steps[name] = Reader()
            step = (processing.fields or {}).get(name)
            if isinstance(step, Collator) and name not in (processors or {}):
                with prefix_errors(f"field {name}: ", DataError):
                    _check_decoded(step, content, name)
    for name, step in (processors or {}).items():
        if name not in steps or not callable(step):
            raise DataError(
                f"processor has {name!r}: {step!r}; give functions for some of the fields "
                f"{', '.join(names)}"
            )
        steps[name] = _accept_out(step)
    return replace(processing, processor=_FieldProcessor(tuple(names), tuple(steps.values())))


@dataclass(frozen=True)
class _FieldProcessor:
    """A processor that returns a dict of the processed data of several sources."""

    names: tuple[str, ...]
    steps: tuple[Callable[..., Any] | None, ...]  # the processor of each source; None: as it is

    def __call__(self, *results: Any, out: Any = None) -> dict[str, Any]:
        fields = zip(self.names, results, self.steps, strict=True)
        return {name: x if step is None else step(x, out=None) for name, x, step in fields}


def _describe_images(index: Index) -> str | None:
    """Return a clause about records that are encoded images; None for other records."""
    if index.reads_in_order or index.in_memory or not len(index):
        return None
    name = index[0].url
    if name is not None and is_image_name(name):
        return f"{name} is an image"
    return f"{name} has images" if index.has_images else None


# ---- Rows of one shape ----------------------------------------------------------------------

_IMAGE_LAYOUT = "bhwc"  # of decoded images


def _parse_rows(processing: Processing) -> Processing:
    """Return the steps of results that are rows of a batch; raise if layouts do not fit."""
    layout = processing.layouts[0]
    for each in (layout, processing.target_layout):
        if each is not None and parse_layout(each).groups[0] != "b":
            raise DataError(f"layout {each!r} does not begin with b; batches are filled row by row")
    if processing.convert is not None:
        layout = _find_row_layout(processing.convert, layout)
    if isinstance(processing.input_dims, tuple):
        shape = (1, *processing.input_dims)
        check_rank(parse_layout(layout or default_layout(shape, "the input of a batch")), shape)
    return replace(processing, layouts=(layout,))


def _find_row_layout(convert: Converter, layout: str | None) -> str:
    """Return the layout of the rows that a Converter converts."""
    check_convert(convert, layout)
    left = with_batch_axis(convert.options.pattern.source)
    if left.groups[0] != "b":
        raise DataError(f"convert needs {left}, but rows begin with b; begin its pattern with b")
    return str(left)


def _with_decoder(processing: Processing, size: Any, fit: Any) -> Processing:
    """Return the steps with a Decoder; raise DataError if another argument contradicts it."""
    decoder_fix = f'For another mode, give processor=images.Decoder({show(size)}, mode="gray")'
    fixes = {
        "processor": decoder_fix,
        "input_dims": decoder_fix,
        "dtype": 'To get floats, give convert=Converter("bhwc->bchw", scale=1 / 255)',
    }
    for name, fix in fixes.items():
        if getattr(processing, name) is not None:
            raise DataError(
                f"size= decodes images into uint8 (height, width, 3), which {name}= contradicts; "
                f"give one of them. {fix}"
            )
    from ...images import Decoder  # lazy: only size= needs it

    fit = "cover" if fit is None else check_choice("fit", fit, FIT_MODES, ArgumentError)
    decoder = Decoder(size, fit)
    if processing.collate is not None:
        return replace(processing, processor=decoder)  # the Collator crops the decoded images
    layout = processing.layouts[0]
    if layout not in (None, _IMAGE_LAYOUT):
        raise DataError(
            f"layout={show(layout)}, but decoded images are {_IMAGE_LAYOUT}; a batch converts "
            f"them to any other: batch.input.forward_get({show(layout)})"
        )
    return _fill_decoded_rows(replace(processing, processor=decoder))


def _fill_decoded_rows(processing: Processing) -> Processing:
    """Return the steps with the rows of a Decoder, where the caller has not described them."""
    from ...images import Decoder  # lazy: few Batchers decode images

    decoder = processing.processor
    if type(decoder) is not Decoder:
        return processing
    layout = processing.layouts[0]
    if layout is None:
        rows = _IMAGE_LAYOUT[: 1 + len(decoder.input_dims)]  # class numbers have no channels
        if processing.convert is None:
            layout = rows
        else:
            _check_rows(processing.convert, rows)
    return replace(
        processing,
        input_dims=processing.input_dims or decoder.input_dims,
        dtype=processing.dtype or np.dtype(np.uint8),
        layouts=(layout,),
    )


def _check_rows(convert: Any, layout: str) -> None:
    """Raise DataError if a Converter names the axes of decoded images in another order."""
    if isinstance(convert, Converter):
        left = with_batch_axis(convert.options.pattern.source)
        if left.is_permuted(parse_layout(layout)):
            raise DataError(
                f'decoded images are {layout}, but convert needs {left} ("{convert.pattern}"); '
                f"begin its pattern with {layout}"
            )


def resize_by_batch(processing: Processing) -> Processing:
    """Return steps that decode images, and resize all images of a batch by one call.

    One call needs a quarter of the time of a call per image. The steps are unchanged unless the
    processor is a Decoder whose results are rows of uint8. Class numbers may have more bits, which
    a Decoder refuses and a Collator does not.
    """
    decoder = processing.processor
    if processing.input_dims is None or processing.dtype != np.uint8:
        return processing
    reader, resize = split_resizing(decoder)
    if resize is None or processing.input_dims != decoder.input_dims:
        return processing
    return replace(processing, processor=reader, collate=resize)


def split_resizing(decoder: Any) -> tuple[Any, Collator | None]:
    """Return the Reader of a Decoder, and the Collator that resizes several of its images.

    For another decoder, and a Decoder that resizes images one by one, return it and None.
    """
    if decoder is None:
        return None, None
    from ...images import Decoder  # lazy: few Batchers decode images

    if type(decoder) is not Decoder or decoder.library is not None or decoder.mode == "index":
        return decoder, None
    return decoder.reader, decoder.collator()


# ---- Results of any size --------------------------------------------------------------------


def _check_ragged(processing: Processing, size: Any) -> None:
    """Raise DataError for arguments about rows of one shape."""
    options = {
        "size": size,
        "input_dims": processing.input_dims,
        "dtype": processing.dtype,
        "convert": processing.convert,
        "layout": processing.layouts[0],
    }
    for name, value in options.items():
        if value is not None:
            raise DataError(
                f'collate="ragged" joins results as they are, so {name}={show(value)} has no '
                "effect; convert results in the processor"
            )


def _parse_collators(processing: Processing) -> Processing:
    """Return the steps for one Collator or several; raise DataError if other arguments conflict."""
    collate = processing.collate
    if isinstance(collate, list | tuple | Mapping) and not collate:
        raise DataError(f"collate is an empty {type(collate).__name__}; give one Collator or more")
    if isinstance(collate, Mapping):
        collate = dict(collate)
        _check_fields(collate)
    elif isinstance(collate, list | tuple):
        collate = tuple(collate)
        for collator in collate:
            _check_collator(collator)
    else:
        _check_collator(collate)
    processing = replace(processing, collate=collate)
    collators = tuple(processing.collators.values())
    fixes = {
        "input_dims": "the Collator accepts results of any size; omit it",
        "dtype": "give it to the Collator",
        "convert": "give it to the Collator",
    }
    for name, fix in fixes.items():
        if getattr(processing, name) is not None:
            raise DataError(f"pass either collate or {name}, not both; {fix}")
    layouts = tuple(map(_find_result_layout, collators))
    requested = processing.layouts[0]
    for collator, layout in zip(collators, layouts, strict=True):
        if requested not in (None, layout):
            raise DataError(
                f'layout={show(requested)}, but batches of collate="{collator.pattern}" are '
                f"{layout}; give that layout, or omit it"
            )
    return replace(processing, layouts=layouts)


def _check_fields(collate: Mapping[Any, Any]) -> None:
    for name, collator in collate.items():
        if not isinstance(name, str):
            raise DataError(f"collate has the key {name!r}; a field is named by text")
        if isinstance(collator, str) and collator == RAGGED:
            continue
        with prefix_errors(f"field {name}: ", DataError):
            _check_collator(collator)
    # Raises if fields cannot share their windows.
    FieldCollators({name: step for name, step in collate.items() if step != RAGGED})


def _check_collator(collator: Any) -> None:
    if not isinstance(collator, Collator):
        raise DataError(
            f'collate is {show(collator)}; give a Collator("hwc->bchw", h=224, w=224, ...), a list '
            'or dict of them, or "ragged"'
        )
    if collator.windows.is_one_array:
        raise DataError(
            f'collate needs one array of all samples ("{collator.pattern}"), but results are '
            "separate samples; remove b on the left of its pattern"
        )
    key = collator.to_dict().get("key")
    if key is not None:
        raise DataError(
            f"collate has a Collator with key={key!r}, which is for samples of several items, but "
            "the result of a record is one array; omit key=, or give a Collator for each field, as "
            "in collate={'image': Collator(...)}"
        )
    target = collator.windows.convert.pattern.target
    if collator.windows.packed:  # a batch is Packed, not a View
        return
    if "b" not in target.groups or target.names or "..." in str(target):
        raise DataError(
            f'batches of collate="{collator.pattern}" are {target}, but a batch is a View, whose '
            "layout has one letter per axis, including b; correct the right side of the pattern"
        )


def _find_result_layout(collator: Collator) -> str:
    return str(collator.windows.convert.pattern.target)


def _with_options(collator: Collator, **options: Any) -> Collator:
    return type(collator).from_dict({**collator.to_dict(), **options})


def _check_step(
    framework: str, step: Collator | Converter, options: ConvertOptions, own_framework: str | None
) -> None:
    """Raise DataError if the results of a step cannot be arrays of the framework.

    `own_framework` is the library of results on a GPU, None for CuPy.
    """
    name = type(step).__name__
    if options.device not in (None, CPU) and own_framework is None:
        fix = f"a layoutkit.torch.{name}" if name == "Collator" else 'framework="torch"'
        raise DataError(
            f"framework={show(framework)}, but a {name} with device={options.device!r} makes "
            f"arrays of CuPy; give {fix}, or omit device="
        )
    if framework == "jax" and options.memory is not None:
        raise DataError(
            f"framework='jax', but a {name} has memory='{options.memory}', and XLA chooses the "
            "memory layout of arrays of jax; omit memory="
        )


# ---- Arguments ------------------------------------------------------------------------------


def _parse_layouts(layout: Any) -> tuple[str | None, str | None]:
    """Return the layouts of the input and of the target, in which the batch axis n is called b."""
    if isinstance(layout, str) and ARROW in layout:
        rows = layout.partition(ARROW)[0].strip()
        raise DataError(
            f'layout="{layout}" is a pattern, but names the axes of rows; give '
            f'layout="{rows}", convert=Converter("{layout}")'
        )
    pair = layout if isinstance(layout, list | tuple) else (layout, None)
    if len(pair) != 2:
        raise DataError(f"layout has {len(pair)} parts; give one for the input, or (input, target)")
    first, second = (None if x is None else str(with_batch_axis(parse_layout(x))) for x in pair)
    return first, second


def _parse_shape(dims: Any) -> Shape:
    return as_shape((int(dims),) if isinstance(dims, int | np.integer) else dims)


def _check_processor_type(processor: Any) -> None:
    if processor is not None and not callable(processor) and not isinstance(processor, Mapping):
        raise DataError(f"processor is {show(processor)}, which is not callable; give a function")


def _accept_out(processor: Any, sources: int = 1) -> Any:
    """Return a processor that can be called as `processor(*results, out=out)`, or None.

    A function without a parameter `out` is called with the results only, and never fills a row.

    Raises
    ------
    DataError
        The function does not accept one result of each source, or its signature does not tell.
    """
    if processor is None:
        return None
    package = type(processor).__module__.partition(".")[0]
    if package in _TRANSFORMS and sources == 1:
        return _ImageTransform(processor, _TRANSFORMS[package])
    parameters = _parameters_of(processor)
    has_out = "out" in parameters
    results = ["data"] * sources
    try:
        inspect.Signature([*parameters.values()]).bind(*results, **{"out": None} if has_out else {})
    except TypeError as error:
        raise DataError(
            f"processor is called as processor({', '.join(results)}), with out=row if it has a "
            f"parameter out; {show(processor)} does not accept that: {error}"
        ) from None
    return processor if has_out else _WithoutOut(processor)


def _parameters_of(processor: Any) -> Mapping[str, inspect.Parameter]:
    """Return the parameters of a function; DataError if they do not tell whether it has `out`."""
    # torch modules accept any arguments, and pass them to their method `forward`.
    for function in (processor, getattr(processor, "forward", processor)):
        with suppress(ValueError):  # a builtin without a signature
            parameters = inspect.signature(function).parameters
            if {parameter.kind for parameter in parameters.values()} != _ANY_ARGUMENTS:
                return parameters
    raise DataError(
        f"the signature of {show(processor)} does not tell whether it has a parameter out, which "
        "is the row to fill; give processor=lambda data: f(data), or lambda data, out: f(data, out)"
    )


_ANY_ARGUMENTS = {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}


@dataclass(frozen=True)
class _WithoutOut:
    """A processor of a function without a parameter `out`."""

    function: Callable[..., Any]

    def __call__(self, *results: Any, out: Any = None) -> Any:
        return self.function(*results)


@dataclass(frozen=True)
class _ImageTransform:
    """A processor of a transform of another library, whose images it decodes."""

    transform: Callable[..., Any]
    apply: Callable[[Callable[..., Any], Any], Any]  # called with the transform and an image

    def __call__(self, data: Any, out: Any = None) -> Any:
        return self.apply(self.transform, self.decode(data))

    def decode(self, data: Any, out: Any = None) -> Any:
        """Return the pixels of encoded bytes; other data as they are."""
        from ...images import Reader  # lazy: few Batchers decode images

        return Reader()(data) if isinstance(data, bytes) else data


def _apply_torchvision(transform: Callable[..., Any], image: Any) -> Any:
    """Call a transform with an image of Pillow, as the datasets of torchvision do."""
    if not isinstance(image, np.ndarray) or image.dtype != np.uint8 or image.ndim not in (2, 3):
        return transform(image)
    from PIL import Image

    return transform(Image.fromarray(image))


def _apply_albumentations(transform: Callable[..., Any], image: Any) -> Any:
    """Call a transform with an array by name, or with the fields of a record by their names."""
    if isinstance(image, Mapping):
        return transform(**image)
    return transform(image=image)["image"]


# By the package of their class. Transforms of kornia are torch modules, whose images are tensors.
_TRANSFORMS = {"torchvision": _apply_torchvision, "albumentations": _apply_albumentations}
