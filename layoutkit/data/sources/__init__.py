"""Sources of records. `open_index(source)` returns an Index: a sequence of Record, also by label.

arrays.py       arrays, and the files that contain them
base.py         Index, the base class of all sources; partitions; the file names a table may contain
directory.py    a folder whose sub-folders are labels
files.py        a list of files
items.py        map-style Datasets, whose items are read one by one
mixture.py      several sources in fixed shares
parquet.py      Parquet files
partfiles.py    a folder of part files, whose lines are records
ranged.py       RangedIndex, the base class of containers; labels in columns; sharded files
stream.py       iterators, and functions that return one
recordio.py     RecordIO files, and the .idx and .lst files next to them
table.py        csv and tsv files
tfrecord.py     TFRecord files
webdataset.py   tar archives in WebDataset's layout
"""

from __future__ import annotations

import builtins
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Never

from ..._utils.spelling import find_choice
from ..._utils.validation import check_int, check_path, describe_type, show, type_name
from ...errors import DataError
from ..errors import check_has_records, reject_unknown
from ..formats import FORMATS, find_format, is_dataframe, is_image_name
from ..io.filesystem import expand_pattern, has_wildcards, is_url
from ..io.zarr import is_store
from ..labels import check_missing
from ..records import Record
from .arrays import open_tensor
from .base import Groups, Index, Partition, check_schemes, group_by_code, number_classes
from .directory import open_directory
from .files import is_file_list, open_files
from .items import ItemsIndex, is_item_source, reject_iterables
from .mixture import MixedIndex, mix_indexes
from .parquet import open_parquet
from .partfiles import PartsIndex
from .recordio import open_record_file
from .stream import StreamIndex, is_stream
from .table import is_file_frame, open_frame, open_table
from .tfrecord import open_tfrecord
from .webdataset import open_tar

__all__ = [
    "Groups",
    "Index",
    "MixedIndex",
    "PartsIndex",
    "StreamIndex",
    "group_by_code",
    "mix",
    "open_index",
]


def open_index(
    source: Any,
    *,
    kind: str | None = None,
    partition: int = 0,
    partitions: int = 1,
    schemes: Sequence[str] = (),
    index: str | os.PathLike[str] | None = None,
    list: str | os.PathLike[str] | None = None,  # MXNet's name of the file
    columns: Mapping[str, Any] | None = None,
    missing: str | int = "error",
    classes: Sequence[str | int] | None = None,
    **unknown: Never,
) -> Any:
    """Open a source of records.

    >>> index = open_index({"x": [[1.0, 2.0], [3.0, 4.0]], "y": ["cat", "dog"]})
    >>> index.labels, index[1].array
    (['cat', 'dog'], array([3., 4.]))

    Parameters
    ----------
    source : str, path, array, mapping, Dataset, Index, or a list of paths
        A csv or tsv file, a folder whose sub-folders are labels, a URL of a folder of part
        files, an array, ``{"x": array, "y": labels}``, a .npy, .npz, .safetensors or .pt file, a
        .zarr store of an array or of x and y, a Dataset, or a container of records: .rec, .tar,
        .parquet or .tfrecord. Containers may be several files, by wildcards and braces:
        ``"train-{000..119}.tar"``.

        A map-style Dataset, such as PyTorch's and Hugging Face's: any object with a length and
        `[i]` that is no array. Its items are data (an array, or an image of Pillow, which becomes
        RGB), (data, label), or a mapping with the columns of a table or of x and y. They are read
        one by one, so labels are numbers, which are the targets. A ClassLabel of Hugging Face, or
        `classes` of torchvision, names the classes.

        A stream: an iterator, which is read once; or a function without arguments, or an iterable
        object, that returns a new iterator for each epoch. Its items are data, (data, label), or
        dicts of fields, and are read in order; their number is unknown.

        Arrays that differ in size: ``{"x": [array, array, ...], "y": labels}``, which shares their
        memory, or, if they differ in length only, a `Ragged` in place of the list.

        x and y may also be called input and target; with an array `classes`, the target consists
        of positions in it. A single array may have any name.

        Files of one record each, such as images: a list of paths, a glob ("photos/*.jpg"), one
        path, ``{"x": paths, "y": labels}``, or a data frame with the columns of a csv file.
    kind : str, optional
        The kind of the source, if its name does not tell: "csv", "tsv", "directory", "parts",
        "items", "stream", "tensor", "zarr", "files", "image", "raw", "tar", "parquet" or
        "tfrecord". "image" and "raw" are RecordIO files: of image records, the default for .rec, or
        of records as plain bytes.
    partition, partitions : int
        Take only the records i with ``i % partitions == partition``; of part files, the files.
    schemes : tuple of str
        URL schemes that the files in a table may have, besides the table's own scheme and http(s):
        "s3", or "file" for local files in a table at a URL.
    index : path, optional
        The file with the offsets of the records of a .rec: by default the .idx next to it, if it
        exists. Its lines give the order; records that are missing in it are omitted.
    list : path, optional
        A .lst whose labels replace the labels of a .rec, matched by the ids of its records.
    columns : mapping, optional
        For a table, a data frame or a .parquet: the column of files or images, and the column or
        columns of labels (None: no labels), as in ``{"image": "photo", "label": "class"}``. By
        default the one column filename, file_name, file, path, filepath or image, and the columns
        label, label1, label2, ..., or without these class. Records of a .parquet are bytes, lists
        of numbers of a fixed size, or lists of images: "images" gives a list of bytes, "images:0"
        the first image. Its labels may be names of folders, as in label=cat/0.parquet.

        For a .tar: the members that are the image and the label, by their suffixes, as in
        ``{"image": ("jpg", "png"), "label": "json:class"}``. By default the first of jpg, jpeg,
        png, webp, npy and the other suffixes that `images.read` decodes, and a number or word in
        cls, or else the text in txt.
    missing : "error", "drop" or -1
        The handling of records without a label (None, NaN, NaT, pandas.NA, empty text, no member
        cls) where others have one: an error, omitted and counted in `skipped`, or with the target
        -1, which is no class.
    classes : list, optional
        All labels, in the order that numbers them (class_names), also those that no record has: so
        that class 2 is the same in the folders of training and validation. A label that is not in
        the list is an error. By default the labels of the source, in the order of `Index.labels`.

    Raises
    ------
    DataError
        The source cannot be opened, or does not have the form that its kind requires.
    """
    reject_unknown(open_index, unknown, _CURES)
    number = check_int("partitions", partitions, 1)
    part = check_int("partition", partition)
    if part >= number:
        raise DataError(f"partition={part}, but partitions={number}; they count from 0")
    allowed = check_schemes(schemes)
    options: dict[str, Any] = {
        "index": _check_path("index", index),
        "list": _check_path("list", list),
        "columns": columns,
        "schemes": allowed or None,
        "missing": check_missing(missing),
    }
    place = Partition(part, number)
    if isinstance(source, Index):
        opened = _take_index(source, kind, place, options)
    else:
        opened = _open(source, kind, place, options)
    return opened if classes is None else number_classes(opened, classes)


