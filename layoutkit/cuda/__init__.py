"""Plans made ready and run on GPUs; `layoutkit.cpu` has the same rooms for the CPU."""
