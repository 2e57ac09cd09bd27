"""Write the valid inputs of `tests/corpus/`: `python -m tests.helpers.corpus_seeds`.

They are committed, so that their bytes do not depend on the versions of the libraries that write
them. Run it again only to add an input.
"""

import gzip
import io
import json
import struct
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from numpy.lib import format as npy

from layoutkit.data.recordio import write_mean

from .corpus import FOLDER, stateful
from .lying import head, sent
from .photographs import encoded, noise
from .record_files import MAGIC, image, tar, tfrecords, write_rec

X = np.arange(48, dtype="<f4").reshape(4, 3, 2, 2)
DATA = bytes(range(100))


def saved(write, *args, **arrays):
    """Return what a function writes into a file, as bytes."""
    file = io.BytesIO()
    write(file, *args, **arrays)
    return file.getvalue()


def arrays():
    fields = np.zeros(3, [("a", "<f4"), ("b", "u1", 2)])
    yield "plain.npy", saved(np.save, X)
    yield "version3.npy", saved(npy.write_array, X, version=(3, 0))
    yield "fields.npy", saved(np.save, fields)
    yield "fortran.npy", saved(np.save, np.asfortranarray(X))
    yield "stored.npz", saved(np.savez, x=X, y=np.arange(4))
    yield "deflated.npz", saved(np.savez_compressed, x=X)
    text = json.dumps({"x": {"dtype": "F32", "shape": [4, 12], "data_offsets": [0, X.nbytes]}})
    yield "plain.safetensors", struct.pack("<Q", len(text)) + text.encode() + X.tobytes()


def csv():
    yield "plain.csv", b"1,2,3,4\n5,6,7,8\n9,10,11,12\n"
    yield "spaces.csv", b"\xef\xbb\xbf 1, 2 ,3,4,\r\n\r\n-5,+6,7,8\r\n"
    yield "floats.csv", b"1.5,-2e3,nan,inf\n.5,5.,1e-300,-Infinity\n"


def http():
    part = f"Content-Range: bytes 10-29/{len(DATA)}"
    chunks = b"32\r\n" + DATA[:50] + b"\r\n32\r\n" + DATA[50:] + b"\r\n0\r\n\r\n"
    yield "whole.http", sent(200, DATA, 'ETag: "a"')
    yield "part.http", sent(206, DATA[10:30], part, 'ETag: "a"')
    yield "chunks.http", head(200, "Transfer-Encoding: chunked", "Connection: close") + chunks
    yield "unannounced.http", head(200, "Connection: close") + DATA
    yield "redirect.http", sent(302, b"", "Location: /y")
    yield "behind.http", sent(416, b"", f"Content-Range: bytes */{len(DATA)}")
    yield "gzip.http", sent(200, gzip.compress(DATA, mtime=0), "Content-Encoding: gzip")
    yield "missing.http", sent(404, b"none")


def idx():
    pictures = bytes.fromhex("00000803 00000003 00000004 00000004") + bytes(range(48))
    yield "pictures.idx", pictures
    yield "labels.idx", bytes.fromhex("00000801 00000003 000102")
    yield (
        "floats.idx",
        bytes.fromhex("00000d02 00000002 00000003") + np.arange(6, dtype=">f4").tobytes(),
    )
    yield "packed.gz", gzip.compress(pictures, mtime=0)


def images():
    pixels = noise(1, 16, 12, 3)
    exif = b"Exif\0\0MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0\0\0\0\0"
    yield "plain.jpg", encoded(pixels, "JPEG")
    yield "turned.jpg", encoded(pixels, "JPEG", exif=exif)
    yield "progressive.jpg", encoded(pixels, "JPEG", progressive=True)
    yield "gray.jpg", encoded(pixels[..., 0], "JPEG")
    yield "plain.png", encoded(pixels)
    yield "alpha.png", encoded(noise(2, 8, 8, 4))
    yield "sixteen.png", encoded(noise(3, 8, 8).astype(np.uint16) * 257)
    yield "plain.webp", encoded(pixels, "WEBP")
    yield "lossless.webp", encoded(pixels, "WEBP", lossless=True)


