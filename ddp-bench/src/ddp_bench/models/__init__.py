"""The model definitions, one a file: how it is built, trained and judged."""
