"""Kernels that are right: well-known functions beside a second, correct way to compute them, in KernelBench's form.

They are read as text and run in processes of their own, as any kernel is. ``SCALE`` multiplies their sizes.
"""
