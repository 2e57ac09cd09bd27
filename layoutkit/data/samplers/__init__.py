"""In which order records come.

sampler(kind, index, ...)     a Sampler, whose loops and states are those of `epochs.py`

order.py        the order of one epoch, and the SamplingPlan that all epochs share
walks.py        linear, permutation, uniform
slices.py       batchwise_shuffled_sequential, random_slice
labels.py       label-uniform, label-distribution, label-permutation
sequences.py    even_sequences
partwise.py     part-linear, part-linear-permutation, part-permutation-permutation
kinds.py        all names; even_... are the orders above less what fills no batch
validation.py   from arguments to a SamplingPlan
sampling.py     Sampler: epochs, loops and states over these orders
"""

from .orders import Order
from .sampling import Sampler, sampler

__all__ = ["Order", "Sampler", "sampler"]
