"""`layoutkit.torch.FieldCollator`: batches of dicts, whose fields share placements."""

import pickle

import numpy as np
import pytest

from layoutkit import ArgumentError, Collator, LayoutkitError, Placements
from tests.helpers.children import python

torch = pytest.importorskip("torch")

from layoutkit.torch import FieldCollator, Positions

RNG = np.random.default_rng(0)
SIZES = {"h": 12, "w": 10, "resize": "nearest"}
FIELDS = {
    "image": Collator("hwc->bchw", crop="random", flip="random", seed=4, **SIZES),
    "mask": Collator("hw->bhw", fill=255, **SIZES),
}


def make_samples(count=7):
    images = [RNG.integers(0, 256, (20 + n, 30, 3), np.uint8) for n in range(count)]
    return [
        {
            "boxes": np.float32([[n, n, n + 9, n + 8]] * (n % 3)),
            "image": image,
            "mask": torch.from_numpy(image[..., 0].astype(np.int16)),
            "label": n,
        }
        for n, image in enumerate(images)
    ]


def test_fields_share_windows_and_other_items_are_stacked_or_listed():
    samples = make_samples()
    batch = FieldCollator(FIELDS)(samples)
    assert [*batch] == ["boxes", "image", "mask", "label", "placements"]
    assert batch["mask"].dtype == torch.int16
    assert torch.equal(batch["image"][:, 0].short(), batch["mask"])
    assert batch["label"].tolist() == [*range(7)]
    assert [len(boxes) for boxes in batch["boxes"]] == [0, 1, 2, 0, 1, 2, 0]
    assert isinstance(batch["placements"], Placements)
    boxes, kept = batch["placements"][1].fit_boxes(batch["boxes"][1])
    assert len(boxes) == len(kept) <= 1


@pytest.mark.parametrize("workers", [0, 2])
def test_windows_depend_on_the_position_only(workers):
    data = Positions(make_samples())
    data.set_epoch(3)
    loader = torch.utils.data.DataLoader(
        data, batch_size=3, collate_fn=FieldCollator(FIELDS), num_workers=workers
    )
    batches = [*loader]
    samples = [data.dataset[n]["image"] for n in range(7)]
    expected = FIELDS["image"](samples, positions=range(7), epoch=3)
    assert (torch.cat([batch["image"] for batch in batches]).numpy() == expected).all()
    assert all(torch.equal(x["image"][:, 0].short(), x["mask"]) for x in batches)


WARM = """
import numpy as np
from layoutkit import Collator
from layoutkit.kernels.cpu.compiler import loaded
from layoutkit.torch import FieldCollator

sizes = {"h": 12, "w": 10}
fields = {
    "image": Collator(
        "hwc->bchw", crop="random", flip="random", resize="bilinear", scale=1 / 255, **sizes
    ),
    "mask": Collator("hw->bhw", resize="nearest", dtype="float32", **sizes),
    "sound": Collator("tf->bft", t="longest", flip={"f": "random"}),
}
shapes = {"image": (40, 50, 3), "mask": (40, 50), "sound": (70, 3)}
dtypes = {"image": "uint8", "mask": "int16", "sound": "float64"}
samples = [{n: np.ones(shape, dtypes[n]) for n, shape in shapes.items()}] * 4
warmed, cold = FieldCollator(fields), FieldCollator(fields)
names = warmed.warmup([{**shapes, "label": None}] * 4, dtype=dtypes)
before = {str(kernel.spec) for kernel in loaded()}
print(len(names) > 2, set(names) <= before, warmed.warmup(samples))
for _ in range(8):
    batch, expected = warmed(samples), cold(samples)
    assert all((batch[name] == expected[name]).all() for name in fields)
    assert batch["placements"] == expected["placements"]  # the warm-up has drawn no windows
print({str(kernel.spec) for kernel in loaded()} - before)
"""


def test_after_warmup_a_batch_loads_nothing_more():
    assert python(WARM) == "True True []\nset()\n"


def test_warmup_names_the_field_that_does_not_fit():
    shapes = {"image": (40, 50, 3), "mask": (40, 50)}
    with pytest.raises(ArgumentError, match="a dict with 'image', 'mask'"):
        FieldCollator(FIELDS).warmup([shapes], dtype={"image": "uint8"})
    with pytest.raises(LayoutkitError, match=r"field mask: .*40"):
        FieldCollator(FIELDS).warmup([shapes, {**shapes, "mask": (39, 50)}])


