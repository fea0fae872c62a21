# SPDX-License-Identifier: MIT
"""The verbs of deploy/devcluster."""
import argparse
import os
import shutil
import signal
import sys

from . import bringup, netns, process
from .state import Cluster, Refused, parse_size

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
MIN_DEVICE = 256 << 20


def default_dir():
    return os.environ.get("ASHLAR_DEVCLUSTER_DIR", os.path.join(ROOT, "run", "devcluster"))


def say(text):
    print(text, file=sys.stderr, flush=True)


def check_up(args, cluster):
    if cluster.exists():
        raise Refused(f"a dev cluster is in {cluster.dir} already; 'deploy/devcluster down --dir {cluster.dir}' ends it")
    if parse_size(args.device_size) < MIN_DEVICE:
        raise Refused(f"device size {args.device_size} is below the least size of a device, 256MiB")
    if args.fault_sets > args.sds:
        raise Refused(f"{args.fault_sets} fault sets need as many SDSs; --sds says {args.sds}")
    if args.netns and netns.usable():
        raise Refused(netns.usable())
    bringup.check_tools(args.bin)


def up(args):
    cluster = Cluster(args.dir)
    check_up(args, cluster)
    base = bringup.free_base_port(args.base_port, args)
    numbers = iter(range(11, 250))
    cluster.plan(args, base, (lambda name: netns.address(next(numbers))) if args.netns else (lambda name: "127.0.0.1"))
    os.makedirs(cluster.dir, exist_ok=True)
    cluster.save()
    try:
        bringup.bring_up(cluster, say)
    except (Refused, KeyboardInterrupt):
        if not args.keep:
            end(cluster, keep_files=True)
            os.unlink(cluster.file)
        raise
    say("the cluster is up; point your shell at it with: eval \"$(deploy/devcluster env"
        + ("" if cluster.dir == os.path.abspath(default_dir()) else f" --dir {cluster.dir}") + ")\"")


def end(cluster, keep_files):
    for kind in ("sds", "mdm"):
        group = [n for n in cluster.nodes.values() if n["kind"] == kind]
        for n in group:
            process.send(n, signal.SIGCONT)
            process.send(n, signal.SIGTERM)
        for n in group:
            process.stop(n)
    if cluster.data["netns"]:
        netns.destroy(cluster)
    if not keep_files:
        for n in cluster.nodes.values():
            shutil.rmtree(n["dir"], ignore_errors=True)


def down(args):
    cluster = Cluster(args.dir)
    if not cluster.exists():
        say(f"no dev cluster in {cluster.dir}; nothing to end")
        return
    cluster.load()
    end(cluster, args.keep)
    os.unlink(cluster.file)
    if not args.keep and cluster.dir != os.getcwd():
        try:
            os.rmdir(cluster.dir)
        except OSError:
            pass  # somebody else's files are in there


def ps(args):
    cluster = Cluster(args.dir).load()
    print(f"{'NAME':8} {'KIND':12} {'STATE':7} {'PID':>8}  {'ADDRESS':22} FAULT SET")
    for name, n in cluster.nodes.items():
        kind = "tie-breaker" if n.get("tie_breaker") else n["kind"]
        print(f"{name:8} {kind:12} {process.state_of(n):7} {n['pid'] or '-':>8}  {n['ip'] + ':' + str(n['port']):22} "
              f"{n.get('fault_set', '-')}")


def env(args):
    cluster = Cluster(args.dir).load()
    print(f"export ASHLAR_MDM={cluster.mdm_list()}")
    print(f"export ASHLAR_SDC_GUID={cluster.data['sdc_guid']}")
    print("export ASHLAR_SDC_NAME=sdc1")
    print(f"export ASHLAR_DEVCLUSTER_DIR={cluster.dir}")
    print(f"export PATH={cluster.data['bin']}:$PATH")


def names(cluster, wanted):
    """Daemon names for names and groups: 'all', 'sds', 'mdm', a fault set."""
    found = []
    for word in wanted:
        group = [n for n, v in cluster.nodes.items() if word in ("all", v["kind"], v.get("fault_set"))]
        if not group:
            cluster.node(word)  # refuses an unknown name
        found += group or [word]
    return found


def kill(args):
    cluster = Cluster(args.dir).load()
    chosen = names(cluster, args.names)
    for name in chosen:  # all signals first: they shall die at one moment
        process.send(cluster.node(name), signal.SIGKILL)
    for name in chosen:
        process.wait_gone(cluster.node(name), 10)


def start(args):
    cluster = Cluster(args.dir).load()
    for name in names(cluster, args.names):
        if process.state_of(cluster.node(name)) == "down":
            bringup.start_node(cluster, name)
        else:
            say(f"{name} runs already")


