"""Reading Python: a file as bytes with its tree, the outline of a class, what a method does."""
