"""ddp-bench: published training set-ups, run through flodl's public Trainer and judged."""
