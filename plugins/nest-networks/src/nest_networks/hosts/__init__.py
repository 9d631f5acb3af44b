"""Common parts of importers of the inside of one machine: devices, links, and network."""
