"""Kernels: machine code that moves and converts arrays. No validation, no allocation, no policy."""
