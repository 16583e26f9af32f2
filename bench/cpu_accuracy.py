#!/usr/bin/env python3
"""Predicted beside measured on this machine's CPU: step time and memory of 12 layouts of two models.

RUNS rounds, each a calibration, a prediction of every layout from it, and a run of every layout: a
machine that is slower for a while is slower for both. The table holds the medians of both, and the
spread of what was measured. With --write it goes into docs/accuracy.md, between its two marks. For
figures worth keeping nothing else should run.

usage: bench/cpu_accuracy.py [--rehearse COMMAND] [--runs 5] [--full] [--write]
"""
import argparse, datetime, json, pathlib, statistics, subprocess, sys, tempfile

MODELS = {  # name: (Hugging Face keys, plan keys)
    "3.3M": ({"n_embd": 256, "n_layer": 4, "n_head": 4, "n_positions": 128, "vocab_size": 256},
             {"micro_batch": 1, "global_batch": 8, "sequence_length": 128}),
    "11M": ({"n_embd": 384, "n_layer": 6, "n_head": 6, "n_positions": 128, "vocab_size": 1024},
            {"micro_batch": 1, "global_batch": 4, "sequence_length": 128}),
}
LAYOUTS = {
    "one rank": {},
    "one rank, full recomputation": {"recompute": "full"},
    "tp 2": {"tensor_parallel": 2},
    "tp 2, sequence parallel": {"tensor_parallel": 2, "sequence_parallel": True},
    "pp 2, GPipe": {"pipeline_parallel": 2, "schedule": "gpipe"},
    "pp 2, 1F1B": {"pipeline_parallel": 2, "schedule": "1f1b"},
    "pp 2, ZB-H1": {"pipeline_parallel": 2, "schedule": "zb_h1"},
    "pp 2, interleaved x2": {"pipeline_parallel": 2, "schedule": "interleaved_1f1b", "virtual_stages": 2,
                             "stage_layers": None},
    "dp 2, DDP": {"data_parallel": 2},
    "dp 2, ZeRO-1": {"data_parallel": 2, "zero_stage": 1},
    "dp 2, ZeRO-2": {"data_parallel": 2, "zero_stage": 2},
    "dp 2, ZeRO-3": {"data_parallel": 2, "zero_stage": 3},
}
MARKS = ("<!-- cpu accuracy: written by bench/cpu_accuracy.py -->", "<!-- end of cpu accuracy -->")


def output(command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def scenario(folder, model, layout):
    keys, plan = MODELS[model]
    path = pathlib.Path(folder) / f"{model}-{len(list(pathlib.Path(folder).iterdir()))}.json"
    ranks = 1
    for key in ("tensor_parallel", "pipeline_parallel", "data_parallel"):
        ranks *= LAYOUTS[layout].get(key, 1)
    path.write_text(json.dumps({
        "name": f"{model}, {layout}", "cluster": "clusters/dgx-a100-80gb.json", "gpus": ranks,
        "model": {"model_type": "gpt2", "activation_function": "gelu_new", "resid_pdrop": 0.0, "attn_pdrop": 0.0,
                  "embd_pdrop": 0.0, **keys},
        "plan": {"precision": "fp32", **plan, **LAYOUTS[layout]},
        "train": {"steps": 3, "data": "synthetic"}}))
    return str(path)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rehearse", default="build/release/bin/rehearse")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--full", action="store_true", help="calibrations without --quick: a minute each")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        scenarios = pathlib.Path(folder) / "scenarios"
        scenarios.mkdir()
        cluster = f"{folder}/machine.cluster.json"
        cases = [{"model": model, "layout": layout, "path": scenario(scenarios, model, layout), "times": [],
                  "predictions": [], "exact": True} for model in MODELS for layout in LAYOUTS]
        for run in range(options.runs):
            command = [options.rehearse, "calibrate", "-o", f"{folder}/machine.json"]
            print(output(command + ([] if options.full else ["--quick"])), file=sys.stderr)
            for case in cases:
                predicted = json.loads(output([options.rehearse, "run", case["path"], "--dry-run", "--json",
                                               "--cluster", cluster]))
                measured = json.loads(output([options.rehearse, "run", case["path"], "--json"]))
                case["predictions"].append(predicted["step_time_s"])
                case["times"].append(statistics.median(measured["step_times_s"][1:]))
                case["exact"] &= (measured["memory"]["peak_allocated_bytes"] ==
                                  predicted["memory"]["peak_allocated_bytes"])
                print(f"run {run + 1}: {case['model']}, {case['layout']}: {case['times'][-1] * 1e3:.1f} ms "
                      f"(predicted {case['predictions'][-1] * 1e3:.1f})", file=sys.stderr)
        description = json.loads(pathlib.Path(cluster).read_text())
    table = [f"| model | layout | predicted | measured | fastest … slowest of {options.runs} | error | memory |",
             "|---|---|--:|--:|--:|--:|---|"]
    errors = {}
    for case in cases:
        predicted, median = statistics.median(case["predictions"]), statistics.median(case["times"])
        error = predicted / median - 1
        errors.setdefault(case["model"], []).append(abs(error))
        table.append(f"| {case['model']} | {case['layout']} | {predicted * 1e3:.1f} ms | {median * 1e3:.1f} ms | "
                     f"{min(case['times']) * 1e3:.1f} … {max(case['times']) * 1e3:.1f} ms | {100 * error:+.1f} % | "
                     f"{'to the byte' if case['exact'] else 'DIFFERS'} |")
    commit = output(["git", "rev-parse", "--short", "HEAD"]).strip()
    within = "; ".join(f"{model}: {sum(e <= 0.15 for e in list_)} of {len(list_)} layouts within 15 %, mean "
                       f"{100 * statistics.mean(list_):.1f} %, largest {100 * max(list_):.1f} %"
                       for model, list_ in errors.items())
    how = "full" if options.full else "quick"
    text = "\n".join([f"{description['name']}, {datetime.date.today()}, commit {commit}; medians of {options.runs} "
                      f"({how} calibrations). {within}.", ""] + table)
    print(text)
    if options.write:
        page = pathlib.Path("docs/accuracy.md")
        before, rest = page.read_text().split(MARKS[0])
        after = rest.split(MARKS[1])[1]
        page.write_text(f"{before}{MARKS[0]}\n{text}\n{MARKS[1]}{after}")


main()
