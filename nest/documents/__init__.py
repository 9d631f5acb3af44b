"""The answer as a document: a found or fixed plan, and the plans named beside it.

Belongs here: plan documents, the first plan, the runner-up. Does not: the search, and how a document is shown.
"""
