"""`python -m nest`: the command line."""

from nest.cli.app import main

if __name__ == "__main__":
    main()
