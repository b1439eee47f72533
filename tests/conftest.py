"""Rules for the whole suite.

Modules, and the tests of a module, run in random order: a test that needs another one fails sooner or
later. Where CI=true promises every tool, a skipped test is a failed one. No property fails because the
machine is busy.
"""

import logging
import os
import random
import signal
from itertools import groupby

import pytest
from hypothesis import HealthCheck, settings

# The checks of the compatibility suite are not test modules, but their assertions explain themselves too.
pytest.register_assert_rewrite("tests.compat.checks")

settings.register_profile("steady", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("steady")

# A shell that starts the suite in the background has it ignore Ctrl-C, and so would every program
# that a test starts and interrupts.
signal.signal(signal.SIGINT, signal.default_int_handler)

_LOGGERS = [logging.getLogger(name) for name in ("headwater", "asyncio")]

_SEED = "order_seed"
_SEEDS = 1_000_000

_PROMISED = os.environ.get("CI") == "true"


# -- options and order


def pytest_addoption(parser):
    parser.addoption(
        "--order-seed",
        type=int,
        metavar="N",
        help="repeat the order of a run, which its last lines name; 0 is the order of the files",
    )
    parser.addoption(
        "--rewrite", action="store_true", help="write the scenarios of tests/scenarios again"
    )


def pytest_configure(config):
    config.addinivalue_line(
        "markers", "in_order(reason): the tests of this module run in the order of the file"
    )
    if config.option.order_seed is None:
        drawn = getattr(config, "workerinput", {}).get(_SEED, random.randrange(1, _SEEDS))
        config.option.order_seed = drawn
    config.pluginmanager.register(_FailuresAtOnce(config))


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node):
    """All workers of xdist have the order of their controller."""
    node.workerinput[_SEED] = node.config.option.order_seed


@pytest.hookimpl(tryfirst=True)  # pytest then brings together what shares a parametrized fixture
def pytest_collection_modifyitems(config, items):
    seed = config.option.order_seed
    if not seed:
        return
    chance = random.Random(seed)
    modules = [list(tests) for _, tests in groupby(items, lambda item: item.path)]
    chance.shuffle(modules)
    for tests in modules:
        if tests[0].get_closest_marker("in_order") is None:
            chance.shuffle(tests)
    items[:] = [item for tests in modules for item in tests]


class _FailuresAtOnce:
    """Names a failed test when it fails: the summary of a long run may be minutes away."""

    def __init__(self, config):
        self._config = config

    def pytest_runtest_logreport(self, report):
        terminal = self._config.pluginmanager.get_plugin("terminalreporter")
        if report.failed and terminal is not None:
            terminal.write_line(f"\nfailed: {report.nodeid} ({report.when})")


def pytest_terminal_summary(terminalreporter, config):
    if config.option.order_seed:
        terminalreporter.write_line(f"order of the tests: --order-seed={config.option.order_seed}")


# -- skips


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


# -- logs


@pytest.fixture(autouse=True)
def _logs_as_they_were():
    """A command that runs in this process sets up the logs; the next test's caplog must still hear."""
    before = [(one.propagate, one.level, list(one.handlers)) for one in _LOGGERS]
    yield
    for one, (propagate, level, handlers) in zip(_LOGGERS, before, strict=True):
        one.propagate = propagate
        one.setLevel(level)
        one.handlers[:] = handlers
