"""From what launches Megatron-LM to the keys of a problem: `read.read_megatron`, and a file for each part of it."""
