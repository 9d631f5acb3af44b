"""Plans on a non-hierarchical network: bounded on a level that beats it everywhere, then placed and priced on it."""
