"""What every other layer stands on: errors, logging, text for numbers, randomness."""
