"""``python -m shaderloom``: the same as the ``shaderloom`` command."""

from .cli import main

if __name__ == "__main__":
    main()
