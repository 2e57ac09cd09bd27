"""`layoutkit.torch.Positions`: repeated windows are reported, torch's collate function refused."""

import warnings

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="Positions are a dataset of PyTorch")

from layoutkit import ArgumentError
from layoutkit.torch import Collator, Positions, collate

CROP = Collator("hwc->bchw", h=4, w=4, offset="random", seed=0)
MESSAGE = (
    r"read again under epoch {}, so that random windows .* the same as before; "
    r"call set_epoch\(epoch\) .* or omit Positions"
)


def make_positions(count=12):
    return Positions([(np.full((6, 6, 3), n % 256, np.uint8), n) for n in range(count)])


def read_epoch(data, **options):
    """Return the labels of an epoch; warnings are errors, also those of workers."""
    loader = torch.utils.data.DataLoader(data, batch_size=4, collate_fn=CROP, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        return torch.cat([labels for _, labels in loader]).tolist()


@pytest.mark.parametrize("count", [1, 2, 12, 50])
@pytest.mark.parametrize("workers", [0, 2])
def test_a_second_pass_in_one_epoch_is_reported(count, workers):
    data = make_positions(count)
    data.set_epoch(5)
    assert sorted(read_epoch(data, num_workers=workers, shuffle=True)) == list(range(count))
    with pytest.raises(UserWarning, match=MESSAGE.format(5)):
        read_epoch(data, num_workers=workers, shuffle=True)


def test_the_warning_is_given_once():
    data = make_positions()
    loader = torch.utils.data.DataLoader(data, batch_size=4, collate_fn=CROP)
    with pytest.warns(UserWarning, match=MESSAGE.format(0)) as caught:
        assert len([batch for _ in range(5) for batch in loader]) == 15
    assert len(caught) == 1


@pytest.mark.parametrize("workers", [0, 2])
def test_epochs_that_are_set_give_no_warning(workers):
    data = make_positions()
    for epoch in (0, 1, 2):
        data.set_epoch(epoch)
        assert len(read_epoch(data, num_workers=workers)) == 12


def test_looking_at_samples_gives_no_warning():
    data = make_positions()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert [data[0].position for _ in range(6)] == [0] * 6
        assert data[-1].position == 11
    assert len(read_epoch(data)) == 12


def test_samplers_with_replacement_give_no_warning_in_their_first_epoch():
    data = make_positions(300)
    generator = torch.Generator().manual_seed(0)
    sampler = torch.utils.data.RandomSampler(data, replacement=True, generator=generator)
    assert len(set(read_epoch(data, sampler=sampler))) < 250
    with pytest.raises(UserWarning, match=MESSAGE.format(0)):
        read_epoch(data, sampler=sampler)


def test_ranks_of_a_distributed_sampler_are_reported():
    data = make_positions(80)
    sampler = torch.utils.data.DistributedSampler(data, num_replicas=4, rank=1)
    assert len(read_epoch(data, sampler=sampler)) == 20
    with pytest.raises(UserWarning, match=MESSAGE.format(0)):
        read_epoch(data, sampler=sampler)


@pytest.mark.parametrize("function", [None, collate, torch.utils.data.default_collate])
def test_positions_without_a_collator_are_refused(function):
    loader = torch.utils.data.DataLoader(make_positions(), batch_size=2, collate_fn=function)
    with pytest.raises(ArgumentError, match=r"collate_fn=layoutkit.torch.Collator\(...\), or omit"):
        next(iter(loader))
