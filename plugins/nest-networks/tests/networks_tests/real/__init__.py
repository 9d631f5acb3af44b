"""The real tools, from Debian's packages: what nest reads of them and what they make of nest's files.

`tools/check-with-real-tools` runs them; each is skipped where its tool is missing.
"""
