"""From scripts that launch Megatron-LM to the keys of a problem; no shell is ever run."""
