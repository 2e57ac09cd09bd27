"""Pictures: read from files or bytes, and brought to one size.

    read("photo.jpg")                        uint8 (height, width, 3): upright, red, green, blue
    fit(picture, (224, 224))                 scaled to cover that size, the rest cut off
    fit(picture, (640, 640), "pad")          scaled to lie inside of it, the rest filled
    placement(picture.shape, (640, 640), "pad")    where it lies there, to map boxes back
    Decoder((224, 224))                      bytes of a file to pixels: a processor of batches

    Augmenter((3, 224, 224), rand_crop=True)       the same, changed at random, as a float array

decoding.py    files and bytes to upright RGB, by Pillow
jpegs.py       JPEGs by simplejpeg: the same bits in less time
pixels.py      bytes to pixels, by whoever is the fastest
fitting.py     arrays of pixels to one size, by OpenCV or Pillow
decoder.py     both for the records of a batch
augmenting/    pictures changed at random

Pillow is the extra `images`: pip install "layoutkit[images]". It is loaded when it is needed.
"""

from .augment import Augmenter
from .decode import read
from .resize import Decoder, Placement, fit, placement

__all__ = ["Augmenter", "Decoder", "Placement", "fit", "placement", "read"]