def mix(
    sources: Sequence[tuple[Any, float]], *, on_end: str = "stop", **unknown: Never
) -> MixedIndex:
    """Return an Index of several sources, which samplers read in turn, in shares by weight.

    >>> import numpy as np
    >>> from layoutkit.data import sampler
    >>> mixture = mix([(np.arange(6), 2), (np.arange(100, 103), 1)])
    >>> [int(record.array) for record in sampler("sequential", mixture)]
    [0, 100, 1, 2, 101, 3, 4, 102, 5]

    Parameters
    ----------
    sources : list of (source, weight)
        Each source is an Index or an argument of `open_index`, with records of one kind: equal
        classes in one order, or targets of one shape and dtype. Weights are relative to their sum.
    on_end : "stop", "repeat" or "drop"
        What happens when a source has no more records in an epoch: the epoch ends; the source
        begins again, in another order if it is shuffled, until all have ended once (or for
        `num_batches`); or it drops out, and the others continue by their weights, so that each
        record occurs once.

    Returns
    -------
    Index
        The records of all sources, one source after the other. The samplers "sequential" and
        "shuffle", also with full batches only, choose a source by the weights, and its next record
        in this order: of the first n records, n * weight / sum(weights) are of a source, to within
        half the number of sources. Other samplers are errors.

    Notes
    -----
    The source of each position of an epoch is fixed, so that every batch has its share, and any
    number of threads and ranks, and a resumed run, read the same records. States have a hash of the
    mixture.

    Raises
    ------
    DataError
        A weight is not a finite number above 0, a source has no records or cannot be opened, or
        sources differ in their labels or targets. A loop of batches raises it before the first
        batch if sources differ in the shape, dtype or fields of their results.
    """
    reject_unknown(mix, unknown)
    return mix_indexes(sources, on_end, open_index)


def _take_index(index: Index, kind: Any, place: Partition, options: dict[str, Any]) -> Index:
    """Return the index as it is; raise DataError for options, which are of its source."""
    if kind is not None or place.parts > 1 or _find_given(options):
        raise DataError(
            f"{index!r} is an Index already, which only classes= can change; give the other "
            "options where its source is opened; a part of it is index[start::step]"
        )
    return index


