# SPDX-License-Identifier: MIT
"""What a running dev cluster is made of, kept in <dir>/cluster.json."""
import json
import os
import uuid


class Refused(Exception):
    """Something the user can change; the message says what."""


def parse_size(text):
    """'2GiB', '512M', '1073741824' -> bytes. Binary units only."""
    units = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
    t = text.strip().upper().removesuffix("B").removesuffix("I")
    unit = t[-1] if t and t[-1] in "KMGT" else ""
    number = t.removesuffix(unit) if unit else t
    if not number.isdigit() or int(number) == 0:
        raise Refused(f"size '{text}': give a whole number with KiB, MiB, GiB or TiB, like 2GiB")
    return int(number) * units[unit]


class Cluster:
    """The plan (names, addresses, files) and the processes that run it."""

    def __init__(self, directory):
        self.dir = os.path.abspath(directory)
        self.file = os.path.join(self.dir, "cluster.json")
        self.data = {}

    def exists(self):
        return os.path.exists(self.file)

    def load(self):
        if not self.exists():
            raise Refused(f"no dev cluster in {self.dir}; start one with: deploy/devcluster up --dir {self.dir}")
        with open(self.file, encoding="utf-8") as f:
            self.data = json.load(f)
        return self

    def save(self):
        tmp = self.file + ".new"
        with open(tmp, "w", encoding="utf-8") as f:
            json.dump(self.data, f, indent=1)
            f.flush()
            os.fsync(f.fileno())
        os.replace(tmp, self.file)

    @property
    def nodes(self):
        return self.data["nodes"]

    def node(self, name):
        if name not in self.nodes:
            raise Refused(f"no daemon '{name}' in this cluster; there are: {', '.join(self.nodes)}")
        return self.nodes[name]

    def mdm_list(self):
        return ",".join(f"{n['ip']}:{n['port']}" for n in self.nodes.values() if n["kind"] == "mdm")

    def plan(self, args, base_port, addresses):
        """addresses: name -> ip (all 127.0.0.1 on loopback)."""
        nodes = {}
        managers = {1: 1, 3: 2, 5: 3}[args.mdm]
        for i in range(args.mdm):
            tb = i >= managers
            name = f"tb{i - managers + 1}" if tb else f"mdm{i + 1}"
            nodes[name] = {"kind": "mdm", "tie_breaker": tb, "port": base_port + 11 + i,
                           "raft_port": base_port + 2411 + i, "ip": addresses(name)}
        for i in range(args.sds):
            name = f"sds{i + 1}"
            nodes[name] = {"kind": "sds", "port": base_port + 472 + i, "ip": addresses(name),
                           "fault_set": f"fs{i % args.fault_sets + 1}",
                           "devices": [os.path.join(self.dir, name, f"dev{d + 1}.img")
                                       for d in range(args.devices)]}
        for name, node in nodes.items():
            node["dir"] = os.path.join(self.dir, name)
            node["log"] = os.path.join(self.dir, name, "log")
            node["pid"] = 0
        self.data = {"nodes": nodes, "base_port": base_port, "netns": bool(args.netns),
                     "device_bytes": parse_size(args.device_size), "fault_sets": args.fault_sets,
                     "pgs": args.pgs, "spare": args.spare,
                     "sdc_guid": str(uuid.uuid4()), "bin": args.bin}
