"""Prints what an optional extra of pyproject.toml lists, a requirement a line, so that tools can be installed without
building the package."""

import pathlib
import sys

try:
    import tomllib
except ImportError:  # before Python 3.11
    from pip._vendor import tomli as tomllib

if __name__ == "__main__":
    settings = tomllib.loads((pathlib.Path(__file__).resolve().parent.parent / "pyproject.toml").read_text())
    print("\n".join(settings["project"]["optional-dependencies"][sys.argv[1]]))
