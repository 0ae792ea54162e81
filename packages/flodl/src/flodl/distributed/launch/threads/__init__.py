"""Ranks as threads of one process, for tests: the real controller and ranks, without sockets."""
