"""The command line: `app` and a file per command."""
