"""Built-in commands: each module parses, calls one service, and prints."""
