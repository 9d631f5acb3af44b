"""How fast and how lean planning is, against fixed limits: `python -m benchmarks.scale DATA`."""
