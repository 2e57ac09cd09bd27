"""Images of a decoder of another package: every source, every result, every wrong result."""

import sys
import threading

import numpy as np
import pytest

Image = pytest.importorskip("PIL.Image")

from layoutkit import Collator, DataError, images, plugins
from layoutkit.cli import main
from layoutkit.data import open_index, sampled_batcher
from layoutkit.data.formats import FORMATS, Format, find_format
from layoutkit.images.suffixes import DECODERS
from tests.helpers.image_files import png_file
from tests.helpers.photographs import encoded, noise
from tests.helpers.record_files import tar

START = b"TOY"


class ToyDecoder:
    """A decoder of files with their dtype and shape as text; each thread uses its memory again."""

    threads = threading.local()

    @staticmethod
    def accepts(data):
        return data.startswith(START)

    @classmethod
    def decode(cls, data):
        dtype, *shape = data[3:40].decode().split()
        if not hasattr(cls.threads, "memory"):
            cls.threads.memory = np.empty(1 << 16, np.uint8)
        pixels = cls.threads.memory[: len(data) - 40]
        pixels[:] = np.frombuffer(data[40:], np.uint8)
        return pixels.view(dtype).reshape([*map(int, shape)])


def toy_file(pixels):
    header = f"{pixels.dtype.str} {' '.join(map(str, pixels.shape))}"
    return START + header.ljust(37).encode() + pixels.tobytes()


@pytest.fixture(params=["registered", "installed"])
def toy(request, monkeypatch):
    """Add the decoder of the suffix toy: in this process, or by an entry point."""
    monkeypatch.setattr(DECODERS, "rows", dict(DECODERS.rows))
    monkeypatch.setattr(DECODERS, "_owners", dict(DECODERS._owners))
    if request.param == "registered":
        plugins.register("decoders", "toy", ToyDecoder)
    else:
        points = {"toy": {"toy 1.0": f"{__name__}:ToyDecoder"}}
        monkeypatch.setitem(DECODERS.__dict__, "entry_points", points)


# ---- Sources -----------------------------------------------------------------------------

NAMES = [f"{label}/{number}" for label in ("cat", "dog") for number in range(3)]
PIXELS = [noise(number, 20 + number, 30, 3) for number in range(len(NAMES))]


def write_parquet(path, values, labels):
    arrow = pytest.importorskip("pyarrow")
    table = arrow.table({"image": values, "label": labels})
    pytest.importorskip("pyarrow.parquet").write_table(table, path)
    return str(path)


def write_sources(folder, suffix, encode):
    """Write the images in files of one suffix; return a source of each kind, by name."""
    files = [encode(pixels) for pixels in PIXELS]
    labels = [name.partition("/")[0] for name in NAMES]
    paths = [folder / "images" / f"{name}.{suffix}" for name in NAMES]
    for path, data in zip(paths, files, strict=True):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    texts = [*map(str, paths)]
    members = [
        member
        for name, data, label in zip(NAMES, files, labels, strict=True)
        for member in ((f"{name}.{suffix}", data), (f"{name}.cls", label.encode()))
    ]
    (folder / "images.tar").write_bytes(tar(members))
    rows = "".join(f"{path},{label}\n" for path, label in zip(texts, labels, strict=True))
    (folder / "images.csv").write_text(f"filename,label\n{rows}")
    references = [{"bytes": None, "path": f"images/{name}.{suffix}"} for name in NAMES]
    return {
        "folder": str(folder / "images"),
        "glob": f"{folder}/images/*/*.{suffix}",
        "file": texts[0],
        "list": texts,
        "paths": paths,
        "mapping": {"x": texts, "y": labels},
        "fields": {"image": texts, "again": texts},
        "csv": str(folder / "images.csv"),
        "tar": str(folder / "images.tar"),
        "parquet": write_parquet(folder / "bytes.parquet", files, labels),
        "parquet paths": write_parquet(folder / "paths.parquet", references, labels),
    }


def crop(h):
    return Collator("hwc->bchw", h=h, w=8, resize="bilinear", crop="random", dtype="float32")


