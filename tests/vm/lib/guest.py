# SPDX-License-Identifier: MIT
"""A guest in QEMU's software emulation that runs one command in the host's own tree."""
import glob
import gzip
import os
import re
import shlex
import shutil
import signal
import subprocess
import tempfile
import time

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BASE_MODULES = ("virtio_pci", "virtio_net", "virtio_blk", "9pnet_virtio", "9p", "virtio_rng")
ENV_KEPT = re.compile(r"^(ASHLAR_\w+|VM_\w+|LANG|LC_\w+|PYTEST_\w+)$")


class Refused(Exception):
    """The guest cannot be started; the message says what is missing."""


def version_key(text):
    return [int(n) for n in re.findall(r"\d+", text)]


def default_kernel():
    """The newest ordinary 6.1 kernel with modules (what Debian 12 runs), else the newest of any kind."""
    found = [os.path.basename(p).removeprefix("vmlinuz-") for p in glob.glob("/boot/vmlinuz-*")]
    found = [v for v in found if os.path.isdir(f"/lib/modules/{v}")]
    if not found:
        raise Refused("no kernel with modules is installed; run: deploy/packages/install vm")
    plain = [v for v in found if v.startswith("6.1.") and not re.search(r"cloud|rt", v)]
    return max(plain or found, key=version_key)


def module_files(kernel, names):
    """Paths of the modules and what they need, in the order to load them."""
    files = []
    for name in names:
        p = subprocess.run(["modprobe", "-S", kernel, "--show-depends", name], capture_output=True, text=True,
                           check=False)
        if p.returncode:
            raise Refused(f"kernel {kernel} has no module {name}: {p.stderr.strip()}")
        for line in p.stdout.splitlines():
            word = line.split()
            if word[0] == "insmod" and word[1] not in files:
                files.append(word[1])
    return files


def build_initrd(kernel, path):
    busybox = shutil.which("busybox")
    if not busybox:
        raise Refused("busybox is missing; run: deploy/packages/install vm")
    with tempfile.TemporaryDirectory() as top:
        for name in ("bin", "modules", "proc", "sys", "dev", "r"):
            os.mkdir(os.path.join(top, name))
        shutil.copy(busybox, os.path.join(top, "bin", "busybox"))
        shutil.copy(os.path.join(HERE, "init"), os.path.join(top, "init"))
        os.chmod(os.path.join(top, "init"), 0o755)
        order = module_files(kernel, BASE_MODULES)
        for file in order:
            shutil.copy(file, os.path.join(top, "modules"))
        with open(os.path.join(top, "modules", "order"), "w", encoding="utf-8") as f:
            f.writelines(os.path.basename(file) + "\n" for file in order)
        names = subprocess.run(["find", ".", "-print0"], cwd=top, capture_output=True, check=True).stdout
        packed = subprocess.run(["cpio", "-0", "-o", "-H", "newc", "--quiet"], cwd=top, input=names,
                                capture_output=True, check=True).stdout
    with open(path, "wb") as f:
        f.write(gzip.compress(packed, 1))


def script_of(command, directory):
    """What the guest's shell runs: the caller's command in the caller's folder."""
    lines = ["export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
             "export HOME=/root TERM=dumb PYTHONDONTWRITEBYTECODE=1"]
    for key, value in sorted(os.environ.items()):
        if ENV_KEPT.match(key):
            lines.append(f"export {key}={shlex.quote(value)}")
    lines.append(f"cd {shlex.quote(directory)} || exit 125")
    lines.append("exec " + " ".join(shlex.quote(word) for word in command))
    return "\n".join(lines) + "\n"


class Guest:
    """One run. `out` is the folder that the guest sees as /tmp/vm."""

    def __init__(self, out, kernel=None, memory_mib=2048, cpus=2, disks=(), append=""):
        self.out = out
        self.kernel = kernel or default_kernel()
        self.image = f"/boot/vmlinuz-{self.kernel}"
        if not os.path.exists(self.image) or not os.path.isdir(f"/lib/modules/{self.kernel}"):
            have = ", ".join(sorted(os.path.basename(p) for p in glob.glob("/lib/modules/*"))) or "none"
            raise Refused(f"kernel {self.kernel} is not installed; there are: {have}")
        if not shutil.which("qemu-system-x86_64"):
            raise Refused("qemu-system-x86_64 is missing; run: deploy/packages/install vm")
        self.memory_mib, self.cpus, self.disks, self.append = memory_mib, cpus, disks, append
        self.console_path = os.path.join(out, "console.log")

    def argv(self, initrd, disk_files):
        line = ("console=ttyS0 panic=-1 loglevel=6 rdinit=/init net.ifnames=0 mitigations=off nokaslr "
                "rcupdate.rcu_cpu_stall_timeout=120 " + self.append)
        argv = ["qemu-system-x86_64", "-accel", "tcg,thread=multi", "-cpu", "max", "-smp", str(self.cpus),
                "-m", str(self.memory_mib), "-display", "none", "-monitor", "none", "-no-reboot", "-nodefaults",
                "-serial", f"file:{self.console_path}", "-serial", "stdio", "-kernel", self.image, "-initrd", initrd,
                "-append", line, "-device", "virtio-rng-pci",
                "-netdev", "user,id=n0", "-device", "virtio-net-pci,netdev=n0,romfile=",
                "-virtfs", "local,path=/,mount_tag=hostroot,security_model=none,readonly=on,multidevs=remap",
                "-virtfs", f"local,path={self.out},mount_tag=results,security_model=none,multidevs=remap"]
        for i, file in enumerate(disk_files):
            argv += ["-drive", f"file={file},if=none,id=d{i},format=raw,cache=unsafe,discard=unmap",
                     "-device", f"virtio-blk-pci,drive=d{i},serial=vm{i}"]
        return argv

    def run(self, command, timeout_s, stdout=None):
        """Return: the command's exit status; None: the guest did not get so far in time."""
        with tempfile.TemporaryDirectory(prefix="ashlar-vm-") as work:
            initrd = os.path.join(work, "initrd")
            build_initrd(self.kernel, initrd)
            files = []
            for i, size in enumerate(self.disks):
                files.append(os.path.join(work, f"disk{i}"))
                with open(files[-1], "wb") as f:
                    f.truncate(size)
            with open(os.path.join(self.out, "command"), "w", encoding="utf-8") as f:
                f.write(script_of(command, os.getcwd()))
            shutil.copy(os.path.join(HERE, "boot"), self.out)
            status = os.path.join(self.out, "status")
            if os.path.exists(status):
                os.unlink(status)
            qemu = subprocess.Popen(self.argv(initrd, files), stdin=subprocess.DEVNULL, stdout=stdout)
            self.wait(qemu, timeout_s)
        try:
            with open(status, encoding="utf-8") as f:
                return int(f.read())
        except (FileNotFoundError, ValueError):
            return None

    @staticmethod
    def wait(qemu, timeout_s):
        end = time.monotonic() + timeout_s
        try:
            qemu.wait(timeout_s)
        except subprocess.TimeoutExpired:
            pass
        finally:
            if qemu.poll() is None:
                qemu.send_signal(signal.SIGKILL)
                qemu.wait(max(10, end - time.monotonic()))

    def console(self):
        try:
            with open(self.console_path, encoding="utf-8", errors="replace") as f:
                return f.read()
        except FileNotFoundError:
            return ""
