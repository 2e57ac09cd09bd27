"""Numba kernels for CPUs.

Launching (imports no Numba):

- `launch`: parameter block and work units of a conversion
- `tiling`: the block sizes of every kernel
- `caches`: the sizes of the CPU's caches
- `accumulate_launch`: tiles and parameter block of a sum
- `collate_launch`: boxes of windows that are moved by position
- `resize_launch`: parameter block of resized samples
- `params`: layout of a conversion's parameter block
- `collate_params`, `placement_params`, `resize_params`: layout of the tables of a batch of windows
- `yuv_params`: layout of the tables of video frames
- `direct_params`, `xla_params`: layout of the blocks of `direct` and `xla`
- `compiler`: compiles a kernel or loads its machine code
- `pipeline`: compiles with Numba to optimized LLVM IR
- `object_cache`: compiled kernels on disk and in the wheel
- `threadpool_state`: shared memory of the thread pool

Kernels (compiled by Numba):

- `engine`: the code around the microkernel of every conversion
- `walk`: the loops over work units
- `transpose`, `interleave`, `copy`: microkernels
- `epilogue`: cast, formula and store
- `casts`, `simd`, `atomics`: vector and atomic instructions as LLVM IR
- `accumulate`: sums of arrays
- `collate`: batches of windows
- `moves`: moves of windows by position
- `placement`: the placements of samples in windows, and random ones
- `taps`: tables of weights, and weighted sums
- `resize`: batches of resized windows
- `halve`: images of bytes of half the size
- `yuv`: video frames in planes
- `direct`: a conversion of array objects, without the launcher
- `xla`: a conversion as a foreign function of XLA
- `threadpool`: hand-over of work to threads
"""
