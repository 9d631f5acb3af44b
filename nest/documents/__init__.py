"""The answer as a document: what a search found or `fixed` decides, and the plans named beside it.

Belongs here: plan documents, the first plan, the runner-up. Does not: the search, and how a document is shown.
"""
