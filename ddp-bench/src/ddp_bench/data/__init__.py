"""Where the models' data comes from."""
