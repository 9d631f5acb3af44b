"""What the model families share: reading a configuration, describing it, building its operators."""
