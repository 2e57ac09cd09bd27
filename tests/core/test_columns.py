"""Columns of mappings in the pipelines of other libraries, tested with the real packages."""

import io
import os
import pickle
import subprocess
import sys
import tarfile

import numpy as np
import pytest

import layoutkit
from layoutkit import ArgumentError, Columns, Converter, ShapeError, columns, convert

PHOTOS = np.random.default_rng(0).integers(0, 255, (6, 4, 5, 3)).astype(np.uint8)
WANT = convert(PHOTOS, "bhwc->bchw", dtype="float32", scale=1 / 255)
WAY = {"dtype": "float32", "scale": 1 / 255}


def made():
    return columns(image=Converter("bhwc->bchw", **WAY))


def test_a_column_of_images_of_many_sizes_is_collated():
    images = [PHOTOS[0], PHOTOS[1][:3], PHOTOS[2][:, :2]]
    collator = layoutkit.Collator("hwc->bchw", h=6, w=6, resize="bilinear", dtype="float32")
    way = columns(image=collator, extra=Converter("bhwc->bchw"))
    assert pickle.loads(pickle.dumps(way)) == way
    assert hash(pickle.loads(pickle.dumps(way))) == hash(way)
    objects = np.array([*images, None], object)[:-1]
    for column in (images, tuple(images), objects):
        made = way({"image": column, "extra": PHOTOS, "label": [1, 2, 3]})
        np.testing.assert_array_equal(made["image"], collator(images))
        assert made["label"] == [1, 2, 3]
    with pytest.raises(ArgumentError, match="or a Collator"):
        columns(image="hwc->bchw")


def one():
    return columns(image=Converter("hwc->chw", **WAY))


@pytest.mark.parametrize(
    "image", [PHOTOS, list(PHOTOS), PHOTOS.tolist(), np.array([*PHOTOS, None], object)[:-1]]
)
def test_only_the_columns_that_are_named_change(image):
    labels = [1, 2]
    batch = {"image": image, "label": labels}
    way = columns(image=Converter("bhwc->bchw", dtype="float32", scale=1 / 255))
    found = way(batch)
    assert list(found) == ["image", "label"]
    assert found["label"] is labels
    assert batch["image"] is image
    np.testing.assert_allclose(found["image"], WANT, rtol=1e-6)


def test_equal_small_and_of_one_hash_whatever_was_converted():
    first = made()
    second = made()
    before = pickle.dumps(first)
    first({"image": PHOTOS})
    assert first == second
    assert hash(first) == hash(second)
    assert first != one()
    assert pickle.dumps(first) == before == pickle.dumps(second)
    assert len(before) < 600
    assert pickle.loads(before) == first
    code = (
        "import pickle\nfrom layoutkit import Converter, columns\n"
        "way = columns(image=Converter('bhwc->bchw', dtype='float32', scale=1 / 255))\n"
        "print(pickle.dumps(way).hex(), hash(way))"
    )
    for seed in "12":
        other = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "PYTHONHASHSEED": seed},
        )
        assert other.stdout.split() == [before.hex(), str(hash(first))]


def test_the_order_in_which_columns_are_given_is_no_difference():
    ways = {"image": Converter("bhwc->bchw"), "mask": Converter("bhw->bwh")}
    first = Columns(**ways)
    second = Columns(**dict(reversed(ways.items())))
    assert first == second
    assert hash(first) == hash(second) != hash(Columns(image=ways["image"]))
    assert pickle.dumps(first) == pickle.dumps(second)


def test_mistakes():
    with pytest.raises(ArgumentError, match="no column; give one"):
        columns()
    with pytest.raises(ArgumentError, match="column image is 'bhwc->bchw'; give a Converter"):
        columns(image="bhwc->bchw")
    with pytest.raises(ArgumentError, match="no column image; the batch has photo"):
        made()({"photo": PHOTOS})
    with pytest.raises(ShapeError, match="lists of different lengths"):
        made()({"image": [[1, 2], [3]]})
    with pytest.raises(ArgumentError, match="a mapping of columns"):
        made()(PHOTOS)


def test_datasets_of_hugging_face(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    datasets = pytest.importorskip("datasets", reason="the data set is of datasets")
    features = datasets.Features(
        {"image": datasets.Array3D((4, 5, 3), "uint8"), "label": datasets.Value("int64")}
    )
    rows = {"image": list(PHOTOS), "label": list(range(6))}
    data = datasets.Dataset.from_dict(rows, features).with_format("numpy")
    shown = data.with_transform(made())
    got = shown[0:6]
    np.testing.assert_allclose(np.stack(list(got["image"])), WANT, rtol=1e-6)
    from datasets.fingerprint import Hasher

    used = made()
    used({"image": PHOTOS})
    assert Hasher.hash(used) == Hasher.hash(made()) != Hasher.hash(one())
    mapped = data.map(made(), batched=True, batch_size=3)
    np.testing.assert_allclose(
        np.stack(list(mapped.with_format("numpy")[:]["image"])), WANT, rtol=1e-6
    )
    assert mapped._fingerprint == data.map(used, batched=True, batch_size=3)._fingerprint


def test_grain():
    grain = pytest.importorskip("grain", reason="the pipeline is of grain")
    rows = [{"image": photo, "label": at} for at, photo in enumerate(PHOTOS)]
    each = list(grain.MapDataset.source(rows).map(one()))
    np.testing.assert_allclose(np.stack([row["image"] for row in each]), WANT, rtol=1e-6)
    batches = list(grain.MapDataset.source(rows).batch(3).map(made()))
    np.testing.assert_allclose(np.concatenate([b["image"] for b in batches]), WANT, rtol=1e-6)
    assert [list(b["label"]) for b in batches] == [[0, 1, 2], [3, 4, 5]]


def test_webdataset(tmp_path):
    wds = pytest.importorskip("webdataset", reason="the pipeline is of webdataset")
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        for at, photo in enumerate(PHOTOS):
            np.save(file := io.BytesIO(), photo)
            entry = tarfile.TarInfo(f"{at}.npy")
            entry.size = file.tell()
            file.seek(0)
            tar.addfile(entry, file)
    data = wds.WebDataset(str(tmp_path / "a.tar"), shardshuffle=False).decode().rename(image="npy")
    rows = list(data.map(one()))
    np.testing.assert_allclose(np.stack([row["image"] for row in rows]), WANT, rtol=1e-6)
    assert [row["__key__"] for row in rows] == [str(at) for at in range(6)]


def test_ray_data_by_a_function_and_by_actors():
    ray = pytest.importorskip("ray", reason="the data is of ray")
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, ignore_reinit_error=True)
    try:
        data = ray.data.from_items([{"image": p, "label": at} for at, p in enumerate(PHOTOS)])
        ways = {"image": Converter("bhwc->bchw", **WAY)}
        by_tasks = data.map_batches(columns(**ways), batch_size=3)
        by_actors = data.map_batches(
            layoutkit.Columns,
            fn_constructor_kwargs=ways,
            batch_size=3,
            compute=ray.data.ActorPoolStrategy(size=1),
        )
        for found in (by_tasks, by_actors):
            rows = sorted(found.take_all(), key=lambda row: row["label"])
            np.testing.assert_allclose(np.stack([r["image"] for r in rows]), WANT, rtol=1e-6)
    finally:
        ray.shutdown()
