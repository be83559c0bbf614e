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
import urllib.parse

import pytest
from azure.core.pipeline.transport import RequestsTransport
from azure.cosmos import _retry_utility
from azure.cosmos.aio import _retry_utility_async

try:
    from azure.core.pipeline.transport import AioHttpTransport
except ImportError:  # older releases are tried without their asynchronous half
    AioHttpTransport = None

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
    # Tests with made-up regions tell two apart by how they write this: see below.
    CONFIG.local_host = CONFIG.host
    CONFIG.credential = CONFIG.credential_async = KEY


# Of several regions, of splits that the test waits for the service to make, or of previews: none of it is in one server.
ELSEWHERE = {"cosmosSplit", "cosmosMultiRegion", "cosmosCircuitBreakerMultiRegion",
             "cosmosPerPartitionAutomaticFailover", "cosmosGSI", "semanticReranker"}
# Run against accounts of several regions too; those that run nowhere else need one.
ONE_REGION = {"cosmosEmulator", "cosmosLong", "cosmosQuery", "cosmosSearchQuery"}

# How many requests were sent, by this process.
sent = 0


def counting(send):
    def counted(self, request, *args, **kwargs):
        global sent
        sent += 1
        url = urllib.parse.urlsplit(request.url)
        if url.path in ("", "/"):
            # The emulator is asked as localhost and says that it is at 127.0.0.1; the suite makes two regions of that.
            request.headers["X-Forwarded-Host"] = f"127.0.0.1:{url.port}"
        return send(self, request, *args, **kwargs)
    return counted


for transport in filter(None, [RequestsTransport, AioHttpTransport]):
    transport.send = counting(transport.send)


def pytest_configure(config):
    config.addinivalue_line("filterwarnings", "ignore")


def is_elsewhere(item):
    marks = {mark.name for mark in item.iter_markers()}
    return bool(ELSEWHERE & marks) or ("cosmosCircuitBreaker" in marks and not ONE_REGION & marks)


def pytest_collection_modifyitems(config, items):
    gone = [item for item in items if is_elsewhere(item)]
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


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item):
    """Notes whether a test asks the server: a suite has many that need none."""
    before = sent
    item.user_properties.append(("asked", lambda: sent > before))
    yield


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    report = outcome.get_result()
    report.user_properties = [(name, value() if callable(value) else value) for name, value in report.user_properties]


def pytest_runtest_logreport(report):
    """Called for set-up, call and tear-down; the worst of the three is the result."""
    result = started.setdefault(report.nodeid, {"outcome": "passed", "secs": 0, "why": "", "asked": False})
    result["secs"] += report.duration
    result["asked"] |= dict(report.user_properties).get("asked", False)
    if report.failed and result["outcome"] != "failed":
        result.update(outcome="failed", why=first_line(report))
    elif report.skipped and result["outcome"] == "passed":
        result.update(outcome="skipped", why=str(report.longrepr[-1] if report.longrepr else ""))
    if report.when == "teardown":
        # Some names hold a container's, which is made up anew each time.
        name = re.sub(r"-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "", re.sub(r"^tests?/", "", report.nodeid))
        with open(os.environ["SUITE_RESULTS"], "a") as file:
            file.write(json.dumps({"name": name, **started.pop(report.nodeid)}) + "\n")


def first_line(report):
    crash = getattr(report.longrepr, "reprcrash", None)
    lines = (crash.message if crash else str(report.longrepr)).strip().splitlines()
    return re.sub(r"\s+", " ", lines[0] if lines else "")[:300]
