"""Adapters for arrays of other libraries: how they enter and leave a conversion.

base.py        the Adapter class; adapters of NumPy and of any library with `__dlpack__`
registry.py    the table of libraries and the modules that adapt them
dispatch.py    find the adapter of an array; dispatch conversions and sums
dlpack.py      NumPy arrays shared by DLPack, in dtypes that NumPy's own DLPack lacks
inspection.py  shape, dtype, device and samples of any array, for views
indexing.py    copies of samples; one-hot rows
items.py       samples of several items: the item that is collated, and the others
collate.py     collation in the operations of a library that records or traces
windows.py     the windows of a batch as a map that kernels execute, and its transpose
gradients.py   gradients of selected channels and of clipping
symbolic.py    conversions and sums in the operations of a library (JAX, PyTorch)
containers.py  objects that contain an array: images, buffers, columns, lists
dataframes.py  pandas, Polars and Arrow
yuv.py         video frames in planes
inference.py   ONNX Runtime and OpenVINO
dask.py        arrays in lazy chunks
xarray.py      DataArrays
cupy.py        arrays on GPUs, and the fast path for layouts seen before
torch/, jax/   PyTorch and JAX
"""
