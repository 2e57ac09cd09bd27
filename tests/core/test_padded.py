"""`collate` with `t="longest"`: samples that are padded at the end to the longest of the batch."""

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import layoutkit
from layoutkit import Collator, Padded, collate, convert
from layoutkit.planning.fitting import scale_sides
from tests.helpers.arrays_of import assert_same
from tests.helpers.resizing import detr_size

pytestmark = pytest.mark.budget(4)

RNG = np.random.default_rng(0)
FORMULA = {"dtype": "float32", "scale": 1 / 255, "mean": 0.5}
PATTERNS = {
    "t": ["bt", "tb"],
    "tf": ["btf", "fbt", "tbf", "b(tf)", "(tb)f"],
    "ft": ["btf", "bft"],
    "thwc": ["bcthw", "bthwc", "chwtb", "b(thw)c"],
}


def stack_padded(samples, layout, padded, flip, fill):
    """Return samples padded at the end, after a reversal of the sample: the reference."""
    shape = list(samples[0].shape)
    for axis in padded:
        shape[layout.index(axis)] = max(x.shape[layout.index(axis)] for x in samples)
    batch = np.full((len(samples), *shape), fill, samples[0].dtype)
    for number, x in enumerate(samples):
        for axis, flags in flip.items():
            x = np.flip(x, layout.index(axis)) if flags[number] else x
        batch[(number, *map(slice, x.shape))] = x
    return batch


@st.composite
def calls(draw):
    """Draw samples, their layout, the layout of the batch, the padded axes and arguments."""
    layout = draw(st.sampled_from(sorted(PATTERNS)))
    to = draw(st.sampled_from(PATTERNS[layout]))
    padded = "t" + ("f" if "f" in layout and draw(st.booleans()) else "")
    count = draw(st.integers(1, 5))
    sizes = {"f": 3, "h": 4, "w": 5, "c": 3}
    dtype, formula = draw(st.sampled_from([("uint8", {}), ("uint8", FORMULA), (">f4", {})]))
    samples = []
    for _ in range(count):
        own = sizes | {axis: draw(st.integers(0, 40)) for axis in padded}
        x = RNG.integers(0, 200, [own[axis] for axis in layout]).astype(dtype)
        samples.append(x if draw(st.booleans()) else np.asfortranarray(x))
    flags = st.lists(st.booleans(), min_size=count, max_size=count)
    flip = {axis: draw(flags) for axis in layout if draw(st.booleans())}
    return samples, layout, to, padded, flip, draw(st.sampled_from([0, 7])), formula


@given(calls())
def test_a_padded_batch_is_the_conversion_of_the_padded_samples(call):
    samples, layout, to, padded, flip, fill, formula = call
    windows = stack_padded(samples, layout, padded, flip, fill)
    expected = convert(
        windows.astype(windows.dtype.newbyteorder("=")), f"b{layout}->{to}", **formula
    )
    batch, lengths = collate(
        samples, f"{layout}->{to}", flip=flip, fill=fill, lengths=True, **formula,
        **dict.fromkeys(padded, "longest"),
    )  # fmt: skip
    assert_same(batch, expected)
    axes = sorted(map(layout.index, padded))
    sizes = np.array([x.shape for x in samples])[:, axes if len(axes) > 1 else axes[0]]
    assert lengths.dtype == np.int64
    assert_same(lengths, sizes)


@pytest.mark.parametrize("resize", ["nearest", "bilinear", "bicubic", "lanczos", "area"])
@pytest.mark.parametrize("flags", [[False, False, False], [True, False, True]])
def test_a_padded_axis_beside_resized_axes(resize, flags):
    videos = [RNG.integers(0, 256, (n, 9, 8, 3), np.uint8) for n in (2, 5, 3)]
    common = {"h": 4, "w": 5, "resize": resize, "dtype": "float32"}
    pair = Collator("thwc->bcthw", t="longest", fill=9, **common)
    for flip in (None, {"t": flags}):  # one Collator for both: no call reuses the other's windows
        batch = pair(videos, flip=flip)
        for number, (row, video) in enumerate(zip(batch, videos, strict=True)):
            frames = collate(video, "thwc->tchw".replace("t", "b"), **common).swapaxes(0, 1)
            frames = frames[:, ::-1] if flip and flags[number] else frames
            assert_same(row[:, : len(video)], frames)
            assert (row[:, len(video) :] == 9).all()


