"""Invalid input: the documented error with layoutkit's own message, and no output written."""

import fractions
import re

import numpy as np
import pytest

from layoutkit import (
    ArgumentError,
    ArraySpec,
    Collator,
    CompositeSpace,
    Conv2DSpace,
    Converter,
    DeviceError,
    DtypeError,
    ImageView,
    IndexSpace,
    ListView,
    PatternError,
    ShapeError,
    VectorSpace,
    accumulate,
    collate,
    convert,
)
from layoutkit.converter import plan
from layoutkit.data import sampled_batcher
from tests.helpers.arrays_of import COMPLEX32

X = np.arange(24, dtype=np.uint8).reshape(2, 2, 2, 3)
F = X.astype("f4")


def check_error(error, words, x=X, pattern="bhwc->bchw", **keywords):
    """Check that the call raises with these words, and again after a valid call."""
    for _ in range(2):
        with pytest.raises(error, match=re.escape(words)) as caught:
            convert(x, pattern, **keywords)
        convert(X, "bhwc->bchw", scale=1, h=2, copy=True)
        assert caught.type is error


@pytest.mark.parametrize("pattern", [None, 3, ["bhwc"], b"bhwc->bchw", np.zeros(2), {}])
def test_patterns_that_are_no_text(pattern):
    check_error(PatternError, "a pattern is text", pattern=pattern)


def test_advice_fits_the_call():
    check_error(
        ShapeError, "if it is b, which is only on the right, give both one name", X, "NHWC->bc"
    )
    check_error(ShapeError, "einops.reduce", X, "bhwc->bc")
    fill = {"pad_to": {"h": 9}, "fill": (1, 2)}
    check_error(
        ShapeError, "axis c has size 3; give one number, or 3 values", X, "bhwc->bchw", **fill
    )
    check_error(ShapeError, "there is no axis c; give one number", X, "bhwk->bhwk", **fill)
    with pytest.raises(ArgumentError, match=r'name one of c, l, as in flip=\{"l": "random"\}'):
        Collator("cl->bcl", l=4, flip="random")
    with pytest.raises(PatternError, match=r"\(2, 2, 2, 3\); write convert\(x, .*Converter\("):
        Converter(X)


@pytest.mark.parametrize(
    "pattern", ["", "->", "bhwc", "bhwc->", "b->b->b", "bb->b", "bh(wc->b", "b?->b"]
)
def test_patterns_that_cannot_be_read(pattern):
    check_error(PatternError, "^", pattern=pattern)


@pytest.mark.parametrize(
    "x",
    [[1, 2], None, 3, np.float32(3), {}, object()],
    ids=lambda x: type(x).__name__,
)
def test_what_is_no_array(x):
    fix = "numpy.asarray(x)" if isinstance(x, list) else "a numpy.ndarray"
    kind = "None" if x is None else type(x).__name__
    check_error(ArgumentError, f"{kind}, not a NumPy array; pass {fix}", x)


@pytest.mark.parametrize(
    ("x", "fix"),
    [
        ("photo.jpg", 'pass layoutkit.images.read("photo.jpg")'),
        ("bhwc", "may be in the wrong order"),
        (3, "x is an int, not a NumPy array"),
    ],
)
def test_paths_and_layouts_in_place_of_arrays(x, fix):
    check_error(ArgumentError, fix, x)


@pytest.mark.parametrize(
    ("keywords", "fix"),
    [
        ({"mena": 1}, "did you mean mean=?"),
        ({"dtpe": "f4"}, "did you mean dtype=?"),
        ({"height": 4}, "did you mean h=?"),
        ({"size": (4, 5)}, "as in h=4, w=5"),
        ({"anything": 4}, "omit it, or give one of"),
    ],
)
def test_the_likeliest_keyword_is_named(keywords, fix):
    check_error(ShapeError, fix.replace("as in ", ""), pattern="bhwc->bchw", **keywords)
    with pytest.raises((ShapeError, ArgumentError), match=re.escape(fix)):
        Collator("hwc->bchw", **keywords)


