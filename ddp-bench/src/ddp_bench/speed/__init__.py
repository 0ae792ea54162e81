"""The speed suite: ten models, each as plain torch and as a graph."""
