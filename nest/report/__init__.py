"""Output for people: derived figures and tables.

Belongs here: words, tables and the first screen. Does not: pages (`plugins/nest-page`), searches.
"""
