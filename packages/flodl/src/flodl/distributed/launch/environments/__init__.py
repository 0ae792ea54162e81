"""Who started this process: nobody in particular, torchrun or Slurm."""
