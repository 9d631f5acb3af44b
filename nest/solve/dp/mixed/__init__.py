"""Plans whose stages use different candidates: the same recurrence over offsets instead of slots of one width."""
