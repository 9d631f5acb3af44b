"""Shared parts of the model families: reading a configuration, describing it, building its operators."""
