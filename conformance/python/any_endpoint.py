"""A pytest plugin for the SDK's own suite.

The suite takes an endpoint for the emulator only if it is the emulator's address; here every endpoint is. It also needs a
helper package of the SDK's repository that no registry has; what it takes from it is made up below. Results go to the file
that SUITE_RESULTS names, a JSON object a line, for conformance/run.
"""
import json
import os
import re
import sys
import types

import pytest
from azure.cosmos import _retry_utility
from azure.cosmos.aio import _retry_utility_async

KEY = os.environ["ACCOUNT_KEY"]
started = {}


def stand_in(name, **members):
    module = types.ModuleType(name)
    vars(module).update(members)
    sys.modules[name] = module


def is_live():
    return True


stand_in("devtools_testutils")
stand_in("devtools_testutils.azure_recorded_testcase", get_credential=lambda **_: KEY)
stand_in("devtools_testutils.helpers", is_live=is_live)

import test_config  # noqa: E402  (needs the stand-ins)

CONFIG = getattr(test_config, "TestConfig", None)
if CONFIG:  # older releases know no such difference
    CONFIG.is_emulator = True
    # Tests with made-up regions tell two apart by their host names: the account's, and this.
    CONFIG.local_host = CONFIG.host.replace("127.0.0.1", "localhost")
    CONFIG.credential = CONFIG.credential_async = KEY


# Of several regions, live splits, or previews of the service: none of it is in one server.
ELSEWHERE = {"cosmosSplit", "cosmosMultiRegion", "cosmosCircuitBreakerMultiRegion",
             "cosmosPerPartitionAutomaticFailover", "cosmosGSI"}


def pytest_configure(config):
    config.addinivalue_line("filterwarnings", "ignore")


def pytest_collection_modifyitems(config, items):
    gone = [item for item in items if ELSEWHERE & {mark.name for mark in item.iter_markers()}]
    if gone:
        config.hook.pytest_deselected(items=gone)
        items[:] = [item for item in items if item not in gone]


@pytest.fixture(autouse=True)
def unpatched():
    """Some tests put a stand-in before every request, and leave it there if they fail: one failure is to be one."""
    names = [(_retry_utility, "ExecuteFunction"), (_retry_utility_async, "ExecuteFunctionAsync")]
    saved = [getattr(module, name) for module, name in names]
    yield
    for (module, name), function in zip(names, saved):
        setattr(module, name, function)


def pytest_runtest_logreport(report):
    """Called for set-up, call and tear-down; the worst of the three is the result."""
    if os.environ.get("PYTEST_XDIST_WORKER"):
        return  # the controller hears of it too
    result = started.setdefault(report.nodeid, {"outcome": "passed", "secs": 0, "why": ""})
    result["secs"] += report.duration
    if report.failed and result["outcome"] != "failed":
        result.update(outcome="failed", why=first_line(report))
    elif report.skipped and result["outcome"] == "passed":
        result.update(outcome="skipped", why=str(report.longrepr[-1] if report.longrepr else ""))
    if report.when == "teardown":
        name = re.sub(r"^tests?/", "", report.nodeid)
        with open(os.environ["SUITE_RESULTS"], "a") as file:
            file.write(json.dumps({"name": name, **started.pop(report.nodeid)}) + "\n")


def first_line(report):
    crash = getattr(report.longrepr, "reprcrash", None)
    lines = (crash.message if crash else str(report.longrepr)).strip().splitlines()
    return re.sub(r"\s+", " ", lines[0] if lines else "")[:300]
