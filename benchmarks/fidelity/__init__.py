"""How far predictions are from measured training runs: `python -m benchmarks.fidelity`; benchmarks/README.md tells how."""
