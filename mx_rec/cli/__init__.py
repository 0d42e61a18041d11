"""The command line: `mx_rec <command>`, or `python -m mx_rec <command>`."""
