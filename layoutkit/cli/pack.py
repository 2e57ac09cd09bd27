"""The commands `layoutkit pack` and `layoutkit index`.

`pack` selects, orders and encodes labeled images, and writes them into RecordIO files with their
`.idx` and `.lst` files. `index` writes the `.idx` of a RecordIO file, which lists the offsets of
its records. `layoutkit.data` implements the record format.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .._utils import system
from .._utils.files import AtomicFiles, replace_atomically, resolve_links
from .._utils.validation import escape_controls
from ..data import open_index, sampler
from ..data.formats import is_image_name, lowercase_suffix
from ..data.io.image_record import pack_image
from ..data.io.reader import RangeFile
from ..data.io.recordio import FrameError, record_span, scan_records
from ..data.labels import order_classes
from ..data.recordio import RecordAppender
from ..data.sources.recordio import read_image_list
from ..errors import ArgumentError, DataError
from ..images import Reader, fit, read
from ..images.reading import pillow
from ..memory import Array
from .inputs import pixel_limit
from .outputs import check_destination
from .printing import keywords_to_options

_QUALITY_RANGES = {"jpg": range(1, 101), "png": range(10), "npy": range(0)}
# The encodings that hold the pixels of each mode.
_ENCODINGS = {
    "rgb": ("jpg", "png", "npy"), "gray": ("jpg", "png", "npy"), "rgba": ("png", "npy"),
    "index": ("png", "npy"), "unchanged": ("npy",),
}  # fmt: skip
_DEFAULT_QUALITY = 95  # for jpg
_IMAGES_IN_FLIGHT = 64  # images that are encoded before the first of them is written
_MAX_PARTS = 256  # all parts are open until the last image is written
_MAX_WORKERS = 4
_MAX_LABELS = 20  # labels that the summary lists


@dataclass(frozen=True)
class PackRequest:
    """The arguments of `layoutkit pack`.

    root           the folder of the paths in a `.lst`; None: the folder of the list
    resize         length of the shorter edge in pixels
    quality        1 .. 100 for jpg; for png the compression level, 0 .. 9
    pass_through   pack the files unchanged instead of encoding them
    """

    source: str
    target: Path
    root: Path | None = None
    list_only: bool = False
    resize: int | None = None
    quality: int | None = None
    encoding: str | None = None
    pass_through: bool = False
    shuffle: bool = False
    seed: int = 0
    parts: int = 1
    workers: int | None = None
    max_pixels: int | None = None
    mode: str | None = None
    to_srgb: bool = False
    background: tuple[int, ...] | None = None

    @property
    def reading(self) -> dict[str, Any]:
        """The keyword arguments of `layoutkit.images.read`."""
        mode = self.mode or "rgb"
        return {"mode": mode, "background": self.background, "to_srgb": self.to_srgb}

    def check(self) -> None:
        """Raise ArgumentError for options that cannot be combined."""
        for name in ("resize", "quality", "encoding", "mode", "to_srgb", "background"):
            if self.pass_through and getattr(self, name) not in (None, False):
                option = name.replace("_", "-")
                raise ArgumentError(
                    f"--{option}: --pass-through packs files unchanged; give only one of the two"
                )
        encoding = self.encoding or "jpg"
        Reader(**self.reading)  # raises for options that exclude one another
        encodings = _ENCODINGS[self.mode or "rgb"]
        if encoding not in encodings:
            raise ArgumentError(
                f"--mode {self.mode}: {encoding} does not hold such pixels; give --encoding "
                f"{' or '.join(encodings)}"
            )
        if self.mode == "unchanged" and self.resize is not None:
            raise ArgumentError("--mode unchanged: keeps images as they are; omit --resize")
        if self.quality is not None and self.quality not in _QUALITY_RANGES[encoding]:
            levels = _QUALITY_RANGES[encoding]
            allowed = (
                f"for {encoding} it is {levels[0]} to {levels[-1]}"
                if levels
                else "npy has no quality"
            )
            raise ArgumentError(f"--quality {self.quality}: {allowed}")
        if self.parts > _MAX_PARTS:
            raise ArgumentError(f"--parts {self.parts}: the maximum is {_MAX_PARTS}")
        if self.seed and not self.shuffle:
            raise ArgumentError("--seed: applies only with --shuffle; give both")
        if self.root is not None and not self.root.is_dir():
            raise ArgumentError(f"--root {self.root}: no such folder; check the path")
        for target in self.targets:
            check_destination([self.source], target, ".rec")

    @property
    def targets(self) -> list[Path]:
        """The `.rec` files to write."""
        if self.parts == 1:
            return [self.target]
        return [self.target.with_suffix(f".part{part:03}.rec") for part in range(self.parts)]


class ImageEntry(NamedTuple):
    """An image to pack; `id` is its id in the `.lst` that names it, or None."""

    path: Path
    labels: Sequence[float]
    id: int | None = None


def pack(request: PackRequest) -> None:
    """Write the files of a request and print a summary; all files appear when all are complete.

    Raises ArgumentError before any image is read, and DataError if no image can be read.
    """
    request.check()
    images, names = _list_images(request)
    images = _omit_unlistable(images, request)
    if request.shuffle:
        order = sampler("permutation", len(images), seed=request.seed)
        images = [images[index] for index in order]
    packed = 0
    with AtomicFiles() as files:
        output_parts = [_OutputPart(target, request, files) for target in request.targets]
        for index, image, payload in _make_payloads(images, request):
            number = packed if image.id is None else image.id
            output_parts[index * request.parts // len(images)].add(image, number, payload)
            packed += 1
        if not packed:
            raise DataError(f"{request.source}: none of {len(images)} images can be read")
        for output in output_parts:
            output.write_lists()
    for output in output_parts:
        print(f"written: {escape_controls(output.written)}, {output.count} images")
    if names:
        shown = ", ".join(f"{rank} {name}" for rank, name in enumerate(names[:_MAX_LABELS]))
        print(f"labels: {escape_controls(shown)}{', ...' if len(names) > _MAX_LABELS else ''}")


class _OutputPart:
    """An output file, and the list of its images."""

    def __init__(self, target: Path, request: PackRequest, files: AtomicFiles) -> None:
        self.count = 0
        self._lines: list[str] = []
        self._folder = resolve_links(target).parent
        self._list: Any = None
        path = target.with_suffix(".lst")
        # The source list is not overwritten if it has the path of the output list.
        if not (path.exists() and path.samefile(request.source)):
            self._list = files.open(path)
        self._records = self._index = None
        if not request.list_only:
            self._index = files.open(target.with_suffix(".idx"))
            self._records = RecordAppender(files.open(target))
        self.written = path if request.list_only else target

    def add(self, image: ImageEntry, number: int, payload: bytes) -> None:
        labels = [*map(float, image.labels)]
        if self._records is not None:
            label = labels[0] if len(labels) == 1 else labels
            self._records.write(pack_image(payload, label, number), number)
        path = _listed_path(image.path, self._folder)
        self._lines.append("\t".join([str(number), *map(_format_label, labels), path]) + "\n")
        self.count += 1

    def write_lists(self) -> None:
        if self._records is not None:
            self._records.write_index(self._index)
        if self._list is not None:
            self._list.writelines(line.encode() for line in self._lines)


# ---- Images -----------------------------------------------------------------------------------


def _list_images(request: PackRequest) -> tuple[list[ImageEntry], list[Any]]:
    """Return the images to pack, and the class names if labels are indices of classes."""
    source = Path(request.source)
    if source.is_dir():
        if request.root is not None:
            raise ArgumentError(
                f"--root: is the folder of the paths in a .lst, but {source} is a folder; omit it"
            )
        images, names = _entries_from_folders(request.source)
    elif source.is_file() and lowercase_suffix(request.source) == ".lst":
        images = _entries_from_list(request.source, request.root or source.parent)
        names = []
    elif source.exists():
        raise ArgumentError(
            f"{source}: is neither a folder nor a .lst; give a folder of labeled folders or a .lst"
        )
    else:
        raise ArgumentError(f"{source}: no such folder or file; check the path")
    if not images:
        raise ArgumentError(f"{source}: contains no images, or none in labeled folders")
    return images, names


def _omit_unlistable(images: Sequence[ImageEntry], request: PackRequest) -> list[ImageEntry]:
    """Return the images whose paths a `.lst` can contain, and report the others.

    Raises ArgumentError if there is no such image.
    """
    folders = {resolve_links(target).parent for target in request.targets}
    listable = []
    for image in images:
        reasons = [_why_unlistable(image.path, folder) for folder in folders]
        reason = next(filter(None, reasons), "")
        if reason:
            _report_skipped(f"{image.path}: {reason}")
        else:
            listable.append(image)
    if not listable:
        raise ArgumentError(
            f"{request.source}: none of {len(images)} images can be packed; see the messages above"
        )
    return listable


def _listed_path(path: Path, folder: Path) -> str:
    return os.path.relpath(resolve_links(path), folder)


def _why_unlistable(path: Path, folder: Path) -> str:
    """Return the reason why a line of a `.lst` cannot end with the path, or an empty text."""
    try:
        text = _listed_path(path, folder)
    except OSError as error:  # the links form a cycle
        return str(error.strerror)
    if text.encode(errors="ignore").decode() != text:
        return "a list cannot contain file names that are not UTF-8; rename it"
    if text != text.rstrip() or not {"\t", "\n", "\r"}.isdisjoint(text):
        return "a list cannot contain file names with tabs or newlines, or a blank at the end"
    return ""


def _entries_from_folders(source: str) -> tuple[list[ImageEntry], list[Any]]:
    """Return the images in sub-folders, labeled with the sub-folder's index, and the names."""
    index = open_index(source, missing=-1)  # images without a label are reported one by one
    records = [record for record in index if is_image_name(record.url)]
    if len(records) < len(index):
        skipped = len(index) - len(records)
        print(
            f"{escape_controls(source)}: files skipped that are not images: {skipped}",
            file=sys.stderr,
        )
    for record in records:
        if record.label is None:
            _report_skipped(f"{record.url}: it is not in a labeled folder")
    # Folders without images are not counted.
    names = order_classes(record.label for record in records if record.label is not None)
    ranks = {name: rank for rank, name in enumerate(names)}
    labeled = [record for record in records if record.label is not None]
    return [ImageEntry(Path(record.url), [ranks[record.label]]) for record in labeled], names


