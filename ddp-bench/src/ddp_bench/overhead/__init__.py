"""What flodl's own parts cost, each measured against the plainest way to do the same."""
