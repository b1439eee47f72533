"""Rules for the whole suite: where CI=true promises every tool, a skipped test is a failed one; and
no property fails because the machine is busy.
"""

import logging
import os
import signal

import pytest
from hypothesis import HealthCheck, settings

# The checks of the compatibility suite are no test modules, and shall tell what they compared.
pytest.register_assert_rewrite("tests.compat.checks")

settings.register_profile("steady", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("steady")

# A shell that starts the suite in the background has it ignore Ctrl-C, and so would every program
# that a test starts and interrupts.
signal.signal(signal.SIGINT, signal.default_int_handler)

_LOGGERS = [logging.getLogger(name) for name in ("headwater", "asyncio")]

_PROMISED = os.environ.get("CI") == "true"


def pytest_addoption(parser):
    parser.addoption(
        "--rewrite", action="store_true", help="write the scenarios of tests/scenarios again"
    )


def _refuse_a_skip(report):
    if _PROMISED and report.outcome == "skipped" and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"skipped, which CI=true does not allow: {report.longrepr}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    return _refuse_a_skip((yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    return _refuse_a_skip((yield))


@pytest.fixture(autouse=True)
def _logs_as_they_were():
    """A command that runs in this process sets up the logs; the next test's caplog must still hear."""
    before = [(one.propagate, one.level, list(one.handlers)) for one in _LOGGERS]
    yield
    for one, (propagate, level, handlers) in zip(_LOGGERS, before, strict=True):
        one.propagate = propagate
        one.setLevel(level)
        one.handlers[:] = handlers
