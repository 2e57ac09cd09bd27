"""The kept corpus of `tests/corpus/`: its inputs, their readers, and random damage to them.

    tests/corpus/<kind>/            small valid inputs, written by corpus_seeds.py
    tests/corpus/failed/<kind>/     inputs that once caused an error that is not layoutkit's

Record files with equal stems (a.rec, a.idx, a.lst) are one input; any other file is one, too. A
reader opens an input in every way that its kind has. An outcome is right if it is a result or a
LayoutkitError.
"""

import gzip
import json
import random
import socket
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from unittest import mock

import numpy as np

from layoutkit import LayoutkitError
from layoutkit.data import (
    ArrayProvider,
    CSVProvider,
    MNISTProvider,
    open_index,
    sampled_batcher,
    sampler,
)
from layoutkit.data.io import filesystem
from layoutkit.data.io.idx import IdxFile
from layoutkit.data.io.reader import RangeFile, Reader
from layoutkit.data.recordio import read_mean, read_records
from layoutkit.images import Decoder
from layoutkit.images import read as read_image

from .damage import damaged, renumbered, through_index, through_sample, with_checksums
from .lying import answering

FOLDER = Path(__file__).resolve().parent.parent / "corpus"
FAILED = FOLDER / "failed"
RECORDS = 20  # the number that is read of one input

TEXTS = {".csv", ".tsv", ".json", ".idx", ".lst", ".http"}  # an .idx of record files is text

# Defects that are not fixed yet: kind and name of an input in failed/, and the reason. The name is
# the exception and the innermost function of layoutkit.
KNOWN = {}


@dataclass(frozen=True)
class Input:
    """Files that are opened together: the bytes of each by its suffix."""

    kind: str
    stem: str
    files: tuple  # of (suffix, bytes), in the order of their names
    kept: (
        str  # the path of the kept input in the corpus; without a suffix if it may be several files
    )

    def write(self, folder):
        """Write the files; return the path of the last one, which is the one to open."""
        for suffix, content in self.files:
            path = Path(folder) / f"{self.stem}{suffix}"
            path.write_bytes(content)
        return path


def kept_inputs():
    """Return the inputs of the corpus, except inputs of known defects."""
    inputs = []
    for root in (FOLDER, FAILED):
        for kind in READERS:
            stems = {}
            for path in sorted((root / kind).glob("*")):
                key = path.name if root == FOLDER and kind != "records" else path.stem
                stems.setdefault(key, []).append(path)
            for key, paths in stems.items():
                name = (root / kind / key).relative_to(FOLDER).as_posix()
                files = tuple((path.suffix, path.read_bytes()) for path in paths)
                if name.removeprefix("failed/") not in KNOWN:
                    inputs.append(Input(kind, paths[0].stem, files, name))
    return inputs


def mutated(inputs, seed, number):
    """Return one of the inputs with one damaged file: a function of seed and number."""
    chance = random.Random(f"{seed}/{number}")
    kind = chance.choice(sorted({each.kind for each in inputs}))
    chosen = chance.choice([each for each in inputs if each.kind == kind])
    files = list(chosen.files)
    place = chance.randrange(len(files))
    suffix, content = files[place]
    files[place] = suffix, _changed(suffix, content, chance)
    return Input(chosen.kind, chosen.stem, tuple(files), chosen.kept)


def _changed(suffix, content, chance):
    """Return damaged content; half of it has correct checksums, compression or numbers."""
    if chance.random() < 0.5:
        return damaged(content, chance)
    if suffix == ".gz":
        return gzip.compress(damaged(gzip.decompress(content), chance), mtime=0)
    if suffix in TEXTS:
        return renumbered(content, chance)
    return with_checksums(suffix, damaged(content, chance))


def failure(tried, folder):
    """Open an input in a folder; return the exception that is not layoutkit's, else None."""
    path = tried.write(folder)
    try:
        with suppress(LayoutkitError):
            READERS[tried.kind](path)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # panics of extensions are not Exceptions
        return error
    finally:
        for suffix, _ in tried.files:
            path.with_suffix(suffix).unlink()
    return None


@contextmanager
def bounded():
    """Limit the time of requests, and resolve only the names of this machine.

    A damaged redirect may name any host.
    """
    resolve = socket.getaddrinfo

    def resolve_here(host, *args, **keywords):
        if host not in ("127.0.0.1", "localhost"):
            raise socket.gaierror(f"{host} is not this machine")
        return resolve(host, *args, **keywords)

    with (
        mock.patch.object(filesystem, "SECONDS_IN_ALL", 1.0),
        mock.patch.object(filesystem, "FIRST_PAUSE", 0.001),
        mock.patch.object(socket, "getaddrinfo", resolve_here),
    ):
        yield


