"""From a validated schedule to CUDA source and a cubin."""
