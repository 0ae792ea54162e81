"""The ``fdl`` command: task runner, libtorch manager, cluster operator's tool."""

__version__ = "0.1.0"
