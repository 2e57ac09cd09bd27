"""Numba kernels for CPUs.

Launching (imports no Numba):

- `launch`: parameter block and work units of a conversion
- `tiling`: the block sizes of every kernel
- `accumulate_launch`: tiles and parameter block of a sum
- `params`: layout of a conversion's parameter block
- `collate_params`: layout of the tables of a batch of windows
- `compiler`: compiles a kernel or loads its machine code
- `object_cache`: compiled kernels on disk and in the wheel
- `threadpool_state`: shared memory of the thread pool

Kernels (compiled by Numba):

- `engine`: the frame of every conversion kernel
- `walk`: the loops over work units
- `transpose`, `interleave`, `copy`: microkernels
- `epilogue`: cast, formula and store
- `casts`, `simd`, `atomics`: vector and atomic instructions as LLVM IR
- `accumulate`: sums of arrays
- `collate`: batches of windows
- `threadpool`: hand-over of work to threads
"""
