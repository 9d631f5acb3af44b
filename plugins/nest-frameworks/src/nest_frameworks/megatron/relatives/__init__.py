"""Frameworks that run Megatron Core and name its settings in their own words: a table for each."""
