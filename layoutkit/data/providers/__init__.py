"""Data providers: batches of one size whose arrays have names.

protocol.py       the interface `Provider`, names, and copies into a caller's arrays
arguments.py      keywords of MXNet, names and parts
base.py           `BaseProvider`: order, tails, partitions, loops and states
array.py          `ArrayProvider`: arrays in memory
csv.py            `CSVProvider`: rows of numbers in text files
mnist.py          `MNISTProvider`: images and labels in idx files
image_record.py   `ImageRecordProvider`: images in RecordIO files, augmented on threads
"""
