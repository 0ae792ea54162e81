"""How fast batches reach the device, against the best that torch's own loader does."""
