# SPDX-License-Identifier: Apache-2.0
"""Runs two builds of the same programs in turn and prints how much longer the second takes. Started by regress.sh.

Every round runs each part once with either build, the first of them alternating; a part's ratio is the median over
the rounds of (time now / time at BASE) within one round, so that a machine whose speed drifts does not count. Times are
CPU seconds of the process (benchmark programs: of the thread that works; the race: the median step by the wall, as
the run reports it).
"""
import argparse
import json
import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile

# name of the part, program, which of its benchmarks
BENCHES = [
    ("engine", "engine_bench", "compile_program|sweep_new_costs|events_"),
    ("lowering", "proof_bench", "^AddTransfers/16|^Lower/"),
    ("validation", "proof_bench", "^Validate/16|^ProveNoDeadlock/16"),
    ("viewer", "viz_bench", "(OpenTrace|BuildIndex)/1000000$|LayoutFrames/1000000/|RenderSvg|RenderPng|ReadChrome"),
]
SEARCH = {"model": "gpt3-175b", "cluster": "dgx-a100-80gb", "gpus": 128,
          "plan": {"tensor_parallel": 8, "global_batch": 256, "sequence_length": 2048}}
RACE = {"model": {"model_type": "gpt2", "activation_function": "gelu_new", "resid_pdrop": 0.0, "attn_pdrop": 0.0,
                  "embd_pdrop": 0.0, "n_embd": 256, "n_layer": 4, "n_head": 8, "n_positions": 128, "vocab_size": 256},
        "cluster": "dgx-a100-80gb", "gpus": 1,
        "plan": {"micro_batch": 8, "global_batch": 8, "sequence_length": 128, "precision": "fp32"},
        "train": {"steps": 12, "seed": 1}}


def cpu_of(command):
    """CPU seconds and output of a command, which must succeed."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    ran = subprocess.run(command, capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if ran.returncode != 0:
        raise SystemExit(f"regress: {' '.join(command)}: exit {ran.returncode}: {ran.stderr.strip()}")
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, ran.stdout


def bench(program, which, seconds):
    out = cpu_of([program, f"--benchmark_filter={which}", f"--benchmark_min_time={seconds}", "--benchmark_format=json"])[1]
    rows = json.loads(out[out.index("{"):])["benchmarks"]
    return {row["name"]: row["cpu_time"] for row in rows if not row.get("error_occurred")}


def parts(folder, seconds):
    """Part -> function of a bin folder to {name: time}."""
    search, race = f"{folder}/search.json", f"{folder}/race.json"
    for path, scenario in ((search, SEARCH), (race, RACE)):
        with open(path, "w") as to:
            json.dump(scenario, to)

    def command(name, times, *arguments):
        return lambda bins: {name: sum(cpu_of([f"{bins}/rehearse", *arguments])[0] for _ in range(times)) / times}

    def train(bins):
        out = cpu_of([f"{bins}/rehearse", "run", race, "--device", "cpu", "--threads", "1", "--json"])[1]
        return {"a training step, one thread": statistics.median(json.loads(out)["step_times_s"][1:])}

    made = [(part, lambda bins, p=program, w=which: bench(f"{bins}/{p}", w, seconds)) for part, program, which in BENCHES]
    return made + [
        ("search", command("search, GPT-3 on 128 GPUs", 1, "search", search, "--json")),
        ("start-up", command("rehearse --version", 20, "--version")),
        ("start-up", command("simulate, 1,024 GPUs", 3, "simulate", "scenarios/gpt3-175b-1024.json", "--json")),
        ("race", train)]


def machine():
    with open("/proc/cpuinfo") as file:
        found = re.search(r"model name\s*:\s*(.*)", file.read())
    return f"{found.group(1) if found else 'unknown CPU'}, {os.cpu_count()} logical CPUs, load {os.getloadavg()[0]:.1f}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--base", required=True)
    parser.add_argument("--head", required=True)
    parser.add_argument("--names", nargs=2, required=True)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threshold", type=float, help="exit 1 where a median ratio is above it")
    parser.add_argument("--only", default="", help="one part: engine, lowering, validation, viewer, search, start-up, race")
    parser.add_argument("--min-time", type=float, default=0.05, help="seconds of each benchmark in each round")
    parser.add_argument("--json", help="also write every time to this file")
    a = parser.parse_args()
    times = {}  # (part, name) -> [(base, head) per round]
    with tempfile.TemporaryDirectory() as folder:
        chosen = [part for part in parts(folder, a.min_time) if a.only in ("", part[0])]
        if not chosen or a.rounds < 1:
            raise SystemExit(f"regress: nothing to measure: --only {a.only}, --rounds {a.rounds}")
        for turn in range(a.rounds):
            for part, run in chosen:
                if sys.stderr.isatty():
                    print(f"\rregress: round {turn + 1} of {a.rounds}, {part:<12}", end="", file=sys.stderr)
                if turn % 2 == 0:
                    base, head = run(a.base), run(a.head)
                else:
                    head, base = run(a.head), run(a.base)
                for name in base.keys() & head.keys():
                    times.setdefault((part, name), []).append((base[name], head[name]))
                for name in base.keys() ^ head.keys():
                    if turn == 0:
                        print(f"regress: {part}: {name} is in one of the two only", file=sys.stderr)
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr)
    print(f"{a.names[1]} against {a.names[0]}; {machine()}; {a.rounds} rounds in turn")
    print("time now / time at BASE: median, least and most of the rounds; above 1 is slower")
    slower = []
    order = {part: i for i, (part, _) in enumerate(chosen)}
    for (part, name), pairs in sorted(times.items(), key=lambda row: (order[row[0][0]], row[0][1])):
        ratios = [head / base for base, head in pairs]
        median = statistics.median(ratios)
        over = a.threshold is not None and median > a.threshold
        slower += [name] if over else []
        print(f"  {part:<11} {name:<42} {median:6.3f}   {min(ratios):.3f} to {max(ratios):.3f}{'   SLOWER' if over else ''}")
    if a.json:
        with open(a.json + ".new", "w") as to:
            json.dump({f"{part}: {name}": pairs for (part, name), pairs in times.items()}, to, indent=1)
        os.replace(a.json + ".new", a.json)
    if slower:
        print(f"slower than {a.threshold} times BASE: {', '.join(slower)}")
    return 1 if slower else 0


if __name__ == "__main__":
    sys.exit(main())
