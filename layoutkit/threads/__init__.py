"""Threads of conversions.

limits    number of threads and other limits of this process
openmp    use of another library's OpenMP threads
pool      worker threads, jobs, and the registration with threadpoolctl
"""
