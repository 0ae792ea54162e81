"""How the parameters of several ranks become one consensus."""
