"""What importers of files of the field share: rates and profiles, trees of switches with hosts, lists of hosts."""
