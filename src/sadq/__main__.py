"""`python -m sadq` is the command line."""

from sadq.cli.main import main

if __name__ == "__main__":
    main()
