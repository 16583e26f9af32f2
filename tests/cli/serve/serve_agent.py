# SPDX-License-Identifier: Apache-2.0
"""An agent without a language model: random proposals over the protocol, several under way at once. Every answer must
be valid: a document whose numbers make sense, or one line that says what is wrong. usage: serve_agent.py REHEARSE
CALLS [SEED]; the last line has the calls and the seconds."""
import collections
import os
import pathlib
import random
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from mcp_lines import Server, check_result  # noqa: E402

rehearse, calls = os.path.abspath(sys.argv[1]), int(sys.argv[2])
luck = random.Random(int(sys.argv[3]) if len(sys.argv) > 3 else 1)
os.chdir(pathlib.Path(__file__).parents[3])
UNDER_WAY = 8

server = Server(rehearse)
server.initialize()
KNOWN = {kind: [row["id"] for row in server.call("list", {"kind": kind})[0]]
         for kind in ("models", "clusters", "scenarios", "schedules", "runtimes")}
SMALL = [model for model in KNOWN["models"] if model in ("gpt2-124m", "llama3.2-1b", "llama2-7b", "llama3-8b")]
assert SMALL


def typo(word):
    """Sometimes a person's or an agent's slip."""
    if luck.random() > 0.06 or len(word) < 4:
        return word
    at = luck.randrange(1, len(word) - 1)
    return word[:at] + word[at + 1:]


def some(names):
    return typo(luck.choice(names))


def plan():
    return {key: luck.choice(values) for key, values in {
        "tensor_parallel": [1, 2, 4, 8], "pipeline_parallel": [1, 2, 4, 3], "micro_batch": [1, 2, 4],
        "global_batch": [32, 64, 100], "sequence_length": [512, 1024, 2048], "zero_stage": [0, 1, 2, 3, 4],
        "schedule": KNOWN["schedules"], "recompute": ["none", "selective", "full", ["norm"], "some"],
        "sequence_parallel": [True, False], "precision": ["bf16", "fp8", "fp16", "int4"],
        "runtime": KNOWN["runtimes"],
    }.items() if luck.random() < 0.5} | {"global_batch": 64, "sequence_length": 1024}


def scenario():
    if luck.random() < 0.2:
        return some([name for name in KNOWN["scenarios"] if "tiny" in name or name.startswith("3d")])
    return {"model": some(SMALL), "cluster": some(KNOWN["clusters"]), "gpus": luck.choice([1, 4, 8, 16, 64]),
            "plan": plan()}


def proposal():
    kind = luck.random()
    if kind < 0.55:
        arguments = {"scenario": scenario()}
        if luck.random() < 0.3:
            arguments["set"] = {some(["plan.micro_batch", "plan.zero_stage", "gpus"]): luck.choice([1, 2, 3])}
        return "simulate", arguments
    if kind < 0.7:
        return "explain", {"a": scenario(), "b": scenario()}
    if kind < 0.8:
        return "check", {"file": scenario()}
    if kind < 0.88:
        return "list", {"kind": some(["models", "clusters", "scenarios", "schedules", "runtimes"])}
    if kind < 0.94:
        return "plan", {"config": some(SMALL[:2]), "gpus": luck.choice([1, 2, 8]), "on": some(KNOWN["clusters"]),
                        "set": {"plan.micro_batch": 1, "plan.schedule": "none", "plan.pipeline_parallel": 1}}
    return "search", {"scenario": {"model": some(SMALL[:2]), "cluster": some(KNOWN["clusters"]), "gpus": 8, "plan": {
        "global_batch": 64, "sequence_length": 1024, "micro_batch": [1, 2], "tensor_parallel": [1, 2],
        "pipeline_parallel": luck.choice([1, 2]), "schedule": "1f1b", "recompute": "none", "zero_stage": 1}}}


def times(low, step, high):
    assert 0 < low <= step <= high < 1e7, (low, step, high)


def check(tool, document):
    """Whether an answer is one of that tool."""
    if tool == "simulate":
        assert document["schema"] == "rehearse.prediction/1"
        confidence = document["confidence"]
        times(confidence["low_s"], document["step_time_s"], confidence["high_s"])
        shares = sum(confidence[key] for key in ("measured", "interpolated", "formula", "datasheet"))
        assert abs(shares - 1) < 1e-6 and isinstance(document["notes"], list)
        assert sum(document["bubble_causes_ns"].values()) == document["idle_ns"]
    elif tool == "explain":
        assert document["schema"] == "rehearse.explanation/1"
        for side, key in (("a", "a_ns"), ("b", "b_ns")):
            assert sum(cause[key] for cause in document["causes"]) == document[side]["step_ns"]
            assert document[side]["confidence"]["low_s"] > 0
    elif tool == "check":
        assert document["files"] and document["sound"] == all(not file["violations"] for file in document["files"])
    elif tool == "list":
        assert all(row["id"] and "about" in row for row in document)
    elif tool == "plan":
        assert document["schema"] == "rehearse.plan/1" and isinstance(document["assumed"], list)
        if document["best"]:
            times(document["best"]["low_s"], document["best"]["step_time_s"], document["best"]["high_s"])
    else:
        assert document["schema"] == "rehearse.search/1"
        for found in document["cases"][0]["best"]:
            times(found["low_s"], found["step_time_s"], found["high_s"])


begin = time.monotonic()
asked, done = {}, collections.Counter()
for number in range(calls + UNDER_WAY):
    if number >= UNDER_WAY or len(asked) == UNDER_WAY:
        if not asked:
            break
        answer = server.take()
        tool, arguments = asked.pop(answer["id"])
        try:
            document, text = check_result(answer)
            if document is not None:
                check(tool, document)
        except Exception:
            print("asked:", tool, arguments, "answered:", str(answer)[:2000], file=sys.stderr)
            raise
        done[tool, "answer" if document is not None else "refused"] += 1
    if number < calls:
        tool, arguments = proposal()
        asked[server.send("tools/call", {"name": tool, "arguments": arguments})] = (tool, arguments)
seconds = time.monotonic() - begin
assert not asked and sum(done.values()) == calls, (asked, done)
code, said = server.end()
assert (code, said) == (0, ""), (code, said)
for tool in ("plan", "simulate", "search", "check", "explain", "list"):
    assert calls < 200 or (done[tool, "answer"] and done[tool, "refused"]), (tool, done)
print(", ".join(f"{tool} {kind} {count}" for (tool, kind), count in sorted(done.items())))
print(f"{calls} calls in {seconds:.1f} s")
