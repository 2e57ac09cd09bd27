"""ImageRecordProvider: every image in its place, for all numbers of threads and parts."""

import inspect
import logging
import pickle
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers import augmented

pytest.importorskip("PIL")

from layoutkit import ArgumentError, DataError, DtypeError, LayoutkitError, PatternError
from layoutkit.data import ImageRecordProvider, Provider, open_index
from layoutkit.data.io.image_record import pack_image, read_mean, write_mean
from layoutkit.data.recordio import RecordWriter
from layoutkit.images import Augmenter
from tests.helpers.photographs import encoded, noise

COUNT = 11
PHOTOS = [noise(number, 9 + number % 3, 12 - number % 2, 3) for number in range(COUNT)]
SHAPE = (3, 6, 7)
RANDOM = {"rand_crop": True, "rand_mirror": True, "mean": (9, 8, 7), "std": 3, "seed": 4}


def write(path, payloads, labels=None):
    """Write image records with the ids 100, 101, ...; return the offset of each."""
    with RecordWriter(path) as writer:
        return [
            writer.write(
                pack_image(data, number if labels is None else labels[number], 100 + number)
            )
            for number, data in enumerate(payloads)
        ]


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("records") / "train.rec"
    write(path, [encoded(photo) for photo in PHOTOS])
    return path


@pytest.fixture
def damaged(tmp_path):
    """Write records; 2 and 7 cannot be decoded: 2 is not an image, 7 is truncated."""
    payloads = [encoded(photo) for photo in PHOTOS]
    payloads[2], payloads[7] = b"not an image", payloads[7][:100]
    path = tmp_path / "damaged.rec"
    return path, write(path, payloads)


def epoch(path, shape=SHAPE, *, of=None, **options):
    """Return (data, labels, count) of each batch of an epoch."""
    with ImageRecordProvider(path, shape, **{"batch_size": 4, "num_workers": 0, **options}) as each:
        each.set_epoch(of or 0)
        return [(b.input.input, b.target.input, b.count) for b in each]


def middle(photo):
    """Return the center crop of an image, which is used without random augmentation."""
    top, left = (photo.shape[0] - 6) // 2, (photo.shape[1] - 7) // 2
    return photo[top : top + 6, left : left + 7]


def real(batches):
    """Return the rows and labels that are not padding."""
    data = np.concatenate([data[:count] for data, _, count in batches])
    return data, np.concatenate([labels[:count] for _, labels, count in batches])


# ---- contents of batches ----------------------------------------------------------------------


def test_it_is_a_provider(path):
    with ImageRecordProvider(path, SHAPE, batch_size=4) as provider:
        assert isinstance(provider, Provider)
        assert provider.provide_data == [("data", (4, 3, 6, 7))]
        assert provider.provide_label == [("softmax_label", (4,))]
        assert (provider.num_batches, provider.batch_size) == (3, 4)
        batches = list(provider)
        assert [batch.count for batch in batches] == [4, 4, 3]
        target = np.empty((4, 3, 6, 7), np.float32)
        provider.load_data(batches[1], [target])
        np.testing.assert_array_equal(target, provider.get(batches[1], "data").input)


@pytest.mark.budget(1)
@pytest.mark.parametrize("layout", ["bchw", "bhwc", "b(hwc)", "chwb", "hwcb"])
@pytest.mark.parametrize("varies", [False, True])
def test_layouts(path, layout, varies):
    options = {**RANDOM, "max_random_contrast": 0.2} if varies else RANDOM
    augment = Augmenter(SHAPE, **options)
    rows = np.stack([augment(photo, position=n) for n, photo in enumerate(PHOTOS)])
    whole = np.zeros((12, *SHAPE), np.float32)
    whole[:COUNT] = rows
    order = {
        "bhwc": (0, 2, 3, 1),
        "b(hwc)": (0, 2, 3, 1),
        "chwb": (1, 2, 3, 0),
        "hwcb": (2, 3, 1, 0),
    }
    for number, (data, _, _) in enumerate(epoch(path, layout=layout, **options)):
        expected = whole[4 * number : 4 * number + 4].transpose(order.get(layout, (0, 1, 2, 3)))
        np.testing.assert_allclose(data, expected.reshape(data.shape), rtol=1e-6)


