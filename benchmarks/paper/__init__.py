"""The set-ups of the NEST paper (arXiv 2603.06798), planned and compared by our code: `python -m benchmarks.paper`."""
