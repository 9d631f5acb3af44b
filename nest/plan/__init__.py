"""Plans: pricing of decisions, the plan document, and its check. Nothing here imports a solver."""
