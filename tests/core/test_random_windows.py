"""`offset`, `flip` and `crop` of a Collator: fixed for all calls, or drawn for each sample."""

import multiprocessing
import pickle

import numpy as np
import pytest

from layoutkit import ArgumentError, Collator, ShapeError, collate
from tests.helpers.arrays_of import assert_same

RNG = np.random.default_rng(0)
PHOTOS = [RNG.integers(0, 256, (20 + i, 25 + 2 * i, 3)).astype(np.uint8) for i in range(8)]
SIZES = {"h": 12, "w": 10}
RESIZED = {**SIZES, "resize": "bilinear"}


@pytest.mark.parametrize(
    ("sizes", "crops"),
    [
        (SIZES, {"offset": {"h": 3}}),
        (SIZES, {"offset": {"h": 3, "w": 0}, "flip": "w"}),
        (SIZES, {"flip": {"h": True, "w": False}}),
        (RESIZED, {"crop": {"h": 15}}),
        (RESIZED, {"crop": {"h": 15, "W": 9}, "offset": {"w": 2}, "flip": "c"}),
    ],
)
def test_fixed_windows_are_those_of_a_call(sizes, crops):
    collator = Collator("hwc->bchw", **sizes, **crops)
    assert_same(collator(PHOTOS), collate(PHOTOS, "hwc->bchw", **sizes, **crops))
    assert eval(repr(collator), {"Collator": Collator}) == collator
    assert pickle.loads(pickle.dumps(collator)) == collator
    assert collator != Collator("hwc->bchw", **sizes)
    assert collator.plan(PHOTOS).samples == len(PHOTOS)


def test_the_arguments_of_a_call_replace_those_of_the_collator():
    collator = Collator("hwc->bchw", **SIZES, offset={"h": 3, "w": 1}, flip="w")
    expected = collate(PHOTOS, "hwc->bchw", **SIZES, offset={"h": 5}, flip="w")
    assert_same(collator(PHOTOS, offset={"h": 5}), expected)


@pytest.mark.parametrize(
    ("sizes", "crops"),
    [
        (SIZES, {"offset": "random", "flip": "random"}),
        (SIZES, {"offset": {"h": "random", "w": 2}, "flip": {"h": "random"}}),
        (RESIZED, {"crop": "random", "flip": "random"}),
        (RESIZED, {"crop": {"scale": (0.3, 0.6), "ratio": (0.5, 2)}}),
        (RESIZED, {"crop": {"h": 15, "w": 14}, "offset": "random"}),
    ],
)
def test_random_windows_depend_on_seed_epoch_and_position_only(sizes, crops):
    collator = Collator("hwc->bchw", **sizes, **crops, seed=7)
    batch = collator(PHOTOS, positions=range(8))
    assert_same(collator(PHOTOS, positions=range(8)), batch)
    assert_same(pickle.loads(pickle.dumps(collator))(PHOTOS, positions=range(8)), batch)
    for part in ([0], [5, 2, 7], [3, 3]):
        assert_same(collator([PHOTOS[n] for n in part], positions=part), batch[part])
    for other in (
        collator(PHOTOS, positions=range(8), epoch=1),
        collator(PHOTOS, positions=range(8, 16)),
        Collator("hwc->bchw", **sizes, **crops, seed=8)(PHOTOS, positions=range(8)),
    ):
        assert (other != batch).any()
    repeated = eval(repr(collator), {"Collator": Collator})
    assert_same(repeated(PHOTOS, positions=range(8)), batch)


@pytest.mark.parametrize("epoch", [1.0, 1.5, True, "2", None, -1])
def test_an_epoch_is_a_whole_number(epoch):
    collator = Collator("hwc->bchw", **SIZES, offset="random")
    with pytest.raises(ArgumentError, match=f"epoch={epoch!r}; it must be a whole number"):
        collator(PHOTOS, positions=range(8), epoch=epoch)
    whole = collator(PHOTOS, positions=range(8), epoch=1)
    assert_same(collator(PHOTOS, positions=range(8), epoch=np.uint8(1)), whole)


def test_every_offset_and_flip_is_drawn_about_equally():
    ramp = np.arange(24, dtype=np.int64).reshape(4, 6)
    collator = Collator("hw->bhw", h=2, w=4, offset="random", flip="random")
    drawn = collator([ramp] * 1800, positions=range(1800))
    flipped = drawn[:, 0, 0] > drawn[:, 0, 1]
    starts = drawn.min((1, 2))
    kinds, counts = np.unique(np.stack([starts, flipped]), axis=1, return_counts=True)
    assert kinds.shape == (2, 18)  # 3 x 3 offsets, flipped or not
    assert counts.min() > 60
    assert counts.max() < 140


def test_positions_of_an_array_are_its_indices():
    images = RNG.integers(0, 256, (9, 20, 30, 3)).astype(np.uint8)
    collator = Collator("bhwc->bchw", **SIZES, offset="random", seed=2)
    batch = collator(images)
    assert_same(collator(images, indices=[4, -1]), batch[[4, 8]])
    assert_same(collator(images, indices=[4, 4], positions=[0, 4])[1], batch[4])
    samples = Collator("hwc->bchw", **SIZES, offset="random", seed=2)
    assert_same(samples(list(images), positions=range(9)), batch)