def means():
    with TemporaryDirectory() as folder:
        write_mean(Path(folder, "plain.bin"), X[0])
        yield "plain.bin", Path(folder, "plain.bin").read_bytes()


def pages():
    names = (
        "part-0",
        "part-1?x=%20",
        "a%2Fb",
        "../up",
        "http://127.0.0.1:1/x/far",
        "sub/",
        "&amp;",
    )
    page = "".join(f'<a href="{name}">x</a>\n' for name in names)
    html = f"<html><head><title>x</title></head><body>{page}</body></html>".encode()
    yield "plain.http", sent(200, html, "Content-Type: text/html; charset=utf-8")
    xml = html.replace(b"</a>", b"").replace(b'"', b"'")
    yield "unclosed.http", sent(200, xml, "Content-Type: application/xhtml+xml")


def parquet():
    import pyarrow
    from pyarrow import parquet as files

    table = pyarrow.table({"image": [b"one", b"two", b"three"], "label": [1, 0, 1]})
    yield "bytes.parquet", saved(lambda file: files.write_table(table, file, row_group_size=2))
    rows = pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(range(12), "float32"), 4)
    table = pyarrow.table({"image": rows, "label": ["a", "b", "a"]})
    yield "rows.parquet", saved(lambda file: files.write_table(table, file, compression="zstd"))


def records():
    pictures = [image(b"%d" % n * n, n % 3, n) for n in range(5)]
    listed = b"".join(b"%d\t%d\tpicture-%d.jpg\n" % (n, n % 2, n) for n in range(5))
    odd = [image(b"several", [1, 2, 3], 1), image(MAGIC * 3, [4, 5, 6], 2), b"", b"plain"]
    for name, payloads, more in (("listed", pictures, {".lst": listed}), ("odd", odd, {})):
        for indexed in (True, False):
            with TemporaryDirectory() as folder:
                path = Path(folder, f"{name}{'-indexed' if indexed else ''}.rec")
                write_rec(path, payloads, indexed)
                for each in sorted(path.parent.iterdir()):
                    yield each.name, each.read_bytes()
            for suffix, content in more.items():
                yield path.with_suffix(suffix).name, content


def states():
    for name in ("batcher", "provider", "parts", "sampler"):
        with TemporaryDirectory() as folder:
            made = stateful(name, Path(folder))
            yield f"{name}-start.json", json.dumps(made.state_dict()).encode()
            list(islice(iter(made), 2))
            yield f"{name}.json", json.dumps(made.state_dict()).encode()
            getattr(made, "close", int)()


def tables():
    yield "plain.csv", b"filename,label\na.png,cat\nb.png,dog\nc.png,cat\n"
    yield "parts.csv", b'filename,offset,length,label,label\n"a,b.bin",0,10,1,2\na.bin,10,5,,3\n'
    yield "tabs.tsv", "filename\tlabel\ra.png\tä\r\nb.png\t\n".encode()


def archives():
    members = [
        (f"{n}.{suffix}", data)
        for n in range(3)
        for suffix, data in (("jpg", DATA[: 9 * n + 3]), ("cls", b"%d" % n), ("json", b'{"n": 2}'))
    ]
    long = [("x" * 120 + f"/{n}.{suffix}", b"1") for n in range(2) for suffix in ("png", "txt")]
    yield "plain.tar", tar(members)
    for form, number in (("ustar", 0), ("gnu", 1), ("pax", 2)):
        yield f"{form}.tar", tar(long, format=number)


def tfrecord():
    yield "plain.tfrecord", tfrecords([b"first", b"", DATA])


SEEDS = {
    "arrays": arrays, "csv": csv, "http": http, "idx": idx, "images": images, "means": means,
    "pages": pages, "parquet": parquet, "records": records, "states": states, "tables": tables,
    "tar": archives, "tfrecord": tfrecord,
}  # fmt: skip


def main():
    for kind, make in SEEDS.items():
        (FOLDER / kind).mkdir(parents=True, exist_ok=True)
        for name, content in make():
            (FOLDER / kind / name).write_bytes(content)


if __name__ == "__main__":
    main()
