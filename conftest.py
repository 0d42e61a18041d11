"""What all tests share: a quiet TensorFlow, and fixtures. Other things that they share are in tests/shared."""

import collections
import logging
import os

import pytest

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # read when TensorFlow is imported


def pytest_collection_modifyitems(items):
    """Puts files with slow tests first, then those with many: a long one that begins last leaves the other process of
    `make test-python` idle."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    count = collections.Counter(item.path for item in items)
    items.sort(key=lambda item: (item.path not in slow, -count[item.path], item.path))


@pytest.fixture
def started():
    """A new default graph, and mx_rec initialized with its default settings until the test ends."""
    from tests.shared import model

    with model.process() as graph:
        yield graph


@pytest.fixture
def installed():
    """TensorFlow's Savers joined by ours, in a new default graph; no table is left when the test ends."""
    import tensorflow as tf

    from mx_rec._native import table as native_table
    from mx_rec._process import process
    from mx_rec._tf import patches

    patches.install()
    with tf.Graph().as_default():  # else TensorFlow 2 runs a Saver eagerly
        yield
    process.end()
    native_table.clear_all()


@pytest.fixture
def log():
    """The package's log lines, (level, text) each."""
    lines = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append((record.levelname, record.getMessage()))
    logger = logging.getLogger("mx_rec")
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield lines
    logger.removeHandler(handler)
    logger.setLevel(level)


@pytest.fixture(params=[False, True], ids=["limited", "expanding"])
def expansion(request):
    """init's use_dynamic_expansion."""
    return request.param


@pytest.fixture
def tool(capsys):
    """Runs a command: (exit status, stdout, stderr)."""

    def call(*arguments):
        from mx_rec import __main__

        status = __main__.main([str(argument) for argument in arguments])
        return (status, *capsys.readouterr())

    return call
