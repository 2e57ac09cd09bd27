"""The suffixes of image files: one table for folders, globs, lists of paths and tar archives."""

# The suffixes of all formats that Pillow decodes by itself. It registers more: for formats that it
# only identifies (.h5, .mpg, .grib), that need another program (.eps) or Windows (.wmf).
_SUFFIXES = """
    .apng .avif .avifs .blp .bmp .bw .cur .dcx .dds .dib .fit .fits .flc .fli .ftc .ftu .gbr .gif
    .icb .icns .ico .iim .im .j2c .j2k .jfif .jp2 .jpc .jpe .jpeg .jpf .jpg .jpx .mpo .msp .pbm .pcd
    .pcx .pfm .pgm .png .pnm .ppm .psd .pxr .qoi .ras .rgb .rgba .sgi .tga .tif .tiff .vda .vst
    .webp .xbm .xpm
"""
IMAGE_SUFFIXES = frozenset(_SUFFIXES.split())
