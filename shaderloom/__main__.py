"""``python -m shaderloom``, and the ``shaderloom`` command."""

import atexit

from .interrupts import ignore_interrupts, leave_on_interrupt


def main() -> None:
    """Run the command line program; Ctrl-C is answered with a line from here to the end of the process."""
    leave_on_interrupt()
    atexit.register(ignore_interrupts)  # the first one runs last
    from .cli import main as run

    run()


if __name__ == "__main__":
    main()
