"""Engines that run the points of a study."""
