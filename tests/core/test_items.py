"""Samples of several items: a Collator as the collate_fn of labeled images."""

import collections
from collections import OrderedDict, UserDict, defaultdict
from collections.abc import Mapping

import numpy as np
import pytest

from layoutkit import ArgumentError, Collator, ShapeError
from tests.helpers.arrays_of import assert_same

RNG = np.random.default_rng(0)
PHOTOS = [RNG.integers(0, 256, (20 + i, 25, 3)).astype(np.uint8) for i in range(4)]
MASKS = [RNG.integers(0, 9, (5, 6)) for _ in range(4)]
Pair = collections.namedtuple("Pair", "photo label")
COLLATOR = Collator("hwc->bchw", h=12, w=10, dtype="float32")


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (lambda x, i: (x, i), tuple),
        (lambda x, i: [x, i], list),
        (lambda x, i: Pair(x, i), Pair),
        (lambda x, i: (i, x), tuple),
    ],
)
def test_tuples(make, kind):
    batch = COLLATOR([make(x, i) for i, x in enumerate(PHOTOS)])
    assert type(batch) is kind
    images, labels = (
        batch if isinstance(batch[0], np.ndarray) and batch[0].ndim == 4 else batch[::-1]
    )
    assert_same(images, COLLATOR(PHOTOS))
    assert_same(labels, np.arange(4))


def test_dicts_with_all_kinds_of_items():
    samples = [
        {
            "name": f"photo {i}",
            "image": x,
            "mask": MASKS[i],
            "boxes": np.zeros((i, 4)),
            "size": {"weight": i / 2, "flags": (True, None)},
        }
        for i, x in enumerate(PHOTOS)
    ]
    batch = COLLATOR(iter(samples))
    assert list(batch) == ["name", "image", "mask", "boxes", "size"]
    assert_same(batch["image"], COLLATOR(PHOTOS))
    assert_same(batch["mask"], np.stack(MASKS))
    assert batch["name"] == [f"photo {i}" for i in range(4)]
    assert [boxes.shape for boxes in batch["boxes"]] == [(i, 4) for i in range(4)]
    assert_same(batch["size"]["weight"], np.arange(4) / 2)
    assert batch["size"]["flags"][0].tolist() == [True] * 4
    assert batch["size"]["flags"][1] == [None] * 4


class Frozen(Mapping):
    """A mapping that can be made from a dict, and is not mutable."""

    def __init__(self, items):
        self.items_of_sample = dict(items)

    def __getitem__(self, key):
        return self.items_of_sample[key]

    def __iter__(self):
        return iter(self.items_of_sample)

    def __len__(self):
        return len(self.items_of_sample)


class Odd(Frozen):
    """A mapping that cannot be made from a dict."""

    def __init__(self, image, label):
        super().__init__({"image": image, "label": label})


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (lambda x, i: {"image": x, "label": i}, dict),
        (lambda x, i: OrderedDict(label=i, image=x), OrderedDict),
        (lambda x, i: UserDict({"image": x, "label": i}), UserDict),
        (lambda x, i: defaultdict(list, {"image": x, "label": i}), defaultdict),
        (lambda x, i: Frozen({"image": x, "label": i}), Frozen),
        (Odd, dict),
    ],
)
def test_the_class_of_mappings_comes_back(make, kind):
    samples = [make(x, i) for i, x in enumerate(PHOTOS)]
    nested = [(x, make(x, i)) for i, x in enumerate(MASKS)]
    for batch in (COLLATOR(samples), Collator("hw->bhw", key=0)(nested)[1]):
        assert type(batch) is kind
        assert list(batch) == list(samples[0])
        assert batch["label"].tolist() == [0, 1, 2, 3]
        assert len(batch["image"]) == 4
    if kind is defaultdict:
        assert batch["absent"] == []
    assert samples[0]["label"] == 0  # unchanged
    assert_same(COLLATOR(samples)["image"], COLLATOR(PHOTOS))


@pytest.mark.parametrize(
    "labels",
    [
        (1, "a"),
        ("a", 1),
        ("a", None),
        (None, None),
        (np.int64(1), np.str_("a")),
        (np.int64(1), "a"),
        (1, np.array([1, 2])),
        (1, 2**70),
        ((1, 2), (1, 2, 3)),
        ({"a": 1}, 2),
    ],
    ids=repr,
)
def test_labels_that_do_not_stack_stay_what_they_are(labels):
    _, batch = COLLATOR([(x, label) for x, label in zip(PHOTOS, labels, strict=False)])
    assert type(batch) is list
    assert all(got is label for got, label in zip(batch, labels, strict=True))