def test_arguments_in_the_wrong_order():
    x = np.zeros((20, 30, 3))
    with pytest.raises(PatternError, match=r"not an array of shape \(20, 30, 3\); write conv"):
        convert("hwc->chw", x)
    with pytest.raises(ArgumentError, match="may be in the wrong order"):
        ImageView(x, "bhwc")


@pytest.mark.parametrize(
    ("name", "meant"), [("fp16", "float16"), ("bf16", "bfloat16"), ("torch.int8", "int8")]
)
def test_dtypes_by_the_names_of_other_libraries(name, meant):
    check_error(DtypeError, f'did you mean "{meant}"', dtype=name)


def test_one_constant_per_channel_of_channels_first():
    check_error(
        ShapeError, "with channels first?", np.zeros((3, 20, 30)), "hwc->chw", mean=(1, 2, 3)
    )


def test_a_list_as_out_is_not_to_be_copied():
    """A list as `out` is an error: the array that asarray makes of it would be written and lost."""
    check_error(ArgumentError, "out is a list, not a NumPy array; pass a numpy.ndarray", out=[1])


def test_masked_arrays():
    check_error(ArgumentError, "its mask would be lost", np.ma.zeros((2, 3)), "bc->cb")
    check_error(ArgumentError, "out is a masked array", out=np.ma.zeros((2, 3, 2, 2), "u1"))


@pytest.mark.parametrize("dtype", ["O", "V0", [("a", "O")], np.dtypes.StringDType()])
def test_elements_that_cannot_be_moved(dtype):
    check_error(
        DtypeError, "cannot be moved; convert them first", np.zeros((2, 3), dtype), "bc->cb"
    )
    check_error(DtypeError, "cannot be moved; convert them first", dtype=dtype)
    check_error(DtypeError, "cannot be moved", out=np.zeros((2, 3, 2, 2), dtype))


@pytest.mark.parametrize("dtype", ["nonsense", [1], 3, "f4,(", object(), "finfo", float("nan")])
def test_what_is_no_dtype(dtype):
    check_error(DtypeError, "is not a dtype", dtype=dtype)


@pytest.mark.parametrize("casting", [None, "no", "", [], 3, "SAFE"])
def test_casting_words(casting):
    check_error(ArgumentError, "one of 'safe', 'same_kind', 'unsafe', 'saturate'", casting=casting)


def test_casts_that_are_not_allowed():
    for keywords in ({"dtype": "u1"}, {"out": np.zeros((2, 3, 2, 2), "u1")}):
        check_error(
            DtypeError, 'float32 to uint8 is not allowed by casting="same_kind"', F, **keywords
        )
        check_error(DtypeError, "saturate", F, **keywords)
        check_error(DtypeError, "unsafe", F, **keywords)
    check_error(DtypeError, 'casting="safe"', F, dtype="f2", casting="safe")
    check_error(DtypeError, "float32 to uint8", X, dtype="u1", scale=2)
    check_error(DtypeError, "only moved", X.astype("M8[s]"), dtype="i8", casting="unsafe")
    check_error(DtypeError, "complex", F.astype("c8"), dtype="f4")
    for dtype in ("S3", "U3", "V3"):
        check_error(DtypeError, "only moved", np.zeros((2, 3), dtype), "bc->cb", dtype="u1")
        check_error(DtypeError, "only moved", dtype=dtype, casting="unsafe")


