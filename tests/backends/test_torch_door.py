"""`layoutkit.torch`: the module, the collate function, and feeding from a DataLoader."""

import collections
import copy
import pickle
import subprocess
import sys
from importlib.util import find_spec

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the door of PyTorch needs torch")

from layoutkit import ArgumentError, DtypeError, PatternError, ShapeError, convert
from layoutkit.torch import Collator, Convert, collate, feed

FORMULA = {"dtype": "float32", "scale": 1 / 255, "mean": (0.1, 0.2, 0.3)}
Pair = collections.namedtuple("Pair", "photo label")


def photos(count=2):
    created = np.random.default_rng(0).integers(0, 256, (count, 4, 5, 3), np.uint8)
    return torch.from_numpy(created)


class Photos(torch.utils.data.Dataset):
    """Ten photographs with their numbers; every pixel of photograph n is n."""

    def __len__(self):
        return 10

    def __getitem__(self, n):
        return np.full((4, 5, 3), n, np.uint8)[:, ::-1], n


# ---- Convert -----------------------------------------------------------------------------


def test_a_module_converts_as_convert_does():
    x = photos()
    module = Convert("bhwc->bchw", **FORMULA)
    assert torch.equal(module(x), convert(x, "bhwc->bchw", **FORMULA))
    net = torch.nn.Sequential(module, torch.nn.Conv2d(3, 2, 3))
    assert net(x).shape == (2, 2, 2, 3)
    assert list(net.state_dict()) == ["1.weight", "1.bias"]
    assert repr(Convert("bhwc->bchw", dtype="float32")) == (
        "Convert(\"bhwc->bchw\", dtype='float32')"
    )


def test_a_module_may_be_copied_and_pickled():
    x = photos()
    module = Convert("bhwc->bchw", **FORMULA)
    for other in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        assert torch.equal(other(x), module(x))
        assert repr(other) == repr(module)


def test_a_module_in_programs():
    x = photos()
    net = torch.nn.Sequential(Convert("bhwc->bchw", **FORMULA), torch.nn.Conv2d(3, 2, 3)).eval()
    compiled = torch.compile(net, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x), net(x))
    torch.testing.assert_close(torch.export.export(net, (x,)).module()(x), net(x))
    with pytest.raises(ArgumentError, match="script cannot read"):
        torch.jit.script(net)


@pytest.mark.skipif(find_spec("torchvision") is None, reason="torchvision is not installed")
def test_a_module_among_transforms():
    from torchvision import tv_tensors
    from torchvision.transforms import v2

    steps = v2.Compose([v2.Identity(), Convert("chw->hwc", dtype="float32", scale=2.0)])
    photo = tv_tensors.Image(photos()[0].permute(2, 0, 1))
    result, label = steps(photo, 3)
    assert label == 3
    assert torch.equal(result, photos()[0] * 2.0)


@pytest.mark.skipif(find_spec("PIL") is None, reason="Pillow is not installed")
def test_a_module_makes_tensors_of_images():
    from PIL import Image

    array = photos()[0].numpy()
    module = Convert("hwc->chw", dtype="float32", scale=2.0)
    for x in (Image.fromarray(array), array, array[::-1, ::-1][::-1, ::-1]):
        result, label = module(x, 3)
        assert label == 3
        assert torch.equal(result, photos()[0].permute(2, 0, 1) * 2.0)


@pytest.mark.filterwarnings("error")
def test_a_module_does_not_make_memory_writable():
    """A tensor is always writable, so a read-only array has to be copied."""
    array = photos().numpy()
    array.flags.writeable = False
    result = Convert("bhwc->bhwc")(array)
    assert np.array_equal(result, array)
    assert not np.shares_memory(result.numpy(), array)


def test_layoutkit_alone_imports_no_torch():
    code = "import layoutkit, sys; assert 'torch' not in sys.modules; layoutkit.torch.Convert"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


# ---- collate -----------------------------------------------------------------------------


def test_samples_are_stacked_as_they_are():
    arrays = list(photos().numpy())
    read_only = np.broadcast_to(np.uint8(3), (4, 5, 3))
    result = collate([arrays[0], arrays[1][::-1], torch.from_numpy(arrays[1]), read_only])
    assert result.dtype is torch.uint8
    wanted = np.stack([arrays[0], arrays[1][::-1], arrays[1], read_only])
    np.testing.assert_array_equal(result.numpy(), wanted)


