"""From what a script looked up to the ops that a step runs."""
