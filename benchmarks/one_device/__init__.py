"""What one GPU takes and needs to train a small Llama, beside what nest says (benchmarks/README.md, "One device")."""
