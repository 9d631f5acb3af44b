"""Real inputs of every command, mutated from a seed: there is no traceback, no exit code but 0, 1 and 2."""
