#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What `run --dry-run` says that a run will hold in memory, beside what the system counts of it.

  memory_accuracy.py [--build build/release] [--rows FILE]

Runs resident_memory_test over every layout of the matrix with models of 200 MB and more (about half
an hour on two cores, up to 8 GB) and writes docs/measurements/memory.md. --rows keeps the lines
measured there; where FILE exists they are taken from it.
"""
import argparse
import datetime
import os
import pathlib
import subprocess


def output(command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def machine():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return f"{line.split(':')[1].strip()}, {os.cpu_count()} cores"
    return f"{os.cpu_count()} cores"


def measure(build):
    test = subprocess.run([f"{build}/bin/resident_memory_test"], capture_output=True, text=True,
                          env={**os.environ, "REHEARSE_TEST_LONG": "1"})
    rows = [line for line in test.stdout.splitlines() if line.startswith("row ")]
    verdict = "PASSED" if test.returncode == 0 else "FAILED"
    return [f"at {machine()}; {datetime.date.today()}; commit {output(['git', 'rev-parse', '--short', 'HEAD'])}; {verdict}"] + rows


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", default="build/release")
    parser.add_argument("--rows")
    options = parser.parse_args()
    kept = pathlib.Path(options.rows) if options.rows else None
    lines = kept.read_text().splitlines() if kept and kept.exists() else measure(options.build)
    if kept:
        kept.write_text("\n".join(lines) + "\n")
    where, date, commit, verdict = lines[0].removeprefix("at ").split("; ")
    commit = commit.removeprefix("commit ")
    rows = [line.split() for line in lines[1:]]
    errors = [abs(float(row[13])) for row in rows]
    page = [
        "# Memory: planned beside measured",
        "Written by `bench/memory_accuracy.py`: GPT-2 and Llama blocks of at least 50 million parameters (200 MB in fp32) in every layout of "
        "`tests/exec/step/layouts.h`, one step of 8 samples of 16 tokens. *Planned* is what `run --dry-run` prints before the run: the arenas of all "
        "ranks and everything outside them ([what that is](../memory.md#this-machines-memory)). *Measured* is `peak_measured_bytes`: the "
        "processes' resident memory at the peak, as the system counts it.",
        "",
        f"{where}; {date}, commit {commit}: {len(rows)} layouts, largest error {max(errors):.2f} %, mean {sum(errors) / len(errors):.2f} %; "
        f"held to 5 %: {verdict.lower()}.",
        "",
        "| layout | ranks | processes | arenas | outside | planned | measured | error |",
        "|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for row in rows:
        arenas, outside, measured = float(row[7]), float(row[9]), float(row[11])
        page.append(f"| {row[1]} | {row[3]} | {row[5]} | {arenas:.1f} MB | {outside:.1f} MB | {arenas + outside:.1f} MB | "
                    f"{measured:.1f} MB | {row[13]} % |")
    pathlib.Path("docs/measurements/memory.md").write_text("\n".join(page) + "\n")
    print(page[3])


main()