@pytest.mark.parametrize(
    ("labels", "dtype"),
    [
        ((1, 2.5), "f8"),
        ((True, False), "?"),
        ((np.float32(1), np.float32(2)), "f4"),
        ((np.datetime64("2020-01-01"), np.datetime64("2021-01-01")), "M8[D]"),
    ],
    ids=repr,
)
def test_labels_that_are_numbers_are_stacked(labels, dtype):
    _, batch = COLLATOR([(x, label) for x, label in zip(PHOTOS, labels, strict=False)])
    assert_same(batch, np.array(labels, dtype))


def test_a_key_names_the_item():
    pairs = [{"input": x, "other": x[:12, :10]} for x in PHOTOS]
    chosen = Collator("hwc->bchw", h=12, w=10, key="other")
    assert_same(
        chosen([{**p, "input": 1} for p in pairs])["other"][0],
        PHOTOS[0][:12, :10].transpose(2, 0, 1),
    )
    assert eval(repr(chosen), {"Collator": Collator}) == chosen
    with pytest.raises(ArgumentError, match="key='other', but sample 0 has 0, 1"):
        chosen([(x, 1) for x in PHOTOS])


def test_out_and_windows_apply_to_the_item():
    out = np.empty((4, 3, 12, 10), np.float32)
    offset = {"h": [0, 1, 2, 3], "w": 2}
    images, labels = COLLATOR([(x, 0) for x in PHOTOS], out=out, offset=offset, flip="w")
    assert images is out
    assert_same(out, COLLATOR(PHOTOS, offset=offset, flip="w"))
    assert labels.tolist() == [0] * 4
    random = Collator("hwc->bchw", h=12, w=10, offset="random")
    images, _ = random([(x, 0) for x in PHOTOS], positions=range(4))
    assert_same(images, random(PHOTOS, positions=range(4)))


def test_lists_of_planes_are_samples():
    planes = [[x[:12, :10, 0], x[:12, :10, 1]] for x in PHOTOS]
    made = Collator("chw->bhwc")(planes)
    assert_same(made, np.stack([x[:12, :10, :2] for x in PHOTOS]))


def test_images_of_pillow():
    image = pytest.importorskip("PIL.Image")
    images, labels = COLLATOR([(image.fromarray(x), str(i)) for i, x in enumerate(PHOTOS)])
    assert_same(images, COLLATOR(PHOTOS))
    assert labels == ["0", "1", "2", "3"]


@pytest.mark.parametrize(
    ("samples", "match"),
    [
        ([(1, "a")], "no item of rank 3, as hwc needs: 0: int, 1: str; name the item with key="),
        (
            [(PHOTOS[0], 1), (PHOTOS[1],)],
            "sample 1 has the items 0, but sample 0 has the items 0, 1",
        ),
        (
            [{"x": PHOTOS[0], "y": 1}, {"x": PHOTOS[1], "z": 1}],
            "sample 1 has the items 'x', 'z', but sample 0 has the items 'x', 'y'",
        ),
        (
            [{"x": PHOTOS[0], "y": 1}, PHOTOS[1]],
            "sample 1 is a numpy.ndarray, but sample 0 has the items",
        ),
    ],
)
def test_other_structures(samples, match):
    with pytest.raises(ArgumentError, match=match):
        COLLATOR(samples)
    with pytest.raises(ShapeError, match="no samples"):
        COLLATOR([])


# ---- PyTorch -----------------------------------------------------------------------------


class Photos:
    """Labeled images of different sizes."""

    def __len__(self):
        return 12

    def __getitem__(self, n):
        if not 0 <= n < 12:
            raise IndexError(n)
        return np.full((20 + n, 40 - n, 3), 10 * n, np.uint8), n


def loaded(collator, data, workers, **options):
    torch = pytest.importorskip("torch")
    loader = torch.utils.data.DataLoader(
        data, batch_size=4, collate_fn=collator, num_workers=workers, **options
    )
    batches = list(loader)
    for x, y in batches:
        assert isinstance(x, torch.Tensor)
        assert isinstance(y, torch.Tensor)
        assert x.is_shared() == (workers > 0)
    return torch.cat([x for x, _ in batches]).numpy(), torch.cat([y for _, y in batches]).tolist()


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_of_a_loader_are_tensors(workers):
    pytest.importorskip("torch")
    from layoutkit.torch import Collator as TorchCollator

    collator = TorchCollator("hwc->bchw", h=16, w=18, resize="area", dtype="float32", scale=1 / 255)
    images, labels = loaded(collator, Photos(), workers)
    expected = Collator("hwc->bchw", h=16, w=18, resize="area", dtype="float32", scale=1 / 255)
    assert_same(images, expected([x for x, _ in map(Photos().__getitem__, range(12))]))
    assert labels == list(range(12))


