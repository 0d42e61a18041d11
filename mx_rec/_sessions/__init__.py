"""What is noticed when a session is made, first runs a lookup, and ends."""
