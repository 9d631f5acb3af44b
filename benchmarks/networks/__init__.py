"""What planning on levels loses on networks that are no hierarchy, against the best plan with the best placement."""