@pytest.mark.parametrize("dtype", [">i2", np.dtype(">f4"), ">U3", ">M8[s]", [("a", ">f8")]])
def test_a_dtype_of_the_other_byte_order_is_that_of_no_result(dtype):
    x = np.zeros((2, 3), dtype)
    fix = "has another byte order than this machine, in which results are; give dtype="
    check_error(DtypeError, fix, x, "bc->cb", dtype=dtype)
    native = np.dtype(dtype).newbyteorder("=")
    assert convert(x, "bc->cb", dtype=native).dtype == native
    assert convert(x, "bc->cb", out=np.empty((3, 2), dtype)).dtype == dtype  # what the error says
    calls = [lambda: collate([x], "bc->nbc", dtype=dtype)]
    if np.dtype(dtype).kind in "if":
        calls.append(lambda: accumulate([(x, "bc")], "bc", dtype=dtype))
        calls.append(lambda: ImageView("bhwc", F).forward_get("bchw", dtype))
        calls.append(lambda: sampled_batcher({"x": x}, batch_size=1, dtype=dtype))
    for call in calls:
        with pytest.raises(DtypeError, match="another byte order"):
            call()


@pytest.mark.parametrize("dtype", ["c8", "M8[s]", "m8[s]", [("a", "f4")], *COMPLEX32])
def test_formula_of_what_is_no_real_number(dtype):
    check_error(
        DtypeError,
        "scale, mean, std and clip do not apply",
        np.zeros((2, 3), dtype),
        "bc->cb",
        std=2,
    )
    check_error(
        DtypeError, "scale, mean, std and clip do not apply", dtype=dtype, std=2, casting="unsafe"
    )


@pytest.mark.parametrize("name", ["scale", "mean", "std"])
@pytest.mark.parametrize(
    "value",
    [
        "2",
        b"2",
        np.str_("2"),
        2j,
        np.complex64(2),
        np.nan,
        np.inf,
        10**400,
        {},
        {1, 2, 3},
        {0: 1, 1: 2, 2: 3},
        object(),
        np.datetime64("2020-01-01"),
        np.timedelta64(3, "s"),
        np.array(2j),
        np.array("2"),
        (n for n in "abc"),
    ],
    ids=lambda value: repr(value).partition(" at 0x")[0],
)
@pytest.mark.filterwarnings("error")
def test_constants_that_are_no_numbers(name, value):
    check_error(ArgumentError, f"{name} is ", **{name: value})


@pytest.mark.parametrize(
    "value",
    [[1, 2, None], [1, 2j, 3], np.zeros(3, "c8"), [1, "2", 3], (1, np.nan, 3), ["a", "b", "c"]],
)
@pytest.mark.filterwarnings("error")
def test_constants_with_something_that_is_no_number(value):
    check_error(ArgumentError, "give a finite real number", mean=value)


def test_constants_that_equal_those_of_an_earlier_call_are_refused():
    convert(np.zeros((2, 4, 5, 3)), "bhwc->bchw", mean=np.zeros(3))
    for value in (np.zeros(3, "c8"), np.zeros(3, bool)):
        with pytest.raises(ArgumentError):
            convert(np.zeros((2, 4, 5, 3)), "bhwc->bchw", mean=value)


@pytest.mark.parametrize(
    "value", [[], [[1], [2], [3]], [[1], [2, 3], 3], np.zeros((3, 1)), np.zeros((1, 3)), [(), 1, 2]]
)
def test_constants_that_are_not_flat(value):
    check_error(ShapeError, "mean", mean=value)
    check_error(ShapeError, "std", std=value)


@pytest.mark.parametrize("std", [0, -0.0, [1, 0, 1], np.zeros(3)])
def test_division_by_zero(std):
    check_error(ArgumentError, "divide by zero", std=std)


def test_quotients_beyond_float64():
    check_error(ArgumentError, "scale/std is beyond float64", scale=1e200, std=1e-200)
    check_error(ArgumentError, "mean/std is beyond float64", mean=[1, 1e300, 1], std=1e-200)
    check_error(ArgumentError, "beyond float64", std=5e-324)


