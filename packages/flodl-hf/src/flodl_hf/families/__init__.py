"""The six families: a specification each, and the classes that carry it."""
