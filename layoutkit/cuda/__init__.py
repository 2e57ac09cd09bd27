"""Execute plans on GPUs; `layoutkit.cpu` executes them on the CPU.

program         conversions: kernels, casts, and the fast path of cached launches
accumulate      sums
collate         batches of windows
packed          batches of samples of different sizes
windows         stacks of windows without a conversion, and their gradients
transfers       copies between host and device, through page-locked staging buffers
memory          device arrays, and the adapter protocol of the libraries that own them
streams         ordering and lifetime across the streams of several libraries
runtime         the one runtime of the process
cupy_runtime    the operations on GPUs, implemented with CuPy
driver          CuPy, NVRTC and the driver, with error messages that name a fix
"""