@pytest.mark.parametrize("shape", [(2, 2, 2, 3), (0, 2, 2, 3)])
def test_constants_of_the_wrong_length(shape):
    x = np.zeros(shape, "u1")
    check_error(ShapeError, "mean has 2 values and axis c has size 3", x, mean=[1, 2])
    check_error(ShapeError, "std has 1 values and axis c has size 3", x, mean=[1, 2, 3], std=[1])
    check_error(ShapeError, "neither layout has an axis c", x, "bhwd->bdhw", mean=[1, 2, 3])


@pytest.mark.parametrize("size", ["2", 2.0, None, [2], -2, True, np.float32(2), 10**30])
def test_sizes(size):
    check_error(ShapeError, "h", h=size)


def test_shapes_that_do_not_fit():
    check_error(ShapeError, "rank", pattern="bhw->bwh")
    check_error(ShapeError, "rank 1", np.array(3.0), "b->b")
    check_error(ShapeError, "lost", pattern="bhwc->bhw")
    check_error(ShapeError, "one size can be inferred", X.reshape(2, 12), "bf->bhwc")
    check_error(ShapeError, "z=3 is neither a keyword of a conversion nor the size of an axis", z=3)


def test_a_keyword_that_is_misspelled():
    check_error(ShapeError, "dtpye='f4' is neither a keyword", dtpye="f4")
    with pytest.raises(ShapeError, match="neither a keyword"):
        Converter("b->b", meen=3)
    for make, pattern in ((Converter, "bhwc->bchw"), (Collator, "hwc->bchw")):
        with pytest.raises(ShapeError, match=r"z=3 is neither a keyword .*axes are (b, )?h, w, c"):
            make(pattern, z=3)
        assert make(pattern, H=3) == make(pattern, h=3)
    check_error(ShapeError, 'memory="bhwc" is channels_last', memory_format="channels_last")


@pytest.mark.parametrize("device", ["tpu", "cuda:", "cuda:-1", "", 3.0, []])
def test_what_is_no_device(device):
    check_error(DeviceError, 'it must be "cpu", "cuda"', device=device)


@pytest.mark.parametrize(
    ("device", "meant"), [("CUDA", "cuda"), (3, "cuda:3"), ("GPU:1", "cuda:1"), ("CPU", "cpu")]
)
def test_devices_of_other_libraries(device, meant):
    check_error(DeviceError, f'did you mean "{meant}"', device=device)


@pytest.mark.parametrize("copy", [0, 1, "no", [1, 2], 1.0, np.True_, np.array([1, 2])], ids=repr)
def test_copy_words(copy):
    check_error(ArgumentError, "it must be None, True or False", copy=copy)


def test_refused_before_and_after_a_call_that_was_right():
    """Distinguish values that are equal in Python: 1 and True, 2 and 2.0 and Decimal(2)."""
    convert(X, "bhwc->bchw", h=2)
    check_error(ShapeError, "h is 2.0", h=2.0)
    convert(X, "bhwc->bchw", scale=2)
    check_error(ArgumentError, "scale is", scale=2 + 0j)
    convert(X, "bhwc->bchw", scale=fractions.Fraction(2))


@pytest.mark.parametrize(
    ("out", "error", "words"),
    [
        ([1], ArgumentError, "out is a list"),
        (np.zeros((2, 3, 2)), ShapeError, "out has shape (2, 3, 2)"),
        (np.zeros((2, 2, 2, 3), "f4"), ShapeError, "makes (2, 3, 2, 2)"),
        (np.broadcast_to(np.zeros(1, "f4"), (2, 3, 2, 2)), ArgumentError, "overlapping"),
        (
            np.lib.stride_tricks.as_strided(np.zeros(9, "f4"), (2, 3, 2, 2), (4, 4, 4, 4)),
            ArgumentError,
            "overlapping",
        ),
    ],
)
def test_outs_that_do_not_fit(out, error, words):
    check_error(error, words, F, out=out)


