#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Holds the tree to the table of CONTRIBUTING.md: who may include what, what cores must not call,
licences, lengths, white space, format. Prints one line per finding and exits 1 when there is any.

    tests/tidy/tidy.py [--root DIR] [--no-format]
"""

import argparse
import os
import re
import shutil
import subprocess
import sys

# Room -> prefixes of what it may include besides itself. The first prefix that fits a path is its
# room, so that longer ones stand first.
COMMON = ["common/base/", "common/shared/", "common/port/", "common/map/", "common/io/",
          "common/mgmt/"]
CORE = ["common/base/", "common/shared/", "common/port/", "common/map/", "proto/"]
ROOMS = [
    ("proto/wire/", []),
    ("proto/uapi/", ["proto/wire/"]),
    ("proto/mgmt/", ["proto/wire/types.h"]),
    ("common/shared/", ["proto/wire/", "proto/uapi/"]),
    ("common/base/", ["common/shared/", "proto/wire/"]),
    ("common/port/", ["common/base/", "common/shared/", "proto/"]),
    ("common/map/", ["common/port/", "common/base/", "common/shared/", "proto/"]),
    ("common/io/", ["common/port/", "common/base/", "common/shared/", "proto/"]),
    ("common/mgmt/", ["common/io/", "common/port/", "common/base/", "common/shared/", "proto/"]),
    ("mdm/core/", CORE),
    ("sds/core/", CORE),
    ("sdc/core/", CORE),
    ("mdm/", ["mdm/core/", "proto/"] + COMMON),
    ("sds/", ["sds/core/", "proto/"] + COMMON),
    ("sdc/nbd/", ["sdc/core/", "sdc/lib/", "proto/"] + COMMON),
    ("sdc/", ["sdc/core/", "sdc/lib/", "proto/"] + COMMON),
    ("sdc-kmod/", ["proto/wire/", "proto/uapi/", "common/shared/"]),
    ("gateway/", ["proto/"] + COMMON),
    ("cli/", ["proto/", "sdc/lib/ashlar.h", "sdc/nbd/nbd.h"] + COMMON),
    ("tests/", [""]),
]
GENERATED = {"proto/mgmt/ashlar.pb-c.h"}

PURE = ("mdm/core/", "sds/core/", "sdc/core/", "common/map/", "common/shared/", "common/port/")
PURE_CALLS = (
    "time clock_gettime gettimeofday clock nanosleep clock_nanosleep "
    "socket bind listen accept connect send sendto sendmsg recv recvfrom recvmsg poll select "
    "open openat creat close read pread readv write pwrite writev fsync fdatasync fallocate ioctl "
    "mmap munmap fopen fdopen fread fwrite fclose fgets fputs opendir stat fstat unlink rename "
    "fork vfork execve kill signal sigaction exit _exit "
    "printf fprintf vprintf vfprintf puts putchar perror syslog ash_log "
    "random getrandom getentropy getenv setenv "
    "ev_run uv_run io_uring_submit").split()
PURE_CALL_PREFIXES = ("pthread_", "ev_", "uv_", "io_uring_", "epoll_", "thrd_")
PURE_HEADERS = {"pthread.h", "threads.h", "unistd.h", "fcntl.h", "time.h", "sys/socket.h",
                "sys/time.h", "sys/stat.h", "sys/mman.h", "netinet/in.h", "netdb.h", "poll.h",
                "signal.h", "ev.h", "uv.h", "liburing.h"}
EVERYWHERE_CALLS = (
    "strcpy strcat sprintf vsprintf gets alloca atoi atol atoll atof system popen "
    "sleep usleep tmpnam mktemp tempnam strtok rand srand strncat "
    "strerror_l asctime ctime gmtime localtime gethostbyname").split()

LICENCE = [("sdc-kmod/", "GPL-2.0-only"), ("proto/wire/", "GPL-2.0-only OR MIT"),
           ("proto/uapi/", "GPL-2.0-only OR MIT"), ("common/shared/", "GPL-2.0-only OR MIT"),
           ("", "MIT")]
SPDX_SUFFIXES = (".c", ".h", ".py", ".sh", ".cmake", ".proto", "CMakeLists.txt", ".service",
                 ".socket", ".target", ".rules", ".mk", "Makefile", "Kbuild", "Kconfig", ".js",
                 ".css", ".spec", ".list")
TEXT_SUFFIXES = SPDX_SUFFIXES + (".md", ".json", ".conf", ".ini", ".toml", ".yml", ".html")
LINES_MAX = 900
LINES_MAX_TESTS = 1000
FUNCTION_LINES_MAX = 80

# Split, so that this file does not find itself.
WORDS = re.compile(r"\b(TO" r"DO|FIX" r"ME|XX" r"X|HA" r"CK)\b|(?i:\bplace" r"holder\b|\bfor n" r"ow\b)")
MACHINE_PATHS = re.compile(r"(?<![\w.])/(wo" r"rk|ro" r"ot|ho" r"me/\w+)/")
RULE_NUMBERS = re.compile(r"\b[Rr]ules? [A-E]\d")


def strip_c(text, keep_strings=False):
    """The code without comments (and strings), line numbers kept."""
    pattern = r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\''

    def blank(match):
        piece = match.group(0)
        if piece[0] in "\"'":
            return piece if keep_strings else piece[0] * 2
        return "\n" * piece.count("\n") or " "

    return re.sub(pattern, blank, text, flags=re.S)


def line_of(text, position):
    return text.count("\n", 0, position) + 1


class Tidy:
    def __init__(self, root):
        self.root = root
        self.findings = []
        self.files = list_files(root)

    def say(self, path, line, text):
        self.findings.append(f"{path}:{line}: {text}" if line else f"{path}: {text}")

    def run(self, with_format=True):
        for path in self.files:
            if not self.is_text(path):
                continue
            with open(os.path.join(self.root, path), "rb") as file:
                raw = file.read()
            try:
                text = raw.decode()
            except UnicodeDecodeError:
                self.say(path, 0, "is not UTF-8")
                continue
            self.check_text(path, text)
            if path.endswith((".c", ".h")):
                self.check_c(path, text)
            if path.endswith(".md"):
                self.check_links(path, text)
        if with_format:
            self.check_format()
        return self.findings

    def exists(self, path):
        return os.path.exists(os.path.join(self.root, path))

    def exists_beside(self, path, name):
        return "/" not in name and self.exists(os.path.join(os.path.dirname(path), name))

    def is_text(self, path):
        if path.endswith(TEXT_SUFFIXES):
            return True
        with open(os.path.join(self.root, path), "rb") as file:
            return file.read(2) == b"#!"

    # ---- every text

    def check_text(self, path, text):
        lines = text.split("\n")
        if text and not text.endswith("\n"):
            self.say(path, len(lines), "no line feed at the end")
        if text.endswith("\n\n"):
            self.say(path, len(lines) - 1, "empty line at the end")
        self.check_length(path, len(lines) - 1)
        self.check_licence(path, lines)
        for number, line in enumerate(lines, 1):
            if line != line.rstrip():
                self.say(path, number, "white space at the end of the line")
            if "\t" in line and path.endswith((".py", ".cmake", "CMakeLists.txt", ".md", ".proto")):
                self.say(path, number, "tab")
            if match := WORDS.search(line):
                self.say(path, number, f"\"{match.group(0)}\": finish it or write down the limit")
            if match := MACHINE_PATHS.search(line):
                self.say(path, number, f"path of one machine: {match.group(0)}")
            if match := RULE_NUMBERS.search(line):
                self.say(path, number, f"\"{match.group(0)}\": say what it demands instead")

    def check_length(self, path, count):
        limit = LINES_MAX_TESTS if path.startswith("tests/") else LINES_MAX
        if path.endswith((".c", ".h", ".py")) and count > limit:
            self.say(path, 0, f"has {count} lines, at most {limit}: split it by ideas")

    def check_licence(self, path, lines):
        shebang = lines[0].startswith("#!")
        if not shebang and not path.endswith(SPDX_SUFFIXES):
            return
        want = next(licence for prefix, licence in LICENCE if path.startswith(prefix))
        place = lines[1] if shebang and len(lines) > 1 else lines[0]
        match = re.search(r"SPDX-License-Identifier: (.*?)\s*(\*/|-->)?$", place)
        if not match:
            self.say(path, 1, f"no SPDX line; it should say {want}")
        elif match.group(1) != want:
            self.say(path, 1, f"licence is {match.group(1)}, here it must be {want}")

    def check_links(self, path, text):
        for match in re.finditer(r"\]\(([^)#\s]+)[^)]*\)", text):
            target = match.group(1)
            if re.match(r"[a-z]+:", target):
                continue
            there = os.path.normpath(os.path.join(os.path.dirname(path), target))
            if not self.exists(there):
                self.say(path, line_of(text, match.start()), f"link to {target}: no such file")

    # ---- C

    def check_c(self, path, text):
        code = strip_c(text)
        self.check_includes(path, strip_c(text, keep_strings=True))
        self.check_calls(path, code)
        self.check_functions(path, code)
        if path.endswith(".h") and not re.search(r"^#ifndef ASHLAR_\w+_H$", code, re.M):
            self.say(path, 1, "no include guard ASHLAR_..._H")

    def check_includes(self, path, text):
        room = next(((prefix, may) for prefix, may in ROOMS if path.startswith(prefix)), None)
        if room is None:
            self.say(path, 0, "lies in no room of tests/tidy/tidy.py")
            return
        prefix, may = room
        for match in re.finditer(r'^[ \t]*#[ \t]*include[ \t]*(["<])([^">]+)[">]', text, re.M):
            line = line_of(text, match.start())
            quoted, name = match.group(1) == '"', match.group(2)
            if not quoted:
                if path.startswith(PURE) and name in PURE_HEADERS:
                    self.say(path, line, f"<{name}> in a pure room: use common/port")
                continue
            if prefix in ("sdc-kmod/", "tests/") and self.exists_beside(path, name):
                continue
            if name not in GENERATED and not self.exists(name):
                self.say(path, line, f"\"{name}\" is not a path from the root")
                continue
            own = name.startswith(prefix)
            if not own and not any(name.startswith(p) for p in may):
                self.say(path, line, f"{prefix} must not include {name}")
            folder = os.path.dirname(name)
            if name.endswith("_int.h") and not path.startswith((folder + "/", "tests/")):
                self.say(path, line, f"{name} is private to {folder}")

    def check_calls(self, path, code):
        pure = path.startswith(PURE)
        for match in re.finditer(r"(?<![\w.])(?<!->)([A-Za-z_]\w*)\s*\(", code):
            name = match.group(1)
            line = line_of(code, match.start())
            if name in EVERYWHERE_CALLS:
                self.say(path, line, f"{name}() is not used here: see EVERYWHERE_CALLS")
            elif pure and (name in PURE_CALLS or name.startswith(PURE_CALL_PREFIXES)):
                self.say(path, line, f"{name}() in a pure room: use common/port")

    def check_functions(self, path, code):
        start = None
        for number, line in enumerate(code.split("\n"), 1):
            if line == "{":
                start = number
            elif line.startswith("}") and start:
                count = number - start - 1
                if line == "}" and count > FUNCTION_LINES_MAX:
                    self.say(path, start, f"function of {count} lines, at most "
                             f"{FUNCTION_LINES_MAX}: it should fit a screen")
                start = None

    def check_format(self):
        tool = shutil.which("clang-format")
        if not tool:
            print("clang-format is not installed: format not checked")
            return
        sources = [p for p in self.files
                   if p.endswith((".c", ".h")) and not p.startswith("sdc-kmod/")]
        result = subprocess.run([tool, "--dry-run", "-Werror", *sources], cwd=self.root,
                                capture_output=True, text=True, check=False)
        seen = set()
        for match in re.finditer(r"^(.+?):(\d+):\d+: error: ", result.stderr, re.M):
            if match.group(1) not in seen:
                seen.add(match.group(1))
                self.say(match.group(1), match.group(2), "format: run clang-format -i")
        if result.returncode and not seen:
            self.say("clang-format", 0, result.stderr.strip()[:200])


def list_files(root):
    """What git knows or would add; without git, what lies there."""
    git = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=root,
                         capture_output=True, text=True, check=False)
    if git.returncode == 0:
        names = git.stdout.splitlines()
    else:
        names = [os.path.relpath(os.path.join(folder, name), root)
                 for folder, dirs, files in os.walk(root) for name in files
                 if not os.path.relpath(folder, root).startswith((".git", "build"))]
    return sorted(n for n in names
                  if os.path.isfile(os.path.join(root, n)) and "/corpus/" not in n)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--root", default=os.path.join(os.path.dirname(__file__), "..", ".."))
    parser.add_argument("--no-format", action="store_true", help="do not run clang-format")
    options = parser.parse_args()
    tidy = Tidy(os.path.realpath(options.root))
    findings = tidy.run(with_format=not options.no_format)
    for finding in findings:
        print(finding)
    print(f"{len(tidy.files)} files, {len(findings)} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
