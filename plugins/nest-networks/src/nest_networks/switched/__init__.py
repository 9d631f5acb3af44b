"""Common parts of importers of fabric files: rates and profiles, trees of switches with hosts, lists of hosts."""
