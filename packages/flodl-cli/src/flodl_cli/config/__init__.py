"""``fdl.yml``: found, read, checked, and turned into a tree of commands."""
