"""Which TensorFlow a build is for: found once, here, for the compiler and for the wheel's dependencies.

The ops load only in the TensorFlow they were compiled against, so the wheel pins exactly that one. scikit-build-core
calls `dynamic_metadata` (pyproject.toml, [tool.scikit-build.metadata.dependencies]); CMake runs this file as a script
and reads "<version>;<package directory>". TensorFlow is located, never imported.
"""

import importlib.metadata
import importlib.util
import os
import sys

__all__ = ["dynamic_metadata"]

# All of them install the package `tensorflow`.
DISTRIBUTIONS = ("tensorflow-cpu", "tensorflow")


def installed():
    """(distribution, version) of the TensorFlow in this environment, or None."""
    found = {}
    for name in DISTRIBUTIONS:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    if len(set(found.values())) > 1:
        listed = " and ".join(f"{name} {version}" for name, version in found.items())
        raise RuntimeError(f"{listed} are installed over each other: uninstall both, then install one")
    return next(iter(found.items()), None)


def default():
    """The pin where there is nothing to look at, e.g. metadata without a build: as in build-system.requires."""
    return ("tensorflow-cpu", "2.15.1" if sys.version_info < (3, 12) else "2.21.0")


def dynamic_metadata(field, settings):
    if field != "dependencies":
        raise RuntimeError(f"tensorflow_pin provides `dependencies`, not {field!r}")
    name, version = installed() or default()
    return [f"{name}=={version}", *settings.get("besides", [])]


def main():
    spec = importlib.util.find_spec("tensorflow")
    found = installed()
    if spec is None or spec.origin is None or found is None:
        sys.exit(f"none of {', '.join(DISTRIBUTIONS)} is installed; pip install {'=='.join(default())}")
    print(f"{found[1]};{os.path.dirname(spec.origin)}")


if __name__ == "__main__":
    main()
