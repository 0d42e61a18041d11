"""What becomes of a script's graph: modification, hooks, fusing, MetaGraphs."""
