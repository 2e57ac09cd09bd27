"""Stored options: `to_dict`, `from_dict`, pickles and fingerprints of Converters and Collators."""

import copy
import inspect
import json
import os
import pickle
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import layoutkit
from layoutkit import ArgumentError, Collator, Converter, LayoutkitError
from layoutkit.planning.keywords import KEYWORDS

FINITE = st.floats(allow_nan=False, allow_infinity=False, width=64)
CONSTANTS = st.one_of(FINITE, st.lists(FINITE, min_size=3, max_size=3))
FILLS = st.one_of(
    st.integers(-(2**40), 2**40), st.floats(), st.lists(st.floats(), min_size=3, max_size=3)
)
SHARED = {
    "dtype": st.sampled_from(["float32", np.float64, np.dtype("uint8"), "bfloat16", ">i2"]),
    "scale": FINITE,
    "mean": CONSTANTS,
    "std": CONSTANTS,
    "clip": st.tuples(st.integers(-(2**70), 0) | st.none(), FINITE.map(abs)),
    "casting": st.sampled_from(["same_kind", "safe", "unsafe", "saturate"]),
    "device": st.just("cpu"),
    "threads": st.integers(1, 256),
}
CONVERSION = SHARED | {
    "copy": st.sampled_from([None, True, False]),
    "memory": st.sampled_from(["bhwc", "c b h w"]),
    "pad_to": st.dictionaries(st.sampled_from("hw"), st.integers(9, 40), min_size=1),
    "pad_before": st.dictionaries(st.sampled_from("hw"), st.integers(0, 5)),
    "fill": FILLS,
    "center": st.sampled_from(["round", "floor"]),
    "channels": st.lists(st.integers(0, 5), min_size=3, max_size=3),
    "b": st.integers(0, 9).map(np.int64),
}
COLLATION = SHARED | {
    "memory": st.sampled_from(["bhwc", "c b h w"]),
    "offset": st.one_of(st.just("random"), st.just({"h": 3, "w": "random"})),
    "flip": st.sampled_from(["w", "random", {"h": True, "w": "random"}]),
    "crop": st.sampled_from(["random", {"scale": (0.1, 0.7)}, {"h": 20, "w": 30}]),
    "seed": st.integers(-5, 2**80),
    "key": st.sampled_from([0, -1, "image"]),
    "fill": FILLS,
    "channels": st.lists(st.integers(0, 5), min_size=3, max_size=3),
    "resize": st.sampled_from(["nearest", "bilinear", "bicubic", "lanczos", "area"]),
    "antialias": st.booleans(),
    "fit": st.sampled_from(["cover", "pad", "stretch"]),
    "short_side": st.integers(1, 50),
    "pad_before": st.dictionaries(st.sampled_from("hw"), st.integers(0, 5)),
    "center": st.sampled_from(["round", "floor"]),
}
CASES = {
    Converter: (["bhwc->bchw", "b h w c -> b c h w", "NHWc->Nchw"], CONVERSION, {}),
    Collator: (["hwc->bchw", "bhwc->bchw"], COLLATION, {"h": 24, "w": 16}),
}


@pytest.mark.parametrize("name", KEYWORDS)
def test_public_signatures_have_the_declared_keywords(name):
    parameters = inspect.signature(getattr(layoutkit, name)).parameters.values()
    assert {p.name for p in parameters if p.kind is p.KEYWORD_ONLY} | {"out"} == {
        *KEYWORDS[name]
    } | {"out"}


@given(st.data(), st.sampled_from([Converter, Collator]))
def test_stored_options_make_an_equal_object(data, cls):
    patterns, options, sizes = CASES[cls]
    pattern = data.draw(st.sampled_from(patterns))
    keywords = data.draw(st.fixed_dictionaries({}, optional=options))
    try:
        one = cls(pattern, **keywords, **sizes)
    except LayoutkitError:  # options that contradict each other
        return
    text = json.dumps(one.to_dict(), allow_nan=False)
    for other in (cls.from_dict(json.loads(text)), pickle.loads(pickle.dumps(one)), copy.copy(one)):
        assert other == one
        assert hash(other) == hash(one)
        assert repr(other) == repr(one)
        assert other.fingerprint == one.fingerprint
        assert json.dumps(other.to_dict()) == text


@given(st.data())
def test_stored_constants_make_the_same_bits(data):
    keywords = {name: data.draw(CONVERSION[name]) for name in ("scale", "mean", "std")}
    x = np.arange(2 * 3 * 3, dtype=np.float64).reshape(2, 3, 3)
    try:
        one = Converter("bhc->bch", dtype="float64", **keywords)
    except ArgumentError:  # a division by zero
        return
    other = Converter.from_dict(json.loads(json.dumps(one.to_dict())))
    assert one(x).tobytes() == other(x).tobytes()


STRUCTURED = np.dtype([("a", "<f4", (2,)), ("b", "<i2")])


