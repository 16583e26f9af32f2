# SPDX-License-Identifier: Apache-2.0
"""Writes what bench/engine.sh measured between the marks in docs/simulator.md.

usage: engine_table.py ENGINE.json SIMPY DOCUMENT     (best of the repetitions; CPU time)
"""
import datetime
import json
import os
import platform
import re
import subprocess
import sys

NAMES = {
    "compile_program": "schedule to program",
    "sweep_reused": "sweep, costs bound",
    "sweep_new_costs": "sweep, new costs for the same program",
    "sweep_to_timeline": "sweep, all host times bound, start and end of every op written",
    "events_alone": "event engine, nothing shared",
    "events_all_costs": "event engine, host, slowdown, bodies and shared links",
    "events_idle_links": "event engine, the same where no link can ever be full",
    "attribute_bubbles": "bubble causes",
}
BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"


def cpu():
    with open("/proc/cpuinfo") as file:
        found = re.search(r"model name\s*:\s*(.*)", file.read())
    return found.group(1) if found else platform.machine()


def main(engine, simpy, document):
    best, ops, shapes = {}, {}, []
    with open(engine) as file:
        rows = json.load(file)["benchmarks"]
    for row in rows:
        if row["run_type"] != "iteration":
            continue
        name, shape = row["run_name"].split("/", 1)
        if shape not in shapes:
            shapes.append(shape)
        ops[shape] = int(row["ops"])
        best[name, shape] = min(best.get((name, shape), 1e30), row["cpu_time"] * 1e-3)
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    lines = [
        f"{cpu()}, {os.cpu_count()} logical CPUs, one thread; {datetime.date.today()}; "
        f"commit {commit.stdout.strip()}; load average {os.getloadavg()[0]:.1f} "
        "(best of 5 repetitions, CPU time).",
        "",
        "| million ops per second | "
        + " | ".join("p{} m{} v{}: {:,} ops".format(*s.split("/"), ops[s]) for s in shapes) + " |",
        "|---|" + "---|" * len(shapes),
    ]
    for name, text in NAMES.items():
        cells = (f"{ops[s] / best[name, s] * 1e-6:.1f}" for s in shapes)
        lines.append(f"| {text} | " + " | ".join(cells) + " |")
    peers = {}
    if os.path.exists(simpy):
        with open(simpy) as file:
            for line in file:
                p, m, v, count, seconds, _ = line.split()
                key = (f"p{p} m{m} v{v}", int(count))
                peers[key] = min(peers.get(key, 1e30), float(seconds))
        import simpy as module

        lines += ["", f"SimPy {module.__version__}, Python {platform.python_version()}, the same "
                  "ops with the same makespan to the nanosecond (times only, no links): "
                  + "; ".join(f"{shape}, {count:,} ops: {count / s * 1e-3:,.0f} thousand ops per second"
                              for (shape, count), s in peers.items()) + "."]
    with open(document) as file:
        text = file.read()
    head, rest = text.split(BEGIN)
    tail = rest.split(END)[1]
    with open(document + ".new", "w") as file:
        file.write(head + BEGIN + "\n" + "\n".join(lines) + "\n" + END + tail)
    os.replace(document + ".new", document)
    print("\n".join(lines))


main(*sys.argv[1:])
