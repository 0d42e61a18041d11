"""Joins the other ranks and leaves them: python -m tests.ranks.joining."""

from mx_rec.util.initialize import init, terminate_config_initializer

if __name__ == "__main__":
    init()
    terminate_config_initializer()