_SPLIT = "split the index: train, val = index.split(0.8, seed=0)"
_SOURCE = 'give labels with the source, {"x": ..., "y": labels}'
_ONE_LABEL = 'sampler("linear", index, label="cat") samples the records of one label'
_LABEL_COLUMN = (
    f'name the column of a table, columns={{"label": "class"}}, or {_SOURCE}; {_ONE_LABEL}'
)
_LOOP = "give it to sampled_batcher(index, ...)"
_PARTITION = "open a part of the records: partition=0, partitions=4"
# Equivalents of the keywords of torchvision, Keras, tf.data, grain and Hugging Face datasets.
_CURES = {
    **dict.fromkeys(("train", "split", "subset", "validation_split", "val_split"), _SPLIT),
    **dict.fromkeys(("label", "label_column", "label_col", "target", "targets"), _LABEL_COLUMN),
    **dict.fromkeys(("batch_size", "seed", "sampler", "drop_last", "num_workers"), _LOOP),
    **dict.fromkeys(("rank", "num_shards", "shard", "world", "world_size"), _PARTITION),
    "labels": f"{_SOURCE}; classes= is a list of all labels, in the order that numbers them",
    "class_names": "classes= is a list of all labels, in the order that numbers them",
    "class_to_idx": "classes= is a list of all labels, in the order that numbers them",
    "image_column": 'name the column of a table: columns={"image": "photo"}',
    "root": "the first argument is the folder: open_index(folder)",
    "path": "the first argument is the path: open_index(path)",
    "data_dir": "the first argument is the folder: open_index(folder)",
    "transform": "give a processor to the loop: sampled_batcher(index, processor=transform)",
    "target_transform": "give a processor to the loop: sampled_batcher(index, processor=...)",
    "loader": "give a processor to the loop: sampled_batcher(index, processor=loader)",
    "shuffle": 'give the order to the loop: sampled_batcher(index, sampler="shuffle")',
    "image_size": "give the size to the loop: sampled_batcher(index, size=(224, 224))",
    "extensions": 'name the files by a pattern: open_index("photos/*.jpg")',
    "streaming": "omit it: records are read when they are needed",
}
# The kinds that other libraries call so.
_OTHER_KINDS = {
    "array": "tensor", "arrays": "tensor", "npy": "tensor", "numpy": "tensor",
    "folder": "directory", "imagefolder": "directory", "image_folder": "directory",
    "images": "files", "rec": "image",
    "recordio": "image", "webdataset": "tar", "wds": "tar", "tfrecords": "tfrecord",
}  # fmt: skip


# The cures of a list of sources that are one, in messages.
ONE_SOURCE = (
    "arrays of one source are {'x': arrays}, with labels {'x': arrays, 'y': labels}; "
    "files of several folders are one list of paths; "
    'containers that follow one another are one pattern, "p{0..7}.tar"; other sources are '
    'joined by layoutkit.data.mix([(source, 1) for source in sources], on_end="drop")'
)


def _open(source: Any, kind: Any, place: Partition, options: dict[str, Any]) -> Index:
    if isinstance(source, builtins.list | tuple) and kind != "files":
        if are_several(source):
            raise DataError(
                "the source is a list of sources, and an index has one: open each of them; "
                f"{ONE_SOURCE}; sampled_batcher joins the records of several sources by a processor"
            )
    else:
        reject_records(source)
    path = os.fspath(source) if isinstance(source, str | os.PathLike) else None
    name = _check_kind(kind) or _guess_kind(source, path, options["columns"])
    if path is None and name not in ("tensor", "files", "items", "stream"):
        raise DataError(f"kind={show(kind)} needs a path or URL, not {describe_type(source)}")
    kwargs = _keywords_of(name, options, path or f"the {type_name(source)}")
    return _opener_of(name).opener(source if path is None else path, name, place, **kwargs)


def _keywords_of(kind: str, options: dict[str, Any], source: str) -> dict[str, Any]:
    """Return the options of a kind of index; raise DataError if others are given."""
    keywords = _opener_of(kind).keywords
    for key in _find_given(options):
        if key not in keywords:
            kinds = ", ".join(name for name, row in _OPENERS.items() if key in row.keywords)
            raise DataError(f"{key}= is for an index of kind {kinds}; {source} is {kind}")
    return {key: value for key, value in options.items() if key in keywords}


def _find_given(options: dict[str, Any]) -> list[str]:
    """Return the names of the options that are not their default: None, or "error" of missing."""
    defaults = {"missing": "error"}
    return [
        name
        for name, value in options.items()
        if value is not None and (name not in defaults or value != defaults[name])
    ]


class _Opener(NamedTuple):
    """A function that opens a kind of source, and the keywords that it accepts."""

    opener: Callable[..., Index]
    keywords: tuple[str, ...] = ()


def _open_files(source: Any, kind: str, partition: Partition, **options: Any) -> Index:
    if is_dataframe(source):
        return open_frame(source, kind, partition, **options)
    if options.pop("columns") is not None:
        raise DataError("columns= names columns of a table; give a list of files without it")
    return open_files(source, kind, partition, **options)


