"""Ranks talking to each other."""
