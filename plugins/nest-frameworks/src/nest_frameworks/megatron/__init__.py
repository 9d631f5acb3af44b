"""Megatron-LM (arXiv 1909.08053, arXiv 2104.04473), and Megatron-Bridge, which configures the same core."""
