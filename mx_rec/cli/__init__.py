"""The command line: `python -m mx_rec <command>`."""
