"""Terminal output: plans, explanations, comparisons and replays as text."""
