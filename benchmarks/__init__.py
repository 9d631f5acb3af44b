"""Runnable benchmarks; README.md says how to run and read each."""
