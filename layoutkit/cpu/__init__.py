"""Execute plans on the CPU; `layoutkit.cuda` executes them on GPUs.

program         conversions: kernels and the casts that NumPy does before and after them
accumulate      sums
collate         batches of windows
resize          batches of resized windows
packed          batches of samples of different sizes
yuv             video frames in planes
windows         stacks of windows without a conversion, and their gradients
window_table    the plans of windows by strides, and the argument block of the batch kernel
"""
