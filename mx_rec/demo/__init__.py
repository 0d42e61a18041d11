"""The demo: generated clicks, a two-tower model and its training."""
