# SPDX-License-Identifier: Apache-2.0
"""Runs the commands of a page and writes what they print below them.

usage: search_page.py BIN DOCUMENT
A fenced block that opens with "$ COMMAND" is the command and its output. Lines that name a wall
time become "..." in ```console blocks, which tests/docs/examples.sh compares. After a command of
BIN/*_bench the line above the block says machine, date and commit.
"""
import datetime
import os
import platform
import re
import subprocess
import sys


def stamp():
    with open("/proc/cpuinfo") as file:
        found = re.search(r"model name\s*:\s*(.*)", file.read())
    cpu = found.group(1) if found else platform.machine()
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    return (f"{cpu}, {os.cpu_count()} logical CPUs; {datetime.date.today()}; commit "
            f"{commit.stdout.strip()}; load average {os.getloadavg()[0]:.1f}.")


def output_of(command):
    made = subprocess.run(command, shell=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True)
    return [line.rstrip() for line in made.stdout.splitlines()]


def rewritten(lines):
    page, at = [], 0
    while at < len(lines):
        line = lines[at]
        page.append(line)
        at += 1
        if not line.startswith("```") or at == len(lines) or not lines[at].startswith("$ "):
            continue
        command = [lines[at]]
        while lines[at].endswith("\\"):
            at += 1
            command.append(lines[at])
        while not lines[at].startswith("```"):
            at += 1
        text = " ".join(part.rstrip("\\").strip() for part in command)[2:]
        print(text, file=sys.stderr)
        if "_bench" in text:
            page[-2 if page[-2] else -3] = stamp()
        output = output_of(text)
        if line == "```console":
            output = ["..." if "plans/s" in one else one for one in output]
        page += command + output + [lines[at]]
        at += 1
    return page


def main(binaries, document):
    os.environ["PATH"] = os.path.abspath(binaries) + os.pathsep + os.environ["PATH"]
    with open(document) as file:
        lines = file.read().splitlines()
    page = rewritten(lines)
    with open(document + ".new", "w") as file:
        file.write("\n".join(page) + "\n")
    os.replace(document + ".new", document)


if __name__ == "__main__":
    main(*sys.argv[1:])
