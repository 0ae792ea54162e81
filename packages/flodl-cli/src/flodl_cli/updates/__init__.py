"""Which versions are newer, told at the end of a command and never waited for."""
