"""The table of image files by suffix: for folders, globs, lists of paths and tar archives.

Files are decoded by their content: by Pillow, or else by the first decoder of another package that
accepts them.
"""

from typing import Any

from .._utils.registry import Registry, check_has

# The suffixes of all formats that Pillow decodes by itself, without the dot. It registers more: for
# formats that it only identifies (.h5, .mpg, .grib), that need another program (.eps) or Windows
# (.wmf).
_SUFFIXES = """
    .apng .avif .avifs .blp .bmp .bw .cur .dcx .dds .dib .fit .fits .flc .fli .ftc .ftu .gbr .gif
    .icb .icns .ico .iim .im .j2c .j2k .jfif .jp2 .jpc .jpe .jpeg .jpf .jpg .jpx .mpo .msp .pbm .pcd
    .pcx .pfm .pgm .png .pnm .ppm .psd .pxr .qoi .ras .rgb .rgba .sgi .tga .tif .tiff .vda .vst
    .webp .xbm .xpm
"""
PILLOW_SUFFIXES = frozenset(suffix[1:] for suffix in _SUFFIXES.split())


def _accept_decoder(name: str, extension: Any) -> Any:
    check_has(extension, "accepts", "decode")
    return extension


DECODERS = Registry(
    "layoutkit.decoders",
    "the decoder",
    dict.fromkeys(sorted(PILLOW_SUFFIXES), None),  # None: Pillow
    _accept_decoder,
)


def image_suffixes() -> list[str]:
    """Return the suffixes of all image files that can be decoded, sorted."""
    return sorted(f".{name}" for name in DECODERS)
