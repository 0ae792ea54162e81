"""How fast flodl-hf is beside the reference library: forward, fine-tuning step, loading."""
