"""How ranks find each other, form groups and exchange tensors, one generation after another.

Nothing is imported here: `store` and `segments` serve processes that must not load torch.
"""
