"""Images: read them from files or bytes, and resize them.

    read("photo.jpg")                        uint8 (height, width, 3): upright RGB
    read("mask.png", "index")                class numbers (height, width), never colors
    read("depth.png", "unchanged")           (height, width, channels), all bits of the file
    fit(image, (224, 224))                   scaled to cover that size, then cropped
    fit(image, (640, 640), "pad")            scaled to fit inside that size, then padded
    placement(image.shape, (640, 640), "pad")    the offset and scale of that, to map boxes back
    Decoder((224, 224))                      encoded bytes to pixels: a processor of batches
    Reader()                                 the same at any size, for a Collator

    YUVFrames(y, uv, matrix="bt709")         video frames in planes, an input of `convert`

    Augmenter((3, 224, 224), rand_crop=True)       randomly augmented images as float arrays

reading.py     files and bytes to upright pixels, with Pillow, simplejpeg (JPEGs) or tifffile
fitting.py     arrays of pixels to one size, by the kernels of `collate`, Pillow or OpenCV;
               `Decoder` reads and resizes
augment/       random augmentation
suffixes.py    the suffixes of image files

Pillow is the extra `images`: pip install "layoutkit[images]". It is imported on first use.
"""

from typing import Any

from .._utils.spelling import make_attribute_error
from ..yuv import YUVFrames
from .augment import Augmenter
from .fitting import Decoder, Reader, fit, placement
from .reading import read

__all__ = ["Augmenter", "Decoder", "Reader", "YUVFrames", "fit", "placement", "read"]


def __getattr__(name: str) -> Any:
    raise make_attribute_error(f"module {__name__!r}", name, "layoutkit.images")


def __dir__() -> list[str]:
    return sorted(__all__)
