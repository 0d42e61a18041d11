"""What the tests share: a quiet TensorFlow, and a freshly started mx_rec."""

import collections
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
    import model

    with model.process() as graph:
        yield graph


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