LARGE = np.random.default_rng(1).integers(0, 256, (4, 300, 301, 3), np.uint8)  # above 1 MiB


class Large(torch.utils.data.Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, n):
        return LARGE[n][::-1], n


def test_large_samples_are_stacked_by_layoutkit():
    read_only = np.broadcast_to(LARGE[0, :, :, :1], LARGE[0].shape)
    samples = [LARGE[0], LARGE[1][::-1], torch.from_numpy(LARGE[2]), read_only]
    result = collate([(sample, {"n": n}) for n, sample in enumerate(samples)])
    assert result[0].dtype is torch.uint8
    np.testing.assert_array_equal(result[0].numpy(), np.stack([*map(np.asarray, samples)]))
    assert result[1]["n"].tolist() == [0, 1, 2, 3]
    tensors = [torch.from_numpy(item).transpose(0, 1) for item in LARGE]
    assert torch.equal(collate(tensors), torch.stack(tensors))
    recorded = [item.float().requires_grad_() for item in tensors]
    assert collate(recorded).requires_grad
    assert torch.equal(collate([x.bfloat16() for x in tensors]), torch.stack(tensors).bfloat16())
    with pytest.raises(ShapeError, match=r"sample 3 has shape \(299, 301, 3\)"):
        collate([*LARGE[:3], LARGE[3, 1:]])
    with pytest.raises(DtypeError, match="sample 1 has dtype int8"):
        collate([LARGE[0], LARGE[1].view(np.int8), *LARGE[2:]])


@pytest.mark.parametrize("workers", [0, 1])
def test_large_samples_of_a_worker_are_in_shared_memory(workers):
    loader = torch.utils.data.DataLoader(
        Large(), batch_size=4, collate_fn=collate, num_workers=workers
    )
    for x, numbers in loader:
        assert x.is_shared() == bool(workers)
        np.testing.assert_array_equal(x.numpy(), LARGE[:, ::-1])
        assert numbers.tolist() == [0, 1, 2, 3]


def test_samples_of_several_parts():
    photo = photos()[0].numpy()
    samples = [{"x": photo, "y": (n, 0.5), "name": f"{n}"} for n in range(3)]
    result = collate(samples)
    assert result["x"].shape == (3, 4, 5, 3)
    assert result["y"][0].tolist() == [0, 1, 2]
    assert result["name"] == ["0", "1", "2"]
    pairs = collate([Pair(photo, n) for n in range(3)])
    assert type(pairs) is Pair
    assert pairs.label.tolist() == [0, 1, 2]


@pytest.mark.skipif(find_spec("PIL") is None, reason="Pillow is not installed")
def test_images_are_stacked():
    from PIL import Image

    result = collate([(Image.fromarray(photo.numpy()), n) for n, photo in enumerate(photos())])
    assert torch.equal(result[0], photos())


def test_dtypes_that_numpy_lacks_are_stacked():
    import ml_dtypes

    result = collate([np.ones(3, ml_dtypes.bfloat16), np.zeros(3, ml_dtypes.bfloat16)])
    assert result.dtype is torch.bfloat16
    assert result.sum() == 3


def test_the_odd_sample_is_named():
    photo = photos()[0].numpy()
    with pytest.raises(ShapeError, match=r"sample 2 has shape \(4, 4, 3\).*\(4, 5, 3\)"):
        collate([photo, photo, photo[:, 1:]])
    with pytest.raises(DtypeError, match=r"sample 1 has dtype torch.int16.*torch.uint8"):
        collate([photo, photo.astype(np.int16)])
    with pytest.raises(ArgumentError, match="sample 1 is None; omit it before"):
        collate([(photo, 3), None])


# ---- feed --------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_of_a_loader(workers):
    loader = torch.utils.data.DataLoader(
        Photos(), batch_size=4, collate_fn=collate, num_workers=workers
    )
    batches = feed(loader, "bhwc->bchw", dtype="float32", scale=2.0)
    assert len(batches) == 3
    for _ in range(2):
        numbers = []
        for x, labels in batches:
            assert (x.dtype, x.shape[1:]) == (torch.float32, (3, 4, 5))
            assert torch.equal(x[:, 1, 2, 3], labels * 2.0)
            numbers += labels.tolist()
        assert numbers == list(range(10))


