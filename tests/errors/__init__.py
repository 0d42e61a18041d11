"""What is wrong in a program or comes at a bad time: told in full, and nothing changed by half."""
