"""A plan applied to a module: what splits, places, recomputes and shards its parts on the ranks of a device mesh."""