@pytest.mark.parametrize("dtype", ["datetime64[ns]", "U7", STRUCTURED, "float8_e4m3fn"], ids=str)
def test_any_dtype_of_results_is_stored(dtype):
    one = Converter("bc->cb", dtype=dtype)
    assert Converter.from_dict(json.loads(json.dumps(one.to_dict()))).keywords == one.keywords


SPELLINGS = [
    [
        ("bhwc->bchw", {"dtype": "float32", "mean": (0.5, 0.4, 0.25)}),
        ("b h w c -> b c h w", {"dtype": np.float32, "mean": [0.5, 0.4, 0.25]}),
        ("NHWC->NCHW", {"dtype": np.dtype("f4"), "mean": np.array([0.5, 0.4, 0.25])}),
        ("batch height w c -> batch c height w", {"dtype": "f4", "mean": {"c": (0.5, 0.4, 0.25)}}),
    ],
    [
        ("b(hw)c->bchw", {"h": 4, "scale": 2}),
        ("b (h w) c -> b c h w", {"h": np.int64(4), "scale": 2.0}),
        ("b(HW)C->bchw", {"H": 4, "scale": np.float32(2)}),
        ("b(yx)c->bcyx", {"y": 4, "scale": 2}),
    ],
    [("bhwc->bf", {}), ("bhwc->b(hwc)", {}), ("nxyz->nf", {})],
]


@pytest.mark.parametrize("spellings", SPELLINGS, ids=lambda rows: rows[0][0])
def test_spellings_of_one_conversion_have_one_fingerprint(spellings):
    assert len({Converter(pattern, **keywords).fingerprint for pattern, keywords in spellings}) == 1


BASE = {"dtype": "float32", "scale": 0.5, "mean": (1, 2, 3), "pad_to": {"h": 40, "w": 50}}
CHANGES = [
    {"dtype": "float16"},
    {"dtype": None},
    {"scale": np.nextafter(0.5, 1)},
    {"mean": (1, 2, np.nextafter(3, 4))},
    {"mean": (1, 3, 2)},
    {"std": 2},
    {"clip": (0, 255)},
    {"clip": (0, None)},
    {"casting": "saturate"},
    {"device": "cpu"},
    {"copy": True},
    {"memory": "bhwc"},
    {"threads": 1},
    {"pad_to": {"h": 41, "w": 50}},
    {"pad_before": {"h": 0}},
    {"fill": 1},
    {"fill": (1, 2, 3)},
    {"fill": float("nan")},
    {"center": "floor"},
    {"channels": (2, 1, 0)},
    {"b": 2},
]


def test_every_option_of_a_conversion_changes_the_fingerprint():
    made = [Converter("bhwc->bchw", **BASE | change) for change in ({}, *CHANGES)]
    made += [Converter(pattern, **BASE) for pattern in ("bhwc->bcwh", "bhcw->bchw")]
    assert len({one.fingerprint for one in made}) == len(made)


RESIZED = {"h": 24, "w": 16, "resize": "bilinear", "offset": {"h": 1}, "crop": {"h": 20, "w": 20}}
COLLATE_CHANGES = [
    {"h": 25},
    {"resize": "bicubic"},
    {"antialias": False},
    {"fit": "cover"},
    {"fit": "pad", "pad_before": {"h": 0}},
    {"short_side": 30},
    {"fill": 0},
    {"channels": (2, 1, 0)},
    {"center": "floor"},
    {"offset": {"h": 2}},
    {"offset": "random"},
    {"flip": "w"},
    {"flip": "random"},
    {"flip": "random", "seed": 1},
    {"crop": {"h": 21, "w": 20}},
    {"crop": "random", "offset": None},
    {"crop": {"ratio": (0.5, 2)}, "offset": None},
    {"key": 0},
    {"key": "0"},
    {"scale": 2},
    {"memory": "bhwc"},
]


def test_every_option_of_a_batch_changes_the_fingerprint():
    made = [Collator("hwc->bchw", **RESIZED | change) for change in ({}, *COLLATE_CHANGES)]
    made += [Collator(pattern, **RESIZED) for pattern in ("bhwc->bchw", "hwc->cbhw")]
    assert len({one.fingerprint for one in made}) == len(made)


def test_random_windows_depend_on_the_names_of_axes():
    """Draws have the name of the axis as a key, so another name is another batch."""
    one = Collator("hwc->bchw", h=4, w=4, offset="random")
    other = Collator("hvc->bchv", h=4, v=4, offset="random")
    assert one.fingerprint != other.fingerprint
    fixed = [Collator("hwc->bchw", h=4, w=4), Collator("hvc->bchv", h=4, v=4)]
    assert fixed[0].fingerprint == fixed[1].fingerprint


