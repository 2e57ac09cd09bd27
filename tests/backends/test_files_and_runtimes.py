"""PIL images, files of arrays, and the tensors of ONNX Runtime and OpenVINO."""

import io

import numpy as np
import pytest

from layoutkit import ArgumentError, Converter, ImageView, convert
from tests.helpers.reference import reference_convert

IMAGES = np.random.default_rng(0).integers(0, 256, (2, 4, 5, 3), np.uint8)
PLANES = reference_convert(IMAGES, "bhwc->bchw")


def hdf5():
    h5py = pytest.importorskip("h5py", reason="files of HDF5 need h5py")
    return h5py.File(io.BytesIO(), "w").create_dataset("x", data=IMAGES, chunks=(1, 2, 5, 3))


def zarr():
    return pytest.importorskip("zarr", reason="zarr arrays need zarr").array(IMAGES)


def tensorstore():
    ts = pytest.importorskip("tensorstore", reason="its arrays need tensorstore")
    spec = {"driver": "zarr3", "kvstore": {"driver": "memory"}}
    store = ts.open(spec, create=True, dtype=ts.uint8, shape=IMAGES.shape).result()
    store.write(IMAGES).result()
    return store


@pytest.mark.parametrize("opened", [hdf5, zarr, tensorstore])
def test_files_are_read_whole(opened):
    x = opened()
    y = convert(x, "bhwc->bchw", dtype="float32", scale=2)
    assert type(y) is np.ndarray
    np.testing.assert_array_equal(y, PLANES * np.float32(2))
    assert Converter("bhwc->bchw").plan(x).target.shape == PLANES.shape
    np.testing.assert_array_equal(ImageView("bhwc", x).forward_get("bchw"), PLANES)
    with pytest.raises(ArgumentError, match=r"memory cannot be written from here.*out\[\.\.\.\]"):
        convert(PLANES, "bchw->bhwc", out=x)


def test_images():
    image = pytest.importorskip("PIL.Image", reason="images need Pillow")
    images = [image.fromarray(item) for item in IMAGES]
    np.testing.assert_array_equal(convert(images[0], "hwc->chw"), PLANES[0])
    np.testing.assert_array_equal(convert(images, "bhwc->bchw"), PLANES)
    gray = images[0].convert("L")
    np.testing.assert_array_equal(convert(gray, "hw->wh"), np.asarray(gray).T)
    with pytest.raises(ArgumentError, match="out is read-only"):  # the bytes are copies
        convert(PLANES[0], "chw->hwc", out=images[0])


def test_tensors_of_onnx_runtime():
    ort = pytest.importorskip("onnxruntime", reason="OrtValues need onnxruntime")
    x = ort.OrtValue.ortvalue_from_numpy(IMAGES)
    np.testing.assert_array_equal(convert(x, "bhwc->bchw"), PLANES)
    out = ort.OrtValue.ortvalue_from_shape_and_type(PLANES.shape, np.float32)
    for source in (IMAGES, x):
        assert convert(source, "bhwc->bchw", dtype="float32", scale=3, out=out) is out
        np.testing.assert_array_equal(out.numpy(), np.float32(3) * PLANES)
        out.update_inplace(np.zeros(PLANES.shape, "f4"))
    assert type(convert(x, "bhwc->bhwc")) is np.ndarray


def test_tensors_of_openvino():
    ov = pytest.importorskip("openvino", reason="its tensors need openvino")
    x = ov.Tensor(IMAGES)
    np.testing.assert_array_equal(convert(x, "bhwc->bchw"), PLANES)
    assert np.shares_memory(convert(x, "bhwc->bhwc"), x.data)
    out = ov.Tensor(ov.Type.f32, ov.Shape(list(PLANES.shape)))
    assert convert(IMAGES, "bhwc->bchw", dtype="float32", scale=3, out=out) is out
    np.testing.assert_array_equal(out.data, np.float32(3) * PLANES)
