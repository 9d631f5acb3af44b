"""Names of rooms that are else private, for distributions outside the core.

Belongs here: names that a bundled or outside distribution uses. Does not: code (`nest.testing.MODULES` lists modules).
"""
