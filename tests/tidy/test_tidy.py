# SPDX-License-Identifier: MIT
"""Each check of tidy.py finds what it is for, and nothing in a clean tree."""

import os
import tempfile
import unittest

from tidy import Tidy

MIT_C = "// SPDX-License-Identifier: MIT\n"
MIT_H = "/* SPDX-License-Identifier: MIT */\n#ifndef ASHLAR_X_H\n#define ASHLAR_X_H\n%s#endif\n"
CLEAN = {
    "common/base/err.h": MIT_H % "",
    "common/shared/crc.h": MIT_H.replace("MIT", "GPL-2.0-only OR MIT") % "",
    "proto/wire/wire.h": MIT_H.replace("MIT", "GPL-2.0-only OR MIT") % "",
    "sds/core/store_int.h": MIT_H % "",
    "sds/core/store.h": MIT_H % "",
    "sds/core/store.c": MIT_C + '#include "common/base/err.h"\n#include "sds/core/store_int.h"\n'
                        "/* open(path) */\nint x(void)\n{\n\treturn s->read(1) + ash_read(2);\n}\n",
    "sdc/core/sdc.h": MIT_H % "",
    "tests/unit/a.h": MIT_H % "",
    "tests/unit/a.c": MIT_C + '#include "a.h"\n#include "sds/core/store_int.h"\n',
    "README.md": "# Text\n\n[errors](common/base/err.h)\n",
}


# (file, contents, what the only finding says)
CASES = [
    # the table
    ("common/base/a.c", MIT_C + '#include "sds/core/store.h"\n', "must not include"),
    ("sdc/core/a.c", MIT_C + '#include "sds/core/store.h"\n', "must not include"),
    ("sds/core/a.c", MIT_C + '#include "tests/unit/a.h"\n', "must not include"),
    ("sds/core/a.c", MIT_C + '# include "../core/store.h"\n', "not a path from the root"),
    ("sds/core/a.c", MIT_C + '#include "store.h"\n', "not a path from the root"),
    ("sds/shell/a.c", MIT_C + '#include "sds/core/store_int.h"\n', "private"),
    ("elsewhere/a.c", MIT_C, "no room"),
    # calls
    ("sds/core/a.c", MIT_C + "int x(void)\n{\n\treturn open(p, 0);\n}\n", "pure room"),
    ("mdm/core/a.c", MIT_C + "int x(void)\n{\n\treturn time(NULL);\n}\n", "pure room"),
    ("sdc/core/a.c", MIT_C + "int x(void)\n{\n\tpthread_mutex_lock(m);\n}\n", "pure room"),
    ("sdc/core/a.c", MIT_C + "#include <pthread.h>\n", "pure room"),
    ("cli/a.c", MIT_C + "void x(void)\n{\n\tstrcpy(a, b);\n}\n", "strcpy"),
    ("tests/unit/b.c", MIT_C + "void x(void)\n{\n\tusleep (1);\n}\n", "usleep"),
    # licences
    ("cli/a.c", "int x;\n", "no SPDX"),
    ("sdc-kmod/a.c", MIT_C, "must be GPL-2.0-only"),
    ("proto/wire/a.h", MIT_H % "", "must be GPL-2.0-only OR MIT"),
    ("deploy/tool", "#!/bin/sh\nexit 0\n", "no SPDX"),
    # form
    ("cli/a.c", MIT_C + "int x; \n", "white space"),
    ("cli/a.c", MIT_C + "int x;", "no line feed"),
    ("cli/a.c", MIT_C + "int x;\n\n", "empty line at the end"),
    ("cli/a.c", MIT_C + "int x;\n" * 900, "at most 900"),
    ("cli/a.c", MIT_C + "void x(void)\n{\n" + "\ty();\n" * 81 + "}\n", "function of 81 lines"),
    ("cli/a.h", "/* SPDX-License-Identifier: MIT */\n", "include guard"),
    ("tests/a.py", "# SPDX-License-Identifier: MIT\nif x:\n\ty()\n", "tab"),
    ("cli/a.c", b"// SPDX-License-Identifier: MIT\n// \xff\n", "UTF-8"),
    # words
    ("cli/a.c", MIT_C + "/* TO" + "DO: more */\n", "finish it"),
    ("docs/a.md", "Just for n" + "ow.\n", "finish it"),
    ("docs/a.md", "See /ro" + "ot/x.\n", "path of one machine"),
    ("cli/a.c", MIT_C + "/* see rule A" + "4 */\n", "say what it demands"),
    ("docs/a.md", "[gone](nowhere.md)\n", "no such file"),
]


def findings(extra):
    with tempfile.TemporaryDirectory() as root:
        for name, text in {**CLEAN, **extra}.items():
            path = os.path.join(root, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb") as file:
                file.write(text if isinstance(text, bytes) else text.encode())
        return Tidy(root).run(with_format=False)


class TidyTest(unittest.TestCase):
    def test_clean_tree(self):
        self.assertEqual(findings({}), [])

    def test_finds(self):
        for name, text, says in CASES:
            with self.subTest(name=name, says=says):
                found = findings({name: text})
                self.assertEqual(len(found), 1, found)
                self.assertTrue(found[0].startswith(name) and says in found[0], found)


if __name__ == "__main__":
    unittest.main()
