"""Images and labels of idx files: every type and rank, checked, mapped, normalized."""

import gzip
import pickle
import tracemalloc
from itertools import chain

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layoutkit import DataError, DtypeError, ImageView, ShapeError
from layoutkit.data import MNISTProvider, Provider
from layoutkit.data.io.idx import IdxFile

CODES = {"u1": 8, "i1": 9, ">i2": 11, ">i4": 12, ">f4": 13, ">f8": 14}
IMAGES = np.random.default_rng(0).integers(0, 256, (61, 4, 5), np.uint8)
DIGITS = np.random.default_rng(1).integers(0, 10, 61, np.uint8)


def idx(array):
    """Encode an array as an idx file."""
    code = CODES[array.dtype.str.replace("|", "").replace("=", ">")]
    sizes = np.array(array.shape, ">u4").tobytes()
    return bytes([0, 0, code, array.ndim]) + sizes + array.tobytes()


@pytest.fixture
def files(tmp_path):
    def write(image=IMAGES, label=DIGITS, packed=False):
        paths = []
        for name, array in (("image", image), ("label", label)):
            data = array if isinstance(array, bytes) else idx(array)
            path = tmp_path / (name + ".gz" * packed)
            path.write_bytes(gzip.compress(data) if packed else data)
            paths.append(path)
        return paths

    return write


def rows(provider, name="data"):
    """Return the rows of an epoch without padding."""
    return np.concatenate([provider.get(b, name).input[: b.count] for b in provider])


# ---- files -------------------------------------------------------------------------------


@given(
    code=st.sampled_from(list(CODES)),
    shape=st.lists(st.integers(0, 4), min_size=1, max_size=6),
    packed=st.booleans(),
)
def test_files_of_any_type_and_rank(tmp_path_factory, code, shape, packed):
    array = np.arange(np.prod(shape)).astype(code).reshape(shape)
    path = tmp_path_factory.getbasetemp() / "any.idx"
    path.write_bytes(gzip.compress(idx(array), 1) if packed else idx(array))
    file = IdxFile(str(path))
    assert file.array.dtype == array.dtype
    np.testing.assert_array_equal(file.array, array)
    with pytest.raises(ValueError, match="read-only"):
        file.array[...] = 0
    data = path.read_bytes()
    if not packed:
        path.write_bytes(data + b"\0")
        with pytest.raises(DataError, match=r"any\.idx says .* but there are more"):
            IdxFile(str(path))
        path.write_bytes(data[:-1])
        with pytest.raises(DataError, match=r"any\.idx (says|ends inside of its head)"):
            IdxFile(str(path))


def test_the_golden_file(files):
    images = bytes.fromhex("00000803 00000003 00000002 00000002 00010203 04050607 08090a0b")
    paths = files(images, bytes.fromhex("00000801 00000003 000102"))
    provider = MNISTProvider(*paths, batch_size=1, shuffle=False, scale=1 / 256)
    found = [batch.input.input for batch in provider]
    assert found[2].tolist() == [[[[8 / 256, 9 / 256], [10 / 256, 11 / 256]]]]
    assert found[2].dtype == np.float32


