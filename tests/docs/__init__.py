"""Documentation is run like code: commands, examples and claims that no longer hold fail here."""
