"""Questions about a plan, each answered by solving or pricing its problem with something else in it."""
