# SPDX-License-Identifier: Apache-2.0
"""The groups of measured cases that docs/accuracy.md reports, and how they are scored.

A group is a file, a pattern of its cases' ids, and the measured keys that are held against the
prediction. Errors are predicted / measured - 1.
"""
import dataclasses
import json
import os
import pathlib
import re
import subprocess

DATA = pathlib.Path("tests/data/validation")
STAGE = ("forward_s", "input_gradient_s", "weight_gradient_s")


@dataclasses.dataclass(frozen=True)
class Group:
    name: str
    file: str
    ids: str = ""
    keys: tuple = ("step_time_s",)
    target: str = ""


GROUPS = [
    Group("Table 5 of Korthikanti et al.: GPT 22B to 1T", "korthikanti_seqsel", target="3.6, max 8"),
    Group("the same: one layer", "korthikanti_seqsel", keys=("forward_backward_s",), target="2"),
    Group("SC21, tensor + pipeline", "megatron_sc21", "^(?!.*zero3)", target="4"),
    Group("SC21, ZeRO-3 of DeepSpeed", "megatron_sc21", "zero3"),
    Group("llm-foundry A100", "llm_foundry", "a100", target="3.3"),
    Group("llm-foundry H100", "llm_foundry", "h100", target="3.3"),
    Group("vTrain, one A100 node", "vtrain_single", target="8.4"),
    Group("torchtitan 8B, 70B", "torchtitan", "^(?!.*(405B|-cp|rowwise))", target="6"),
    Group("torchtitan context parallel, 405B", "torchtitan", "405B|-cp"),
    Group("torchtitan rowwise fp8", "torchtitan", "rowwise"),
    Group("llm.c", "llmc", target="5"),
    Group("Megatron-Bridge FP8, H100", "megatron_bridge", target="8"),
    Group("golden 7B, A100 and H100", "megatron_golden", "gpt3_7b.*(a100|h100)", target="12"),
    Group("golden 7B, GB200", "megatron_golden", "gpt3_7b.*gb200"),
    Group("Aleph Alpha 13B", "aleph_alpha_13b", target="8"),
    Group("the same: `fa2rms`", "aleph_alpha_13b", "fa2rms", target="5"),
    Group("dgxc H100, BF16", "dgxc_benchmarking", "^(?!.*(gb200|grok)).*bf16", target="3.5"),
    Group("dgxc H100, FP8", "dgxc_benchmarking", "^(?!.*(gb200|grok)).*fp8", target="6"),
    Group("dgxc GB200", "dgxc_benchmarking", "^(?!.*grok).*gb200", target="3"),
    Group("dgxc Grok-1 (experts)", "dgxc_benchmarking", "grok", target="15"),
    Group("Megatron release tests (experts)", "experts/megatron_moe_release", target="12"),
    Group("Parallel folding (experts)", "experts/moe_parallel_folding", target="12"),
    Group("DeepSeek-V3 on 2,048 H800s", "experts/deepseek_v3", target="10"),
    Group("DLPerf V100, tp inside a node", "dlperf_megatron_v100", "^(?!.*1x(16|32)x1)", target="4.5"),
    Group("DLPerf V100, tp over nodes", "dlperf_megatron_v100", "1x(16|32)x1"),
    Group("fms-fsdp", "fms_fsdp", target="5"),
    Group("NeMo AutoModel, Llama 70B", "nemo_automodel", "(?i)llama", target="5"),
    Group("NeMo AutoModel, experts", "nemo_automodel", "^(?!.*(?i:llama))", target="25"),
    Group("NeMo, long sequences: whether they fit", "nemo_long_sequence"),
    Group("FlagPerf, PaddlePaddle", "flagperf_paddle", target="10"),
    Group("MLPerf, GPT-3 175B", "mlperf_gpt3_175b", target="10"),
    Group("torchao FP8, NVIDIA", "torchao_float8", "^(?!.*mi300x)", target="10"),
    Group("torchao FP8, MI300X", "torchao_float8", "mi300x", target="20"),
    Group("Primus, DeepSeek-V2 on MI355X (experts)", "primus_moe_mi355x", target="20"),
    Group("XTuner, ZeRO-3 and Ulysses", "xtuner_zero3_ulysses", target="10"),
    Group("Megatron-Core, 48 to 6144 H100", "megatron_core_h100_scaling", target="10"),
    Group("OLMo-core", "olmo_core", target="10"),
    Group("zero-bubble stages: F", "zero_bubble_stages", keys=STAGE[:1], target="8"),
    Group("zero-bubble stages: I", "zero_bubble_stages", keys=STAGE[1:2], target="8"),
    Group("zero-bubble stages: W", "zero_bubble_stages", keys=STAGE[2:], target="8"),
]


def scenarios_of(name, folder=DATA):
    """The scenario of every case of a file, whatever its form."""
    cases = json.loads((folder / f"{name}.json").read_text())["cases"]
    forms = (case.get("scenario") or case.get("layer") or case.get("stage", {}).get("scenario")
             for case in cases)
    return [form for form in forms if form]


def runtimes_of(name):
    """Names of the profiles that a file's plans run with, a default as the program chooses it."""
    plans = (scenario.get("plan", {}) for scenario in scenarios_of(name))
    return {plan.get("runtime", "fsdp" if plan.get("zero_stage") == 3 else "megatron") for plan in plans}


def architectures_of(name):
    """Architectures of the GPUs of a file's clusters."""
    places = (DATA, (DATA / name).parent, pathlib.Path("scenarios"), pathlib.Path("scenarios/clusters"))
    found = set()
    for scenario in scenarios_of(name):
        cluster = scenario["cluster"]
        if not isinstance(cluster, dict):
            names = (cluster, f"{cluster}.json")
            cluster = json.loads(next(place / file for place in places for file in names
                                      if (place / file).is_file()).read_text())
        found.add(cluster["gpu"]["architecture"])
    return found


def validate(binary, name, folder=DATA, scenarios=None):
    """The block of one file as `rehearse validate --json` has it."""
    environment = dict(os.environ)
    if scenarios:
        environment["REHEARSE_SCENARIOS"] = str(scenarios)
    result = subprocess.run([binary, "validate", str(folder / f"{name}.json"), "--json"],
                            capture_output=True, text=True, env=environment, check=False)
    if not result.stdout:
        raise SystemExit(f"{name}: {result.stderr.strip()}")
    return json.loads(result.stdout)["files"][0]


def errors(block, group):
    """Errors of the group's cases, and how many of them were skipped."""
    found, skipped = [], 0
    for row in block["rows"]:
        if not re.search(group.ids, row["id"]):
            continue
        measured = [key for key in group.keys if row["measured"].get(key)]
        if "skipped" in row:
            skipped += bool(measured)
            continue
        found += [row["predicted"][key] / row["measured"][key] - 1
                  for key in measured if row["predicted"].get(key)]
    return found, skipped


def mean_and_bias(found):
    """Mean |error| and bias in %, or None."""
    if not found:
        return None
    return (100 * sum(map(abs, found)) / len(found), 100 * sum(found) / len(found))


def write_between(page, begin, end, text):
    """Replaces what stands on a page between two marks."""
    whole = page.read_text()
    page.write_text(whole[:whole.index(begin) + len(begin)] + text + whole[whole.index(end):])
