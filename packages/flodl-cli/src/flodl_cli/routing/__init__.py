"""What the words of a command line mean: which command, with which arguments, or which help."""