_OPENERS = {
    "csv": _Opener(open_table, ("columns", "missing", "schemes")),
    "tsv": _Opener(open_table, ("columns", "missing", "schemes")),
    "directory": _Opener(open_directory, ("missing",)),
    "files": _Opener(_open_files, ("columns", "missing")),
    "items": _Opener(ItemsIndex, ("columns",)),
    "parts": _Opener(PartsIndex),
    "stream": _Opener(StreamIndex),
    "tensor": _Opener(open_tensor, ("missing",)),
    "zarr": _Opener(open_tensor, ("missing",)),
    "image": _Opener(open_record_file, ("index", "list", "missing")),
    "raw": _Opener(open_record_file, ("index", "list")),
    "tar": _Opener(open_tar, ("columns", "missing")),
    "parquet": _Opener(open_parquet, ("columns", "missing")),
    "tfrecord": _Opener(open_tfrecord),
}


def _opener_of(kind: str) -> _Opener:
    """Return the opener of a kind, or of a format of arrays, which are opened as "tensor"."""
    return _OPENERS.get(kind, _OPENERS["tensor"])


def reject_records(source: Any) -> None:
    """Raise DataError for a Record or a list of Records, which have no data."""
    records = [source] if isinstance(source, Record) else source
    if isinstance(records, builtins.list | tuple) and any(isinstance(r, Record) for r in records):
        raise DataError(
            "the source consists of Records, which have no data; give the Index: index[:9], "
            "index[numbers] and the parts of index.split(0.8) are indexes of some of its records"
        )


def _check_path(name: str, value: Any) -> str | None:
    return None if value is None else check_path(name, value)


def _check_kind(kind: Any) -> str | None:
    if kind is None or (isinstance(kind, str) and kind in _OPENERS):
        return kind
    row = FORMATS.find(kind) if isinstance(kind, str) else None
    if row is None:
        names = dict.fromkeys([*_OPENERS, *FORMATS])
        meant = _OTHER_KINDS.get(str(kind).lower()) or find_choice(kind, names)
        hint = "" if meant is None else f"did you mean {meant!r}? Kinds are "
        raise DataError(f"kind={show(kind)}; {hint or 'it must be one of '}{', '.join(names)}")
    return str(kind) if row.read else row.kind


def are_several(sources: Any) -> bool:
    """Return True for a list of sources, False for a list of files that are records, and others.

    Raises DataError for an empty list and for a list of Records.
    """
    if not isinstance(sources, builtins.list | tuple):
        return False
    reject_records(sources)
    check_has_records(len(sources), "the source", "the list is empty; give at least one source")
    if not _is_path(sources[0]) or not is_file_list(sources):
        return True
    return any(_source_kind(os.fspath(path)) is not None for path in sources if _is_path(path))


def _is_path(source: Any) -> bool:
    return isinstance(source, str | os.PathLike)


def _guess_kind(source: Any, path: str | None, columns: Any) -> str:
    if path is None:
        if is_item_source(source):
            return "items"
        if is_stream(source):
            return "stream"
        reject_iterables(source)
        are_files = is_file_list(source) or is_file_frame(source, columns)
        return "files" if are_files else "tensor"
    kind = _source_kind(path)
    if kind is not None:
        return kind
    if is_file_list(path):
        return "files"
    if has_wildcards(path) and not is_url(path) and (example := _suggest_pattern(path)):
        raise DataError(
            f"{path} is not an index: a pattern of images ends with their suffix; give {example!r}"
        )
    exists = os.path.exists(path)  # no error for too long a name
    reason = "nothing is known of its kind" if exists else "there is no such file"
    raise DataError(
        f"{path or show(path)} is not an index: {reason}; an index is a folder, the URL of a "
        "folder of part files, an image, a list of files, or a file: "
        f"{', '.join(f'.{name}' for name in FORMATS)}"
    )


def _suggest_pattern(pattern: str) -> str | None:
    """Return a pattern of the images that a pattern matches, or of those in its folders."""
    for wider in (pattern, f"{pattern}/*"):
        image = next(filter(is_image_name, expand_pattern(wider)), None)
        if image is not None and wider.endswith("*"):
            return wider + os.path.splitext(image)[1]
    return None


def _source_kind(path: str) -> str | None:
    """Return the kind of the source at a path or URL; None if it is none."""
    if "\0" in path:
        raise DataError(f"{path!r} has a null character, which no name of a file has")
    if is_store(path):
        return "zarr"
    if not is_url(path) and os.path.isdir(path):  # no error for too long a name
        return "directory"
    row = find_format(path)
    if row is not None:
        return row.kind
    return "parts" if is_url(path) and not is_image_name(path) else None
