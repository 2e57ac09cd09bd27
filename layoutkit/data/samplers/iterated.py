"""Samplers of other libraries that can only be iterated, such as torch's, as functions of an epoch.

They draw from the global generators of torch, NumPy and Python, or from a generator of their own.
These are seeded for the epoch, and have their states back afterwards, so that a resumed run draws
the same positions.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import islice
from typing import Any

import numpy as np

from ..._utils.random import make_key
from ..._utils.validation import type_name
from ...errors import DataError

# Positions of an epoch of a sampler without a length, relative to the number of records.
_MOST_PASSES = 100


class IteratedSampler:
    """The positions that a sampler yields in an epoch, as a function of (count, seed, epoch).

    Raises
    ------
    DataError
        The sampler can be iterated only once, yields batches, or does not end. A call raises it if
        two loops over the sampler differ.
    """

    def __init__(self, sampler: Iterable[Any]) -> None:
        self._name = type_name(sampler)
        if isinstance(sampler, Iterator):
            raise DataError(
                f"sampler= is a {self._name}, which can be iterated only once; give list(sampler), "
                "an order that every epoch repeats, or a function of (count, seed, epoch)"
            )
        self._sampler: Any = sampler
        self._drawn: tuple[tuple[int, int, int], list[int]] | None = None
        # The kind of states and messages.
        self.__module__, self.__qualname__ = type(sampler).__module__, type(sampler).__qualname__

    def __call__(self, count: int, seed: int, epoch: int) -> list[int]:
        """Return the positions of an epoch."""
        drawn = self._drawn
        if drawn is not None and drawn[0] == (count, seed, epoch):
            return drawn[1]
        positions = self._draw(count, seed, epoch)
        if drawn is None and positions != self._draw(count, seed, epoch):
            raise DataError(
                f"sampler= is a {self._name}, which yields other positions in each loop, also if "
                "torch, NumPy, Python and its generator have one seed, so no state could resume in "
                'its middle; give "shuffle", list(sampler), or a function of (count, seed, epoch)'
            )
        self._drawn = (count, seed, epoch), positions
        return positions

    def _draw(self, count: int, seed: int, epoch: int) -> list[int]:
        if hasattr(self._sampler, "set_epoch"):
            self._sampler.set_epoch(epoch)
        most = max(count, 1) * _MOST_PASSES
        if hasattr(self._sampler, "__len__"):
            most = max(most, len(self._sampler))
        own = getattr(self._sampler, "generator", None)
        with _seeded_generators(make_key("sampler", seed, epoch), own):
            positions = list(islice(self._sampler, most + 1))
        if len(positions) > most:
            raise DataError(
                f"sampler= is a {self._name} that yields more than {most} positions for {count} "
                "records; give list(itertools.islice(sampler, n))"
            )
        if positions and np.ndim(positions[0]):
            raise DataError(
                f"sampler= is a {self._name} that yields batches of positions; give the sampler of "
                "single positions that it divides, and batch_size="
            )
        return positions

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_drawn": None}


@contextmanager
def _seeded_generators(key: int, own: Any) -> Iterator[None]:
    """Seed the global generators and a torch.Generator or None; restore their states at the end."""
    torch = sys.modules.get("torch")
    with ExitStack() as stack:
        stack.callback(random.setstate, random.getstate())
        stack.callback(np.random.set_state, np.random.get_state())
        random.seed(key)
        np.random.seed(key & 0xFFFFFFFF)
        if torch is not None:
            # Not torch.manual_seed, which would seed the generators of GPUs as well.
            for generator in (torch.default_generator, own):
                if isinstance(generator, torch.Generator):
                    stack.callback(generator.set_state, generator.get_state())
                    generator.manual_seed(key >> 1)
        yield
