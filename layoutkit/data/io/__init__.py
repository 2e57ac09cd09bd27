"""Reading bytes of records and arrays in files, local or at URLs.

cache.py           a disk cache of whole remote files
crc32c.py          checksums of TFRecord files
csv.py             rows of numbers in text files
filesystem.py      local files and URLs of any scheme: open, read, list, retry
http.py            an HTTP client with deadlines, and folder listings of web servers
idx.py             idx files (MNIST), memory-mapped
image_record.py    the header of image records, and files of mean images
npy.py             .npy and .npz: headers, memory-mapped or loaded arrays
parquet.py         columns of Parquet files
ram_cache.py       values of records in memory that threads and processes share
reader.py          the bytes of a record, files read in parts, a cache of open files
recordio.py        RecordIO: frames around records, and where records begin and end
responses.py       results and errors of remote readers
tensor_files.py    .safetensors and .pt
zarr.py            arrays of zarr, by chunk

`formats.py`, one folder up, maps file suffixes to these readers.
"""
