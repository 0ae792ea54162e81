"""Pictures and tables of graphs: text in the end, made of a scene that knows no format."""
