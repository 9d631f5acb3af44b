"""The conformance kit, public as `nest.testing`, and `nest plugins doctor` and `new`.

Belongs here: checks of every kind of object, samples, templates. Does not: nest's own tests.
"""
