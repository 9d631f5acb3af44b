"""How far predictions are from measured training runs; benchmarks/README.md tells how this is measured."""
