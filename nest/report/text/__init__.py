"""What the terminal shows: plans, explanations, comparisons and replays as text."""
