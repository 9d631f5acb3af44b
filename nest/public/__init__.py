"""Private names of the core that other distributions may import.

Belongs here: names that a bundled or outside distribution uses. Does not: code (`nest.testing.MODULES` lists modules).
"""
