# SPDX-License-Identifier: MIT
"""One network namespace per daemon, joined by a bridge, so that a daemon can be cut off for real.
The host end of the bridge is how programs on this machine reach the cluster."""
import os
import shutil
import subprocess

from .state import Refused

SUBNET = "198.18.77"  # of the range set aside for tests of network devices


def _run(*argv, check=True):
    p = subprocess.run(argv, capture_output=True, text=True)
    if check and p.returncode != 0:
        raise Refused(f"{' '.join(argv)}: {p.stderr.strip() or p.stdout.strip()}")
    return p


def usable():
    """None, or why namespaces cannot be had here."""
    if os.geteuid() != 0:
        return "network namespaces need root; run as root, or leave out --netns"
    for tool in ("ip", "nft"):
        if not shutil.which(tool):
            return f"the program '{tool}' is missing (packages iproute2, nftables)"
    return None


def ns(cluster, name):
    return f"ash{cluster.data['base_port']}-{name}"


def _host_if(cluster, name):
    return f"a{cluster.data['base_port'] % 10000}{name}"[:15]


def _bridge(cluster):
    return f"ashbr{cluster.data['base_port']}"


def address(number):
    return f"{SUBNET}.{number}"


def create(cluster):
    bridge = _bridge(cluster)
    _run("ip", "link", "add", bridge, "type", "bridge")
    _run("ip", "addr", "add", f"{SUBNET}.1/24", "dev", bridge)
    _run("ip", "link", "set", bridge, "up")
    for name, node in cluster.nodes.items():
        space, host = ns(cluster, name), _host_if(cluster, name)
        _run("ip", "netns", "add", space)
        _run("ip", "link", "add", host, "type", "veth", "peer", "name", "eth0", "netns", space)
        _run("ip", "link", "set", host, "master", bridge, "up")
        _run("ip", "-n", space, "link", "set", "lo", "up")
        _run("ip", "-n", space, "addr", "add", f"{node['ip']}/24", "dev", "eth0")
        _run("ip", "-n", space, "link", "set", "eth0", "up")


def destroy(cluster):
    for name in cluster.nodes:
        _run("ip", "netns", "del", ns(cluster, name), check=False)
    _run("ip", "link", "del", _bridge(cluster), check=False)


def prefix(cluster, name):
    return ("ip", "netns", "exec", ns(cluster, name)) if cluster.data["netns"] else ()


def isolate(cluster, name, others, direction):
    """Drops packets between the daemon and the given addresses (None: everybody)."""
    space = ns(cluster, name)
    heal(cluster, name)
    rules = ["table inet cut {"]
    for chain, key, hook in (("in", "saddr", "input"), ("out", "daddr", "output")):
        if direction not in ("both", chain):
            continue
        match = f"ip {key} {{ {', '.join(others)} }} drop" if others is not None else 'meta oif != "lo" drop'
        if others is None and chain == "in":
            match = 'meta iif != "lo" drop'
        rules += [f"chain {chain} {{", f"type filter hook {hook} priority 0;", match, "}"]
    rules.append("}")
    p = subprocess.run(("ip", "netns", "exec", space, "nft", "-f", "-"), input="\n".join(rules),
                       capture_output=True, text=True)
    if p.returncode != 0:
        raise Refused(f"nft in namespace {space}: {p.stderr.strip()}")


def heal(cluster, name):
    _run("ip", "netns", "exec", ns(cluster, name), "nft", "delete", "table", "inet", "cut", check=False)
