"""Who takes part in a run, and where: hosts, devices, and what a process is told of its place."""