def test_rows_of_one_array_have_one_length():
    rows = RNG.standard_normal((5, 4, 3))
    batch, lengths = collate(rows, "btf->bft", t="longest", lengths=True, indices=[4, 0])
    assert_same(batch, rows[[4, 0]].swapaxes(1, 2))
    assert lengths.tolist() == [4, 4]


def test_samples_without_positions():
    batch, lengths = collate([np.zeros((0, 2))] * 3, "tf->btf", t="longest", lengths=True)
    assert batch.shape == (3, 0, 2)
    assert lengths.tolist() == [0, 0, 0]


@pytest.mark.parametrize("pattern", ["tf->btf", "tf->tbf"])
def test_an_output_may_be_larger_along_its_first_axis(pattern):
    clips = [np.full((n, 2), n, np.float32) for n in (3, 1)]
    expected = collate(clips, pattern, t="longest")
    out = np.full((9, *expected.shape[1:]), -1, np.float32)
    batch = collate(clips, pattern, t="longest", out=out)
    assert np.shares_memory(batch, out)
    assert_same(batch, expected)
    assert (out[len(batch) :] == -1).all()
    with pytest.raises(layoutkit.ShapeError, match="out has shape"):
        collate(clips, pattern, t="longest", out=out[:1])
    assert (out[len(batch) :] == -1).all()


def test_batches_of_many_lengths_are_independent():
    collator = Collator("tf->btf", t="longest", lengths=True)
    for longest in (5, 30, 5, 7):
        clips = [RNG.standard_normal((n, 2)) for n in (longest, 2)]
        batch = collator(clips)
        assert_same(batch.data, stack_padded(clips, "tf", "t", {}, 0))
        assert batch.lengths.tolist() == [longest, 2]


def test_options_are_stored_compared_and_printed():
    collator = Collator("tf->btf", t="longest", lengths=True)
    assert eval(repr(collator)) == pickle.loads(pickle.dumps(collator)) == collator
    assert collator.to_dict()["sizes"] == {"t": "longest"}
    prints = {
        Collator("tf->btf", **options).fingerprint
        for options in (
            {"t": "longest", "lengths": True},
            {"t": "longest"},
            {"t": 9, "fill": 0},
            {"fill": 0},
            {"f": "longest"},
        )
    }
    assert len(prints) == 5
    renamed = Collator("x y -> b x y", x="longest", fill=0.0, lengths=True)
    assert renamed.fingerprint == collator.fingerprint
    assert collator.fingerprint in prints


def test_items_beside_the_padded_item():
    samples = [{"audio": np.ones((n, 2)), "label": n} for n in (2, 4)]
    batch = Collator("tf->btf", t="longest", lengths=True, key="audio")(samples)
    assert isinstance(batch["audio"], Padded)
    assert batch["label"].tolist() == [2, 4]
    assert "2 samples, (2, 4, 2)" in repr(batch["audio"])


def test_random_flips_leave_the_padding_at_the_end():
    clips = [np.arange(1, n + 1) for n in (3, 8, 5, 2)]
    collator = Collator("t->bt", t="longest", flip={"t": "random"}, seed=3)
    batch = collator(clips, positions=range(4))
    expected = {(*x, *[0] * (8 - len(x))) for clip in clips for x in (clip, clip[::-1])}
    assert {*map(tuple, batch.tolist())} <= {tuple(map(int, row)) for row in expected}
    assert (batch[:, 0] != 1).any()
    assert (batch[:, 0] == 1).any()


AT_END = {"t": 5, "offset": {"t": 0}, "fill": 0, "lengths": True}