@pytest.mark.budget(1)
@pytest.mark.parametrize("dtype", ["uint8", "int8", "float16", "float64"])
def test_dtypes(path, dtype):
    data, _ = real(epoch(path, dtype=dtype, mean=100, std=2, mirror=True))
    assert data.dtype == dtype
    expected = [augmented.formula(middle(photo)[:, ::-1], mean=100, std=2) for photo in PHOTOS]
    if dtype in ("uint8", "int8"):
        info = np.iinfo(dtype)
        np.testing.assert_array_equal(data, np.clip(np.rint(expected), info.min, info.max))
    else:
        np.testing.assert_allclose(data, expected, rtol=1e-3)


def test_labels(tmp_path, path):
    assert real(epoch(path))[1].tolist() == list(range(COUNT))
    labels = np.arange(2 * COUNT).reshape(COUNT, 2) / 2
    wide = tmp_path / "wide.rec"
    write(wide, [encoded(photo) for photo in PHOTOS], labels.tolist())
    batches = epoch(wide, label_width=2)
    np.testing.assert_array_equal(real(batches)[1], labels)
    assert batches[-1][1].tolist()[-1] == [0, 0]
    assert batches[0][1].dtype == np.float32
    with pytest.raises(DataError, match=r"label_width=1, but the records of .*\.rec have 2 labels"):
        ImageRecordProvider(wide, SHAPE, batch_size=4)
    lst = tmp_path / "other.lst"
    lst.write_text("".join(f"{100 + n}\t{n * 10}\tx{n}.png\n" for n in range(COUNT)))
    listed = real(epoch(path, path_imglist=lst))[1]
    assert listed.tolist() == [10 * n for n in range(COUNT)]
    with ImageRecordProvider(wide, SHAPE, batch_size=4, label_name=None) as unlabelled:
        assert unlabelled.provide_label == []
        assert next(iter(unlabelled)).target is None


def test_batches_are_not_written_to_again(path):
    for options in ({}, {"layout": "bhwc", "dtype": "uint8"}, {"max_random_contrast": 0.5}):
        with ImageRecordProvider(path, SHAPE, batch_size=2, num_workers=2, **options) as provider:
            kept = [(batch, batch.input.input.copy()) for batch in provider]
            list(provider)
        for batch, copy in kept:
            np.testing.assert_array_equal(batch.input.input, copy)


# ---- order, parts, tails ----------------------------------------------------------------------


