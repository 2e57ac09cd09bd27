"""Random augmentation of images, with the options of MXNet's image record iterator.

    augment = Augmenter((3, 224, 224), rand_crop=True, rand_mirror=True, mean=118, std=58)
    augment(data, epoch=0, position=5)      float32 (3, 224, 224), determined by epoch and position

options.py      validation of the options
random.py       random numbers: a function of seed, epoch and position
geometry.py     crops, resizing and affine warps
color.py        color changes of 8-bit pixels
augmenter.py    `Augmenter`: all steps, and the final mirror, normalization and conversion
"""

from .augmenter import Augmenter

__all__ = ["Augmenter"]
