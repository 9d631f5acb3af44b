"""Blocks on the devices of a network that is no hierarchy; its CP-SAT model is in `nest.solve.cpsat`."""