@pytest.mark.parametrize(
    ("image", "label", "message"),
    [
        (b"", None, "image is not an idx file: it begins with nothing"),
        (b"\0\0\7\3" + bytes(12), None, "image is not an idx file: it begins with 00 00 07 03"),
        (b"\x89PNG" + bytes(9), None, "image is not an idx file: it begins with 89 50 4e 47"),
        (idx(IMAGES)[:9], None, "image ends inside of its head"),
        (idx(IMAGES)[:-1], None, r"uint8 \(61, 4, 5\), 1220 bytes, but there are 1219 of them"),
        (idx(IMAGES) + b"x", None, "1220 bytes, but there are more"),
        (b"\0\0\x08\x03" + b"\xff" * 12, None, "but there are 0 of them"),
        (gzip.compress(idx(IMAGES))[:-20], None, "image cannot be read"),
        (gzip.compress(idx(IMAGES)[:-1]), None, "but there are 1219 of them"),
        (gzip.compress(idx(IMAGES) + bytes(1 << 20)), None, "1220 bytes, but there are more"),
        (None, DIGITS[1:], "image has 61 images, but .*label has 60 labels"),
        (DIGITS, IMAGES, "labels of 3 axes.* Are image and label exchanged"),
        (np.zeros((61, 1, 1, 1, 1), "u1"), None, "image has 5 axes; give flat=True"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_files_is_said_at_once(files, image, label, message):
    image, label = IMAGES if image is None else image, DIGITS if label is None else label
    with pytest.raises(DataError, match=message):
        MNISTProvider(*files(image, label))


def test_a_compressed_file_is_unpacked_up_to_the_size_in_its_header(files):
    """Compress 64 MiB of zeros after the images to 64 KiB."""
    image, label = files(gzip.compress(idx(IMAGES) + bytes(1 << 26)), DIGITS)
    tracemalloc.start()
    with pytest.raises(DataError, match="1220 bytes, but there are more"):
        MNISTProvider(image, label)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 4 << 20


def test_missing_files_have_the_names_of_mnist(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match=r"\./train-images-idx3-ubyte cannot be read: No such file"):
        MNISTProvider()
    (tmp_path / "train-images-idx3-ubyte").write_bytes(idx(IMAGES))
    with pytest.raises(DataError, match=r"\./train-labels-idx1-ubyte cannot be read: No such file"):
        MNISTProvider()
    with pytest.raises(DataError, match="is a URL"):
        MNISTProvider("http://localhost/images")


def test_a_file_cut_later_is_an_error(files):
    paths = files()
    provider = MNISTProvider(*paths, batch_size=8)
    assert len(list(provider)) == 8
    with paths[0].open("r+b") as file:
        file.truncate(100)
    with pytest.raises(DataError, match="image was cut after it was opened"):
        next(iter(provider))


# ---- images ------------------------------------------------------------------------------


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("layout", ["bchw", "bhwc", "bhw"])
def test_images_are_normalized_in_every_layout(files, layout, packed):
    wanted = np.float32(IMAGES[:, None]) * np.float32(1 / 255)
    wanted = wanted[:, 0] if layout == "bhw" else wanted.transpose(*map("bchw".index, layout))
    provider = MNISTProvider(*files(packed=packed), batch_size=16, shuffle=False, layout=layout)
    assert isinstance(provider, Provider)
    shape = {"b": 16, "c": 1, "h": 4, "w": 5}
    assert provider.provide_data == [("data", tuple(shape[axis] for axis in layout))]
    assert provider.provide_label == [("softmax_label", (16,))]
    for number, batch in enumerate(provider):
        assert isinstance(batch.input, ImageView)
        real = wanted[number * 16 : (number + 1) * 16]
        np.testing.assert_array_equal(batch.input.input[: batch.count], real)
    assert batch.count == 13
    assert not batch.input.input[13:].any()
    assert not batch.target.input[13:].any()


def test_batches_may_be_along_any_axis(files):
    how = {"batch_size": 16, "shuffle": False, "layout": "chwb", "scale": None, "dtype": "uint8"}
    provider = MNISTProvider(*files(), **how)
    batches = list(provider)
    np.testing.assert_array_equal(batches[1].input.input[0], IMAGES[16:32].transpose(1, 2, 0))
    assert not batches[-1].input.input[..., 13:].any()
    assert provider.provide_data == [("data", (1, 4, 5, 16))]


@pytest.mark.parametrize(
    ("shape", "how", "layout", "wanted"),
    [
        ((61,), {}, "b", (61,)),
        ((61, 6), {}, "bf", (61, 6)),
        ((61, 3, 2, 2), {}, "bchw", (61, 3, 2, 2)),
        ((61, 3, 2, 2), {"flat": True}, "bf", (61, 12)),
        ((61, 2, 1, 3, 1, 2), {"flat": True}, "bf", (61, 12)),
    ],
)
def test_other_ranks(files, shape, how, layout, wanted):
    array = np.arange(np.prod(shape)).astype("u1").reshape(shape)
    provider = MNISTProvider(*files(array), batch_size=61, shuffle=False, **how)
    batch = next(iter(provider))
    assert batch.input.layout == layout
    np.testing.assert_array_equal(
        batch.input.input, np.float32(array).reshape(wanted) * np.float32(1 / 255)
    )


def test_numbers_with_the_highest_byte_first(files):
    array = np.arange(61 * 4, dtype=">f4").reshape(61, 2, 2)
    provider = MNISTProvider(*files(array), batch_size=61, shuffle=False)
    found = next(iter(provider)).input.input
    assert found.dtype == np.float32
    assert found.dtype.isnative
    np.testing.assert_array_equal(found[:, 0], np.float32(array) * np.float32(1 / 255))


def test_raw_bytes_are_copies(files):
    provider = MNISTProvider(*files(), batch_size=61, shuffle=False, scale=None, dtype="uint8")
    found = next(iter(provider)).input.input
    np.testing.assert_array_equal(found[:, 0], IMAGES)
    found[...] = 7  # does not change the provider's images
    np.testing.assert_array_equal(rows(provider)[:, 0], IMAGES)


def test_wide_labels_and_none(files):
    wide = np.arange(122).reshape(61, 2).astype(">f4")
    paths = files(label=wide)
    provider = MNISTProvider(*paths, batch_size=61, shuffle=False)
    assert provider.provide_label == [("softmax_label", (61, 2))]
    np.testing.assert_array_equal(rows(provider, "softmax_label"), np.float32(wide))
    assert MNISTProvider(paths[0], None).provide_label == []
    narrow = MNISTProvider(*files(label=wide[:, :1]))
    assert narrow.provide_label == [("softmax_label", (128,))]


@pytest.mark.parametrize(
    ("how", "error"),
    [
        ({"layout": "bcw"}, ShapeError), ({"dtype": "uint8"}, DtypeError),
        ({"flat": True, "layout": "bhwc"}, DataError), ({"flat": 1}, DataError),
    ],
)  # fmt: skip
def test_wrong_arguments_are_refused_at_once(files, how, error):
    with pytest.raises(error):
        MNISTProvider(*files(), **how)


def test_pickles_name_the_file(files):
    provider = MNISTProvider(*files(), batch_size=16)
    next(iter(provider))
    stored = pickle.dumps(provider)
    assert IMAGES[:8].tobytes() not in stored
    np.testing.assert_array_equal(rows(pickle.loads(stored)), rows(provider))


@pytest.mark.parametrize("options", [{}, {"tail": "wrap"}, {"num_parts": 2, "part_index": 1}])
@pytest.mark.parametrize("shuffle", [False, True])
def test_a_long_epoch_goes_on_at_any_batch(files, shuffle, options):
    """Test an epoch of 21 MB, as batches are made in groups of 8 MiB."""
    pictures = np.zeros((3000, 30, 30), np.uint8)
    numbers = np.arange(3000, dtype="<u2")
    pictures[:, 0, :2] = numbers.view(np.uint8).reshape(-1, 2)
    paths = files(pictures, np.zeros(3000, np.uint8))

    def make():
        how = {"batch_size": 128, "shuffle": shuffle, "seed": 3, "scale": None, "dtype": "f8"}
        return MNISTProvider(*paths, **how, **options)

    def seen(batch):
        rows = batch.input.input
        assert rows.flags.c_contiguous
        return (rows[:, 0, 0, 0] + 256 * rows[:, 0, 0, 1]).astype(int).tolist()[: batch.count]

    provider = make()
    whole = [seen(batch) for batch in provider]
    part = range(options.get("part_index", 0), 3000, options.get("num_parts", 1))
    assert sorted(chain(*whole)) == [*part]
    state = make().state_dict()
    for position in range(provider.num_batches):
        other = make()
        other.load_state_dict({**state, "position": position})
        assert seen(next(iter(other))) == whole[position]
