"""Coefficients from measurements: fits that write entries of the catalogue."""