def test_it_can_be_pickled():
    samples = make_samples()
    collate = FieldCollator({"image": Collator("hwc->bchw", **SIZES)})
    copy = pickle.loads(pickle.dumps(collate))
    assert torch.equal(copy(samples)["image"], collate(samples)["image"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda sample: {**sample, "mask": sample["mask"][:, 1:]}, "field mask: .*30"),
        (lambda sample: {**sample, "name": 3}, "sample 2 does not have 'boxes', 'image'"),
        (lambda sample: sample["image"], "sample 2 does not have 'boxes'"),
    ],
)
def test_samples_that_do_not_fit_are_named(change, message):
    samples = make_samples()
    samples[2] = change(samples[2])
    with pytest.raises(LayoutkitError, match=message):
        FieldCollator(FIELDS)(samples)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"placements": 1}, "has 'placements', .*; rename this field"),
        ({"mask": None}, "but not 'mask', which the FieldCollator names; give both one name"),
    ],
)
def test_samples_need_the_fields_and_no_placements(change, message):
    sample = {**make_samples(1)[0], **change}
    sample = {name: value for name, value in sample.items() if value is not None}
    with pytest.raises(ArgumentError, match=message):
        FieldCollator(FIELDS)([sample])


@pytest.mark.parametrize("samples", [[], [np.zeros((3, 4, 3))]])
def test_a_batch_consists_of_dicts(samples):
    with pytest.raises(ArgumentError, match="dicts or tuples with 'image', 'mask'"):
        FieldCollator(FIELDS)(samples)


@pytest.mark.parametrize("counts", [(2, 2), (2, 1)])  # equal counts would be stacked
def test_a_field_that_is_a_list_stays_one(counts):
    samples = [{**make_samples(1)[0], "boxes": np.ones((count, 4))} for count in counts]
    batch = FieldCollator({**FIELDS, "boxes": "list", "label": "list"})(samples)
    assert [type(boxes) for boxes in batch["boxes"]] == [torch.Tensor] * 2
    assert [len(boxes) for boxes in batch["boxes"]] == [*counts]
    assert batch["label"] == [0, 0]


@pytest.mark.parametrize("kind", [tuple, list])
def test_fields_of_tuples_are_numbers(kind):
    samples = make_samples(3)
    tuples = [kind([x["image"], x["mask"], x["boxes"], x["label"]]) for x in samples]
    to_batch = FieldCollator({0: FIELDS["image"], 1: FIELDS["mask"], 2: "list"})
    *items, placements = to_batch(tuples)
    data = [*Positions(tuples)]
    expected = FieldCollator(FIELDS)([*Positions(samples)])
    x, y, boxes, labels, placed = to_batch(data)
    assert torch.equal(x, expected["image"])
    assert torch.equal(y, expected["mask"])
    assert placed == expected["placements"]
    assert [len(own) for own in boxes] == [0, 1, 2]
    assert labels.tolist() == items[3].tolist() == [0, 1, 2]
    assert len(placements) == 3
    with pytest.raises(ArgumentError, match="a tuple, has 0, 1, but not 3, which the"):
        FieldCollator({0: FIELDS["image"], 3: "list"})([(1, 2)])


def test_a_field_needs_a_collator():
    with pytest.raises(ArgumentError, match=r"the field 'mask' has 'ragged'.*\"list\""):
        FieldCollator({**FIELDS, "mask": "ragged"})
    with pytest.raises(ArgumentError, match="has the key \\('image', 'mask'\\)"):
        FieldCollator({("image", "mask"): FIELDS["image"]})


@pytest.mark.parametrize("collators", [{}, [FIELDS["image"]], FIELDS["image"]])
def test_collators_are_a_dict(collators):
    with pytest.raises(ArgumentError, match="give a dict of one Collator or more"):
        FieldCollator(collators)


def test_packed_and_padded_fields():
    patches = Collator("(hp)(wq)c->(bhw)(cpq)", p=2, q=2)
    boxes = Collator("nk->bnk", n="longest", fill=0, lengths=True)
    samples = [  # the other images have odd heights
        {**sample, "boxes": sample["boxes"].reshape(-1, 4)} for sample in make_samples(4)[::2]
    ]
    batch = FieldCollator({"image": patches, "boxes": boxes})(samples)
    expected = patches([sample["image"] for sample in samples])
    assert (batch["image"].data.numpy() == expected.data).all()
    assert batch["image"].offsets.tolist() == expected.offsets.tolist()
    data, lengths = batch["boxes"]
    assert data.shape == (2, 2, 4)
    assert lengths.tolist() == [0, 2]
    assert batch["placements"] is None
