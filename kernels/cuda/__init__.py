"""CUDA C++ that moves, converts and adds arrays, one family a file, and what launches it."""
