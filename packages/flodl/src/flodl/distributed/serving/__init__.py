"""The controller process: one port, the journal and the clock around the pure controller."""
