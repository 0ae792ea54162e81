"""What the tests of the native part share."""

import pytest

from flodl_sys import kernels, names


@pytest.fixture(scope="session")
def native() -> None:
    """Skips in a pure build, which is an error where the native part was demanded."""
    found = kernels.status()
    if not found.is_native:
        assert names.SYS_NATIVE.get() != "1", f"a native build was demanded: {found.reason}"
        pytest.skip(f"pure build of flodl-sys: {found.reason}")
