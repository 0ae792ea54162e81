"""What stands on a backbone: graphs, losses, and methods that take texts."""
