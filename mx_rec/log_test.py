"""The logger: what a plain script sees, and that an application that configures logging has the last word."""

import subprocess
import sys

import pytest

SAY = "\nfrom mx_rec.util.log import logger\nlogger.info('an event')\nlogger.warning('a warning')\n"
BOTH, WARNING, NOTHING = ["an event", "a warning"], ["a warning"], []


def lines(script, **environment):
    """What a process writes to stderr."""
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, env={"PATH": "", **environment}
    )
    return result.stderr.splitlines()


def events(found):
    return [text for line in found for text in BOTH if text in line]


@pytest.mark.parametrize(
    "level, expected", [(None, BOTH), ("INFO", BOTH), ("WARNING", WARNING), ("CRITICAL", NOTHING), ("LOUD", BOTH)]
)
def test_a_plain_script_sees_what_the_environment_variable_asks_for(level, expected):
    found = lines(SAY, **({} if level is None else {"MXREC_LOG_LEVEL": level}))
    assert events(found) == expected
    assert all(line.startswith("[mx_rec] ") for line in found)


# What an application does -> what it sees, each line once, in its own format.
APPLICATIONS = {
    "a handler at the root": ("logging.basicConfig(format='APP %(message)s')", WARNING),
    "INFO at the root": ("logging.basicConfig(format='APP %(message)s', level=logging.INFO)", BOTH),
    "ERROR at the root": ("logging.basicConfig(format='APP %(message)s', level=logging.ERROR)", NOTHING),
    "INFO for mx_rec": (
        "logging.basicConfig(format='APP %(message)s'); logging.getLogger('mx_rec').setLevel(logging.INFO)",
        BOTH,
    ),
    "ERROR for mx_rec": (
        "logging.basicConfig(format='APP %(message)s', level=logging.DEBUG); "
        "logging.getLogger('mx_rec').setLevel(logging.ERROR)",
        NOTHING,
    ),
    "a handler of mx_rec alone": (
        "h = logging.StreamHandler(); h.setFormatter(logging.Formatter('APP %(message)s')); "
        "logging.getLogger('mx_rec').addHandler(h); logging.getLogger('mx_rec').setLevel(logging.INFO)",
        BOTH,
    ),
    "a dictionary": (
        "import logging.config; logging.config.dictConfig({'version': 1, 'disable_existing_loggers': False, "
        "'formatters': {'f': {'format': 'APP %(message)s'}}, "
        "'handlers': {'h': {'class': 'logging.StreamHandler', 'formatter': 'f'}}, "
        "'root': {'handlers': ['h'], 'level': 'INFO'}})",
        BOTH,
    ),
}


@pytest.mark.parametrize("is_before", [True, False], ids=["before the import", "after the import"])
@pytest.mark.parametrize("configure, expected", APPLICATIONS.values(), ids=APPLICATIONS)
def test_an_application_decides_on_handlers_and_levels(configure, expected, is_before):
    parts = [f"import logging; {configure}\n", "import mx_rec.util.log\n"]
    found = lines("".join(parts if is_before else parts[::-1]) + SAY)
    assert found == [f"APP {text}" for text in expected]


def test_an_application_that_sets_only_a_level_has_it_on_stderr():
    set_level = "import logging; logging.getLogger('mx_rec').setLevel(logging.WARNING)\n"
    assert events(lines(set_level + SAY)) == WARNING
    assert events(lines("import mx_rec.util.log\n" + set_level + SAY)) == WARNING
    assert events(lines(set_level + SAY, MXREC_LOG_LEVEL="INFO")) == WARNING


def test_the_environment_variable_holds_under_a_handler_of_the_application():
    configure = "import logging; logging.basicConfig(format='APP %(message)s')\n"
    assert lines(configure + SAY, MXREC_LOG_LEVEL="INFO") == [f"APP {text}" for text in BOTH]


def test_a_null_handler_changes_nothing_but_no_propagation_keeps_lines_from_the_root():
    assert (
        events(lines("import logging; logging.getLogger('mx_rec').addHandler(logging.NullHandler())\n" + SAY)) == BOTH
    )
    script = (
        "import logging; logging.basicConfig(format='APP %(message)s')\nlogging.getLogger('mx_rec').propagate = False\n"
    )
    found = lines(script + SAY)
    assert events(found) == BOTH and not any(line.startswith("APP") for line in found)


def test_without_stderr_nothing_goes_to_stdout():
    script = "import sys; sys.stderr = None\n" + SAY
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert result.stdout == result.stderr == ""
