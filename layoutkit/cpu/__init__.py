"""Plans made ready and run on the CPU; `layoutkit.cuda` has the same rooms for GPUs."""
