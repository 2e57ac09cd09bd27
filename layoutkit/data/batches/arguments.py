"""The arguments of `sampled_batcher` as they were given."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["Arguments"]


@dataclass(frozen=True)
class Arguments:
    """The arguments of `sampled_batcher`, which says what they mean; nothing is checked yet."""

    sources: Any
    batch_size: Any
    sampler: Any
    num_batches: Any
    drop_last: Any
    seed: Any
    shard: Any
    get: Any
    processor: Any
    size: Any
    fit: Any
    input_dims: Any
    batch_dims: Any
    dtype: Any
    layout: Any
    convert: Any
    collate: Any
    corner: Any
    flip: Any
    scale: Any
    mean: Any
    std: Any
    clip: Any
    on_error: Any
    refill: Any
    timeout: Any
    retries: Any
    prefetch: Any
    num_workers: Any
    progress: Any
    cache_dir: Any
    cache_size: Any
    max_record_bytes: Any

    @property
    def constants(self) -> dict[str, Any]:
        """Those of a formula that are given."""
        found = {"scale": self.scale, "mean": self.mean, "std": self.std, "clip": self.clip}
        return {name: value for name, value in found.items() if value is not None}