@pytest.mark.parametrize("pattern", ["bhwc->bchw", "...bhwc->...bchw", "hwcb->chwb"])
@pytest.mark.parametrize(
    "keywords",
    [
        {"flip": "random"},
        {"flip": {"c": "random", "h": True}},
        {**SIZES, "offset": "random"},
        {**RESIZED, "crop": "random", "flip": "random"},
        {**RESIZED, "crop": {"h": 9}, "offset": "random", "fit": "pad"},
    ],
)
def test_no_windows_are_drawn_of_no_samples(pattern, keywords):
    sizes = {"b": 4, "h": 20, "w": 30, "c": 3}
    x = np.zeros([sizes[axis] for axis in pattern.partition("->")[0] if axis != "."], np.uint8)
    collator = Collator(pattern, **keywords)
    for more in ({}, {"positions": []}):
        made = collator(x, indices=[], **more)
        expected = collator(x, indices=[2], positions=[0])
        assert made.shape == tuple(0 if n == 1 else n for n in expected.shape)
    assert collator.plan(x, indices=[]).samples == 0


def test_calls_without_positions_draw_other_windows_reproducibly():
    def batches():
        collator = Collator("hwc->bchw", **SIZES, offset="random")
        return [collator(PHOTOS) for _ in range(2)]

    first, second = batches()
    assert (first != second).any()
    for made, again in zip((first, second), batches(), strict=True):
        assert_same(made, again)


def _drawn_in_child(queue):
    queue.put(Collator("hwc->bchw", **SIZES, offset="random")(PHOTOS))


@pytest.mark.budget(0)
def test_processes_draw_other_windows():
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    children = [context.Process(target=_drawn_in_child, args=(queue,)) for _ in range(2)]
    for child in children:
        child.start()
    batches = [queue.get(timeout=100) for _ in children]
    for child in children:
        child.join()
    batches.append(Collator("hwc->bchw", **SIZES, offset="random")(PHOTOS))
    assert len({batch.tobytes() for batch in batches}) == 3


def test_tensors_and_images_have_random_windows():
    torch = pytest.importorskip("torch")
    image = pytest.importorskip("PIL.Image")
    collator = Collator("hwc->bchw", **SIZES, offset="random", flip="random")
    expected = collator(PHOTOS, positions=range(8))
    tensors = collator([torch.from_numpy(x) for x in PHOTOS], positions=range(8))
    assert_same(tensors.numpy(), expected)
    assert_same(collator([image.fromarray(x) for x in PHOTOS], positions=range(8)), expected)
    recorded = collator(
        [torch.from_numpy(x).float().requires_grad_() for x in PHOTOS], positions=range(8)
    )
    assert_same(recorded.detach().numpy(), expected.astype(np.float32))


def test_a_compiled_function_would_repeat_random_windows():
    torch = pytest.importorskip("torch")
    jax = pytest.importorskip("jax")
    collator = Collator("hwc->bchw", **SIZES, flip="random")
    with pytest.raises(ArgumentError, match="outside of the compiled function"):
        jax.jit(lambda x: collator([x]))(PHOTOS[0])
    with pytest.raises(Exception, match="outside of the compiled function"):
        torch.compile(lambda x: collator([x]), fullgraph=True)(torch.from_numpy(PHOTOS[0]))


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"offset": "rnadom"}, 'did you mean "random"'),
        ({"offset": {"h": [1, 2]}}, "or a whole number"),
        ({"offset": 3}, "offset=3; it must be"),
        ({"offset": "centre"}, "omit it: windows are centered by default$"),
        ({"offset": {"x": 1}}, "'x' is not an axis of windows; their axes are h, w, c"),
        ({"offset": {"c": "random"}}, "no window along c"),
        ({"flip": {"w": 1}}, "or True or False"),
        ({"flip": True}, "flip=True"),
        ({"flip": "Random"}, 'did you mean "random"'),
        ({"crop": "random"}, "give resize= as well"),
        ({"seed": 1.5}, "seed=1.5; it must be a whole number"),
        ({"resize": "area", "crop": "random", "offset": {"h": 0}}, "random crops have random"),
        ({"resize": "area", "offset": "random"}, "give the size of the crop too"),
        ({"resize": "area", "crop": {"h": 0}}, "at least 1"),
        ({"resize": "area", "crop": {"h": [1, 2]}}, "one per sample to a call"),
        ({"resize": "area", "crop": {"scale": (0, 1)}}, "give bounds"),
        ({"resize": "area", "crop": {"scale": (0.5, 0.1)}}, "give bounds"),
        ({"resize": "area", "crop": {"scale": (0.5, 1.5)}}, "of at most 1"),
        ({"resize": "area", "crop": {"ratio": 1}}, "give bounds"),
        ({"resize": "area", "crop": "rnadom"}, "crop is 'rnadom'.*did you mean"),
        ({"resize": "area", "crop": "random", "w": None}, "resized along two axes"),
    ],
)
def test_bad_options_of_windows(options, match):
    keywords = {name: value for name, value in {**SIZES, **options}.items() if value is not None}
    with pytest.raises(ArgumentError, match=match):
        Collator("hwc->bchw", **keywords)


@pytest.mark.parametrize(
    ("pattern", "options", "match"),
    [
        ("hwc->bchw", {"offset": "random"}, "has no window along h, w; .* h=224"),
        ("hwc->bchw", {"h": "longest", "w": "longest", "offset": "random"}, "omit offset"),
        ("xc->bxc", {"x": 3, "flip": "random"}, "along w, but .* one of x, c"),
    ],
)
def test_options_of_axes_that_have_no_window(pattern, options, match):
    with pytest.raises(ArgumentError, match=match):
        Collator(pattern, **options)


def test_bad_positions():
    collator = Collator("hwc->bchw", **SIZES, offset="random")
    with pytest.raises(ShapeError, match="positions has 2 values for 8 samples"):
        collator(PHOTOS, positions=[1, 2])
    with pytest.raises(ArgumentError, match="must be a list of whole numbers"):
        collator(PHOTOS, positions=[0.5] * 8)