OPTIONS = {
    "size": {"size": (8, 9)},
    "crop": {"collate": crop(8)},
    "crops": {"collate": [crop(8), crop(6)]},
    "size and crop": {"size": (16, 16), "collate": crop(8)},
    "cache": {"size": (8, 9), "cache": "ram"},
    "on the thread": {"collate": crop(8), "num_workers": 0},
    "shrunk": {"processor": images.Reader((8, 8)), "collate": crop(8)},
}


def batches_of(source, options):
    """Return the arrays and the labels of two epochs."""
    if isinstance(source, dict) and "again" in source:
        fields = {"image": crop(8), "again": crop(8)}
        options = {key: x for key, x in options.items() if key == "num_workers"}
        options |= {"collate": fields}
    read = []
    with sampled_batcher(source, batch_size=4, seed=3, sampler="shuffle", **options) as batches:
        for batch in [*batches, *batches]:
            x = batch.input
            x = x.values() if isinstance(x, dict) else x if isinstance(x, tuple) else [x]
            read.append(([view.input.copy() for view in x], batch.label))
        assert batches.dropped == 0
    return read


@pytest.mark.budget(4)
@pytest.mark.parametrize("name", OPTIONS)
def test_every_source_reads_them_as_images_of_pillow(toy, name, tmp_path):
    own = write_sources(tmp_path / "own", "png", encoded)
    others = write_sources(tmp_path / "others", "toy", toy_file)
    kinds = others if name == "size" else ("folder", "tar", "fields")
    for kind in kinds:
        expected = batches_of(own[kind], OPTIONS[name])
        actual = batches_of(others[kind], OPTIONS[name])
        assert [labels for _, labels in actual] == [labels for _, labels in expected], kind
        for (arrays, _), (references, _) in zip(actual, expected, strict=True):
            for array, reference in zip(arrays, references, strict=True):
                np.testing.assert_array_equal(array, reference, err_msg=kind)


def test_the_commands_read_them(toy, tmp_path, capsys):
    own = write_sources(tmp_path / "own", "png", encoded)
    others = write_sources(tmp_path / "others", "toy", toy_file)
    results = []
    for sources in (own, others):
        folder = tmp_path / "results"
        folder.mkdir()
        for kind in ("folder", "csv", "tar", "parquet"):
            words = [sources[kind], "--size", "8x9", "--preview", str(folder / f"{kind}.png")]
            assert main(["batches", *words]) == 0, capsys.readouterr().err
        every = f"{sources['folder']}/**/*"
        words = [every, str(folder / "out.npy"), "bhwc->bchw", "--resize", "8x9", "--quiet"]
        assert main(["convert", *words]) == 0, capsys.readouterr().err
        assert main(["pack", sources["folder"], str(folder / "all.rec")]) == 0
        assert len(open_index(str(folder / "all.rec"))) == len(NAMES)
        results.append(np.load(folder / "out.npy"))
        folder.rename(tmp_path / f"results of {len(results)}")
    np.testing.assert_array_equal(*results)
    with sampled_batcher(
        str(tmp_path / "results of 2" / "all.rec"), batch_size=4, size=(8, 9)
    ) as batches:
        assert sum(batch.count for batch in batches) == len(NAMES)


def test_a_file_without_a_suffix_is_known_by_its_content(toy, tmp_path, capsys):
    for name, data in (("image", toy_file(PIXELS[0])), ("other", b"unknown")):
        (tmp_path / name).write_bytes(data)
    out = tmp_path / "out.npy"
    assert main(["convert", str(tmp_path / "image"), str(out), "bhwc->bhwc", "--quiet"]) == 0
    np.testing.assert_array_equal(np.load(out), PIXELS[0][None])
    assert main(["convert", str(tmp_path / "other"), str(out), "bhwc->bhwc", "--quiet"]) != 0
    assert "is neither an image nor a supported array file" in capsys.readouterr().err


def test_members_of_pillow_and_labels_come_first(toy, tmp_path, monkeypatch):
    """An installed package changes no archive that can be read without it."""
    plain, toys = encoded(PIXELS[0], "BMP"), toy_file(PIXELS[1])
    monkeypatch.setitem(DECODERS.rows, "ace", ToyDecoder)
    monkeypatch.setitem(DECODERS.rows, "txt", ToyDecoder)
    members = [("0.toy", toys), ("0.bmp", plain), ("0.txt", b"cat")]
    members += [("1.toy", toys), ("1.ace", b"ace"), ("1.txt", b"dog"), ("1.json", b"{}")]
    (tmp_path / "s.tar").write_bytes(tar(members))
    index = open_index(str(tmp_path / "s.tar"))
    assert [index[number].length for number in range(2)] == [len(plain), 3]
    assert index.labels == ["cat", "dog"]
    columns = {"image": "toy", "label": "txt"}
    index = open_index(str(tmp_path / "s.tar"), columns=columns)
    assert [index[number].length for number in range(2)] == [len(toys)] * 2