def test_fingerprints_are_equal_in_every_process():
    code = (
        "from layoutkit import Collator, Converter; import numpy as np\n"
        "print(Converter('b h w c->b c h w', dtype=np.float32, mean=[1, 2, 3]).fingerprint,"
        "Collator('hwc->bchw', w=5, h=4, flip='random').fingerprint)"
    )
    command = [sys.executable, "-c", code]
    texts = {
        subprocess.check_output(command, env={**os.environ, "PYTHONHASHSEED": seed}, text=True)
        for seed in ("1", "2")
    }
    converter = Converter("bhwc->bchw", dtype="f4", mean=(1, 2, 3))
    collator = Collator("hwc->bchw", h=4, w=5, flip="random")
    assert texts == {f"{converter.fingerprint} {collator.fingerprint}\n"}


def test_fingerprints_do_not_change_between_versions():
    """A change of these is a change of the form: raise NUMERICS, and say so in the docs."""
    made = Converter("bhwc->bchw", dtype="float32", scale=1 / 255, mean=(0.5, 0.25, 0.125))
    assert made.fingerprint == "9bedd0ddcbac8ac0aaed8ae22bfb9126e0f2035968dbd628b702eaad12280981"
    made = Collator("hwc->bchw", h=224, w=224, resize="bilinear", crop="random", flip="random")
    assert made.fingerprint == "f29d35098b252512628e2b8881d429984900e39c39612b3fc771230f53683e01"


STORED = {"kind": "converter", "version": 1, "pattern": "bhwc->bchw"}
WRONG = [
    ({"kind": "converter", "pattern": "bhwc->bchw"}, "version is None"),
    ({**STORED, "kind": "collator"}, "kind is 'collator'"),
    ({**STORED, "version": 2}, "version is 2"),
    ({**STORED, "version": True}, "version is True"),
    ({"kind": "converter", "version": 1}, "pattern is missing"),
    ({**STORED, "pattern": 3}, "pattern is 3"),
    ({**STORED, "scales": 2}, "scales is not an option"),
    ({**STORED, "h": 2}, "h is not an option"),
    ({**STORED, "threads": "4"}, "threads is '4'; it must be a whole number"),
    ({**STORED, "threads": True}, "threads is True"),
    ({**STORED, "threads": 2.0}, "threads is 2.0"),
    ({**STORED, "scale": "0.5"}, "scale is '0.5'; it must be a whole number or a number"),
    ({**STORED, "mean": ["a"]}, "mean.0. is 'a'"),
    ({**STORED, "mean": {"c": "a"}}, "mean"),
    ({**STORED, "clip": [1]}, "clip is"),
    ({**STORED, "copy": 1}, "copy is 1; it must be true or false"),
    ({**STORED, "dtype": None}, "dtype is None; it must be text"),
    ({**STORED, "dtype": "[('a', "}, "dtype is"),
    ({**STORED, "pad_to": [1]}, "pad_to is"),
    ({**STORED, "pad_to": {"h": 9}, "fill": "x"}, "fill is 'x'"),
    ({**STORED, "casting": "never"}, "casting"),
    ({**STORED, "sizes": [1]}, "sizes is"),
    ({**STORED, "sizes": {"b": 2.0}}, "b is 2.0"),
    ({**STORED, "sizes": {"b": True}}, "b is True"),
    ({**STORED, "resize": "bilinear"}, "resize is not an option"),
    ([STORED], "options are list"),
]


@pytest.mark.parametrize(("data", "words"), WRONG, ids=lambda value: str(value)[:40])
def test_wrong_data_is_refused_by_name(data, words):
    with pytest.raises(LayoutkitError, match=words):
        Converter.from_dict(data)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"copy": True}, "copy is not an option"),
        ({"antialias": 0, "resize": "area"}, "antialias is 0"),
        ({"seed": 0.5}, "seed is 0.5"),
        ({"flip": "w"}, "flip is 'w'; it must be an object"),
        ({"offset": {"h": 0.5}}, "offset.'h'. is 0.5"),
        ({"short_side": "9"}, "short_side is '9'"),
    ],
)
def test_wrong_data_of_a_batch_is_refused_by_name(data, words):
    collation = Collator("hwc->bchw", h=8, w=8).to_dict()
    with pytest.raises(ArgumentError, match=words):
        Collator.from_dict({**collation, **data})


def test_sizes_are_whole_numbers():
    assert Converter("b(hw)->bhw", h=np.int64(20)) == Converter("b(hw)->bhw", h=20)
    for wrong in (True, 2.0, "2", None, -1):
        with pytest.raises(layoutkit.ShapeError, match="h is"):
            Converter("b(hw)->bhw", h=wrong)


def test_constants_on_a_device_are_read_once():
    class Constant:
        shape, ndim, reads = (3,), 1, 0

        def __array__(self, dtype=None, copy=None):
            self.reads += 1
            return np.array([1.0, 2, 3])

    mean = Constant()
    converter = Converter("bc->cb", mean=mean)
    reads = mean.reads
    assert reads <= 1
    converter(np.ones((2, 3), "f4"))
    assert converter.to_dict()["mean"] == [1.0, 2.0, 3.0]
    assert converter.fingerprint == pickle.loads(pickle.dumps(converter)).fingerprint
    assert mean.reads == reads
