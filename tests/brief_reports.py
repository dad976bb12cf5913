"""What a process that runs tests says to the one that counts them: less than everything.

pytest-xdist sends six messages for each test: that it begins, a report of its setup, its call and its teardown, that it has
ended, and that the next one may come.  They are written and read in Python, and take longer than pytest itself does with a
small test.  What passed beside the call and wrote nothing says nothing that is shown.  `conftest.py` calls this.
"""

from __future__ import annotations

import pytest
from _pytest.runner import runtestprotocol


def report_briefly(config: pytest.Config) -> None:
    """Leave messages out that nobody asked for.

    The times of all parts (`--durations`, `--junit-xml`) are in their reports, and a run that ends at a failure (`-x`) has
    to know of it before the teardown.
    """
    asked = config.option
    # 0 durations are all of them.
    if asked.durations is None and not (asked.xmlpath or asked.maxfail):
        config.pluginmanager.register(BriefReports())


class BriefReports:
    """Reports calls, setups and teardowns that did not pass, and teardowns that wrote something."""

    @pytest.hookimpl(tryfirst=True)  # before pytest's own, which reports everything
    def pytest_runtest_protocol(
        self, item: pytest.Item, nextitem: pytest.Item | None
    ) -> bool:
        """Run a test; what holds it to its time, or collects its warnings, stands around this as ever."""
        hook = item.ihook
        for report in runtestprotocol(item, log=False, nextitem=nextitem):
            if report.when == "call" or not report.passed or _wrote_at_last(report):
                hook.pytest_runtest_logreport(report=report)
        hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        return True


def _wrote_at_last(report: pytest.TestReport) -> bool:
    """Whether a teardown has output, which is shown with the test's failure, but is in no other report of it."""
    return report.when == "teardown" and any(
        title.endswith(" teardown") for title, _ in report.sections
    )