def test_bytes_of_workers_are_in_shared_memory():
    loader = torch.utils.data.DataLoader(Photos(), batch_size=5, collate_fn=collate, num_workers=1)
    assert [(x.is_shared(), x.dtype) for x, _ in loader] == [(True, torch.uint8)] * 2


def test_what_of_a_batch_is_converted():
    x = photos()
    labels = torch.arange(2)
    wanted = convert(x, "bhwc->bchw", **FORMULA)

    def fed(batch, **keywords):
        (result,) = feed([batch], "bhwc->bchw", **FORMULA, **keywords)
        return result

    assert torch.equal(fed(x), wanted)
    assert torch.equal(fed((labels, x))[1], wanted)
    assert type(fed([x, labels])) is list
    named = fed(Pair(x, labels))
    assert type(named) is Pair
    assert named.label is labels
    batch = {"label": labels, "first": x, "second": x}
    result = fed(batch)
    assert torch.equal(result["first"], wanted)
    assert result["second"] is x
    assert batch["first"] is x
    assert torch.equal(fed(batch, key="second")["second"], wanted)
    assert fed(x.numpy()).dtype == np.float32
    with pytest.raises(ArgumentError, match=r"key='third', but a batch has 'label', 'first'"):
        fed(batch, key="third")
    with pytest.raises(ArgumentError, match=r"rank 4.*0: torch.Tensor \(2,\).*collate_fn"):
        fed((labels, labels))


def test_axes_that_stay_are_of_any_rank_in_a_batch():
    clip = torch.rand(2, 3, 4, 5, 3)
    labels = torch.arange(2)
    for x in (clip, clip[0], clip[0, 0]):
        ((_, result),) = feed([(labels, x)], "...hwc->...chw")
        assert torch.equal(result, x.movedim(-1, -3))
    with pytest.raises(ArgumentError, match="rank 3 or more, and a batch has none"):
        next(iter(feed([(labels, labels)], "...hwc->...chw")))


def test_a_feed_is_refused_before_a_batch():
    with pytest.raises(PatternError):
        feed([], "bhwc>bchw")
    with pytest.raises(ArgumentError, match="loader is an int; give a DataLoader"):
        feed(5, "bhwc->bchw")


def test_channels_last():
    (x,) = feed([photos()], "bhwc->bchw", memory="bhwc", **FORMULA)
    assert x.is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(x, convert(photos(), "bhwc->bchw", **FORMULA))


def test_a_gpu_is_one_batch_ahead(gpu):
    """On a fake GPU, the next batch is requested before the current one is yielded."""
    requested = []

    class Loader:
        def __iter__(self):
            for n in range(3):
                requested.append(n)
                yield np.full((2, 4, 5, 3), n, np.uint8)

    seen = []
    for batch in feed(Loader(), "bhwc->bchw", device="cuda", dtype="float32"):
        seen.append((len(requested), convert(batch, "bchw->bhwc", device="cpu").max()))
    assert seen == [(2, 0.0), (3, 1.0), (3, 2.0)]


@pytest.mark.parametrize("nested", [False, True])
def test_items_of_different_shapes_are_a_list_of_tensors(nested):
    """Test detection samples, whose images have different numbers of boxes."""
    samples = []
    for number, boxes in enumerate([2, 1, 0]):
        target = {"boxes": np.ones((boxes, 4), np.float32), "id": number}
        image = np.zeros((8 + number, 9, 3), np.uint8)
        samples.append((image, target) if nested else {"image": image, **target})
    batch = Collator("hwc->bchw", h=4, w=5)(samples)
    x, target = batch if nested else (batch["image"], batch)
    assert x.shape == (3, 3, 4, 5)
    assert [tuple(boxes.shape) for boxes in target["boxes"]] == [(2, 4), (1, 4), (0, 4)]
    assert all(isinstance(boxes, torch.Tensor) for boxes in target["boxes"])
    assert target["id"].tolist() == [0, 1, 2]
