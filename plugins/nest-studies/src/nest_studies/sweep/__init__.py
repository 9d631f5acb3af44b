"""A base problem and what varies, each point solved; a row a point."""
