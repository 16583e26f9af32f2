#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Predicted beside measured on this machine's CPU: step time and memory of layouts of small models.

RUNS rounds of predictions and runs of every layout, with a new calibration before every fourth: a
machine that is slower for a while is slower for both. The table holds the medians of both, and the
spread of what was measured. With --write it goes into docs/accuracy.md, between its two marks (under
taskset -c 1, where one core is all there is, between two others). For figures worth keeping nothing
else should run; --state keeps the rounds in a file, so that they can be done piece by piece
(--runs 1 --model 11M; --runs 0 --write makes the page).

With --experts the models are mixtures of experts, and the table goes into docs/measurements/experts.md.
With --lesson the layouts are those of the techniques that every introduction names (through one rank,
own collectives, 16 bits, ZeRO further, sequences that are shared, waves), and the table goes between
two marks of its own.

usage: bench/cpu_accuracy.py [--rehearse COMMAND] [--experts | --lesson] [--runs 5] [--full] [--model NAME] [--state FILE] [--write]
"""
import argparse, datetime, json, os, pathlib, statistics, subprocess, sys, tempfile

GPT2 = {"model_type": "gpt2", "activation_function": "gelu_new", "resid_pdrop": 0.0, "attn_pdrop": 0.0,
        "embd_pdrop": 0.0}
SMALL = {**GPT2, "n_embd": 256, "n_layer": 4, "n_head": 4, "n_positions": 128, "vocab_size": 256}
# Sizes that the dialects of today share; what each does beside them is its own.
TODAY = {"hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2,
         "intermediate_size": 704, "max_position_embeddings": 256, "vocab_size": 1024}
BATCH = {"micro_batch": 1, "global_batch": 4, "sequence_length": 256}
DIALECTS = {
    "gpt_neox": {**TODAY, "num_key_value_heads": 4},  # parallel residual, a quarter rotated, exact GELU
    "qwen3": {**TODAY, "head_dim": 128},  # norms of queries and keys
    # Windows in every second layer, both soft caps, four norms.
    "gemma2": {**TODAY, "head_dim": 64, "sliding_window": 64, "query_pre_attn_scalar": 64},
    "phi3": {**TODAY, "sliding_window": 64, "partial_rotary_factor": 0.5, "pad_token_id": None},
    "starcoder2": {**TODAY, "attention_dropout": 0.0, "residual_dropout": 0.0, "embedding_dropout": 0.0},
}
MODELS = {  # name: (Hugging Face keys, plan keys)
    "3.3M": (SMALL, {"micro_batch": 1, "global_batch": 8, "sequence_length": 128}),
    "11M": ({**GPT2, "n_embd": 384, "n_layer": 6, "n_head": 6, "n_positions": 128, "vocab_size": 1024},
            {"micro_batch": 1, "global_batch": 4, "sequence_length": 128}),
    "3.3M, 512 tokens": ({**SMALL, "n_positions": 512},
                         {"micro_batch": 1, "global_batch": 4, "sequence_length": 512}),
    **{name: ({"model_type": name, **keys}, BATCH) for name, keys in DIALECTS.items()},
    # What goes through one rank goes once for every micro-batch.
    "3.3M, rooted": (SMALL, {"micro_batch": 2, "global_batch": 8, "sequence_length": 128}),
    # Rows of a grid share the samples of a micro-batch, and weights travel for each.
    "3.3M, on a grid": (SMALL, {"micro_batch": 4, "global_batch": 16, "sequence_length": 128}),
}
PP2 = {"pipeline_parallel": 2}
PLAIN = {
    "one rank": {},
    "one rank, full recomputation": {"recompute": "full"},
    "tp 2": {"tensor_parallel": 2},
    "tp 2, sequence parallel": {"tensor_parallel": 2, "sequence_parallel": True},
    "pp 2, GPipe": {**PP2, "schedule": "gpipe"},
    "pp 2, 1F1B": {**PP2, "schedule": "1f1b"},
    "pp 2, ZB-H1": {**PP2, "schedule": "zb_h1"},
    "pp 2, interleaved x2": {**PP2, "schedule": "interleaved_1f1b", "virtual_stages": 2, "stage_layers": None},
    "dp 2, DDP": {"data_parallel": 2},
    "dp 2, ZeRO-1": {"data_parallel": 2, "zero_stage": 1},
    "dp 2, ZeRO-2": {"data_parallel": 2, "zero_stage": 2},
    "dp 2, ZeRO-3": {"data_parallel": 2, "zero_stage": 3},
}
THROUGH_ONE = {"data_parallel": 2, "data_parallel_algorithm": "parameter_server"}
COLLECTIVES = {"pipeline_parallel": 4, "micro_batch": 1, "global_batch": 4, "stage_layers": None,
               "schedule": "collectives"}
COLLECTIVE_BYTES = 16 << 20  # of every array: as much as there is to compute
LAYOUTS_PER_CALIBRATION = 4
BETWEEN = ", two processes"  # ends the name of a layout whose ranks have a process each
OVER_TCP = " by TCP"
LAYOUTS = {
    "3.3M": {**PLAIN, **{name + BETWEEN: PLAIN[name] for name in ("tp 2", "pp 2, 1F1B", "dp 2, DDP", "dp 2, ZeRO-3")},
             "dp 2, DDP" + BETWEEN + OVER_TCP: PLAIN["dp 2, DDP"]},
    "11M": PLAIN,
    "3.3M, 512 tokens": {
        "one rank": {},
        "cp 2": {"context_parallel": 2},
        "cp 2" + BETWEEN: {"context_parallel": 2},
        "pp 2, 4 slices": {**PP2, "schedule": "seq_1f1b", "sequence_slices": 4},
        "pp 2, 4 slices, ZB-H1": {**PP2, "schedule": "seq_zb_h1", "sequence_slices": 4},
        "pp 2, cp 2, 2 slices": {**PP2, "context_parallel": 2, "schedule": "seq_1f1b", "sequence_slices": 2},
    },
    **{name: {"one rank": {}} for name in DIALECTS},
    "3.3M, rooted": {
        "dp 2, through one rank": THROUGH_ONE,
        "dp 2, through one rank" + BETWEEN: THROUGH_ONE,
        # 1F1B on four ranks with the eight collectives over groups of its own around it
        "pp 4, own collectives": COLLECTIVES,
        "pp 4, own collectives" + BETWEEN: COLLECTIVES,
    },
    "3.3M, on a grid": {
        "one rank": {},
        "tp 4": {"tensor_parallel": 4},
        "tp 4, 2 x 2": {"tensor_parallel_2d": [2, 2]},
        "tp 4, 4 x 1": {"tensor_parallel_2d": [4, 1]},
        "tp 4, 1 x 4": {"tensor_parallel_2d": [1, 4]},
        "tp 8, 4 x 2": {"tensor_parallel_2d": [4, 2]},
        "tp 4, 2 x 2" + BETWEEN: {"tensor_parallel_2d": [2, 2]},
    },
}
EXPERTS = {"hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2,
           "max_position_embeddings": 256, "vocab_size": 1024}
# Eight samples of 256 tokens take 0.3 to 1 s. A rank has room for twice the mean of its rows.
EXPERTS_BATCH = {"micro_batch": 1, "global_batch": 8, "sequence_length": 256, "expert_capacity": 2}
EXPERT_MODELS = {
    "mixtral": ({**EXPERTS, "model_type": "mixtral", "intermediate_size": 512, "num_local_experts": 8,
                 "num_experts_per_tok": 2}, EXPERTS_BATCH),
    # More and narrower experts, and one that every token visits.
    "qwen2_moe": ({**EXPERTS, "model_type": "qwen2_moe", "intermediate_size": 704, "moe_intermediate_size": 192,
                   "shared_expert_intermediate_size": 384, "num_experts": 16, "num_experts_per_tok": 4,
                   "norm_topk_prob": True}, EXPERTS_BATCH),
}
DP2_EP2 = {"data_parallel": 2, "expert_parallel": 2}
TP2 = {"tensor_parallel": 2, "sequence_parallel": True}
EXPERT_LAYOUTS = {
    "mixtral": {
        "one rank": {},
        "dp 2, ep 2": DP2_EP2,
        "dp 4, ep 4, ZeRO-1": {"data_parallel": 4, "expert_parallel": 4, "zero_stage": 1},
        "tp 2, ep 2": {**TP2, "expert_parallel": 2, "expert_tensor_parallel": 1},
    },
    "qwen2_moe": {
        "dp 2, ep 2, full recomputation": {**DP2_EP2, "recompute": "full"},
        "pp 2, dp 2, ep 2": {**PP2, **DP2_EP2, "schedule": "1f1b"},
        "tp 2, dp 2, ep 2, etp 2": {**TP2, **DP2_EP2, "expert_tensor_parallel": 2},
        "dp 4, ep 2, ZeRO-3": {"data_parallel": 4, "expert_parallel": 2, "zero_stage": 3},
    },
}
SHARED = {"micro_batch": 1, "global_batch": 4, "sequence_length": 512}
FOUR = {"data_parallel": 4, "zero_stage": 3}
CP4 = {"context_parallel": 4}
LESSON_MODELS = {
    "through one rank": (SMALL, {"micro_batch": 2, "global_batch": 8, "sequence_length": 128}),
    "16 bits": (SMALL, {"micro_batch": 1, "global_batch": 8, "sequence_length": 128}),
    "ZeRO further": (SMALL, {"micro_batch": 1, "global_batch": 8, "sequence_length": 128}),
    "a shared sequence": ({**SMALL, "n_positions": 512}, SHARED),
    "waves": (SMALL, {"micro_batch": 1, "global_batch": 8, "sequence_length": 128}),
}
LESSON_LAYOUTS = {
    "through one rank": {name: layout for name, layout in LAYOUTS["3.3M, rooted"].items()},
    "16 bits": {
        "one rank, bf16": {"precision": "bf16"},
        "one rank, fp16": {"precision": "fp16"},
        "dp 2, bf16, ZeRO-2": {"precision": "bf16", "data_parallel": 2, "zero_stage": 2},
    },
    "ZeRO further": {
        "dp 4, ZeRO-3": FOUR,
        "dp 4, ZeRO-3 over 2 neighbours": {**FOUR, "shard_group": 2},
        "dp 4, ZeRO-3, second copy over 2": {**FOUR, "secondary_shard_group": 2},
        "dp 4, ZeRO-3 in 8 bit": {**FOUR, "quantized_gather": 8},
        "dp 2, ZeRO-3, optimizer and parameters in host memory": {
            "data_parallel": 2, "zero_stage": 3, "offload": ["optimizer", "parameters"]},
        "dp 2, ZeRO-3, optimizer and parameters in a file": {
            "data_parallel": 2, "zero_stage": 3, "offload": ["optimizer", "parameters"], "offload_to": "nvme"},
    },
    "a shared sequence": {
        "cp 4, ring": CP4,
        "cp 4, all_gather": {**CP4, "context_parallel_algorithm": "all_gather"},
        "cp 4, all_to_all": {**CP4, "context_parallel_algorithm": "all_to_all"},
        "cp 4, a2a+p2p": {**CP4, "context_parallel_algorithm": "a2a+p2p"},
        "one rank, head in 4 pieces": {"loss_chunks": 4},
    },
    "waves": {
        "pp 2, Chimera": {**PP2, "schedule": "chimera"},
        "pp 2, Hanayo": {**PP2, "schedule": "hanayo", "stage_layers": None},
        "pp 2, BitPipe": {**PP2, "schedule": "bitpipe", "stage_layers": None},
    },
}
MARKS = ("<!-- cpu accuracy: written by bench/cpu_accuracy.py -->", "<!-- end of cpu accuracy -->")
EXPERT_MARKS = ("<!-- experts on the cpu: written by bench/cpu_accuracy.py -->", "<!-- end of experts on the cpu -->")
LESSON_MARKS = ("<!-- the lesson on the cpu: written by bench/cpu_accuracy.py -->",
                "<!-- end of the lesson on the cpu -->")
ONE_CORE_MARKS = tuple(mark.replace("accuracy", "accuracy on one core", 1) for mark in MARKS)


def output(command, layout=""):
    environment = {**os.environ, "REHEARSE_NEIGHBORS": "0" if layout.endswith(OVER_TCP) else "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def collectives(path):
    """The order of scenarios/collectives-4.json with larger arrays."""
    order = json.loads(pathlib.Path("scenarios/orders/collectives.json").read_text())
    for op in (op for row in order["orders"] for op in row if isinstance(op, dict)):
        op["bytes"] = COLLECTIVE_BYTES
    path.write_text(json.dumps(order))
    return path


def scenario(folder, model, layout):
    keys, plan = {**MODELS, **EXPERT_MODELS, **LESSON_MODELS}[model]
    chosen = {**LAYOUTS, **EXPERT_LAYOUTS, **LESSON_LAYOUTS}[model][layout]
    path = pathlib.Path(folder) / f"{model}-{len(list(pathlib.Path(folder).iterdir()))}.json"
    if chosen.get("schedule") == "collectives":
        chosen = {**chosen, "schedule": f"file:{collectives(pathlib.Path(folder) / 'collectives.order')}"}
    ranks = 1
    for key in ("tensor_parallel", "pipeline_parallel", "data_parallel", "context_parallel"):
        ranks *= chosen.get(key, 1)
    for size in chosen.get("tensor_parallel_2d", ()):
        ranks *= size
    path.write_text(json.dumps({
        "name": f"{model}, {layout}", "cluster": "clusters/dgx-a100-80gb.json", "gpus": ranks,
        "model": keys,
        "plan": {"precision": "fp32", **plan, **chosen},
        "train": {"steps": 3, "data": "synthetic"}}))
    return str(path)


def perform(options, cases, folder):
    """One round: every layout predicted and run."""
    cluster = f"{folder}/machine.cluster.json"
    command = [options.rehearse, "calibrate", "-o", f"{folder}/machine.json"]
    for number, case in enumerate(case for case in cases if not options.model or case["model"] in options.model):
        layout = case["layout"]
        if number % LAYOUTS_PER_CALIBRATION == 0:
            print(output(command + ([] if options.full else ["--quick"])), file=sys.stderr)
        run = [options.rehearse, "run", scenario(f"{folder}/scenarios", case["model"], layout), "--json"]
        if BETWEEN in layout:
            run += ["--processes", "2"]
        predicted = json.loads(output(run + ["--dry-run", "--cluster", cluster], layout))
        measured = json.loads(output(run, layout))
        case["predictions"].append(predicted["step_time_s"])
        case["times"].append(statistics.median(measured["step_times_s"][1:]))
        case["exact"] &= measured["memory"]["peak_allocated_bytes"] == predicted["memory"]["peak_allocated_bytes"]
        print(f"{case['model']}, {layout}: {case['times'][-1] * 1e3:.1f} ms "
              f"(predicted {case['predictions'][-1] * 1e3:.1f})", file=sys.stderr)
    return json.loads(pathlib.Path(cluster).read_text())["name"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rehearse", default="build/release/bin/rehearse")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--full", action="store_true", help="calibrations without --quick: a minute each")
    parser.add_argument("--experts", action="store_true", help="mixtures of experts")
    parser.add_argument("--lesson", action="store_true", help="what every introduction names")
    parser.add_argument("--model", choices=[*MODELS, *EXPERT_MODELS, *LESSON_MODELS], action="append",
                        help="these only")
    parser.add_argument("--state", help="a file that holds the rounds so far, and gets those of this call")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    layouts = EXPERT_LAYOUTS if options.experts else LESSON_LAYOUTS if options.lesson else LAYOUTS
    state = {"machine": "", "cases": [{"model": model, "layout": layout, "times": [], "predictions": [], "exact": True}
                                      for model in layouts for layout in layouts[model]]}
    if options.state and pathlib.Path(options.state).exists():
        state = json.loads(pathlib.Path(options.state).read_text())
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "scenarios").mkdir()
        for _ in range(options.runs):
            state["machine"] = perform(options, state["cases"], folder)
    if options.state:
        pathlib.Path(options.state).write_text(json.dumps(state))
    cases = [case for case in state["cases"] if case["times"]]
    runs = max(len(case["times"]) for case in cases)
    table = [f"| model | layout | predicted | measured | fastest … slowest of {runs} | error | arenas |",
             "|---|---|--:|--:|--:|--:|---|"]
    errors = {}
    for case in cases:
        predicted, median = statistics.median(case["predictions"]), statistics.median(case["times"])
        error = predicted / median - 1
        errors.setdefault(case["model"], []).append(abs(error))
        table.append(f"| {case['model']} | {case['layout']} | {predicted * 1e3:.1f} ms | {median * 1e3:.1f} ms | "
                     f"{min(case['times']) * 1e3:.1f} … {max(case['times']) * 1e3:.1f} ms | {100 * error:+.1f} % | "
                     f"{'as planned' if case['exact'] else 'DIFFERS'} |")
    commit = output(["git", "rev-parse", "--short", "HEAD"]).strip()
    within = "; ".join(f"{model}: {sum(e <= 0.15 for e in list_)} of {len(list_)} layouts within 15 %, mean "
                       f"{100 * statistics.mean(list_):.1f} %, largest {100 * max(list_):.1f} %"
                       for model, list_ in errors.items())
    how = "full" if options.full else "quick"
    text = "\n".join([f"{state['machine']}, {datetime.date.today()}, commit {commit}; medians of {runs} "
                      f"({how} calibrations). {within}.", ""] + table)
    print(text)
    if options.write:
        page = pathlib.Path("docs/measurements/experts.md" if options.experts else "docs/accuracy.md")
        begin, end = (EXPERT_MARKS if options.experts else
                      LESSON_MARKS if options.lesson else
                      ONE_CORE_MARKS if "(1 core)" in state["machine"] else MARKS)
        before, rest = page.read_text().split(begin)
        after = rest.split(end)[1]
        page.write_text(f"{before}{begin}\n{text}\n{end}{after}")


if __name__ == "__main__":
    main()
