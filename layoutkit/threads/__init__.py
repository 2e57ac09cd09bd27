"""Threads: the worker pool, OpenMP teams of other libraries, and CPU and memory limits."""
