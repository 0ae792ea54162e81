"""The host daemon: one process a host that starts ranks, watches them and speaks for them."""
