"""Three PostgreSQL nodes under Patroni and etcd, in networks of their own that can be cut."""
import fcntl
import glob
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.request

PACKAGES = ["postgresql", "patroni", "etcd-server", "etcd-client", "faketime", "iproute2"]
NODES = (1, 2, 3)
BRIDGE, BRIDGE_HOST = "sidereal0", "10.77.0.254"
SERVER_SPACE, SERVER_HOST = "sidereal-server", "10.77.0.9"
# The second server's clients come by a link of their own, which stays when the store is cut off.
CLIENT_HOST, CLIENT_PEER = "10.77.1.1", "10.77.1.2"


def say(text):
    print("cluster:", text, flush=True)


def skip(why):
    say(f"skipped: {why}")
    sys.exit(0)


def sh(*command, check=True):
    return subprocess.run(command, check=check, capture_output=True, text=True).stdout


def install():
    """Has Debian's packages here, or ends the run in one line."""
    if os.geteuid() != 0:
        skip("it needs root to install Debian's packages and to run three nodes")
    if not (all(map(shutil.which, ("patroni", "etcd", "faketime", "ip"))) and binaries()):
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        # The packages would start services of their own.
        forbid = pathlib.Path("/usr/sbin/policy-rc.d")
        ours = not forbid.exists()
        if ours:
            forbid.write_text("#!/bin/sh\nexit 101\n")
            forbid.chmod(0o755)
        try:
            for command in (["apt-get", "update", "-qq"], ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *PACKAGES]):
                if subprocess.run(command, env=environment, capture_output=True).returncode != 0:
                    skip("Debian's packages " + ", ".join(PACKAGES) + " cannot be installed")
        except FileNotFoundError:
            skip("there is no apt-get to install Debian's packages with")
        finally:
            if ours:
                forbid.unlink()


def binaries():
    """Where the newest PostgreSQL is."""
    found = glob.glob("/usr/lib/postgresql/*/bin/postgres")
    newest = sorted(found, key=lambda path: int(path.split("/")[4]))
    return str(pathlib.Path(newest[-1]).parent) if newest else None


