"""Conversions as transformers of scikit-learn, tested with scikit-learn's own checks."""

import pickle

import numpy as np
import pytest

pytest.importorskip("sklearn", reason="tests of transformers need scikit-learn")

from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

import layoutkit
from layoutkit import ArgumentError, Collator, PatternError, ShapeError
from layoutkit.sklearn import Collate, Convert
from tests.helpers.reference import reference_convert

IMAGES = np.random.default_rng(0).integers(0, 256, (12, 4, 5, 3), np.uint8)
FORMULA = {"dtype": "float32", "scale": 1 / 255, "mean": (0.5, 0.4, 0.3)}


@pytest.mark.budget(16)
@parametrize_with_checks(
    [Convert(), Convert(copy=True), Convert(dtype="float32", scale=2.0, mean=1, std=0.5)]
)
def test_it_is_what_scikit_learn_calls_an_estimator(estimator, check):
    check(estimator)


@pytest.mark.budget(0)
def test_in_a_pipeline():
    flat = Convert("bhwc->bf", **FORMULA)
    labels = IMAGES.mean((1, 2, 3))
    model = make_pipeline(flat, LinearRegression()).fit(IMAGES, labels)
    by_hand = reference_convert(IMAGES, "bhwc->bf", **FORMULA)
    np.testing.assert_allclose(flat.transform(IMAGES), by_hand, 1e-6, 1e-6)
    wanted = LinearRegression().fit(by_hand, labels).predict(by_hand)
    np.testing.assert_allclose(model.predict(IMAGES), wanted, 1e-4)
    assert cross_val_score(model, IMAGES, labels, cv=2, n_jobs=2).shape == (2,)


def test_parameters_are_read_set_and_cloned():
    one = Convert("bhwc->bchw", mean=[1, 2, 3], sizes={"c": 3})
    again = clone(one)
    assert again.get_params() == one.get_params()
    assert again.set_params(pattern="bhwc->bf", mean=None).transform(IMAGES).shape == (12, 60)
    loaded = pickle.loads(pickle.dumps(one.fit(IMAGES)))
    np.testing.assert_array_equal(loaded.transform(IMAGES), one.transform(IMAGES))


@pytest.mark.parametrize("pattern", ["bhwc->bf", "bhwc->b(wh)c", "bhwc->chwb", "bhwc->(bh)wc"])
def test_the_way_back(pattern):
    fitted = Convert(pattern).fit(IMAGES)
    for x in (IMAGES, IMAGES[:3]):  # any number of images
        np.testing.assert_array_equal(fitted.inverse_transform(fitted.transform(x)), x)
    with pytest.raises(NotFittedError):
        Convert(pattern).inverse_transform(IMAGES)


@pytest.mark.budget(0)
def test_the_way_back_undoes_the_formula_to_the_bytes_that_were():
    fitted = Convert("bhwc->b(wh)c", std=(0.2, 0.3, 0.4), **FORMULA).fit(IMAGES)
    back = fitted.inverse_transform(fitted.transform(IMAGES))
    assert back.dtype == np.uint8
    np.testing.assert_array_equal(back, IMAGES)
    names = Convert("batch height width c -> batch (width height) c", clip=(10, 99)).fit(IMAGES)
    clipped = names.inverse_transform(names.transform(IMAGES))
    np.testing.assert_array_equal(clipped, IMAGES.clip(10, 99))


def test_sizes_are_those_of_folded_axes():
    flat = IMAGES.reshape(12, 60)
    y = Convert("bf->bchw", sizes={"c": 3, "h": 4}).fit_transform(flat)
    np.testing.assert_array_equal(y, reference_convert(flat, "bf->bchw", c=3, h=4))


def test_names_of_features():
    pandas = pytest.importorskip("pandas", reason="names come in tables of pandas")
    table = pandas.DataFrame({"red": [1.0, 2], "green": [3, 4]})
    scaled = Convert(scale=10, dtype="float32").set_output(transform="pandas").fit(table)
    assert list(scaled.get_feature_names_out()) == ["red", "green"]
    assert scaled.transform(table).to_dict("list") == {"red": [10, 20], "green": [30, 40]}
    flat = Convert("bhwc->bf").set_output(transform="pandas").fit(IMAGES)
    assert list(flat.get_feature_names_out())[::59] == ["convert0", "convert59"]
    assert flat.transform(IMAGES).shape == (12, 60)
    with pytest.raises(ShapeError, match="a layout with two axes"):
        Convert("bhwc->bchw").fit(IMAGES).get_feature_names_out()
    with pytest.raises(NotFittedError):
        Convert().get_feature_names_out()