# ---- readers ---------------------------------------------------------------------------------


def _every(*steps):
    """Run all steps; each may raise an error of layoutkit."""
    for step in steps:
        with suppress(LayoutkitError):
            step()


def _read_index(path, **options):
    """Read records, labels and targets of an index, one by one and together."""
    index = open_index(path, **options)
    numbers = np.arange(min(len(index), RECORDS))
    get = index.getter(Reader())
    for record in index[:RECORDS]:
        _every(lambda record=record: get(record))
    _every(
        lambda: index.records(numbers),
        lambda: index.ranks(numbers),
        lambda: index.targets(numbers),
        lambda: [index.members(label) for label in index.labels[:RECORDS]],
    )


def read_records_file(path):
    rec = path.with_suffix(".rec")
    listed = path.with_suffix(".lst")
    _every(
        lambda: _read_index(rec, missing=-1),
        lambda: _read_index(rec, kind="raw"),
        lambda: _read_index(rec, missing=-1, list=listed if listed.exists() else None),
        lambda: list(read_records(rec)),
    )


def read_tar(path):
    _every(
        lambda: _read_index(path, missing=-1),
        lambda: _read_index(
            path, missing=-1, columns={"label": "json:n"}, partition=1, partitions=2
        ),
    )


def read_arrays(path):
    _every(lambda: through_sample(path), lambda: through_index(path))


def read_images(path):
    content = path.read_bytes()
    _every(lambda: read_image(content), lambda: read_image(path), lambda: Decoder((8, 8))(content))


def read_idx(path):
    def provide():
        with MNISTProvider(path, None, label_name=None, batch_size=3) as provider:
            list(provider)

    _every(lambda: IdxFile(str(path)).array.sum(), provide)


def read_csv(path):
    def provide(dtype):
        with CSVProvider(path, (4,), batch_size=3, dtype=dtype) as provider:
            list(provider)

    _every(lambda: provide("float32"), lambda: provide("int64"))


def read_http(path):
    """Request whole files and parts from a server that sends these bytes to every request."""
    with answering(path.read_bytes()) as url:
        reader = Reader(retries=0)
        _every(
            lambda: reader.read(url),
            lambda: reader.read(url, 10, 20),
            lambda: reader.read(url, 10),
            lambda: reader.read(url, 100),
            lambda: RangeFile(url, reader).read_at(5, 10),
        )
        reader.close()


def read_page(path):
    """List the part files that a page names, and read them; each has the bytes of the page."""
    with answering(path.read_bytes()) as url:
        _every(
            lambda: filesystem.list_files(f"{url}/"),
            lambda: _read_index(f"{url}/", kind="parts"),
        )


def read_state(path):
    """Load a state into an object of its kind, and continue there.

    The caller reads the JSON, so an error in it is not layoutkit's.
    """
    try:
        state = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        return
    made = stateful(path.stem, path.parent)
    try:
        made.load_state_dict(state)
        made.state_dict()
        for _ in zip(range(3), made, strict=False):
            pass
    finally:
        getattr(made, "close", int)()


def stateful(name, folder):
    """Return the object whose state is kept under a name."""
    x = np.arange(24).reshape(12, 2)
    if name.startswith("batcher"):
        return sampled_batcher(x, batch_size=5, sampler="permutation", seed=1)
    if name.startswith("provider"):
        return ArrayProvider({"x": x}, batch_size=5, shuffle=True, seed=2)
    if name.startswith("parts"):
        parts = folder / "parts"
        parts.mkdir(exist_ok=True)
        for number, lines in enumerate([2, 0, 4]):
            (parts / f"part-{number}").write_bytes(b"1\n" * lines)
        index = open_index(parts, kind="parts")
        return sampler("part-permutation-permutation", index, batch_size=3)
    return sampler("permutation", 12, batch_size=3, seed=4)


READERS = {
    "arrays": read_arrays,
    "csv": read_csv,
    "http": read_http,
    "idx": read_idx,
    "images": read_images,
    "means": read_mean,
    "pages": read_page,
    "parquet": partial(_read_index, missing=-1),
    "records": read_records_file,
    "states": read_state,
    "tables": partial(_read_index, missing=-1),
    "tar": read_tar,
    "tfrecord": _read_index,
}