def _entries_from_list(source: str, root: Path) -> list[ImageEntry]:
    lines = read_image_list(source)
    values = np.split(lines.values, np.cumsum(lines.widths)[:-1]) if len(lines.widths) else []
    rows = zip(lines.paths, values, lines.ids.tolist(), strict=True)
    return [ImageEntry(root / path, labels.tolist(), id_) for path, labels, id_ in rows]


def _make_payloads(
    images: Sequence[ImageEntry], request: PackRequest
) -> Iterator[tuple[int, ImageEntry, bytes]]:
    """Yield (index, image, payload) for each readable image, in the order of `images`."""
    from tqdm import tqdm  # a slow import, which invalid arguments do not need

    workers = request.workers or min(_MAX_WORKERS, system.count_cpus())
    bar = tqdm(total=len(images), unit="image", disable=not sys.stderr.isatty())
    with pixel_limit(request.max_pixels), bar, ThreadPoolExecutor(workers) as pool:
        for first in range(0, len(images), _IMAGES_IN_FLIGHT):
            chunk = images[first : first + _IMAGES_IN_FLIGHT]
            payloads = pool.map(lambda image: _encode_or_error(image, request), chunk)
            for index, (image, payload) in enumerate(zip(chunk, payloads, strict=True), first):
                bar.update()
                if isinstance(payload, Exception):
                    reason = getattr(payload, "strerror", None)
                    _report_skipped(f"{image.path}: {reason}" if reason else str(payload))
                else:
                    yield index, image, payload


