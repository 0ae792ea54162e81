"""For the tests of all packages."""

import signal


def pytest_configure():
    """Make Ctrl-C arrive again: a shell's background jobs start with SIGINT ignored, and so would
    every program that a test starts and interrupts."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
