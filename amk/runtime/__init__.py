"""Devices, weights, launches, sessions and generation: everything that happens after compiling."""
