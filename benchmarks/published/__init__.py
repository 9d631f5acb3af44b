"""Published training runs of famous models beside what nest says of them; benchmarks/README.md tells how."""
