"""Conversions as layers of Keras: one backend in this process, others in child processes."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

keras = pytest.importorskip("keras", reason="tests of layers of Keras need keras")

import layoutkit
from layoutkit import ArgumentError, Converter, PatternError, ShapeError
from layoutkit.keras import Convert
from tests.helpers.reference import reference_convert

BACKEND = keras.config.backend()
IMAGES = np.random.default_rng(0).integers(0, 256, (2, 4, 5, 3), np.uint8)
ALONE = "LAYOUTKIT_TESTS_ONE_BACKEND" in os.environ  # True in a child process of another backend
FORMULA = {"dtype": "float32", "scale": 1 / 255, "mean": (0.5, 0.4, 0.3), "std": 2}
PLANES = reference_convert(IMAGES, "bhwc->bchw", **FORMULA)


@pytest.mark.budget(0)
@pytest.mark.parametrize("backend", [] if ALONE else {"jax", "torch"} - {BACKEND})
def test_the_other_backend(backend):
    """Run all tests of this module in a process of that backend."""
    pytest.importorskip(backend, reason=f"Keras on {backend} needs {backend}")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-n", "0", __file__],
        env={**os.environ, "KERAS_BACKEND": backend, "LAYOUTKIT_TESTS_ONE_BACKEND": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "passed" in done.stdout


def model():
    image = keras.Input((4, 5, 3), dtype="uint8")
    planes = Convert("bhwc->bchw", name="planes", **FORMULA)(image)
    return keras.Model(image, keras.layers.Dense(2)(keras.layers.Flatten()(planes)))


def test_a_batch_is_converted_as_it_comes():
    y = Convert("bhwc->bchw", **FORMULA)(IMAGES)
    assert keras.ops.is_tensor(y)
    np.testing.assert_allclose(keras.ops.convert_to_numpy(y), PLANES, 1e-6, 1e-6)
    floats = Convert("bhwc->bf")(IMAGES.astype("float16"))  # the layer does not cast its input
    assert keras.backend.standardize_dtype(floats.dtype) == "float16"
    np.testing.assert_array_equal(keras.ops.convert_to_numpy(floats), IMAGES.reshape(2, 60))


@pytest.mark.parametrize(
    ("pattern", "keywords", "shape", "wanted"),
    [
        ("bhwc->bchw", {}, (None, 4, 5, 3), (None, 3, 4, 5)),
        ("bhwc->b(hw)c", {}, (None, None, 5, 3), (None, None, 3)),
        ("bhwc->b(hw)c", {}, (None, 4, 5, 3), (None, 20, 3)),
        ("b(hw)c->bhwc", {"w": 5}, (None, None, 3), (None, None, 5, 3)),
        ("b(hw)c->bhwc", {"w": 5}, (None, 20, 3), (None, 4, 5, 3)),
        ("bhwc->hwc", {}, (None, 4, None, 3), (4, None, 3)),
        ("bhwc->bf", {}, (8, 4, 5, 3), (8, 60)),
        ("bhwc->tbchw", {}, (None, 4, 5, 3), (1, None, 3, 4, 5)),
        ("... h w c -> ... c (h w)", {}, (None, 4, 5, 3), (None, 3, 20)),
        ("batch (high low) c -> batch high low c", {"low": 5}, (None, None, 3), (None, None, 5, 3)),
        ("bhwc->bchw", {"pad_to": {"h": 8, "w": 8}}, (None, None, 5, 3), (None, 3, 8, 8)),
        ("bhwc->bchw", {"memory": "bhwc"}, (None, 4, 5, 3), (None, 3, 4, 5)),
    ],
)
def test_shapes_of_what_has_no_data(pattern, keywords, shape, wanted):
    layer = Convert(pattern, dtype="float16", **keywords)
    y = layer(keras.KerasTensor(shape, dtype="uint8"))
    assert (y.shape, y.dtype) == (wanted, "float16")
    assert layer.compute_output_shape(shape) == wanted


def test_what_a_tensor_without_data_promises_is_kept():
    for dtype, requested in [("uint8", None), ("int32", "float64"), ("bool", "int8")]:
        layer = Convert("bhwc->b(wh)c", dtype=requested)
        x = keras.ops.convert_to_tensor(IMAGES.astype(dtype))
        promised = layer(keras.KerasTensor((None, 4, 5, 3), dtype=dtype))
        y = layer(x)
        assert promised.dtype == keras.backend.standardize_dtype(y.dtype)
        assert promised.shape[1:] == tuple(y.shape)[1:] == (20, 3)


def test_it_is_saved_and_loaded_with_its_model(tmp_path):
    first = model()
    first.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(again.predict(IMAGES, verbose=0), first.predict(IMAGES, verbose=0))
    layer = again.get_layer("planes")
    assert layer.converter == Converter("bhwc->bchw", **FORMULA)
    assert layer.weights == []


def test_a_dtype_policy_stands_for_its_compute_dtype():
    layer = layoutkit.keras.Convert(
        "bhwc->bchw", dtype=keras.DTypePolicy("mixed_bfloat16"), scale=1 / 255
    )
    assert layer.converter.keywords["dtype"] == np.dtype("bfloat16")
    again = layoutkit.keras.Convert.from_config(layer.get_config())
    assert again.converter == layer.converter


@pytest.mark.parametrize(
    ("policy", "dtype"),
    [
        ("mixed_float16", "float16"),
        ("mixed_bfloat16", "bfloat16"),
        ("float16", "float16"),
        ("float32", "float32"),
    ],
)
def test_the_global_policy_is_that_of_formulas_without_a_dtype(policy, dtype):
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(policy)
    try:
        layers = [
            Convert("bhwc->bchw", scale=1 / 255),
            Convert("bhwc->bchw", mean=3),
            Convert("bhwc->bchw", std=3),
            Convert("bhwc->bchw", dtype=policy, mean=3),
            Convert("bhwc->bchw"),
            Convert("bhwc->bchw", clip=(0, 9)),
            Convert("bhwc->bchw", dtype="int32", scale=2, casting="unsafe"),
        ]
    finally:
        keras.config.set_dtype_policy(before)
    found = [
        keras.backend.standardize_dtype(layer(keras.ops.convert_to_tensor(IMAGES)).dtype)
        for layer in layers
    ]
    assert found == [dtype] * 4 + ["uint8", "uint8", "int32"]
    assert layers[0](keras.Input((8, 6, 3), dtype="uint8")).dtype == dtype
    again = Convert.from_config(layers[0].get_config())  # under another policy
    assert again.converter == layers[0].converter


def test_a_config_makes_the_layer():
    for layer in (
        Convert("b(hw)c->bchw", h=4, casting="saturate", copy=True, name="x", dtype="uint8"),
        Convert(
            "...hwc->...chw", clip=(0, 9), mean={"h": [1, 2]}, pad_to={"w": 8}, fill=3, name="x"
        ),
        Convert("bhwc->bchw", memory="bhwc", threads=1, name="x", trainable=True),
    ):
        config = json.loads(json.dumps(layer.get_config()))  # as saved in a file
        again = Convert.from_config(config)
        assert (again.converter, again.name) == (layer.converter, "x")
        assert again.trainable == layer.trainable
    assert keras.saving.get_registered_name(Convert) == "layoutkit>Convert"


@pytest.mark.skipif(BACKEND == "numpy", reason="Keras on NumPy does not train")
def test_gradients_go_back_through_it():
    """A step of gradient descent changes the weights of a layer before the conversion."""
    x = np.array([[1, -2, 0.5]], "float32")
    before = keras.layers.Dense(6, use_bias=False)
    layers = [before, keras.layers.Reshape((2, 3)), Convert("bhc->bch", scale=3, std=(1, 2, 4))]
    chain = keras.Sequential([keras.Input((3,)), *layers])
    chain.compile(keras.optimizers.SGD(1.0), lambda y_true, y: keras.ops.sum(y * y_true))
    weights = np.array(keras.ops.convert_to_numpy(before.kernel))
    weigh = np.arange(6, dtype="float32").reshape(1, 3, 2)
    chain.train_on_batch(x, weigh)
    grad = (weigh.transpose(0, 2, 1) * 3 / np.array([1, 2, 4], "f4")).reshape(6)
    changed = weights - np.outer(x[0], grad)
    np.testing.assert_allclose(keras.ops.convert_to_numpy(before.kernel), changed, 1e-5, 1e-5)


def test_mistakes_are_said_when_the_model_is_built(monkeypatch):
    with pytest.raises(PatternError):
        Convert("bhwc")
    with pytest.raises(ShapeError, match="give an array of rank 4"):
        Convert("bhwc->bchw")(keras.Input((4, 5)))
    with pytest.raises(ShapeError, match=r"shape \(None, None, 5\) has 3; give an array of rank 4"):
        Convert("bhwc->bchw")(keras.Input((None, 5)))
    with pytest.raises(ShapeError, match="neither a keyword"):
        Convert("bhwc->bchw", activation="relu")
    monkeypatch.setattr(keras.config, "backend", lambda: "tensorflow")
    with pytest.raises(ArgumentError, match=r"Keras runs on tensorflow.*KERAS_BACKEND"):
        Convert("bhwc->bchw")


def test_the_package_finds_it_when_asked():
    assert layoutkit.keras.Convert is Convert
    code = (
        "import sys, layoutkit; assert not {'keras', 'sklearn', 'layoutkit.keras'} & {*sys.modules}"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