@pytest.mark.parametrize("size", [4, 5, 6, 9])
@pytest.mark.parametrize("first", [0, 2, [0, 1, 7]])
def test_lengths_of_samples_that_are_padded_or_cut_at_their_end(size, first):
    clips = [RNG.standard_normal((n, 2)) for n in (5, 3, 8)]
    options = {"t": size, "fill": 0, "lengths": True}
    batch, lengths = collate(clips, "tf->bft", offset={"t": first}, **options)
    firsts = np.broadcast_to(first, 3).tolist()
    cut = [clip[begin : begin + size] for begin, clip in zip(firsts, clips, strict=True)]
    longest = [*cut, np.zeros((size, 2))]
    assert_same(batch, stack_padded(longest, "tf", "t", {}, 0).swapaxes(1, 2)[:3])
    assert lengths.tolist() == [len(clip) for clip in cut]
    if first == 0:
        always = Collator("tf->bft", offset={"t": 0}, **options)
        placed = always(clips, placements=always.place(clips))
        for padded in (always(clips, flip="f"), placed):
            assert padded.lengths.tolist() == lengths.tolist()


BAD = [
    ("tf->btf", {"t": "max"}, layoutkit.ShapeError, 'or "longest"'),
    ("tf->btf", {"t": "longest", "offset": {"t": 1}}, layoutkit.ArgumentError, "offset="),
    ("tf->btf", {"b": "longest"}, layoutkit.ArgumentError, "not an axis of its own on"),
    ("(tk)f->btkf", {"t": "longest", "k": 2}, layoutkit.ArgumentError, "reshape samples"),
    ("tf->btf", {"lengths": True}, layoutkit.ArgumentError, 't="longest", or, without resize='),
    ("tf->btf", {"t": 3, "lengths": True}, layoutkit.ArgumentError, 'offset={"t": 0}'),
    ("tf->(bt)f", {"f": 2, "lengths": True}, layoutkit.ArgumentError, "packs samples"),
    ("tf->btf", {"t": 3, "lengths": True, "offset": 0}, layoutkit.ArgumentError, "be a dict"),
    ("tf->btf", {**AT_END, "offset": {"t": -1}}, layoutkit.ArgumentError, "negative offset"),
    ("tf->btf", {**AT_END, "flip": {"t": [False, True]}}, layoutkit.ArgumentError, "flip along t"),
    ("tf->btf", {"t": "longest", "lengths": 1}, layoutkit.ArgumentError, "True or False"),
    ("tc->btc", {"c": "longest", "channels": (0,)}, layoutkit.ArgumentError, "remove c"),
    ("tf->btf", {"t": "longest", "resize": "area"}, layoutkit.ArgumentError, "resize="),
]


@pytest.mark.parametrize(("pattern", "options", "error", "words"), BAD)
def test_what_cannot_be_padded_is_an_error(pattern, options, error, words):
    clips = [np.zeros((4, 2)), np.zeros((6, 2))]
    with pytest.raises(error, match=words):
        collate(clips, pattern, **options)


@pytest.mark.parametrize("flip", [None, "t", "f"])
@pytest.mark.parametrize("resize", [{}, {"resize": "nearest", "short_side": 2}])
def test_a_window_beside_a_padded_axis_is_filled_only_by_request(resize, flip):
    clips = [np.ones((4, 2)), np.ones((6, 3))]
    for size in (1, 2):
        options = {"t": "longest", "f": size, "flip": flip, **resize}
        filled = collate(clips, "tf->btf", fill=0, **options)
        assert_same(collate(clips, "tf->btf", **options), filled)
    options = {"t": "longest", "f": 3, **resize}
    for call in (collate, lambda x, pattern, **options: Collator(pattern, **options).place(x)):
        with pytest.raises(layoutkit.ShapeError, match=r"sample 0 has size 2 along f.*fill=0"):
            call(clips, "tf->btf", **options)
    assert collate(clips, "tf->btf", fill=5, **options)[0, 0].tolist().count(5) == 1


def test_a_fixed_offset_along_a_padded_axis_is_refused_by_the_collator():
    with pytest.raises(layoutkit.ArgumentError, match="begin where samples do"):
        Collator("tf->btf", t="longest", offset={"t": 1})


