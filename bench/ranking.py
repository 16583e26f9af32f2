#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Are competing plans in the measured order, and what does it cost to believe the prediction?

bench/ranking.py [--build build/release]   prints the tables; bench/errors.py writes them into
docs/accuracy.md
"""
import argparse
import itertools
import json
import math

from accuracy_groups import DATA, validate

# Files with groups of competing plans.
FILES = ("aleph_alpha_13b", "dlperf_megatron_v100", "flagperf_paddle", "torchtitan", "vtrain_single",
         "dgxc_benchmarking")


def step(row, side):
    return row[side].get("step_time_s") if row.get(side) else None


def by_group(rows):
    """Rows with a step on both sides, by group."""
    groups = {}
    for row in rows:
        if step(row, "predicted") and step(row, "measured") and row.get("group"):
            groups.setdefault(row["group"], []).append(row)
    return groups


def pairs_of(rows):
    """Pairs of plans that compete and are predicted to differ, in groups of at least three."""
    pairs = []
    for group in by_group(rows).values():
        if len({step(row, "predicted") for row in group}) < 3:
            continue
        pairs += [(a, b) for a, b in itertools.combinations(group, 2)
                  if step(a, "predicted") != step(b, "predicted")]
    return pairs


def common_share(rows):
    """Of the variance of errors, the share that the plans of a group have in common; None without
    groups."""
    within, all_errors, freedom = 0, [], 0
    for group in by_group(rows).values():
        if len(group) < 3:
            continue
        errors = [math.log(step(r, "measured") / step(r, "predicted")) for r in group]
        mean = sum(errors) / len(errors)
        within += sum((e - mean) ** 2 for e in errors)
        freedom += len(errors) - 1
        all_errors += errors
    if not all_errors or not freedom:
        return None
    second_moment = sum(e * e for e in all_errors) / len(all_errors)  # about a right prediction
    return 1 - within / freedom / second_moment


def order_share(pairs, least):
    """Of the pairs predicted to differ by at least `least`: how many, and how many in order."""
    far = [(a, b) for a, b in pairs
           if abs(math.log(step(a, "predicted") / step(b, "predicted"))) >= least
           and step(a, "measured") != step(b, "measured")]
    right = sum((step(a, "predicted") < step(b, "predicted"))
                == (step(a, "measured") < step(b, "measured")) for a, b in far)
    return len(far), right


def pair_difference(pairs, enough):
    """The smallest difference such that of the pairs predicted once to twice so far apart, `enough`
    are in the measured order."""
    for tick in range(1, 200):
        least = 0.0025 * tick
        count, right = (a - b for a, b in zip(order_share(pairs, least), order_share(pairs, 2 * least),
                                              strict=True))
        if count and right >= enough * count:
            return least
    raise SystemExit("no difference tells plans apart")


def dgxc_pairs(block):
    """Pairs of layouts of one model, precision and GPUs that dgxc measured at one global batch."""
    root = json.loads((DATA / "dgxc_benchmarking.json").read_text())
    groups = {}
    for case, row in zip(root["cases"], block["rows"], strict=True):
        if not step(row, "predicted") or not step(row, "measured"):
            continue
        scenario = case["scenario"]
        plan = dict(scenario["plan"])
        key = json.dumps([scenario["model"], scenario["cluster"], scenario.get("gpus"),
                          plan.get("global_batch"), plan.get("sequence_length"),
                          plan.get("precision")], sort_keys=True)
        layout = json.dumps({k: plan.get(k) for k in (
            "tensor_parallel", "pipeline_parallel", "context_parallel", "data_parallel",
            "virtual_stages", "micro_batch", "recompute", "zero_stage", "sequence_parallel")},
            sort_keys=True)
        groups.setdefault(key, {}).setdefault(layout, []).append(row)
    found = []
    for layouts in groups.values():
        means = [(sum(step(r, "predicted") for r in rows) / len(rows),
                  sum(step(r, "measured") for r in rows) / len(rows)) for rows in layouts.values()]
        found += list(itertools.combinations(means, 2))
    return found


def machinery(plan):
    """What a plan has to turn on, as sim/search/equal_plans.cc orders plans."""
    tensor, pipeline, context, zero = (plan.get(key) or 0 for key in (
        "tensor_parallel", "pipeline_parallel", "context_parallel", "zero_stage"))
    chunks = plan.get("virtual_stages") or 1
    habits = [tensor > 1, pipeline > 1, context > 1, zero > 0, chunks > 1,
              tensor > 1 and bool(plan.get("sequence_parallel")),
              (plan.get("recompute") or "none") != "none"]
    return sum(habits), pipeline * chunks, tensor, context, zero


def regret_of_simplest(name, block, within):
    """Mean over groups of what the simplest costs of the plans predicted `within` of the fastest."""
    root = json.loads((DATA / f"{name}.json").read_text())
    plan_of = {id(row): case.get("scenario", {}).get("plan", {})
               for case, row in zip(root["cases"], block["rows"], strict=True)}
    regrets = []
    for rows in by_group(block["rows"]).values():
        plans = {}
        for row in rows:
            plans.setdefault(json.dumps(plan_of[id(row)], sort_keys=True), []).append(row)
        if len(plans) < 3:
            continue
        mean = [(sum(step(r, "predicted") for r in same) / len(same),
                 machinery(plan_of[id(same[0])]),
                 sum(step(r, "measured") for r in same) / len(same)) for same in plans.values()]
        limit = min(predicted for predicted, _, _ in mean) * math.exp(within)
        chosen = min((plan for plan in mean if plan[0] <= limit), key=lambda plan: (plan[1], plan[0]))
        regrets.append(chosen[2] / min(measured for _, _, measured in mean) - 1)
    return sum(regrets) / len(regrets)


def file_row(name, block, errors):
    """Name, mean rank correlation and regrets, common share, pairs in order of those far apart."""
    groups = block["groups"]
    ranked = [g["spearman"] for g in groups if g["spearman"] is not None]
    far, right = order_share(pairs_of(block["rows"]), errors["pair_ordered"])
    return (name, sum(ranked) / len(ranked), sum(g["regret"] for g in groups) / len(groups),
            regret_of_simplest(name, block, errors["pair_equal"]), common_share(block["rows"]),
            right, far)


def ranking_tables(blocks, errors):
    lines = ["| group of competing plans | plans | rank correlation | regret | not told from the predicted best | "
             "the measured best among them | regret of the best of them |", "|---|--:|--:|--:|--:|---|--:|"]
    files = []
    for name, block in blocks.items():
        for group in block["groups"]:
            spearman = "–" if group["spearman"] is None else f"{group['spearman']:.2f}"
            lines.append(f"| `{name}`: {group['group'][-64:].replace('|', '/')} | {group['plans']} | "
                         f"{spearman} | {100 * group['regret']:.1f} % | {group['near'] - 1} | "
                         f"{'yes' if group['best_is_near'] else 'no'} | {100 * group['near_regret']:.1f} % |")
        if block["groups"]:
            files.append(file_row(name, block, errors))
    groups = [group for block in blocks.values() for group in block["groups"]]
    held = sum(group["best_is_near"] for group in groups)
    lines += ["", f"Plans within the band of their difference from the one predicted fastest are not told from it, each "
              f"file judged by the others: in {held} of {len(groups)} groups the plan measured fastest is one of them; "
              f"{sum(g['near'] - 1 for g in groups) / max(len(groups), 1):.1f} others are, in the mean, of "
              f"{sum(g['plans'] - 1 for g in groups) / max(len(groups), 1):.1f}."]
    lines += ["", "| file | rank correlation, mean | regret of the fastest, mean | of the simplest that is equal to it | "
              "share of the errors' variance that competing plans have in common | "
              f"pairs at least {100 * errors['pair_ordered']:.1f} % apart in the measured order |",
              "|---|--:|--:|--:|--:|--:|"]
    for name, spearman, regret, simplest, common, right, far in files:
        lines.append(f"| `{name}` | {spearman:.2f} | {100 * regret:.1f} % | {100 * simplest:.1f} % | "
                     + ("–" if common is None else f"{100 * common:.0f} %") + f" | {right} of {far} |")
    mean = [sum(row[i] for row in files) / len(files) for i in (1, 2, 3)]
    lines.append(f"| **mean over files** | **{mean[0]:.2f}** | **{100 * mean[1]:.1f} %** | "
                 f"**{100 * mean[2]:.1f} %** | | |")
    lines += ["", f"Plans are *equal* to a search where they are predicted less than {100 * errors['pair_equal']:.1f} % "
              "apart: of measured pairs so near, more than one in three is in the other order."]
    if "dgxc_benchmarking" in blocks:
        pairs = dgxc_pairs(blocks["dgxc_benchmarking"])
        right = sum((a[0] < b[0]) == (a[1] < b[1]) for a, b in pairs)
        lines += ["", f"`dgxc_benchmarking` has {len(pairs)} pairs of layouts of one model, precision, "
                  f"batch and number of GPUs (releases averaged): {right} in the measured order."]
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", default="build/release")
    given = parser.parse_args()
    blocks = {name: validate(f"{given.build}/bin/rehearse", name) for name in FILES}
    with open("scenarios/accuracy/errors.json", encoding="utf-8") as file:
        print(ranking_tables(blocks, json.load(file)), end="")


if __name__ == "__main__":
    main()
