"""Stand-ins for what is hard to have in a test: shipped, so that your tests can use them too."""
