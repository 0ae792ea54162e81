import os
import warnings

import pytest


@pytest.fixture
def in_child():
    """Run a function in a forked process; return its exit code, negative for a signal.

    The function returning is code 0, raising is code 1 with the exception's text in ``said``.
    """

    def run(function):
        read, write = os.pipe()
        with warnings.catch_warnings():
            # The child only writes files and ends; it takes no lock that another thread may hold.
            warnings.simplefilter("ignore", DeprecationWarning)
            child = os.fork()
        if child == 0:
            code = 0
            try:
                function()
            except BaseException as error:
                os.write(write, f"{type(error).__name__}: {error}".encode())
                code = 1
            finally:
                os._exit(code)
        os.close(write)
        _, status = os.waitpid(child, 0)
        with os.fdopen(read, "rb") as pipe:
            said = pipe.read().decode()
        return os.waitstatus_to_exitcode(status), said

    return run
