"""A pytest plugin: points the tests of MongoDB's Python driver at the server that MONGO_URI names, keeps those that talk to a server, and
writes a line of JSON for each result to SUITE_RESULTS.

The driver's own harness expects to start servers and to find test commands; ours is one server that is already there.
"""
import json
import os
import re

import pymongo
from pymongo import uri_parser

address = uri_parser.parse_uri(os.environ["MONGO_URI"])["nodelist"][0]
os.environ["DB_IP"], os.environ["DB_PORT"] = address[0], str(address[1])

import test as harness  # noqa: E402  it reads the address when it is imported
from test.version import Version  # noqa: E402

started = {}


def find_server(context):
    """Stands in for the harness's own search: what the tests ask about a server, from the server itself."""
    host, port = address
    context.mongoses, context.connection_attempts = [], []
    context.client = context._connect(host, port)
    if not context.client:
        return
    context.connected = True
    context.cmd_line = {"argv": [], "parsed": {}}
    context.server_status = context.client.admin.command("serverStatus")
    context.server_parameters = dict(context.client.admin.command("getParameter", "*"))
    name = context.hello["setName"]
    context.client.close()
    context.replica_set_name, context.is_rs = name, True
    context.client = pymongo.MongoClient(host, port, replicaSet=name, **context.default_client_options)
    context._hello = None
    context.sessions_enabled = "logicalSessionTimeoutMinutes" in context.hello
    context.nodes = {harness.partition_node(node.lower()) for node in context.hello["hosts"]}
    context.w = len(context.hello["hosts"])
    context.version = Version.from_client(context.client)
    context.has_ipv6 = context.is_mongos = False


harness.ClientContext._init_client = find_server


def pytest_collection_modifyitems(config, items):
    talks = [item for item in items if item.cls and issubclass(item.cls, harness.IntegrationTest)]
    config.hook.pytest_deselected(items=[item for item in items if item not in set(talks)])
    items[:] = talks


def pytest_runtest_logreport(report):
    """Called for set-up, call and tear-down; the worst of the three is the result."""
    result = started.setdefault(report.nodeid, {"outcome": "passed", "secs": 0, "why": ""})
    result["secs"] += report.duration
    if report.failed and result["outcome"] != "failed":
        crash = getattr(report.longrepr, "reprcrash", None)
        lines = (crash.message if crash else str(report.longrepr)).strip().splitlines() or [""]
        result.update(outcome="failed", why=re.sub(r"\s+", " ", lines[0])[:300])
    elif report.skipped and result["outcome"] == "passed":
        result.update(outcome="skipped", why=str(report.longrepr[-1] if isinstance(report.longrepr, tuple) else report.longrepr or ""))
    if report.when == "teardown":
        name = re.sub(r"^test/", "", report.nodeid)
        with open(os.environ["SUITE_RESULTS"], "a") as file:
            file.write(json.dumps({"name": name, **started.pop(report.nodeid)}) + "\n")
