"""`python -m sadq` is the command line."""

from sadq.cli import main

if __name__ == "__main__":
    main()
