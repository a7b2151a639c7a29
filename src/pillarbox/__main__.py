"""`python -m pillarbox`."""

from pillarbox.cli import main

if __name__ == "__main__":
    main()
