#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fails where two types have one name in one namespace. Linkers take such types for one, and merge their functions in
silence: the destructor of the one then runs over the other. usage: check_types.py [ROOT]"""
import collections
import pathlib
import re
import sys

ROOMS = ("schedules", "sim", "exec", "viz", "cli", "api")
# What is no code: comments, strings, characters.
NO_CODE = re.compile(r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])\'', re.S)
SCOPES = re.compile(r"namespace\s*([\w:]*)\s*\{|\b(?:struct|class|enum class|union)\s+(\w+)\s*(?:final\s*)?(?::(?!:)[^;{}()]*)?\{|\{|\}")


def types_of(text):
    """Names of the types that stand in named namespaces, each with its namespace."""
    scopes = []
    for found in SCOPES.finditer(NO_CODE.sub(" ", text)):
        if found.group(0) == "}":
            if scopes:
                scopes.pop()
        elif found.group(0).startswith("namespace"):
            scopes.append(found.group(1))
        else:
            if found.group(2) and None not in scopes and "" not in scopes:
                yield "::".join(scopes + [found.group(2)])
            scopes.append(None)


root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent)
places = collections.defaultdict(set)
for room in ROOMS:
    for path in sorted((root / room).rglob("*")):
        if path.suffix in (".h", ".cc"):
            for name in types_of(path.read_text()):
                places[name].add(str(path.relative_to(root)))
twice = {name: files for name, files in places.items() if len(files) > 1}
for name, files in sorted(twice.items()):
    print(f"{name}: in {' and in '.join(sorted(files))}")
print(f"{len(places)} types")
sys.exit(1 if twice else 0)
