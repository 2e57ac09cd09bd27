"""Numba kernels for CPUs: `launch` prepares them, `compiler` loads them, `engine` is their frame."""