def only_one():
    """Waits for another run on this machine to end; the lock goes with the process."""
    lock = open("/tmp/sidereal-cluster.lock", "w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        say("waits for another run on this machine")
        fcntl.flock(lock, fcntl.LOCK_EX)
    return lock


class Networks:
    """A namespace for each node and one for the second server, on a bridge. Where they are not permitted all are on loopback, and nothing can be cut."""

    def __init__(self):
        self.remove()
        try:
            self.make()
            self.there = self.carries()
        except subprocess.CalledProcessError:
            self.there = False
        if not self.there:
            self.remove()
            say("network namespaces are not permitted here: the run goes on without cutting networks")

    def make(self):
        sh("ip", "link", "add", BRIDGE, "type", "bridge")
        sh("ip", "addr", "add", f"{BRIDGE_HOST}/24", "dev", BRIDGE)
        sh("ip", "link", "set", BRIDGE, "up")
        places = [(f"sidereal-{n}", f"sidn{n}", f"10.77.0.{n}") for n in NODES] + [(SERVER_SPACE, "sids", SERVER_HOST)]
        for space, link, host in places:
            sh("ip", "netns", "add", space)
            sh("ip", "-n", space, "link", "set", "lo", "up")
            sh("ip", "link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", space)
            sh("ip", "link", "set", link, "master", BRIDGE, "up")
            sh("ip", "-n", space, "addr", "add", f"{host}/24", "dev", "eth0")
            sh("ip", "-n", space, "link", "set", "eth0", "up")
        sh("ip", "link", "add", "sidc", "type", "veth", "peer", "name", "eth1", "netns", SERVER_SPACE)
        sh("ip", "addr", "add", f"{CLIENT_HOST}/24", "dev", "sidc")
        sh("ip", "link", "set", "sidc", "up")
        sh("ip", "-n", SERVER_SPACE, "addr", "add", f"{CLIENT_PEER}/24", "dev", "eth1")
        sh("ip", "-n", SERVER_SPACE, "link", "set", "eth1", "up")

    @staticmethod
    def carries():
        """Whether one node hears another: a firewall may forbid it."""
        listen = "import socket; s = socket.create_server(('10.77.0.2', 7)); print(flush=True); s.settimeout(20); s.accept()"
        call = "import socket; socket.create_connection(('10.77.0.2', 7), 10)"
        listener = subprocess.Popen(["ip", "netns", "exec", "sidereal-2", sys.executable, "-c", listen],
                                    stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        listener.stdout.readline()
        called = subprocess.run(["ip", "netns", "exec", "sidereal-1", sys.executable, "-c", call], stderr=subprocess.DEVNULL)
        listener.kill()
        listener.wait()
        return called.returncode == 0

    @staticmethod
    def remove():
        """Everything that has our names, and whatever still runs there."""
        for space in [f"sidereal-{n}" for n in NODES] + [SERVER_SPACE]:
            if not os.path.exists(f"/run/netns/{space}"):
                continue
            for pid in sh("ip", "netns", "pids", space, check=False).split():
                kill(int(pid), signal.SIGKILL)
            sh("ip", "netns", "del", space, check=False)
        for link in ("sidn1", "sidn2", "sidn3", "sids", "sidc", BRIDGE):
            if os.path.exists(f"/sys/class/net/{link}"):
                sh("ip", "link", "del", link, check=False)

    @staticmethod
    def cut_server(cut):
        """Takes the second server's way to the store away, or gives it back."""
        sh("ip", "link", "set", "sids", "down" if cut else "up")

    @staticmethod
    def cut_node(n, cut):
        """Has node `n` not reach the other nodes, or reach them again. Servers reach it all the time."""
        for other in NODES:
            if other != n:
                sh("ip", "-n", f"sidereal-{n}", "route", "add" if cut else "del", "blackhole", f"10.77.0.{other}/32")

    def within(self, space):
        """What runs a command there."""
        return ["ip", "netns", "exec", space] if self.there else []

    def node_host(self, n):
        return f"10.77.0.{n}" if self.there else "127.0.0.1"


def kill(pid, number):
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


class Cluster:
    """Three nodes, each an etcd member, a Patroni agent and a PostgreSQL server."""

    def __init__(self, folder, networks):
        self.folder, self.networks = folder, networks
        self.processes = {}
        shutil.chown(folder, "postgres")
        # Before 3.0.3 Patroni overwrites the leader's key in etcd 3 without a look at whose it is now (docs/cluster.md);
        # by the former API it compares.
        version = re.findall(r"\d+", sh("patroni", "--version"))
        self.etcd_api = "etcd3" if tuple(map(int, version[:3])) >= (3, 0, 3) else "etcd"
        for n in NODES:
            self.configure(n)

    def host(self, n):
        return self.networks.node_host(n)

    def configure(self, n):
        names = {"scope": "sidereal", "name": f"pg{n}"}
        rest = {"listen": f"{self.host(n)}:1800{n}", "connect_address": f"{self.host(n)}:1800{n}"}
        dcs = {"ttl": 10, "loop_wait": 2, "retry_timeout": 4, "synchronous_mode": True, "synchronous_mode_strict": True,
               "postgresql": {"use_pg_rewind": True, "parameters": {"wal_log_hints": "on", "max_connections": 200}}}
        hosts = ["local all all trust"]
        for network in ("127.0.0.1/32", "10.77.0.0/24"):
            hosts += [f"host all all {network} trust", f"host replication all {network} trust"]
        who = {"superuser": {"username": "postgres", "password": "pw"}, "replication": {"username": "repl", "password": "pw"},
               "rewind": {"username": "rewind", "password": "pw"}}
        node = {"listen": f"{self.host(n)}:1543{n}", "connect_address": f"{self.host(n)}:1543{n}", "data_dir": f"{self.folder}/pg{n}",
                "bin_dir": binaries(), "pgpass": f"{self.folder}/pgpass{n}", "authentication": who,
                "parameters": {"unix_socket_directories": str(self.folder)}}
        initdb = [{"encoding": "UTF8"}, {"locale": "C"}, "data-checksums"]
        whole = {**names, "restapi": rest, self.etcd_api: {"hosts": ",".join(f"{self.host(i)}:2379{i}" for i in NODES)},
                 "bootstrap": {"dcs": dcs, "initdb": initdb, "pg_hba": hosts}, "postgresql": node}
        # JSON is YAML.
        pathlib.Path(f"{self.folder}/p{n}.yml").write_text(json.dumps(whole))

    def spawn(self, n, name, command):
        with open(f"{self.folder}/{name}.log", "a") as log:
            self.processes[name] = subprocess.Popen(self.networks.within(f"sidereal-{n}") + command, stdout=log, stderr=log,
                                                    start_new_session=True)

    def start(self, n):
        peer, client = f"http://{self.host(n)}:2380{n}", f"http://{self.host(n)}:2379{n}"
        members = ",".join(f"e{i}=http://{self.host(i)}:2380{i}" for i in NODES)
        old = ["--enable-v2=true"] if self.etcd_api == "etcd" else []
        self.spawn(n, f"e{n}", ["etcd", "--name", f"e{n}", "--data-dir", f"{self.folder}/e{n}", "--initial-cluster", members,
                                "--listen-client-urls", client, "--advertise-client-urls", client,
                                "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, *old])
        self.spawn(n, f"p{n}", ["setpriv", "--reuid=postgres", "--regid=postgres", "--init-groups", "patroni",
                                f"{self.folder}/p{n}.yml"])

    def members(self):
        """The cluster as the node sees it that knows of the latest timeline: one that was cut off knows less."""
        views = [[]]
        for n in NODES:
            try:
                with urllib.request.urlopen(f"http://{self.host(n)}:1800{n}/cluster", timeout=2) as answer:
                    views.append(json.load(answer)["members"])
            except (OSError, ValueError):
                pass
        return max(views, key=lambda view: max((m.get("timeline") or 0 for m in view), default=-1))

    def leader(self):
        """The leader, as soon as there is one."""
        def leaders(members):
            return [int(m["name"][2:]) for m in members if m["role"] == "leader"]
        return leaders(self.wait("a leader", leaders))[0]

    def wait(self, what, done, secs=180):
        """Waits until the members are so. The limit is for a machine that is slow; as a rule it takes a few seconds."""
        end = time.monotonic() + secs
        while time.monotonic() < end:
            members = self.members()
            if done(members):
                return members
            time.sleep(0.3)
        raise SystemExit(f"cluster: FAILED: {what} did not come about in {secs} s: {self.members()} (logs in {self.folder})")

    def wait_healthy(self):
        """A leader, and both others follow it on its timeline, one of them synchronously."""
        def healthy(members):
            good = [m for m in members if m["state"] in ("running", "streaming")]
            roles = [m["role"] for m in good]
            return (len(good) == 3 and "leader" in roles and "sync_standby" in roles
                    and len({m.get("timeline") for m in good}) == 1)
        self.wait("a healthy cluster", healthy)

    def wait_other_leader(self, than):
        """Another node leads."""
        def other(members):
            return any(m["role"] == "leader" and m["state"] == "running" and m["name"] != f"pg{than}" for m in members)
        self.wait("another leader", other)

    def postgres(self, n):
        """The process ids of a node's PostgreSQL."""
        try:
            server = int(pathlib.Path(f"{self.folder}/pg{n}/postmaster.pid").read_text().split()[0])
        except (OSError, ValueError, IndexError):
            return []
        return [server, *map(int, sh("pgrep", "-P", str(server), check=False).split())]

    def signal(self, n, number, agent=True, etcd=True):
        """Sends a signal to a node: its PostgreSQL, and if wanted its agent and its etcd member."""
        # The agent first, lest it sees what happens.
        pids = [self.processes[f"p{n}"].pid] if agent else []
        pids += [self.processes[f"e{n}"].pid] if etcd else []
        for pid in pids + self.postgres(n):
            kill(pid, number)

    def stop(self):
        """Ends whatever runs from the folder: it is ours alone."""
        for process in self.processes.values():
            kill(process.pid, signal.SIGKILL)
        for _ in range(100):
            pids = list(self.left())
            for pid in pids:
                kill(pid, signal.SIGKILL)
            if not pids:
                break
            time.sleep(0.1)
        for process in self.processes.values():
            process.wait()

    def left(self):
        for entry in glob.glob("/proc/[0-9]*"):
            try:
                if int(entry[6:]) == os.getpid():
                    continue
                command = pathlib.Path(entry, "cmdline").read_bytes().decode(errors="replace")
                # A dead one has neither.
                if self.folder in command or os.readlink(f"{entry}/cwd").startswith(self.folder):
                    yield int(entry[6:])
            except OSError:
                pass
