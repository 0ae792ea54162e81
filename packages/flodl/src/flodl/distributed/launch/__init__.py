"""From one call in one process to a run over many: roles, processes, and their end."""