@pytest.mark.parametrize("channels", [(1, 0), (0, 0)])
def test_selected_channels_do_not_have_the_names_of_x(channels):
    pandas = pytest.importorskip("pandas", reason="names come in tables of pandas")
    table = pandas.DataFrame({"red": [1.0, 2], "green": [3, 4]})
    fitted = Convert("bc->bc", channels=channels).fit(table)
    assert list(fitted.get_feature_names_out()) == ["convert0", "convert1"]
    kept = Convert("bc->bc", channels=(0, 1)).fit(table)
    assert list(kept.get_feature_names_out()) == ["red", "green"]


def test_nan_passes_and_mistakes_are_layoutkits_own():
    x = np.array([[1, np.nan], [np.inf, 2]])
    np.testing.assert_array_equal(Convert("bf->fb").fit_transform(x), x.T)
    with pytest.raises(PatternError):
        Convert("bf").fit(x)
    with pytest.raises(ShapeError, match="give an array of rank 4"):
        Convert("bhwc->bchw").fit(IMAGES[0])
    with pytest.raises(ValueError, match="2 features, but Convert is expecting 60"):
        Convert("bf->fb").fit(IMAGES.reshape(12, 60)).transform(x)


def test_the_package_finds_it_when_asked():
    assert layoutkit.sklearn.Convert is Convert


# ---- columns of images and of paths ------------------------------------------------------

TO_ROWS = Collator("hwc->b(hwc)", h=4, w=6, resize="area", dtype="float32", scale=1 / 255)


@pytest.fixture
def paths(tmp_path):
    """Return the paths of image files of one size."""
    pytest.importorskip("PIL.Image")
    from tests.helpers.photographs import save

    for number, image in enumerate(IMAGES):
        save(tmp_path / f"{number}.png", image)
    return [str(tmp_path / f"{number}.png") for number in range(len(IMAGES))]


def frame(**columns):
    return pytest.importorskip("pandas").DataFrame(columns)


def test_columns_of_images_are_converted(paths):
    pandas = pytest.importorskip("pandas")
    to_rows = Convert("bhwc->b(hwc)", dtype="float32")
    expected = to_rows.transform(IMAGES)
    table = frame(image=list(IMAGES), path=paths)
    for column in (
        list(IMAGES), paths, np.array(paths), table["image"], table[["image"]], table["path"],
        table[["path"]], pandas.Series(paths).to_numpy().reshape(-1, 1),
    ):  # fmt: skip
        np.testing.assert_array_equal(clone(to_rows).fit(column).transform(column), expected)


def test_a_column_transformer_takes_images_of_any_size(paths):
    from sklearn.compose import ColumnTransformer
    from sklearn.preprocessing import StandardScaler

    images = [image[: 2 + number % 3] for number, image in enumerate(IMAGES)]
    table = frame(image=images, path=paths, age=np.arange(12.0))
    scaler = ("age", StandardScaler(), ["age"])
    for name, samples in (("image", images), ("path", list(IMAGES))):
        steps = ColumnTransformer([("image", Collate(TO_ROWS), name), scaler])
        made = steps.fit_transform(table)
        assert made.shape == (12, 4 * 6 * 3 + 1)
        np.testing.assert_allclose(made[:, :-1], TO_ROWS(samples))
        names = steps.get_feature_names_out()
        assert [names[0], names[-1]] == ["image__collate0", "age__age"]
        assert len(names) == made.shape[1]
    model = make_pipeline(Collate(TO_ROWS), LinearRegression())
    labels = np.arange(12)
    assert cross_val_score(model, images, labels, cv=2).shape == (2,)
    again = pickle.loads(pickle.dumps(clone(Collate(TO_ROWS))))
    np.testing.assert_array_equal(again.transform(images), TO_ROWS(images))


def test_columns_that_cannot_be_converted(paths):
    images = [IMAGES[0], IMAGES[1][:3]]
    with pytest.raises(ShapeError, match=r"item 1 of X has shape \(3, 5, 3\).*sklearn\.Collate"):
        Convert("bhwc->b(hwc)").fit(images)
    with pytest.raises(ArgumentError, match=r"give a layoutkit\.Collator"):
        Collate("hwc->b(hwc)").fit(images)
    with pytest.raises(NotFittedError):
        Collate(TO_ROWS).get_feature_names_out()
    batches = Collate(Collator("hwc->bchw", h=4, w=4, resize="area")).fit(paths)
    with pytest.raises(ShapeError, match=r"fold all axes but b"):
        batches.get_feature_names_out()