def _encode_or_error(image: ImageEntry, request: PackRequest) -> bytes | Exception:
    """Return the payload of an image, or the error if it cannot be read."""
    try:
        if request.list_only:
            return b""
        pixels = read(image.path, **request.reading)
        return image.path.read_bytes() if request.pass_through else _encode(pixels, request)
    except (DataError, OSError) as error:
        return error


def _encode(pixels: Array, request: PackRequest) -> bytes:
    """Return the encoded image, resized if requested."""
    if request.resize is not None:
        resize = "nearest" if request.mode == "index" else "bilinear"
        size = _resized_shape(pixels.shape, request.resize)
        pixels = fit(pixels, size, "stretch", resize=resize)
    file = io.BytesIO()
    if request.encoding != "npy" and pixels.shape[2:] == (1,):
        pixels = pixels[..., 0]
    if request.encoding == "npy":
        np.save(file, pixels)
    elif request.encoding == "png":
        level = 6 if request.quality is None else request.quality
        pillow().fromarray(pixels).save(file, "PNG", compress_level=level)
    else:
        quality = _DEFAULT_QUALITY if request.quality is None else request.quality
        pillow().fromarray(pixels).save(file, "JPEG", quality=quality)
    return file.getvalue()


def _resized_shape(shape: Sequence[int], edge: int) -> tuple[int, int]:
    """Return the height and width of an image whose shorter edge is resized to `edge`."""
    height, width = shape[:2]
    if height <= width:
        return edge, max(edge, edge * width // height)
    return max(edge, edge * height // width), edge


def _format_label(value: float) -> str:
    """Return a label as text, with only the digits that float32 needs."""
    return str(int(value)) if value.is_integer() else str(np.float32(value))


def _report_skipped(reason: str) -> None:
    from tqdm import tqdm

    tqdm.write(
        f"layoutkit: left out {escape_controls(keywords_to_options(reason))}", file=sys.stderr
    )


def write_index(path: Path) -> None:
    """Write the `.idx` beside a RecordIO file; raise DataError if the file is damaged."""
    if not path.is_file():
        raise ArgumentError(f"{path}: no such file; check the path")
    if path.suffix == ".idx":
        raise ArgumentError(f"{path}: is already an index; give the .rec")
    target = path.with_suffix(".idx")
    check_destination([str(path)], target, ".idx")
    with RangeFile(str(path)) as file:
        file.check_has_bytes()
        offsets, lengths = scan_records(file)
        is_damaged = (lengths < 0) | (offsets + lengths > file.size)
        if is_damaged.any():
            raise _damage_error(file, int(offsets[is_damaged][0]))
    with replace_atomically(target) as file:
        file.writelines(b"%d\t%d\n" % line for line in enumerate(offsets.tolist()))
    print(f"written: {escape_controls(target)}, {len(offsets)} records")


def _damage_error(file: RangeFile, offset: int) -> DataError:
    try:
        end = offset + record_span(file, offset)
    except FrameError as error:
        return error
    if end <= file.size:
        return DataError(f"{file.url}: the record at byte {offset} is damaged")
    return DataError(
        f"{file.url} is truncated: it ends after {file.size} bytes, inside the record that "
        f"begins at byte {offset}"
    )
