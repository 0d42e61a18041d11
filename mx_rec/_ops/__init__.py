"""The ops of the core in a graph: how each is built, found again, read and changed."""