@given(
    st.integers(1, 13), st.sampled_from([0, 1, 3]), st.integers(1, 4), st.booleans(),
    st.sampled_from(["pad", "wrap", "drop"]), st.integers(0, 2), st.booleans(),
)  # fmt: skip
def test_a_record_is_one_image_an_epoch(path, size, workers, parts, shuffle, tail, of, varies):
    """Test any number of threads and parts, any order and any tail."""
    options = {**RANDOM, "max_random_illumination": 3.0} if varies else RANDOM
    augment = Augmenter(SHAPE, **options)
    seen = []
    for part in range(parts):
        how = {"part_index": part, "num_parts": parts, "shuffle": shuffle, "tail": tail}
        batches = epoch(path, batch_size=size, num_workers=workers, of=of, **how, **options)
        here = len(range(part, COUNT, parts))
        assert len(batches) == (here // size if tail == "drop" else -(-here // size))
        found = []
        for data, labels, count in batches:
            assert len(data) == size
            rows = size if tail == "wrap" else count
            for row, label in zip(data[:rows], labels[:rows].astype(int), strict=True):
                assert label % parts == part
                expected = augment(PHOTOS[label], epoch=of, position=label)
                np.testing.assert_allclose(row, expected, rtol=1e-6)
            assert not data[rows:].any()
            assert not labels[rows:].any()
            found += labels[:count].astype(int).tolist()
        if not shuffle:
            assert found == list(range(part, COUNT, parts))[: len(found)]
        if tail == "wrap" and batches:
            extra = batches[-1][1][batches[-1][2] :].tolist()
            assert extra == (found * size)[: len(extra)]
        seen += found
    if tail != "drop":
        assert sorted(seen) == list(range(COUNT))


def test_epochs_differ_in_order_and_images(path):
    first, again, second = (epoch(path, shuffle=True, of=n, **RANDOM) for n in (0, 0, 1))
    assert real(first)[1].tolist() == real(again)[1].tolist() != real(second)[1].tolist()
    np.testing.assert_array_equal(real(first)[0], real(again)[0])
    ordered = [real(epoch(path, of=n, **RANDOM))[0] for n in (0, 1)]
    assert not np.array_equal(*ordered)
    other = real(epoch(path, **{**RANDOM, "seed_aug": 5}))
    assert other[1].tolist() == list(range(COUNT))
    assert not np.array_equal(other[0], ordered[0])


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("behind", [0, 1, 3])
def test_resuming_gives_the_same_bits(damaged, workers, behind):
    how = {"batch_size": 2, "num_workers": workers, "shuffle": True, **RANDOM}
    path, _ = damaged

    def rest(provider):
        return [(b.count, b.input.input.tobytes(), b.target.input.tolist()) for b in provider]

    with (
        ImageRecordProvider(path, SHAPE, **how) as one,
        ImageRecordProvider(path, SHAPE, **how) as two,
    ):
        one.set_epoch(3)
        loop = iter(one)
        for _ in range(behind):
            next(loop)
        two.load_state_dict(one.state_dict())
        assert rest(two) == rest(loop)
        assert two.epoch == one.epoch == 4
        assert two.dropped == one.dropped == 2
        assert rest(two) == rest(one)
    other = ImageRecordProvider(path, SHAPE, **{**how, "seed_aug": 1})
    with pytest.raises(DataError, match="seed_aug 4, not 1"):
        other.load_state_dict(two.state_dict())


# ---- failures ---------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [0, 3])
def test_a_damaged_image_is_left_out_counted_and_named(damaged, workers, caplog):
    path, offsets = damaged
    with ImageRecordProvider(path, SHAPE, batch_size=4, num_workers=workers) as provider:
        with caplog.at_level(logging.WARNING, "layoutkit.data"):
            batches = list(provider)
        assert provider.dropped == 2
        assert [batch.count for batch in batches] == [3, 3, 3]
        assert [len(batch.dropped) for batch in batches] == [1, 1, 0]
        labels = np.concatenate([b.target.input[: b.count] for b in batches])
        assert labels.tolist() == [0, 1, 3, 4, 5, 6, 8, 9, 10]
        assert not batches[0].input.input[3].any()
        assert batches[0].target.input[3] == 0
    ((record, place, error),) = batches[1].dropped
    assert (record.position, place, record.offset) == (7, 7, offsets[7])
    assert isinstance(error, DataError)
    lines = [record.getMessage() for record in caplog.records]
    for number in (2, 7):
        (line,) = [each for each in lines if f"byte {offsets[number]}:" in each]
        assert str(path) in line
        assert f"the image with the id {100 + number}: " in line


def test_wrapped_rows_that_fail_are_filled_and_not_counted(damaged):
    path, _ = damaged
    with ImageRecordProvider(path, SHAPE, batch_size=8, tail="wrap", num_workers=0) as provider:
        last = list(provider)[-1]
        assert (last.count, provider.dropped) == (3, 2)
        assert last.target.input.tolist() == [8, 9, 10, 0, 1, 3, 4, 0]
        assert last.input.input[6].any()
        assert not last.input.input[7].any()


def test_a_batch_that_lost_all_rows_is_left_out(damaged):
    path, _ = damaged
    with ImageRecordProvider(path, SHAPE, batch_size=1, num_workers=0) as provider:
        assert [int(batch.target.input[0]) for batch in provider] == [0, 1, 3, 4, 5, 6, 8, 9, 10]
        assert provider.dropped == 2


def test_errors_can_be_raised_and_an_epoch_without_images_is_one(damaged, tmp_path):
    path, offsets = damaged
    with ImageRecordProvider(path, SHAPE, batch_size=4, on_error="raise") as provider:
        with pytest.raises(DataError, match=rf"byte {offsets[2]}.*id 102") as caught:
            list(provider)
        assert caught.value.__cause__ is not None
    bad = tmp_path / "bad.rec"
    write(bad, [b"x"] * 5)
    provider = ImageRecordProvider(bad, SHAPE, batch_size=2, num_workers=0)
    with pytest.raises(DataError, match="none of the 5 records can be used"):
        list(provider)


def test_images_that_are_too_small_or_too_large(path):
    small = [n for n, photo in enumerate(PHOTOS) if photo.shape[0] >= 10]
    assert real(epoch(path, (3, 10, 7)))[1].tolist() == small
    assert len(real(epoch(path, (3, 10, 7), pad=1))[1]) == COUNT
    most = [n for n, photo in enumerate(PHOTOS) if photo[..., 0].size <= 110]
    assert real(epoch(path, max_pixels=110))[1].tolist() == most


def test_a_file_that_was_cut_while_it_is_read(tmp_path):
    path = tmp_path / "cut.rec"
    offsets = write(path, [encoded(photo) for photo in PHOTOS])
    with ImageRecordProvider(path, SHAPE, batch_size=4, num_workers=2) as provider:
        assert sum(batch.count for batch in provider) == COUNT
        with path.open("r+b") as file:
            file.truncate(offsets[5] + 20)
        assert sum(batch.count for batch in provider) == 5
        assert provider.dropped == 6


@pytest.mark.parametrize(
    ("options", "kind", "words"),
    [
        ({"rand_crp": True}, TypeError, "did you mean rand_crop="),
        ({"max_rotate_angel": 3}, TypeError, "did you mean max_rotate_angle="),
        ({"layout": "chw"}, PatternError, "no axis b"),
        ({"layout": "bc(hw"}, PatternError, "bc"),
        ({"dtype": "int32"}, DtypeError, "int32"),
        ({"on_error": "skip"}, DataError, "'skip'"),
        ({"label_width": 0}, DataError, "label_width=0"),
        ({"brightness": 2}, ArgumentError, "brightness=2"),
        ({"path_imgidx": "nowhere.idx"}, DataError, "nowhere.idx"),
    ],
)
def test_arguments(path, options, kind, words):
    with pytest.raises(kind, match=words):
        ImageRecordProvider(path, SHAPE, **{"batch_size": 4, **options})


def test_words_of_mxnet(path):
    how = {"round_batch": True, "preprocess_threads": 0, "prefetch_buffer": 3, "silent": True}
    off = {"resize": -1, "crop_y_start": -1, "max_crop_size": -1, "min_crop_size": -1}
    batches = epoch(path, **how, **off, path_imglist="", path_imgidx="", mean_img="")
    assert batches[-1][1].tolist() == [8, 9, 10, 0]


def test_the_signature_has_every_option():
    names = inspect.signature(ImageRecordProvider).parameters
    assert {"rand_crop", "max_random_illumination", "inter_method", "std_a", "tail"} <= set(names)
    assert names["fill_value"].default == 255


def test_threads_are_not_copied(path):
    provider = ImageRecordProvider(path, SHAPE, batch_size=2)
    with pytest.raises(DataError, match="another process"):
        pickle.dumps(provider)


def test_memory_stays_flat_over_epochs(tmp_path):
    """Rows of floats are so large, 100 kB, that a leak would be visible within 20 epochs."""
    resource = pytest.importorskip("resource")
    path = tmp_path / "train.rec"
    write(path, [encoded(noise(number, 96, 96, 3), "JPEG") for number in range(40)])
    options = {"max_random_contrast": 0.2, **RANDOM}
    most = []
    with ImageRecordProvider(path, (3, 90, 90), batch_size=8, num_workers=2, **options) as provider:
        for _ in range(20):
            assert sum(batch.count for batch in provider) == 40
            most.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    assert most[-1] - most[3] < 8_000  # kB; the rows of 20 epochs have 80,000 kB


# ---- mean images ------------------------------------------------------------------------------


def test_a_mean_image_is_computed_once_and_written(path, tmp_path):
    mean_img = tmp_path / "mean.bin"
    options = {
        "mean_img": mean_img,
        "rand_mirror": True,
        "brightness": 0.5,
        "scale": 2,
        "mean_r": 5,
    }
    epoch(path, **options)
    expected = np.mean([middle(photo) for photo in PHOTOS], axis=0).transpose(2, 0, 1)
    np.testing.assert_allclose(read_mean(mean_img), expected, rtol=1e-6)
    write_mean(mean_img, np.full(SHAPE, 7.0, np.float32))
    data, _ = real(epoch(path, mean_img=mean_img, scale=2))
    plain, _ = real(epoch(path))
    np.testing.assert_allclose(data, (plain - 7) * 2)
    assert open_index(path).kind == "image"
    data, _ = real(epoch(path, mean_img=read_mean(mean_img)))
    np.testing.assert_allclose(data, plain - 7)


def test_a_mean_image_of_another_shape(path, tmp_path):
    write_mean(tmp_path / "mean.bin", np.zeros((3, 5, 5), np.float32))
    with pytest.raises(ValueError, match=r"mean_img has shape \(3, 5, 5\)"):
        ImageRecordProvider(path, SHAPE, batch_size=4, mean_img=tmp_path / "mean.bin")


def test_a_mean_of_damaged_images_is_that_of_the_others(damaged, tmp_path):
    path, _ = damaged
    data, _ = real(epoch(path, mean_img=tmp_path / "mean.bin"))
    np.testing.assert_allclose(data.mean(axis=0), np.zeros(SHAPE), atol=1e-4)


# Keywords that ImageRecordIter declares: image_iter_common.h and image_aug_default.cc of MXNet 1.9.
MXNET = """
    path_imglist path_imgrec path_imgidx aug_seq label_width data_shape preprocess_threads verbose
    num_parts part_index device_id shuffle_chunk_size shuffle_chunk_seed seed_aug batch_size
    round_batch shuffle seed mirror rand_mirror mean_img mean_r mean_g mean_b mean_a std_r std_g
    std_b std_a scale max_random_contrast max_random_illumination prefetch_buffer ctx dtype resize
    rand_crop random_resized_crop max_rotate_angle max_aspect_ratio min_aspect_ratio
    max_shear_ratio max_crop_size min_crop_size max_random_scale min_random_scale max_random_area
    min_random_area max_img_size min_img_size brightness contrast saturation pca_noise random_h
    random_s random_l rotate rotate_list fill_value inter_method pad
"""


def test_the_page_says_which_keywords_of_mxnet_are_errors():
    page = (Path(__file__).parents[3] / "docs/providers.md").read_text(encoding="utf-8")
    (row,) = (line for line in page.splitlines() if "`aug_seq`" in line)
    refused = set()
    for name in MXNET.split():
        try:
            ImageRecordProvider("none.rec", (3, 4, 4), **{"batch_size": 2, name: 1})
        except TypeError as error:
            if "has no" in str(error):
                refused.add(name)
        except (LayoutkitError, OSError):
            pass  # the value or the missing file
    assert refused == set(re.findall("`([a-z_]+)`", row.split("|")[1]))
