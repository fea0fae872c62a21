# SPDX-License-Identifier: MIT
"""From empty directories to a healthy pool."""
import json
import os
import socket
import subprocess
import time

from . import netns, process
from .state import Refused


def check_tools(bin_dir):
    for program in ("ashlar", "ashlar-mdm", "ashlar-sds"):
        if not os.access(os.path.join(bin_dir, program), os.X_OK):
            raise Refused(f"{bin_dir}/{program} is not built; build with: cmake --preset release && cmake --build build"
                          " (or name another folder with --bin)")


def port_is_free(port):
    with socket.socket() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            s.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def free_base_port(wanted, args):
    """The first base whose ports are all free (a second dev cluster may run beside this one)."""
    for base in range(wanted, wanted + 2000, 100):
        ports = [base + 11 + i for i in range(args.mdm)] + [base + 2411 + i for i in range(args.mdm)]
        ports += [base + 472 + i for i in range(args.sds)]
        if all(port_is_free(p) for p in ports):
            return base
    raise Refused(f"no free ports from {wanted} on; give another start with --base-port")


def command_of(cluster, name):
    node, bin_dir = cluster.node(name), cluster.data["bin"]
    run = os.path.join(node["dir"], "run")
    os.makedirs(run, exist_ok=True)
    state = os.path.join(node["dir"], "state")
    os.makedirs(state, exist_ok=True)
    listen = f"{node['ip']}:{node['port']}"
    if node["kind"] == "mdm":
        argv = [f"{bin_dir}/ashlar-mdm", "--name", name, "--state-dir", state, "--run-dir", run,
                "--listen", listen, "--raft", f"{node['ip']}:{node['raft_port']}"]
        return argv + (["--tie-breaker"] if node["tie_breaker"] else [])
    argv = [f"{bin_dir}/ashlar-sds", "--state-dir", state, "--run-dir", run, "--listen", listen,
            "--mdm", cluster.mdm_list()]
    return argv + ["--devices", os.path.join(node["dir"], "*.img")]


def start_node(cluster, name):
    node = cluster.node(name)
    process.launch(node, command_of(cluster, name), netns.prefix(cluster, name))
    cluster.save()


def ashlar(cluster, *argv, timeout=60):
    """Runs the CLI; returns its JSON."""
    env = dict(os.environ, ASHLAR_MDM=cluster.mdm_list())
    p = subprocess.run([f"{cluster.data['bin']}/ashlar", *argv, "--json"], env=env, capture_output=True,
                       text=True, timeout=timeout)
    if p.returncode != 0:
        raise Refused(f"ashlar {' '.join(argv)}: {p.stderr.strip() or p.stdout.strip()}")
    return json.loads(p.stdout) if p.stdout.strip() else {}


def wait_for(what, seconds, test, cluster):
    """Polls until test() is true; says which daemon died or what its log says when it is not."""
    end = time.monotonic() + seconds
    last = ""
    while time.monotonic() < end:
        for name, node in cluster.nodes.items():
            if node["pid"] and process.state_of(node) == "down":
                raise Refused(f"{name} ended while waiting for {what}; its log ends with:\n"
                              + process.last_lines(node["log"]))
        try:
            if test():
                return
        except (Refused, subprocess.TimeoutExpired) as e:
            last = str(e)
        process.pause([n for n in cluster.nodes.values() if n["pid"]], 0.1)
    raise Refused(f"gave up waiting {seconds} s for {what}" + (f"; last answer: {last}" if last else ""))


def listening(node):
    try:
        with socket.create_connection((node["ip"], node["port"]), timeout=1):
            return True
    except OSError:
        return False


def make_files(cluster):
    for node in cluster.nodes.values():
        os.makedirs(node["dir"], exist_ok=True)
        for path in node.get("devices", []):
            with open(path, "wb") as f:
                f.truncate(cluster.data["device_bytes"])


def bring_up(cluster, say):
    make_files(cluster)
    if cluster.data["netns"]:
        netns.create(cluster)
    for name in cluster.nodes:
        start_node(cluster, name)
    mdms = {n: v for n, v in cluster.nodes.items() if v["kind"] == "mdm"}
    sdss = {n: v for n, v in cluster.nodes.items() if v["kind"] == "sds"}
    say(f"started {len(mdms)} MDM and {len(sdss)} SDS daemons in {cluster.dir}")
    wait_for("the daemons to listen", 30, lambda: all(listening(n) for n in cluster.nodes.values()), cluster)
    members = []
    for name, n in mdms.items():
        members += ["--tb" if n["tie_breaker"] else "--mdm", f"{name}={n['ip']}:{n['port']}/{n['ip']}:{n['raft_port']}"]
    ashlar(cluster, "system", "create", "--name", "dev", *members)
    ashlar(cluster, "protection-domain", "create", "--name", "pd1")
    for i in range(cluster.data["fault_sets"]):
        ashlar(cluster, "fault-set", "create", "--protection-domain", "pd1", "--name", f"fs{i + 1}")
    for name, n in sdss.items():
        ashlar(cluster, "sds", "add", "--name", name, "--protection-domain", "pd1", "--fault-set", n["fault_set"],
               "--address", f"{n['ip']}:{n['port']}")
    ashlar(cluster, "pool", "create", "--protection-domain", "pd1", "--name", "pool1",
           "--pg-count", str(cluster.data["pgs"]), "--spare", cluster.data["spare"])
    for name, n in sdss.items():
        for path in n["devices"]:
            ashlar(cluster, "device", "add", "--sds", name, "--pool", "pool1", "--path", path, "--no-wait")
    ashlar(cluster, "sdc", "add", "--name", "sdc1", "--guid", cluster.data["sdc_guid"])
    devices = sum(len(n["devices"]) for n in sdss.values())
    say(f"added {devices} devices; waiting until all are in the pool and every placement group is in sync")

    def healthy():
        up = [d for d in ashlar(cluster, "device", "list").get("devices", []) if d.get("state") == "up"]
        if len(up) < devices:
            return False
        if min(cluster.data["fault_sets"], len(sdss)) < 2:
            return True  # nothing can be placed: the operator is told so, and may add servers
        s = ashlar(cluster, "status")
        return s["pgs"] == cluster.data["pgs"] and s["degraded_pgs"] == s["failed_pgs"] == 0
    wait_for("a healthy pool", 90, healthy, cluster)
