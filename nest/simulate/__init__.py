"""Replays of plans, pass by pass: PROBLEM.md section 4 read once more, by letting the schedule run."""
