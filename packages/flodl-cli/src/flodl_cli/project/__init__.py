"""What fdl keeps and makes for a project beside its manifests."""
