"""Replays of plans, pass by pass: PROBLEM.md section 4 computed independently by running the schedule.

Belongs here: the discrete-event replay and traces. Does not: closed forms.
"""
