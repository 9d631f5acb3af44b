"""Plans on a network that is no hierarchy: bounded on a level that nothing beats, placed and priced on the network."""
