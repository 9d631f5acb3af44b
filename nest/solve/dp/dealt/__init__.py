"""Plans whose stages have several chunks: the layers are dealt, and what is left to search is small."""
