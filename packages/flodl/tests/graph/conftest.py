import pytest


@pytest.fixture(autouse=True, scope="session")
def no_progress_threads():
    """Keep the compiler's progress bars, where they are installed, from leaving a thread."""
    try:
        from tqdm import tqdm
    except ImportError:
        return
    tqdm.monitor_interval = 0
