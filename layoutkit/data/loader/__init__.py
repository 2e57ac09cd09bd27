"""Batches of records that threads read, process and collate ahead of time.

loader.py        `sampled_batcher`, the public function
config.py        `LoaderConfig`: its checked arguments
processing.py    from the data of a record to a row, a batch and a View
epochs.py        the order and the length of epochs
batcher.py       `Batcher`: batches of records, and their states
loop.py          `BatchLoop`: epochs of batches, with threads and a progress bar
epoch_pass.py    `EpochPass`: the batches of an epoch, started ahead, and positions in it
dropped.py       dropped records: log lines, and the error if all records fail
arrays.py        `ArrayLoop`: loops over arrays that are read a batch at a time
pending.py       a batch that is being made
pixel_options.py the options of the pixels of batches, in states
signature.py     the shape and dtype that all records of a run share
kept_records.py  the records of a Batcher that a cache in memory keeps
jpeg_rows.py     the first rows of JPEGs, as many as random crops read
chunk.py         records that one thread reads and processes, and the source they come from
worker_pool.py   the threads that process chunks
collate.py       batches of results of any size: crops, flips and a Collator
distributed.py   the part of each step that belongs to one of several processes
batch.py         `Batch`, and the Views of its arrays
"""