@pytest.mark.parametrize("name", ["toy", "png"])
def test_a_format_precedes_a_decoder_of_its_suffix_but_not_pillow(toy, name, monkeypatch):
    monkeypatch.setitem(FORMATS.rows, name, Format("tensor", np.load))
    before = find_format(f"a.{name}")
    images.read(toy_file(PIXELS[0]))  # loads the decoder
    assert find_format(f"a.{name}") == before
    assert (before is None) == (name == "png")


def test_formats_that_pillow_only_identifies(toy, monkeypatch):
    """HDF5 and GRIB files are opened by Pillow, which cannot decode them."""
    from PIL import Hdf5StubImagePlugin, ImageFile

    monkeypatch.setattr(sys.modules[__name__], "START", b"\x89HDF\r\n\x1a\n")
    assert issubclass(Hdf5StubImagePlugin.HDF5StubImageFile, ImageFile.StubImageFile)
    data = START + toy_file(PIXELS[0])[len(START) :]
    with pytest.raises(DataError, match="the decoder toy failed"):
        images.read(data)  # the header of the toy format begins after three bytes
    monkeypatch.setattr(ToyDecoder, "decode", classmethod(lambda cls, data: PIXELS[0]))
    np.testing.assert_array_equal(images.read(data), PIXELS[0])


def test_formats_that_begin_as_a_tiff_does(toy, monkeypatch):
    """Files of cameras do; they have one decoder in every mode."""
    monkeypatch.setattr(sys.modules[__name__], "START", b"II*\0")
    monkeypatch.setattr(ToyDecoder, "decode", classmethod(lambda cls, data: PIXELS[0]))
    data = START + bytes(40)
    for mode in ("rgb", "unchanged"):
        np.testing.assert_array_equal(images.read(data, mode), PIXELS[0])


# ---- Results -----------------------------------------------------------------------------


def deep(*shape):
    """Return 16-bit values with those at which rounding to 8 bits changes."""
    values = np.random.default_rng(1).integers(0, 1 << 16, shape, np.uint16)
    edges = [0, 1, 128, 129, 256, 257, 385, 386, 65406, 65407, 65535]
    values.flat[: len(edges)] = edges
    return values


@pytest.mark.budget(5)
@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("channels", [None, 1, 2, 3, 4])
@pytest.mark.parametrize("bits", [8, 16])
def test_pixels_are_reduced_as_those_of_a_png(toy, bits, channels, order, tmp_path):
    shape = (5, 6) if channels is None else (5, 6, channels)
    values = deep(*shape) if bits == 16 else noise(0, *shape)
    reference = png_file(values.reshape(5, 6, -1), bits)
    file = toy_file(values.astype(values.dtype.newbyteorder(order)))
    for options in (
        *({"mode": mode} for mode in ("rgb", "rgba", "gray", "unchanged")),
        {"background": (255, 9, 0)},
        {"frames": "all"},
    ):
        pixels, expected = images.read(file, **options), images.read(reference, **options)
        np.testing.assert_array_equal(pixels, expected, err_msg=str(options))
        assert pixels.dtype == expected.dtype
        before = pixels.copy()
        images.read(toy_file(np.zeros((9, 9, 4), np.uint16)))  # the decoder uses its memory again
        np.testing.assert_array_equal(pixels, before)
    (tmp_path / "0.toy").write_bytes(file)
    reader = images.Reader(mode="unchanged")
    collate = Collator("hwc->bchw", h=5, w=6, dtype="float32")
    with sampled_batcher(str(tmp_path), batch_size=1, processor=reader, collate=collate) as batches:
        x = next(iter(batches)).input.forward_get("bhwc")
    np.testing.assert_array_equal(x[0], values.reshape(5, 6, -1))