def test_out_and_dtype_differ():
    check_error(
        DtypeError,
        "out has dtype float32, but dtype=float64",
        dtype="f8",
        out=np.zeros((2, 3, 2, 2), "f4"),
    )


def test_refused_calls_write_nothing():
    out = np.full((2, 3, 2, 2), 7, "f4")
    converter = Converter("bhwc->bchw")
    for bad in (F[:1], F[..., :2], F.astype("c8"), F.astype("O"), F[0]):
        with pytest.raises((ShapeError, DtypeError)):
            converter(bad, out)
    with pytest.raises(ShapeError):
        convert(F, "bhwc->bchw", mean=[1, 2], out=out)
    out.flags.writeable = False
    with pytest.raises(ArgumentError, match="read-only"):
        converter(F, out)
    assert (out == 7).all()


def test_specs_of_another_layout_and_of_another_device():
    converter = Converter("bhwc->bchw")
    with pytest.raises(PatternError, match="the spec is of layout bchw"):
        converter.plan(ArraySpec("bchw", (1, 2, 3, 4), "f4"))
    there = converter.infer_spec(ArraySpec("bhwc", (1, 2, 3, 4), "f4", "cuda"))
    assert there == ArraySpec("bchw", (1, 4, 2, 3), "f4", "cuda:0")
    with pytest.raises(ArgumentError):
        converter.infer_spec("bhwc")


def test_plan_of_what_is_no_shape():
    for shape in (3, "12", (1, -2), (1.5, 2), None):
        with pytest.raises(ShapeError):
            plan("bc->cb", shape)
    with pytest.raises(DtypeError):
        plan("bc->cb", (2, 3), "nonsense")


PART = (np.ones((2, 3), "f4"), "bc")


@pytest.mark.parametrize(
    ("parts", "error", "words"),
    [
        ([], ArgumentError, "at least one"),
        (3, ArgumentError, "parts is an int"),
        (np.array(0.0), ArgumentError, "give "),
        ([3], ArgumentError, "part 0 is an int; give (array, layout)"),
        (["bc"], ArgumentError, "part 0 is a str; give"),
        ([PART, (PART[0],)], ArgumentError, "part 1 is a tuple; give (array, layout)"),
        ([([1], "b")], ArgumentError, "part 0 is a list"),
        ([PART, (PART[0], "cb")], ShapeError, "part 1 has shape (3, 2)"),
        ([(PART[0], 3)], PatternError, "a layout is text"),
        ([(PART[0], "b->c")], PatternError, "^"),
        ([(PART[0], "bcw")], ShapeError, "rank 3"),
        ([(PART[0].astype("M8[s]"), "bc")], DtypeError, "cannot be added"),
        ([(PART[0] > 0, "bc")], DtypeError, "cannot be added"),
        ([(PART[0].astype(object), "bc")], DtypeError, "cannot be added"),
    ],
)
def test_parts(parts, error, words):
    out = np.full((2, 3), 7, "f4")
    with pytest.raises(error, match=re.escape(words)):
        accumulate(parts, "bc", out=out)
    assert (out == 7).all()


def test_keywords_of_accumulate():
    for keywords, error, words in [
        ({"dtype": "i4"}, DtypeError, "which int32 does not hold"),
        ({"dtype": "?"}, DtypeError, "bool"),
        ({"dtype": "f8", "out": PART[0]}, DtypeError, "out has dtype float32"),
        ({"out": PART[0]}, ArgumentError, "out shares memory with part 0"),
        ({"out": np.zeros((3, 2), "f4")}, ShapeError, "out has shape (3, 2)"),
        ({"h": 3}, ShapeError, "h=3 is neither a keyword of a sum"),
        ({"out": [1]}, ArgumentError, "out is a list"),
    ]:
        with pytest.raises(error, match=re.escape(words)):
            accumulate([PART], "bc", **keywords)
    with pytest.raises(PatternError):
        accumulate([PART], "bc->cb")


