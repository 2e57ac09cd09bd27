"""`center=`: one rule for windows, crops, scaled images and padding, on every path."""

import numpy as np
import pytest

from layoutkit import ArgumentError, Collator, Converter, collate, convert
from layoutkit.cli import main
from layoutkit.data import sampled_batcher
from layoutkit.planning.batch.placement import place_samples
from layoutkit.planning.centering import CENTERINGS, centered_start
from layoutkit.planning.resize import ResizeOptions
from tests.helpers.resizing import middle

by_rule = pytest.mark.parametrize("center", CENTERINGS)
# Sizes of a sample and of its window, with rests from 0 to 3 of both signs.
PAIRS = [(n, size) for n in range(1, 9) for size in range(1, 9)]
SIDES = np.array([(h, w) for h in range(1, 90, 3) for w in range(1, 90, 2)])


@by_rule
def test_the_rule_is_that_of_exact_arithmetic(center):
    rooms = np.arange(-20, 21)
    expected = [middle(room, center) for room in rooms.tolist()]
    assert centered_start(rooms, center).tolist() == expected
    assert [centered_start(room, center) for room in rooms.tolist()] == expected
    # Padding to a size and cropping back from it are the same rule.
    assert [-start for start in expected[::-1]] == expected


def ramp(n):
    """Return samples (h, w) whose value is the index along h."""
    return np.broadcast_to(np.arange(n, dtype=np.float32)[:, None], (n, 2)).copy()


def start_of(values):
    """Return the first index that a window has; -1 are positions outside of the sample."""
    return int(values.max()) - int(np.flatnonzero(values == values.max())[0])


PATHS = {
    "window": lambda x, size, center: collate([x], "hw->bhw", h=size, fill=-1, center=center)[0],
    "rows": lambda x, size, center: collate(
        x[None], "bhw->bhw", h=size, fill=-1, center=center, indices=[0]
    )[0],
    "crop": lambda x, size, center: collate(
        [x], "hw->bhw", h=size, resize="nearest", crop={"h": size}, fill=-1, center=center
    )[0],
    "short side": lambda x, size, center: collate(
        [x], "hw->bhw", h=size, resize="nearest", short_side=len(x), fill=-1, center=center
    )[0],
    "bytes": lambda x, size, center: collate(
        [x.astype(np.uint8)], "hw->bhw", h=size, resize="area", short_side=len(x), fill=255,
        center=center,
    )[0].astype(np.int8),
    "batches": lambda x, size, center: next(
        iter(sampled_batcher(
            x[None], collate=Collator("hw->bhw", h=size, fill=-1, center=center), batch_size=1
        ))
    ).input.forward_get("bhw")[0],
}  # fmt: skip


@by_rule
@pytest.mark.parametrize("path", PATHS)
def test_every_path_centers_alike(path, center):
    for n, size in PAIRS[:: 1 if path != "batches" else 5]:
        made = PATHS[path](ramp(n), size, center)[:, 0]
        assert start_of(made) == middle(n - size, center), (n, size)


@by_rule
def test_padding_and_scaled_images_are_centered_alike(center):
    images = pytest.importorskip("layoutkit.images")
    for n, size in PAIRS:
        x = ramp(n)[..., None].repeat(3, 2)
        if n <= size:
            before = -middle(n - size, center)
            padded = convert(x, "hwc->hwc", pad_to={"h": size}, fill=-1, center=center)
            assert start_of(padded[:, 0, 0]) == -before
            letterbox = images.fit(x, (size, 2), "pad", fill=-1, center=center)
            assert start_of(letterbox[:, 0, 0]) == -before
            where = images.placement(x.shape, (size, 2), "pad", center=center)
            assert (where.top, where.left) == (before, 0)
        else:
            covered = images.fit(x, (size, 2), center=center)
            assert start_of(covered[:, 0, 0]) == middle(n - size, center)
            decoder = images.Decoder((size, 2), short_side=min(n, 2), center=center)
            top = -middle(n - size, center) if n > 1 else 0
            assert decoder.collator().place([x.shape])[0].top == top


