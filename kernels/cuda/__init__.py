"""CUDA C++ kernels that move, convert and add arrays (one family per .cu file), with launchers.

- `launch`: parameter block and grid of a conversion
- `policy`: the constants of all launches
- `tiling`: axes and shapes of tiles
- `boxes`: the boxes of `permute.cu`
- `accumulate`: parameter block and grid of a sum
- `collate`: tables and grid of a batch of windows, cropped or resized
"""
