"""Kernels that move and convert arrays. They do not validate, allocate or choose.

- `cpu`: Numba kernels for CPUs.
- `cuda`: CUDA C++ kernels for GPUs.
"""