@by_rule
def test_traced_code_centers_alike(center):
    torch, jax = pytest.importorskip("torch"), pytest.importorskip("jax")
    samples = [ramp(n) for n in (3, 4, 9, 10)]
    collators = [Collator("hw->bhw", h=6, fill=-1, center=center)]
    more = {"resize": "bilinear", "fill": -1, "center": center}
    collators.append(Collator("hw->bhw", h=5, w=5, fit="pad", **more))
    collators.append(Collator("hw->bhw", h=2, w=3, fit="cover", **more))
    to_canvas = Converter("hw->hw", pad_to={"h": 6, "w": 5}, center=center)

    def made(samples):
        return [*(collator(samples) for collator in collators), to_canvas(samples[0])]

    expected = made(samples)
    recorded = made([torch.from_numpy(x).requires_grad_() for x in samples])
    compiled = torch.compile(made, backend="aot_eager")([*map(torch.from_numpy, samples)])
    for results in (recorded, compiled, jax.jit(made)(samples)):
        for result, batch in zip(results, expected, strict=True):
            values = result.detach() if isinstance(result, torch.Tensor) else result
            np.testing.assert_allclose(np.asarray(values), batch, rtol=0, atol=1e-5)


# ---- the rules of other libraries, written out --------------------------------------------


def placed(options, size, center="round"):
    window = (size, size)
    return place_samples(options, ("h", "w"), SIDES, window, {}, {}, True, center)


def test_the_shorter_side_is_that_of_torchvision_and_transformers():
    for side in (1, 7, 64, 224):
        expected = []
        for h, w in SIDES.tolist():
            short, long = sorted((h, w))
            scaled = int(side * long / short)
            expected.append((side, scaled) if h <= w else (scaled, side))
        starts = placed(ResizeOptions("bilinear", short_side=side), 5)
        floors = placed(ResizeOptions("bilinear", short_side=side), 5, "floor")
        assert starts.scaled.tolist() == [list(pair) for pair in expected]
        for (h, w), torchvision, transformers in zip(
            expected, starts.firsts.tolist(), floors.firsts.tolist(), strict=True
        ):
            if min(h, w) >= 5:  # CenterCrop of torchvision pads by another rule
                assert torchvision == [round((n - 5) / 2) for n in (h, w)]
            assert transformers == [(n - 5) // 2 if n >= 5 else -((5 - n) // 2) for n in (h, w)]


def test_the_letterbox_is_that_of_ultralytics():
    for size in (1, 31, 32, 640):
        made = placed(ResizeOptions("bilinear", fit="pad"), size, "floor")
        for (h, w), scaled, firsts in zip(
            SIDES.tolist(), made.scaled.tolist(), made.firsts.tolist(), strict=True
        ):
            ratio = min(size / h, size / w)
            unpadded = [max(1, round(h * ratio)), max(1, round(w * ratio))]
            assert scaled == unpadded
            assert firsts == [-round((size - n) / 2 - 0.1) for n in unpadded]


# ---- errors ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Collator("hwc->bchw", h=2, center="ceil"), "center is 'ceil'; it must be one"),
        (lambda: Collator("hwc->bchw", center="floor"), "no window that could be centered"),
        (lambda: Collator("h(wc)->bchw", c=3, center="floor"), "no window that could be"),
        (lambda: Converter("hwc->chw", center="floor"), "center='floor' needs pad_to="),
        (lambda: convert(ramp(2), "hw->wh", pad_to={"h": 3}, center=None), "center is None"),
    ],
)
def test_errors(call, message):
    with pytest.raises(ArgumentError, match=message):
        call()


@pytest.mark.parametrize("how", ["cover", "pad", "stretch"])
def test_images_are_centered_by_a_known_rule(how):
    images = pytest.importorskip("layoutkit.images")
    with pytest.raises(ArgumentError, match="center is 'middle'"):
        images.Decoder((4, 4), how, center="middle")
    if how == "stretch":
        with pytest.raises(ArgumentError, match="neither crops nor pads; remove center"):
            images.fit(np.zeros((4, 5), np.uint8), (4, 4), how, center="floor")


@by_rule
def test_an_option_of_the_command_line(tmp_path, monkeypatch, center):
    monkeypatch.chdir(tmp_path)
    x = np.arange(7 * 4).reshape(1, 7, 4, 1)
    np.save("x.npy", x)
    words = ["convert", "x.npy", "y.npy", "bhwc->bhwc", "--quiet", "--center", center]
    assert main([*words, "--crop", "4x4"]) == 0
    top = middle(3, center)
    np.testing.assert_array_equal(np.load("y.npy"), x[:, top : top + 4])
    assert main([*words, "--crop", "4x4+0+0"]) == 2


def test_collators_and_converters_keep_it():
    collator = Collator("hw->bhw", h=2, center="floor")
    assert eval(repr(collator), {"Collator": Collator}) == collator
    assert collator != Collator("hw->bhw", h=2)
    converter = Converter("hw->hw", pad_to={"h": 5}, center="floor")
    assert eval(repr(converter), {"Converter": Converter}) == converter
    assert converter != Converter("hw->hw", pad_to={"h": 5})