def test_windows_of_positions_do_not_depend_on_workers_and_order():
    torch = pytest.importorskip("torch")
    from layoutkit.torch import Collator as TorchCollator
    from layoutkit.torch import Positions

    class Ramps(Photos):
        def __getitem__(self, n):
            return RAMP, super().__getitem__(n)[1]

    collator = TorchCollator("hwc->bchw", h=5, w=6, offset="random", flip="random", seed=3)
    data = Positions(Ramps())
    loader = torch.utils.data.DataLoader(
        data, batch_size=4, collate_fn=collator, num_workers=2, persistent_workers=True
    )
    epochs = []
    for epoch in range(2):
        data.set_epoch(epoch)
        images, labels = loaded(collator, data, 0)
        assert labels == list(range(12))
        assert_same(torch.cat([x for x, _ in loader]).numpy(), images)
        torch.manual_seed(epoch)
        shuffled, order = loaded(collator, data, 2, shuffle=True)
        assert_same(shuffled, images[order])
        epochs.append(images)
    assert (epochs[0] != epochs[1]).any()
    assert data[-1].position == 11
    for epoch in (1.5, True, None):
        with pytest.raises(ArgumentError, match="it must be a whole number"):
            data.set_epoch(epoch)


def test_workers_draw_other_windows():
    pytest.importorskip("torch")
    from layoutkit.torch import Collator as TorchCollator

    collator = TorchCollator("hwc->bchw", h=5, w=6, offset="random")
    images, _ = loaded(collator, [(RAMP, 0)] * 8, 2)
    assert (images[:4] != images[4:]).any()


RAMP = RNG.integers(0, 256, (40, 40, 3)).astype(np.uint8)

OTHERS = {
    "boxes": lambda i: np.ones((i, 4), np.float32),
    "masks": lambda i: np.ones((20 + i, 25), np.uint8),
    "equal": lambda i: np.full((2, 3), i),
    "target": lambda i: {"boxes": np.ones((i + 1, 4)), "labels": np.arange(i + 1), "id": i},
    "pair": lambda i: (float(i), np.ones((i, 2))),
    "keys": lambda i: {str(i): np.ones(i)},
    "list": lambda i: [np.ones(i)] * i,
    "text": lambda i: "abc"[:i],
    "texts": lambda i: np.array(["a"] * 2),
    "none": lambda i: None,
    "large": lambda i: 2**70,
    "date": lambda i: np.datetime64("2020-01-01"),
    "object": lambda i: np.array([None]),
}


def without_tensors(item):
    """Return the structure of a batch with arrays in place of tensors."""
    if isinstance(item, dict):
        return {key: without_tensors(value) for key, value in item.items()}
    if isinstance(item, tuple | list):
        return type(item)(map(without_tensors, item))
    return item.numpy() if hasattr(item, "numpy") else item


@pytest.mark.parametrize("kind", OTHERS)
@pytest.mark.parametrize("tensors", [False, True])
@pytest.mark.parametrize("counts", [(0, 1, 3), (2, 2, 2)])
def test_items_of_a_torch_collator_are_those_of_a_collator(kind, tensors, counts):
    torch = pytest.importorskip("torch")
    from layoutkit.torch import Collator as TorchCollator

    others = [OTHERS[kind](count) for count in counts]
    if tensors and kind in ("boxes", "masks", "equal"):
        others = [torch.from_numpy(other) for other in others]
    samples = list(zip(PHOTOS, others, strict=False))
    _, found = TorchCollator("hwc->bchw", h=12, w=10)(samples)
    _, expected = Collator("hwc->bchw", h=12, w=10)(samples)
    np.testing.assert_equal(without_tensors(found), without_tensors(expected))
    if kind in ("boxes", "masks"):
        assert type(found) is (list if kind == "boxes" and len({*counts}) > 1 else type(found))
        assert all(isinstance(item, torch.Tensor) for item in found)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_detection_dataset_is_loaded_in_batches(workers):
    torch = pytest.importorskip("torch")
    from layoutkit.torch import Collator as TorchCollator

    class Detection(Photos):
        def __getitem__(self, n):
            image, _ = super().__getitem__(n)
            target = {"boxes": torch.full((n % 3, 4), float(n)), "labels": torch.arange(n % 3)}
            return image, target

    collator = TorchCollator("hwc->bchw", h=8, w=8, resize="bilinear")
    loader = torch.utils.data.DataLoader(
        Detection(), batch_size=4, collate_fn=collator, num_workers=workers
    )
    boxes = [box for _, target in loader for box in target["boxes"]]
    assert [(*box.shape, *box[:1, 0].tolist()) for box in boxes] == [
        (n % 3, 4, *[float(n)] * (n % 3 > 0)) for n in range(12)
    ]


@pytest.mark.parametrize("key", [["image", "mask"], {"image": 0}, {"image"}, np.arange(2)])
def test_a_key_of_several_items_is_refused(key):
    with pytest.raises(ArgumentError, match="give the name or number of one item"):
        Collator("hwc->bchw", key=key)
