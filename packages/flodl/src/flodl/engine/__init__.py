"""One rank's work: the step, the loop over an epoch, the evaluation."""
