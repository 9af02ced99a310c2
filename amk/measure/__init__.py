"""Benchmarks, profiles, quality and limits: what is measured, and how."""