def signal_all(sig):
    def act(args):
        cluster = Cluster(args.dir).load()
        for name in names(cluster, args.names):
            if not process.send(cluster.node(name), sig):
                raise Refused(f"{name} is down; start it with: deploy/devcluster start {name}")
    return act


def stop(args):
    cluster = Cluster(args.dir).load()
    for name in names(cluster, args.names):
        process.stop(cluster.node(name))


def isolate(args):
    cluster = Cluster(args.dir).load()
    if not cluster.data["netns"]:
        why = netns.usable() or "start it anew with: deploy/devcluster up --netns"
        raise Refused(f"this cluster runs on loopback, where nobody can be cut off; {why}")
    for name in names(cluster, args.names):
        others = None
        if args.only_from:
            others = [f"{netns.SUBNET}.1"] if args.only_from == "clients" else [
                cluster.node(o)["ip"] for o in names(cluster, [{"peers": "sds"}.get(args.only_from, args.only_from)])
                if o != name]
        netns.isolate(cluster, name, others, args.direction)


def rejoin(args):
    cluster = Cluster(args.dir).load()
    if not cluster.data["netns"]:
        raise Refused("this cluster runs on loopback, where nobody can be cut off")
    for name in names(cluster, args.names):
        netns.heal(cluster, name)


def parser():
    p = argparse.ArgumentParser(prog="devcluster",
                                description="A whole Ashlar cluster on this machine, from files.",
                                epilog="NAME: mdm1, tb1, sds1 ..., or a group: all, mdm, sds, fs1.")
    sub = p.add_subparsers(dest="verb", required=True, metavar="VERB")

    def verb(name, fn, text, with_names=False):
        v = sub.add_parser(name, help=text, description=text)
        v.set_defaults(fn=fn)
        v.add_argument("--dir", default=default_dir(), help="where it lives (default: run/devcluster)")
        if with_names:
            v.add_argument("names", nargs="+", metavar="NAME")
        return v
    u = verb("up", up, "start a cluster and wait until its pool is healthy")
    u.add_argument("--mdm", type=int, choices=(1, 3, 5), default=3, help="3: two MDMs and a tie-breaker (default); 5: three and two")
    u.add_argument("--sds", type=int, default=4, choices=range(1, 65), metavar="N", help="data servers (default 4)")
    u.add_argument("--fault-sets", type=int, default=None, metavar="F", help="default: one for each SDS")
    u.add_argument("--devices", type=int, default=1, choices=range(1, 33), metavar="D", help="files per SDS (default 1)")
    u.add_argument("--device-size", default="2GiB", metavar="S", help="sparse, at least 256MiB (default 2GiB)")
    u.add_argument("--pgs", type=int, default=1024, help="placement groups of pool1 (default 1024)")
    u.add_argument("--spare", default="10%", help="spare share of pool1 (default 10%%)")
    u.add_argument("--netns", action="store_true", help="a network namespace per daemon (root), for 'isolate'")
    u.add_argument("--base-port", type=int, default=6600, help="MDMs at +11.., SDSs at +472.., Raft at +2411..")
    u.add_argument("--bin", default=os.path.join(ROOT, "build", "bin"), help="where the programs are")
    u.add_argument("--keep", action="store_true", help="leave everything running when it fails")
    d = verb("down", down, "end the cluster and remove its files")
    d.add_argument("--keep", action="store_true", help="keep the files")
    verb("ps", ps, "list the daemons")
    verb("env", env, "print the exports that all programs obey")
    verb("kill", kill, "SIGKILL", True)
    verb("stop", stop, "end gracefully", True)
    verb("start", start, "start again what is down", True)
    verb("pause", signal_all(signal.SIGSTOP), "SIGSTOP", True)
    verb("resume", signal_all(signal.SIGCONT), "SIGCONT", True)
    i = verb("isolate", isolate, "cut a daemon's network (clusters started with --netns)", True)
    i.add_argument("--only-from", metavar="WHO", help="mdm, peers, clients, or a NAME: cut from these only")
    i.add_argument("--direction", choices=("both", "in", "out"), default="both")
    verb("rejoin", rejoin, "undo isolate", True)
    return p


def main(argv):
    args = parser().parse_args(argv)
    if getattr(args, "fault_sets", 0) is None:
        args.fault_sets = args.sds
    try:
        args.fn(args)
    except Refused as e:
        say(f"devcluster: {e}")
        return 1
    except KeyboardInterrupt:
        say("devcluster: interrupted")
        return 130
    return 0
