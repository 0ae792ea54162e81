"""What a rank writes of a checkpoint, and how it goes on from one."""
