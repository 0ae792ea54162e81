"""From a family and a config to the backbone, as a graph."""