def test_samples_that_differ_otherwise_name_the_sample_and_both_sizes():
    clips = [np.zeros((4, 2)), np.zeros((6, 3))]
    with pytest.raises(
        layoutkit.ShapeError, match="sample 1 has size 3 along f, but sample 0 has 2"
    ):
        collate(clips, "tf->btf", t="longest")
    with pytest.raises(layoutkit.ShapeError, match="sample 1 has 1 axes, but sample 0 has 2"):
        collate([clips[0], np.zeros(3)], "tf->btf", t="longest")
    with pytest.raises(layoutkit.ShapeError, match='or f="longest"'):
        collate(clips, "tf->btf", t="longest")
    with pytest.raises(layoutkit.ShapeError, match=r"as in f=224$"):  # packs refuse "longest"
        collate(clips, "tf->(bt)f")


def test_an_empty_sample_is_not_resized():
    videos = [np.zeros((n, 4, 4)) for n in (3, 0)]
    with pytest.raises(layoutkit.ShapeError, match="sample 1 has size 0 along t"):
        collate(videos, "thw->bthw", t="longest", h=2, w=2, resize="bilinear")


# ---- other libraries -------------------------------------------------------------------------


@pytest.mark.parametrize("flip", [None, {"t": [True, False, True]}])
def test_gradients_of_tensors(flip):
    torch = pytest.importorskip("torch")
    clips = [torch.randn(n, 2, requires_grad=True) for n in (3, 6, 1)]
    batch = collate(clips, "tf->fbt", t="longest", flip=flip, scale=2.0)
    flags = flip["t"] if flip else [False] * 3
    padded = stack_padded([x.detach().numpy() for x in clips], "tf", "t", {"t": flags}, 0)
    assert_same(batch.detach().numpy(), 2 * padded.transpose(2, 0, 1))
    weights = torch.randn(batch.shape)
    (batch * weights).sum().backward()
    for number, clip in enumerate(clips):
        grad = 2 * weights[:, number, : len(clip)].T
        assert torch.equal(clip.grad, grad.flip(0) if flags[number] else grad)


def test_compiled_functions_of_torch():
    torch = pytest.importorskip("torch")
    collator = Collator("tf->btf", t="longest", dtype="float64")
    functions = [
        lambda *clips: collate(list(clips), "tf->btf", t="longest", dtype="float64"),
        lambda *clips: collator(list(clips)),
    ]
    for function in functions:
        compiled = torch.compile(function, backend="eager", fullgraph=True)
        for sizes in [(3, 6), (4, 2), (9, 1)]:
            clips = [torch.randn(n, 2) for n in sizes]
            assert torch.equal(compiled(*clips), function(*clips))
    with pytest.raises(Exception, match=r"lengths=True|Observed exception"):
        torch.compile(
            lambda x: collate([x], "tf->btf", t="longest", lengths=True),
            backend="eager",
            fullgraph=True,
        )(torch.zeros(3, 2))


def test_a_collate_fn_of_torch_has_tensors():
    pytest.importorskip("torch")
    import layoutkit.torch

    collator = layoutkit.torch.Collator("tf->btf", t="longest", lengths=True)
    batch, labels = collator([(np.ones((n, 2), np.float32), n) for n in (2, 3)])
    assert (
        batch.data.tolist()
        == stack_padded([np.ones((2, 2)), np.ones((3, 2))], "tf", "t", {}, 0).tolist()
    )
    assert batch.lengths.tolist() == labels.tolist() == [2, 3]


def test_arrays_of_jax_also_while_traced():
    jax = pytest.importorskip("jax")
    clips = [RNG.standard_normal((n, 2)).astype(np.float32) for n in (3, 6)]

    def pad(clips):
        return collate(clips, "tf->btf", t="longest", flip="t", lengths=True)

    expected = stack_padded(clips, "tf", "t", {"t": [True, True]}, 0)
    for function in (pad, jax.jit(pad)):
        batch = function([jax.numpy.asarray(x) for x in clips])
        assert isinstance(batch.data, jax.Array)
        assert_same(np.asarray(batch.data), expected)
        assert batch.lengths.tolist() == [3, 6]


