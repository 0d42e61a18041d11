"""The repository itself: who may import whom, the documentation, annotations, the wheel."""
