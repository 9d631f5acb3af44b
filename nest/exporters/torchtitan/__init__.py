"""torchtitan: a TOML file for 0.2, a Python configuration for 0.3, and the pipeline schedule as PyTorch reads it."""

from nest.exporters.torchtitan.exporter import Torchtitan

__all__ = ["Torchtitan"]
