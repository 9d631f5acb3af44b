"""From a problem as written to the instance solvers see."""
