"""Whether first plans can be launched as they are (benchmarks/README.md, "First plans")."""
