"""What exporters of launchers share: ranks by node, and the shell scripts that start them."""
