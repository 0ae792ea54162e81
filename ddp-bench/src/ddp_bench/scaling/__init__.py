"""How soon ranks of unequal speed reach a loss, against what torch and torchft offer for it."""
