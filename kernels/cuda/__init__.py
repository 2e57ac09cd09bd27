"""CUDA C++ kernels that move, convert and add arrays (one family per .cu file), with launchers.

- `launch`: parameter block and grid of a conversion
- `tiling`: axes and shapes of tiles
- `accumulate`: parameter block and grid of a sum
"""
