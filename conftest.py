"""What the tests share: a quiet TensorFlow, and a freshly started mx_rec."""

import os

import pytest

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # read when TensorFlow is imported


@pytest.fixture
def started():
    """A new default graph, and mx_rec initialized with its default settings until the test ends."""
    from tests.shared import model

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
