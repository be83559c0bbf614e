"""Our servers, clients of both protocols, and what these were told."""
import base64
import collections
import email.utils
import hashlib
import hmac
import http.client
import json
import os
import signal
import socket
import subprocess
import threading
import time
import urllib.parse
import uuid

import mongo
from nodes import CLIENT_PEER, NODES, SERVER_SPACE, say

KEY = base64.b64encode(hashlib.sha512(b"a key for this run").digest()).decode()
# Longer than any answer of a server that lives may take.
ANSWER_SECS = 60
DOCS = "/dbs/d/colls/c/docs"


class Server:
    """One of ours. The second is in a network of its own, and its clock is half a minute ahead."""

    def __init__(self, binary, folder, second, cluster):
        apart = second and cluster.networks.there
        self.name = "the second server" if second else "the first server"
        self.host = CLIENT_PEER if apart else "127.0.0.1"
        self.port, self.mongo_port = (18181, 18182) if apart else (free_port(), free_port())
        hosts = ",".join(f"{cluster.host(n)}:1543{n}" for n in NODES)
        self.command = [binary, "--port", str(self.port), "--mongo-port", str(self.mongo_port), "--listen", self.host, "--key", KEY,
                        "--partitions", "4", "--store", f"postgres://postgres@{hosts}/postgres"]
        if second:
            self.command = cluster.networks.within(SERVER_SPACE) + ["faketime", "-f", "+30s", *self.command]
        self.log = f"{folder}/server{int(second)}.log"
        # Counts what was done to it: who gets no answer from a server to which nothing was done has found a fault.
        self.disturbed, self.down, self.lives = 0, False, 0
        self.start()

    def start(self):
        with open(self.log, "a") as log:
            self.process = subprocess.Popen(self.command, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True)
        line = self.process.stdout.readline()
        if "is ready" not in line:
            raise SystemExit(f"cluster: FAILED: {self.name} did not start (see {self.log}): {line}")
        threading.Thread(target=self.process.stdout.read, daemon=True).start()
        self.lives += 1
        self.down = False

    def kill(self):
        self.disturbed, self.down = self.disturbed + 1, True
        self.signal(signal.SIGKILL)
        self.process.wait()

    def freeze(self):
        self.disturbed, self.down = self.disturbed + 1, True
        self.signal(signal.SIGSTOP)

    def wake(self):
        self.signal(signal.SIGCONT)
        self.down = False

    def signal(self, number):
        try:
            os.killpg(self.process.pid, number)
        except ProcessLookupError:
            pass

    def ask(self, verb, path, link, kind, body=None, headers=()):
        """Status, answer and headers; 0 if there was none."""
        date = email.utils.formatdate(usegmt=True)
        text = f"{verb.lower()}\n{kind}\n{link}\n{date.lower()}\n\n"
        digest = base64.b64encode(hmac.digest(base64.b64decode(KEY), text.encode(), "sha256")).decode()
        token = urllib.parse.quote(f"type=master&ver=1.0&sig={digest}", safe="")
        connection = http.client.HTTPConnection(self.host, self.port, timeout=ANSWER_SECS)
        try:
            connection.request(verb, path, body and json.dumps(body), {
                "authorization": token, "x-ms-date": date, "x-ms-version": "2020-07-15", "content-type": "application/json",
                **dict(headers)})
            answer = connection.getresponse()
            content = answer.read()
            return answer.status, json.loads(content) if content else {}, answer.headers
        except (OSError, http.client.HTTPException, ValueError) as error:
            return 0, {}, {"error": repr(error)}
        finally:
            connection.close()

    def item(self, verb, name=None, body=None, **headers):
        link = "dbs/d/colls/c" + (f"/docs/{name}" if name else "")
        path = DOCS + (f"/{name}" if name else "")
        given = {"x-ms-documentdb-partitionkey": json.dumps([name or body["id"]])}
        return self.ask(verb, path, link, "docs", body, {**given, **headers}.items())


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Load:
    """Clients of both servers, and what they were told.

    As an SDK does, they repeat what was answered 503, 429 or 449: it was not done, and so must not be there. What was answered 408, or not
    at all by a server that died, may be there or not, and is not repeated. A MongoDB client repeats what has the label.
    """

    def __init__(self, servers):
        self.servers, self.stopping = servers, threading.Event()
        self.lock = threading.Lock()
        self.answers, self.wrong = collections.Counter(), []
        self.created, self.unknown = set(), set()
        self.counted, self.uncounted, self.floor = 0, 0, 0
        self.documents, self.increments, self.undone = set(), collections.Counter(), collections.Counter()
        # When each server did last what it was asked, by protocol.
        self.served = {}
        work = [self.create] * 4 + [self.count] * 2 + [self.expire] * 2 + [self.insert_and_increment] * 2
        self.threads = [threading.Thread(target=self.guarded, args=(one, n), daemon=True) for n, one in enumerate(work)]

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, why, *_):
        self.stopping.set()
        # Who waits for a frozen server is not waited for when the run is given up.
        for thread in self.threads if why is None else ():
            thread.join()

    def guarded(self, work, n):
        try:
            work(n)
        except Exception as error:  # A client that ends early would make the run test less than it says.
            self.fault(f"a client failed: {error!r}")

    def fault(self, text):
        with self.lock:
            self.wrong.append(text)
        say(f"WRONG: {text}")

    def wait_served(self, servers, secs=120):
        """Waits until these servers have done something of each protocol since now: the service is back by itself."""
        begun = time.monotonic()
        wanted = [(self.servers.index(server), protocol) for server in servers for protocol in ("rest", "mongo")]
        while not all(self.served.get(one, 0) > begun for one in wanted):
            if time.monotonic() > begun + secs:
                missing = [one for one in wanted if self.served.get(one, 0) <= begun]
                return self.fault(f"the service did not come back in {secs} s: {missing}")
            time.sleep(0.1)
        return None

    def told(self, which, what, answer, good):
        """Counts an answer, and judges it. Whether it says that nothing was done, and so may be asked again."""
        (status, body, headers), (server, before) = answer, which
        again = status in (429, 449, 503)
        with self.lock:
            self.answers[what, status] += 1
            if status in good:
                self.served[self.servers.index(server), "rest"] = time.monotonic()
        if status == 0 and not before[1] and before[0] == server.disturbed:
            self.fault(f"{what}: no answer from {server.name}, to which nothing was done: {headers['error']}")
        elif status not in (0, 408, 429, 449, 503, *good):
            self.fault(f"{what}: answered {status}: {body}")
        elif (again or status == 408) and not headers.get("x-ms-retry-after-ms"):
            self.fault(f"{what}: {status} without x-ms-retry-after-ms: {body}")
        if status == 0 or again or status == 408:
            time.sleep(0.2)
        return again

    @staticmethod
    def watched(server):
        return server, (server.disturbed, server.down)

    def create(self, n):
        number = 0
        while not self.stopping.is_set():
            number += 1
            name, server = f"i{n}-{number}", self.servers[number % 2]
            again = True
            while again and not self.stopping.is_set():
                which = self.watched(server)
                answer = server.item("POST", body={"id": name, "n": number, "text": name * 20})
                # 409 is never good: nobody else makes this item.
                again = self.told(which, "create", answer, (201,))
            with self.lock:
                if answer[0] == 201:
                    self.created.add(name)
                elif not again:
                    self.unknown.add(name)
            time.sleep(0.01)

    def count(self, n):
        turn = n
        while not self.stopping.is_set():
            turn += 1
            server = self.servers[turn % 2]
            which, floor = self.watched(server), self.floor
            answer = server.item("GET", "counter")
            self.told(which, "get", answer, (200,))
            if answer[0] != 200:
                continue
            value = answer[1]["n"] + 1
            if value - 1 < floor:
                self.fault(f"{server.name} read {value - 1} of the counter after {floor} had been acknowledged")
            which = self.watched(server)
            answer = server.item("PUT", "counter", {"id": "counter", "n": value}, **{"if-match": answer[1]["_etag"]})
            self.told(which, "count", answer, (200, 412))
            with self.lock:
                if answer[0] == 200:
                    self.counted, self.floor = self.counted + 1, max(self.floor, value)
                self.uncounted += answer[0] in (0, 408)

    def expire(self, n):
        number = 0
        while not self.stopping.is_set():
            number += 1
            name, server = f"t{n}-{number}", self.servers[number % 2]
            which = self.watched(server)
            answer = server.item("POST", body={"id": name, "ttl": 2})
            self.told(which, "create with ttl", answer, (201,))
            if answer[0] != 201:
                continue
            end, server = answer[1]["_ts"] + 2, self.servers[(number + 1) % 2]
            while not self.stopping.is_set():
                which, begun = self.watched(server), time.time()
                answer = server.item("GET", name)
                ended = time.time()
                self.told(which, "get with ttl", answer, (200, 404))
                if answer[0] == 200 and begun >= end:
                    self.fault(f"{name} was seen {begun - end:.1f} s after it had expired")
                if answer[0] == 404 and ended < end - 0.1:
                    self.fault(f"{name} was gone {end - ended:.1f} s before it expired")
                if answer[0] == 404:
                    break
                time.sleep(0.1)

    def insert_and_increment(self, n):
        """A driver's retryable writes. What one server has not answered is sent to the other."""
        at, session, number = n % 2, uuid.uuid4(), 0
        while not self.stopping.is_set():
            number += 1
            name = f"m{n}-{number}"
            insert = {"insert": "m", "documents": [{"_id": name, "text": name * 20}]}
            increment = {"update": "m", "updates": [{"q": {"_id": f"counter{n}"}, "u": {"$inc": {"n": 1}}, "upsert": True}]}
            made = self.retryable_write(at, session, 2 * number, insert)
            if made:
                self.documents.add(name)
            made = self.retryable_write(at, session, 2 * number + 1, increment)
            self.increments[n] += made is True
            self.undone[n] += made is None
            time.sleep(0.02)

    def retryable_write(self, at, session, number, command):
        """Whether it was made; None if the run ended before that was known."""
        what = "mongo " + next(iter(command))
        command = {**command, "lsid": {"id": session}, "txnNumber": number}
        at -= 1
        while not self.stopping.is_set():
            at = (at + 1) % 2
            server, connection = self.servers[at], None
            which = self.watched(server)
            try:
                connection = mongo.Connection(server.host, server.mongo_port, KEY, ANSWER_SECS)
                reply = connection.ask("d", command)
            except OSError as error:
                with self.lock:
                    self.answers[what, 0] += 1
                if not which[1][1] and which[1][0] == server.disturbed:
                    self.fault(f"{what}: no answer from {server.name}, to which nothing was done: {error!r}")
                time.sleep(0.2)
                continue
            finally:
                if connection:
                    connection.close()
            code, labels = reply.get("code", 0), reply.get("errorLabels", [])
            with self.lock:
                self.answers[what, code or "ok"] += 1
            if reply.get("ok") and not reply.get("writeErrors"):
                if reply.get("n") != 1:
                    self.fault(f"{what}: {reply}")
                with self.lock:
                    self.served[at, "mongo"] = time.monotonic()
                return True
            if "RetryableWriteError" not in labels:
                return self.fault(f"{what}: {reply}")
            time.sleep(0.2)
        return None

    def verify(self, server):
        """What is there at the end, by a server that has seen none of it."""
        stored, double, torn, more = set(), 0, 0, None
        while more is not False:
            headers = {"x-ms-max-item-count": "1000", **({"x-ms-continuation": more} if more else {})}
            status, answer, told = server.ask("GET", DOCS, "dbs/d/colls/c", "docs", headers=headers.items())
            if status != 200:
                self.fault(f"the items cannot be listed: {status} {answer}")
                break
            for item in answer["Documents"]:
                name = item["id"]
                double += name in stored
                stored.add(name)
                torn += name[0] == "i" and item["text"] != name * 20
            more = told.get("x-ms-continuation") or False
        items = {name for name in stored if name[0] == "i"}
        self.judge("items", self.created, self.unknown, items)
        if double or torn:
            self.fault(f"{double} items are listed twice, {torn} are torn")
        value = server.item("GET", "counter")[1].get("n", -1)
        if not self.counted <= value <= self.counted + self.uncounted:
            self.fault(f"the counter is {value} after {self.counted} acknowledged and {self.uncounted} unknown steps")
        say(f"{len(self.created)} items acknowledged, {len(self.unknown)} unknown, {len(items)} stored; counted to {value}, "
            f"{self.counted} acknowledged, {self.uncounted} unknown")
        connection = mongo.Connection(server.host, server.mongo_port, KEY, ANSWER_SECS)
        names = sorted(self.documents)
        for at in range(0, len(names), 500):
            some = names[at:at + 500]
            reply = connection.ask("d", {"find": "m", "filter": {"_id": {"$in": some}}, "batchSize": 1000})
            found = {document["_id"] for document in reply["cursor"]["firstBatch"]}
            if found != set(some):
                self.fault(f"acknowledged documents are lost: {sorted(set(some) - found)[:5]}")
        for n, made in self.increments.items():
            found = connection.ask("d", {"find": "m", "filter": {"_id": f"counter{n}"}})["cursor"]["firstBatch"]
            value = found[0]["n"] if found else 0
            if not made <= value <= made + self.undone[n]:
                self.fault(f"a document was incremented to {value}: {made} acknowledged, {self.undone[n]} unknown")
            say(f"MongoDB client {n}: {value} increments, {made} acknowledged, {self.undone[n]} unknown; "
                f"of both {len(names)} documents acknowledged")
        connection.close()
        kinds = sorted((f"{what} {status or 'none'}", n) for (what, status), n in self.answers.items())
        say("answers: " + ", ".join(f"{what}: {n}" for what, n in kinds))

    def judge(self, what, acknowledged, unknown, stored):
        lost = acknowledged - stored
        if lost:
            self.fault(f"{len(lost)} acknowledged {what} are lost: {sorted(lost)[:5]}")
        # Those that were under way at the end are not known either.
        others = stored - acknowledged - unknown
        if others:
            self.fault(f"{len(others)} {what} are there that were said not to be: {sorted(others)[:5]}")
