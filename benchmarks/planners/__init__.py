"""A public benchmark of planners: problems with known optima, a checker, and adapters for programs of any language."""