# ---- scaled before they are padded -------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        ((480, 640), (800, 1066)),
        ((640, 480), (1066, 800)),
        ((600, 600), (800, 800)),
        ((400, 1200), (444, 1333)),
        ((300, 499), (800, 1330)),
        ((300, 500), (800, 1333)),
        ((300, 501), (798, 1333)),
        ((1, 9000), (1, 1333)),
    ],
)
def test_sizes_with_a_limit_of_the_longer_side(size, expected):
    assert scale_sides(np.array([size]), 800, 1333).tolist() == [[*expected]]


@given(st.lists(st.integers(1, 3000), min_size=2, max_size=2), st.integers(1, 900))
def test_sizes_are_those_of_detr(size, side):
    most = side + 500
    assert scale_sides(np.array([size]), side, most).tolist() == [[*detr_size(*size, side, most)]]


@pytest.mark.parametrize("flip", [None, "w", {"h": [True, False, True]}])
@pytest.mark.parametrize("how", [{}, {**FORMULA}, {"memory": "bhwc"}])
def test_images_are_scaled_to_their_own_sizes_and_padded(flip, how):
    images = [RNG.integers(0, 256, (h, w, 3), np.uint8) for h, w in [(12, 20), (31, 9), (8, 8)]]
    sides = {"resize": "bicubic", "short_side": 10, "max_side": 16}
    longest = {"h": "longest", "w": "longest"}
    collator = Collator("hwc->bchw", **longest, **sides, lengths=True, **how)
    for part in (images, images[::-1][:2]):
        flips = {k: v[: len(part)] for k, v in flip.items()} if isinstance(flip, dict) else flip
        data, lengths = collator(part, flip=flips)
        assert lengths.tolist() == [[*detr_size(*x.shape[:2], 10, 16)] for x in part]
        assert data.shape == (len(part), 3, *lengths.max(0))
        for number, (image, (h, w)) in enumerate(zip(part, lengths.tolist(), strict=True)):
            own = (
                {k: v[number : number + 1] for k, v in flips.items()}
                if isinstance(flips, dict)
                else flips
            )
            keywords = {**how, "h": h, "w": w, "resize": "bicubic"}
            (one,) = collate([image], "hwc->bchw", flip=own, **keywords)
            np.testing.assert_array_equal(data[number, :, :h, :w], one)
            outside = np.delete(data[number], np.s_[:h], 1), np.delete(data[number], np.s_[:w], 2)
            padding = -0.5 if "mean" in how else 0
            assert all((x == np.float32(padding)).all() for x in outside)
        again = Collator.from_dict(collator.to_dict())
        assert again == collator
        assert again.fingerprint == collator.fingerprint
    boxes = collator.place(images)[1].to_fitted([[0, 0, 9, 31]])
    np.testing.assert_allclose(boxes, [[0, 0, 5, 16]])


def test_packed_images_have_sizes_with_a_limit():
    images = [RNG.integers(0, 256, (h, w, 3), np.uint8) for h, w in [(12, 20), (31, 9)]]
    sides = {"resize": "bilinear", "short_side": 10, "max_side": 16}
    packed = collate(images, "hwc->(bhw)c", **sides)
    sizes = [detr_size(*x.shape[:2], 10, 16) for x in images]
    assert packed.sizes.tolist() == [[*size] for size in sizes]
    given = collate(images, "hwc->(bhw)c", resize="bilinear", size=sizes)
    np.testing.assert_array_equal(packed.data, given.data)


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"max_side": 9}, "resize="),
        ({"max_side": 9, "resize": "bilinear"}, "which is None; give one"),
        ({"max_side": 9, "short_side": 10, "resize": "bilinear"}, "max_side=9 limits"),
        ({"max_side": "9", "short_side": 8, "resize": "bilinear"}, "max_side='9'; it must be"),
        ({"resize": "bilinear"}, "resize= without a size"),
        ({"short_side": 8, "resize": "bilinear", "crop": "random"}, "has sizes along no axis"),
    ],
)
def test_wrong_sides_are_errors(keywords, message):
    with pytest.raises(layoutkit.ArgumentError, match=message):
        Collator("hwc->bchw", h="longest", w="longest", **keywords)
