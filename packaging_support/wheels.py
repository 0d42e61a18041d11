"""Builds a wheel for each of several TensorFlows, and tries each in an environment that has never seen this tree.

    python packaging_support/wheels.py 2.15.1 2.18.1

The wheel for TensorFlow v is dist/tf-<v>/*.whl: op libraries work with exactly one version, and file names do not tell
which. What was done is printed, and written to dist/wheels.md as a table. The exit status is 1 if one failed.
"""

import os
import pathlib
import platform
import shutil
import subprocess
import sys
import tempfile
import time
import venv

ROOT = pathlib.Path(__file__).resolve().parent.parent
DIST = ROOT / "dist"


class Failed(Exception):
    """What could not be done, and why."""


def main():
    versions = sys.argv[1:]
    if not versions:
        sys.exit("which TensorFlow versions? For instance: wheels.py 2.15.1 2.21.0")
    lines, is_good = [], True
    for number, version in enumerate(versions, 1):
        _say(f"TensorFlow {version} ({number} of {len(versions)})")
        with tempfile.TemporaryDirectory(prefix="mx_rec-wheels-") as scratch:
            try:
                lines.append(_one(version, pathlib.Path(scratch)))
            except Failed as failure:
                _say(f"TensorFlow {version}: {failure}")
                lines.append((version, "–", "–", str(failure).splitlines()[0]))
                is_good = False
        _write(lines)
    print((DIST / "wheels.md").read_text(), end="")
    return 0 if is_good else 1


def _one(version, scratch):
    """Builds and tries one wheel; a line of the table."""
    builder = _environment(scratch / "build")
    _say("  installing it, and the build tools")
    pip = [builder, "-m", "pip", "--disable-pip-version-check"]
    tensorflow = f"tensorflow-cpu=={version}"
    _run("cannot be installed here", *pip, "install", tensorflow, "scikit-build-core>=0.10", "cmake", "ninja")
    began, target = time.monotonic(), DIST / f"tf-{version}"
    shutil.rmtree(target, ignore_errors=True)
    # Ninja uses all cores; -v shows what it compiles.
    _say(f"  compiling on {os.cpu_count()} cores")
    options = ("--no-build-isolation", "--no-deps", "-C", f"build-dir={scratch / 'objects'}", "-w", target)
    _run("the build failed", *pip, "wheel", "-v", *options, ROOT, shows=" Building CXX")
    seconds = time.monotonic() - began
    (wheel,) = target.glob("*.whl")
    _say(f"  {wheel.relative_to(ROOT)} in {seconds:.0f} s; trying it in a new environment")
    clean = _environment(scratch / "clean")
    _run("the wheel cannot be installed", clean, "-m", "pip", "-q", "--disable-pip-version-check", "install", wheel)
    (scratch / "work").mkdir()
    found = _run("the smoke test failed", clean, ROOT / "packaging_support" / "smoke.py", cwd=scratch / "work")
    _say(f"  {found.strip().splitlines()[-1]}")
    size = f"{wheel.stat().st_size / 1e6:.1f} MB"
    return version, size, f"{seconds:.0f} s", "passed"


def _environment(path):
    venv.create(path, with_pip=True)
    return path / "bin" / "python"


def _run(failure, *command, cwd=None, shows=None):
    """Runs a command; its output. Lines that hold `shows` are shown as they come."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    process = subprocess.Popen(
        list(map(str, command)), cwd=cwd, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    lines = []
    for line in process.stdout:
        lines.append(line)
        if shows is not None and shows in line:
            print(line.rstrip(), flush=True)
    if process.wait() != 0:
        sys.stdout.writelines(lines[-40:])
        errors = [line.strip() for line in lines if "error" in line.lower()]
        raise Failed(f"{failure}: {errors[-1] if errors else f'exit status {process.returncode}'}")
    return "".join(lines)


def _write(lines):
    DIST.mkdir(exist_ok=True)
    head = (f"TensorFlow, Python {platform.python_version()}", "wheel", "built in", "smoke test")
    rows = [head, ("---",) * len(head), *lines]
    (DIST / "wheels.md").write_text("".join(f"| {' | '.join(row)} |\n" for row in rows))


def _say(text):
    print(f"== {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