@pytest.mark.parametrize("dtype", ["int32", "float32"])
def test_gray_values_of_more_bits_are_kept_or_refused(toy, dtype):
    values = np.array([[-7, 70_000, 3]], dtype)
    pixels = images.read(toy_file(values), "unchanged")
    np.testing.assert_array_equal(pixels, values[..., None])
    assert pixels.dtype == dtype
    with pytest.raises(DataError, match=r'its gray values are .*from -7 to .*mode="unchanged"'):
        images.read(toy_file(values))


def fail(error):
    def decode(data):
        raise error

    return decode


WRONG = {
    "None": (lambda data: None, "returned None, but"),
    "text": (lambda data: "pixels", "returned a str, but"),
    "bytes": (lambda data: b"pixels", "returned a bytes, but"),
    "number": (lambda data: np.uint8(3), r"returned a numpy\.uint8, but"),
    "ragged": (lambda data: [[1, 2], [3]], "failed: setting an array element"),
    "integers": (lambda data: [[1, 2]], r"returned int64 \(1, 2\), but"),
    "float64": (lambda data: np.zeros((2, 3)), r"returned float64 \(2, 3\), but"),
    "bool": (lambda data: np.zeros((2, 3), bool), r"returned bool \(2, 3\), but"),
    "int16": (lambda data: np.zeros((2, 3), np.int16), r"returned int16 \(2, 3\), but"),
    "float colors": (lambda data: np.zeros((2, 3, 3), "f4"), r"returned float32 \(2, 3, 3\), but"),
    "5 channels": (lambda data: np.zeros((2, 3, 5), "u1"), r"returned uint8 \(2, 3, 5\), but"),
    "5 deep channels": (
        lambda data: np.zeros((2, 3, 5), "u2"),
        r"returned uint16 \(2, 3, 5\), but",
    ),
    "no channels": (lambda data: np.zeros((2, 3, 0), "u1"), r"returned uint8 \(2, 3, 0\), but"),
    "no rows": (lambda data: np.zeros((0, 3, 3), "u1"), r"returned uint8 \(0, 3, 3\), but"),
    "vector": (lambda data: np.zeros(6, "u1"), r"returned uint8 \(6,\), but"),
    "frames": (lambda data: np.zeros((1, 2, 3, 3), "u1"), r"returned uint8 \(1, 2, 3, 3\), but"),
    "error": (fail(ValueError("no such marker")), "failed: no such marker"),
    "error of a class": (fail(KeyError("bits")), "failed: KeyError: 'bits'"),
    "missing file": (fail(FileNotFoundError(2, "No such file", "lut.bin")), "failed: No such"),
    "own error": (fail(DataError("the preview is damaged")), "failed: the preview"),
    "end": (fail(StopIteration()), "failed: StopIteration"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_a_decoder_must_not_return(toy, name, tmp_path, monkeypatch):
    decode, text = WRONG[name]
    monkeypatch.setattr(ToyDecoder, "decode", staticmethod(decode))
    path = tmp_path / "a.toy"
    path.write_bytes(toy_file(PIXELS[0]))
    for mode in ("rgb", "unchanged"):
        with pytest.raises(DataError, match=rf"a\.toy:? .*the decoder toy {text}"):
            images.read(path, mode)
    with (
        sampled_batcher([str(path)], batch_size=1, size=(8, 8), on_error="raise") as batches,
        pytest.raises(DataError, match=rf"a\.toy:? .*the decoder toy {text}"),
    ):
        next(iter(batches))


def test_an_interrupt_or_missing_memory_is_no_error_of_a_file(toy, monkeypatch):
    for error in (KeyboardInterrupt(), MemoryError()):
        monkeypatch.setattr(ToyDecoder, "decode", staticmethod(fail(error)))
        with pytest.raises(type(error)):
            images.read(toy_file(PIXELS[0]))


def test_a_decoder_that_fails_to_recognize_a_file_leaves_others(toy, monkeypatch):
    class Broken(ToyDecoder):
        accepts = staticmethod(fail(RuntimeError("no license")))

    monkeypatch.setattr(DECODERS, "rows", {"broken": Broken, **DECODERS.rows})
    np.testing.assert_array_equal(images.read(toy_file(PIXELS[0])), PIXELS[0])
    with pytest.raises(DataError, match="the decoder broken failed: RuntimeError: no license"):
        images.read(b"unknown")
