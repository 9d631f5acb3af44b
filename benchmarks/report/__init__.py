"""How large report pages are, and how long a browser takes to show them."""
