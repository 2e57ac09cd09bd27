"""A picture changed at random on its way into a batch, by the options of MXNet's image iterator.

    augment = Augmenter((3, 224, 224), rand_crop=True, rand_mirror=True, mean=118, std=58)
    augment(data, epoch=0, position=5)      float32 (3, 224, 224); the same again for the same place

options.py      the keywords, checked
draws.py        random numbers: a function of seed, epoch and position
places.py       where a picture is cut, and which matrix warps it
warping.py      OpenCV, which resizes and warps
colours.py      8-bit colours
finishing.py    mirrored, the formula, layout and dtype: one pass
augmenter.py    all of them in their order
"""

from .augmenter import Augmenter

__all__ = ["Augmenter"]
