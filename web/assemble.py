# SPDX-License-Identifier: Apache-2.0
"""The page that answers, of its parts: the core, the shipped files, two scripts. The same parts give the same bytes.
usage: assemble.py VERSION CORE OUT"""
import base64
import gzip
import json
import sys
from pathlib import Path

version, core, out = sys.argv[1:]
HERE = Path(__file__).resolve().parent
ROOT = HERE.parent


def packed(data: bytes) -> str:
    return base64.b64encode(gzip.compress(data, 9, mtime=0)).decode()


# As they lie where the Debian package installs them; README.md is what some scenarios train on.
shipped = sorted(path for path in (ROOT / "scenarios").rglob("*") if path.suffix in (".json", ".csv", ".txt"))
files = {"usr/share/rehearse/" + path.relative_to(ROOT).as_posix(): path.read_bytes().decode()
         for path in [*shipped, ROOT / "README.md", ROOT / "LICENSE"]}
values = {
    "version": version,
    "core": packed(Path(core).read_bytes()),
    "files": packed(json.dumps(files, ensure_ascii=False, separators=(",", ":")).encode()),
    "worker": (HERE / "worker.js").read_text(encoding="utf-8"),
    "script": (HERE / "page.js").read_text(encoding="utf-8"),
}
text = (HERE / "page.html").read_text(encoding="utf-8")
for name, value in values.items():
    text = text.replace("{{" + name + "}}", value)
Path(out).write_text(text, encoding="utf-8")
print(f"{out}: {len(text) / 1e6:.1f} MB, {len(files)} files inside")
