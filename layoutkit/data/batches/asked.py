"""Words for the arguments of `sampled_batcher` that other libraries use, and what they are here.

Knows names; what an argument does is not known here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from ..protocolerrors import NoSuchArgument, no_such_argument

__all__ = ["check_names"]

# What somebody who comes from PyTorch, Keras, tf.data, grain, DALI or MXNet tries first.
_ELSEWHERE = {
    "batch_sampler": "sampler= and batch_size=, which name an order and where it is cut",
    "collate_fn": "processor=, which makes a row of a record; collate= joins rows of many sizes",
    "crop": 'collate=Collator("hwc->bchw", h=224, w=224), and corner="random"',
    "drop_remainder": "drop_last=True",
    "generator": "seed=; an order is a function of seed, epoch and position",
    "image_size": "size=, (height, width) of pictures",
    "multiprocessing_context": "num_workers=, which are threads",
    "num_epochs": "a loop for each: every `for batch in batches` is the next epoch",
    "num_parts": "open_index(source, partition=p, partitions=P) as the source",
    "num_replicas": "shard=(rank, world)",
    "num_shards": "shard=(rank, world)",
    "num_threads": "num_workers=, which are threads",
    "persistent_workers": "nothing: threads live until close(), over all epochs",
    "pin_memory": 'batch.input.forward_get(layout, dtype, device="cuda"), which sees to it',
    "prefetch_buffer_size": "prefetch=, in batches",
    "prefetch_factor": "prefetch=, in batches, however many threads there are",
    "rand_crop": 'corner="random", of the windows that collate= cuts',
    "rand_mirror": 'flip="random", of the windows that collate= cuts',
    "random_crop": 'corner="random", of the windows that collate= cuts',
    "random_flip": 'flip="random", of the windows that collate= cuts',
    "random_state": "seed=; an order is a function of seed, epoch and position",
    "rank": "shard=(rank, world)",
    "repeat": "a loop for each: every `for batch in batches` is the next epoch",
    "shuffle": 'sampler="shuffle", each record once in random order',
    "shuffle_buffer_size": 'sampler="shuffle", which needs no buffer',
    "target_size": "size=, (height, width) of pictures",
    "transform": "processor=, called with what was read and out=",
    "use_multiprocessing": "num_workers=, which are threads",
    "weights": 'sampler=layoutkit.data.sampler("label-distribution", index, weights=...)',
    "worker_init_fn": "num_workers=, which are threads of this process",
    "workers": "num_workers=, which are threads",
    "world_size": "shard=(rank, world)",
}


def check_names(names: Iterable[str], known: Collection[str]) -> None:
    """Raise NoSuchArgument for names of arguments that there are not, with what they are here."""
    for name in names:
        if name in _ELSEWHERE:
            raise NoSuchArgument(f"sampled_batcher has no {name}=; give {_ELSEWHERE[name]}")
        raise no_such_argument("sampled_batcher", name, known)
