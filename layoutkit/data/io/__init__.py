"""The bytes of records, and the arrays in files.

urls.py            local files and those at any URL: opened, looked for, listed, with patience
remote.py          what another machine holds at a URL, asked once
web.py             all that is asked of HTTP servers
pages.py           the files that a page of such a server links to
cache.py           keeps whole remote files in a folder
reader.py          the bytes of a record, by way of these
keptfiles.py       the same of containers, which stay open
npy.py             .npy and .npz: where the elements lie, mapped or read
tensors.py         .safetensors and .pt
zarrstores.py      arrays of zarr, by chunk
csvrows.py         rows of numbers in text
idx.py             idx files, mapped
ranges.py          parts of files here and there, many small ones at once
recordframes.py    RecordIO: frames around records
recordheads.py     RecordIO: where records begin and end
imagerecords.py    the header of image records
meanfiles.py       files of mean pictures
parquetfiles.py    columns of Parquet files
crc32c.py          checksums of TFRecord files

Which suffix is read by whom says formats.py, one folder up.
"""
