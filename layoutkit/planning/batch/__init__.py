"""Plan a batch of samples: where each window comes from, and where it goes.

arguments    the arguments of one call, checked
random       windows, crops and flips that are fixed, or drawn for each sample
placement    the placement of each sample in its window
weights      the dtypes that are averaged, and the nearest positions of the others
samples      the axes of samples
layout       the memory of a batch and of one window
blocks       the parts of a resized window that a CPU kernel makes one at a time
packing      the sizes and places of samples in a packed batch

`layoutkit/taps.py` computes the weights of averaged samples. Executors read placements and tables
of weights; they compute no position, size or weight.
"""
