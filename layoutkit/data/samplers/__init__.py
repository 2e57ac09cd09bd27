"""The order in which records are visited.

sampling.py   `sampler` and `Sampler`; the table of kinds; validation of arguments
orders.py     the order of one epoch: sequential, shuffle, random-uniform, slices, sequences,
              and the positions that a function returns
weighted.py   weighted
iterated.py   samplers of other libraries that can only be iterated
labels.py     label-uniform, label-permutation
mixture.py    linear and permutation of the sources of a mixture
streamed.py   stream
partwise.py   part-linear, part-linear-permutation, part-permutation-permutation
"""

from .orders import Order
from .sampling import Sampler, sampler

__all__ = ["Order", "Sampler", "sampler"]
