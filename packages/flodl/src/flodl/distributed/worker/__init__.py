"""What runs in a rank besides its training: the link to its controller, the loop, the tiers."""
