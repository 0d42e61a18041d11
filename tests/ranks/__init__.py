"""What several ranks do together, started by MPI as users start them."""