@pytest.mark.parametrize("nothing", [np.array(0.0), 3, None])
def test_views_that_are_no_list(nothing):
    with pytest.raises(ArgumentError, match="give a list of views"):
        ListView(nothing)


def test_too_much_memory_is_a_memory_error():
    x = np.broadcast_to(np.uint8(1), (2**46, 2))
    with pytest.raises(MemoryError):
        convert(x, "bc->cb", dtype="f8")


EMPTY = np.zeros((0, 3), np.float32)
HUGE = np.broadcast_to(np.uint8(1), (1 << 31, 1 << 31))


@pytest.mark.parametrize("pattern", ["(hb)c->bhc", "(hb)c->hbc", "(hb)c->cbh", "(hb)c->c(bh)"])
@pytest.mark.parametrize("size", [1 << 58, 1 << 62, 1 << 63, 1 << 70])
def test_sizes_beside_nothing(pattern, size):
    """NumPy limits the other axes of an empty array: "array is too big", or "Maximum allowed"."""
    for run in (
        lambda: convert(EMPTY, pattern, h=size, b=0),
        lambda: plan(pattern, (0, 3), h=size, b=0),
        lambda: Converter(pattern, h=size, b=0)(EMPTY),
        lambda: accumulate([(EMPTY, "(hb)c")], pattern.split("->")[1], h=size, b=0),
    ):
        with pytest.raises(ShapeError, match=f"h is {size}, too large for any array"):
            run()
    assert convert(EMPTY, pattern, h=1 << 40, b=0).size == 0


@pytest.mark.parametrize("dtype", ["float64", "uint8"])
def test_results_beyond_any_memory(dtype):
    for run in (
        lambda: convert(HUGE, "ab->ba", dtype=dtype, copy=True),
        lambda: accumulate([(HUGE, "ab"), (HUGE, "ba")], "ba", dtype="int64"),
        lambda: IndexSpace(1 << 62, 1).format_as(np.zeros((3, 1), int), VectorSpace(1 << 62)),
    ):
        with pytest.raises(MemoryError, match=r"cannot allocate \d+ bytes"):
            run()


@pytest.mark.parametrize(
    "space",
    [VectorSpace(1 << 62), VectorSpace(1 << 70), Conv2DSpace((1 << 31, 1 << 31), 4, "bchw")]
    + [CompositeSpace((VectorSpace(3), VectorSpace(1 << 62))), VectorSpace(1 << 62, sparse=True)],
    ids=str,
)
def test_origins_beyond_any_memory(space):
    for run in (space.get_origin, lambda: space.get_origin_batch(8)):
        with pytest.raises(ShapeError, match="does not fit into memory; ask for"):
            run()


@pytest.mark.parametrize("side", [2**31, 2**55, 2**61, 2**63, 10**400])
def test_a_short_side_has_a_limit(side):
    with pytest.raises(ArgumentError, match="a whole number from 1 to 2147483647"):
        Collator("hwc->bchw", resize="bilinear", h=2, w=2, short_side=side)


class Clearing:
    """An argument that empties the list of samples while it is read."""

    def __init__(self, samples, value):
        self.samples, self.value = samples, value

    def __array__(self, *args, **keywords):
        self.samples.clear()
        return np.array(self.value)


@pytest.mark.parametrize("resize", [None, "nearest", "bilinear"])
def test_an_argument_that_changes_the_list_of_samples(resize):
    collator = Collator("hwc->bchw", h=2, w=2, resize=resize, fill=0)
    name, value = ("offset", [0, 0]) if resize is None else ("crop", [2, 2])
    wanted = collator([X[0], X[0]], **{name: {"w": value}})
    samples = [X[0].copy(), X[0].copy()]
    y = collator(samples, **{name: {"w": Clearing(samples, value)}})
    assert samples == []
    np.testing.assert_array_equal(y, wanted)
