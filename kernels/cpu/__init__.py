"""Numba kernels for CPUs: `launch` prepares, `compiler` loads, `engine` is their frame."""
