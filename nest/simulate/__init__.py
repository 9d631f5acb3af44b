"""Replays of plans, pass by pass: PROBLEM.md section 4 read once more, by letting the schedule run.

Belongs here: the discrete-event replay and traces. Does not: closed forms.
"""
