"""What importers of files about the inside of one machine share: its devices, what joins them, and its network."""
