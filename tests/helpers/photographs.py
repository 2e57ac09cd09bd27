"""Images for tests: noise in arrays, image files, and a slow, obvious way to shrink an image."""

import io

import numpy as np
from PIL import Image

# The operation of a viewer for each orientation of EXIF.
TURNED = {
    1: lambda x: x,
    2: lambda x: x[:, ::-1],
    3: lambda x: x[::-1, ::-1],
    4: lambda x: x[::-1],
    5: lambda x: x.swapaxes(0, 1),
    6: lambda x: np.rot90(x, -1),
    7: lambda x: np.rot90(x, 2).swapaxes(0, 1),
    8: lambda x: np.rot90(x, 1),
}


def noise(seed, *shape):
    """Return random uint8 pixels."""
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def save(path, array, **options):
    """Write an image, with the folders above it, and return its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(array).save(path, **options)
    return path


def encoded(array, kind="PNG", **options):
    """Return an image file as bytes."""
    file = io.BytesIO()
    Image.fromarray(array).save(file, kind, **options)
    return file.getvalue()


def blocks(pixels, height, width):
    """Shrink an image to averages of whole blocks, as floats; the new sides divide the old."""
    rows, columns = pixels.shape[0] // height, pixels.shape[1] // width
    cut = pixels.reshape(height, rows, width, columns, *pixels.shape[2:])
    return cut.mean(axis=(1, 3))


def make_profiles():
    """Return two ICC profiles: sRGB, and another whose red and blue are exchanged."""
    from PIL import ImageCms

    srgb = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    parts = srgb.replace(b"rXYZ", b"tmp1", 1).replace(b"bXYZ", b"rXYZ", 1)
    return srgb, parts.replace(b"tmp1", b"bXYZ", 1)
