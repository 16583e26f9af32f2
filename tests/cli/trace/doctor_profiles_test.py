# SPDX-License-Identifier: Apache-2.0
"""rehearse doctor on profiles: the recorded pipeline with a slow rank, its totals against the files' own, made profiles
whose answer is known to the nanosecond, a trace of ours, a prediction beside, and what is refused.
usage: doctor_profiles_test.py REHEARSE"""
import gzip
import json
import os
import pathlib
import subprocess
import sys
import tempfile

from nsys_file import NsysFile

rehearse = os.path.abspath(sys.argv[1])
os.chdir(pathlib.Path(__file__).parents[3])
work = pathlib.Path(tempfile.mkdtemp())
recorded = pathlib.Path("tests/data/profiles/slow_rank")
PARTS = ("computing_ns", "communicating_ns", "waiting_ns", "data_ns", "host_ns")


def run(*words):
    done = subprocess.run([rehearse, *map(str, words)], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


def answer(*words):
    code, out, err = run("doctor", *words, "--json")
    assert code == 0 and err == "", (words, code, err)
    document = json.loads(out)
    assert document["schema"] == "rehearse.doctor/1"
    for row in document["steps"]:
        assert sum(row[part] for part in PARTS) == row["length_ns"], row
        assert sum(one["ns"] for one in row["waits_for"]) == row["waiting_ns"], row
        assert all(one["rank"] != row["rank"] for one in row["waits_for"]), row
    code, text, _ = run("doctor", *words)
    assert code == 0 and text.split("\n")[0] == document["sentence"], text
    return document


def refused(reason, *words):
    code, out, err = run("doctor", *words)
    assert code == 2 and out == "" and err.count("\n") == 1 and reason in err, (words, code, out, err)


def ns(micros):
    """Of a time as the file has it, by its digits."""
    whole, _, rest = micros.partition(".")
    return int(whole) * 1000 + int((rest + "000")[:3])


def events_of(path):
    """Events that take time, with exact times [ns]; nothing of the command's reading is used."""
    document = json.loads(gzip.open(path, "rt").read(), parse_float=str, parse_int=str)
    out = []
    for event in document["traceEvents"]:
        if event.get("ph") == "X":
            out.append((event.get("cat"), event["name"], ns(event["ts"]), ns(event["dur"])))
    return int(document["distributedInfo"]["rank"]), out


def the_recorded_run():
    document = answer(recorded)
    assert document["straggler"]["rank"] == 2 and document["sentence"].startswith("Rank 2 is the straggler")
    assert "its host takes longer" in document["sentence"]  # the rank sleeps
    assert document["predicted"] is None
    files = dict(events_of(path) for path in sorted(recorded.glob("*.json.gz")))
    assert sorted(files) == [0, 1, 2, 3]

    # Totals are those that the file itself sums to.
    for profile in document["profiles"]:
        events = files[profile["rank"]]
        operators = [d for cat, _, _, d in events if cat == "cpu_op"]
        assert (profile["operators"], profile["operators_ns"]) == (len(operators), sum(operators))
        assert (profile["kernels"], profile["device_events"]) == (0, False)
        families = {row["family"]: (row["events"], row["time_ns"]) for row in profile["families"]}
        gloo = [d for _, name, _, d in events if name.startswith("gloo:")]
        calls = [d for _, name, _, d in events if name.startswith("c10d::")]
        assert families == {"Gloo": (len(gloo), sum(gloo)), "c10d": (len(calls), sum(calls))}, families

    # Steps are the profiler's.
    steps = {(int(name.split("#")[1]), rank): d for rank, events in files.items()
             for _, name, _, d in events if name.startswith("ProfilerStep#")}
    assert {(row["step"], row["rank"]): row["length_ns"] for row in document["steps"]} == steps

    # The share: the others wait while rank 2 sleeps, but for what they compute meanwhile; and no longer than rank 2
    # does anything alone. Both ends are of the planted sleeps, as the run itself recorded them.
    planted = sum(d for _, name, _, d in files[2] if name == "planted")
    assert sum(name == "planted" for _, name, _, _ in files[2]) == 3 * 4
    own = {rank: sum(row["length_ns"] - row["waiting_ns"] for row in document["steps"] if row["rank"] == rank)
           for rank in files}
    others = [rank for rank in files if rank != 2]
    lengths = sum(row["length_ns"] for row in document["steps"] if row["rank"] != 2)
    least = sum(planted - own[rank] for rank in others) / lengths
    most = sum(own[2] for _ in others) / lengths
    assert 0.7 < least <= document["straggler"]["share"] <= most < 1, (least, document["straggler"], most)
    # Rank 2's own time is the sleeps, and its host's: nothing of theirs is computing.
    host = sum(row["host_ns"] for row in document["steps"] if row["rank"] == 2)
    assert planted <= host < 1.1 * planted, (planted, host)
    for row in document["steps"]:  # the chain ends at the rank that sleeps, also for rank 0
        if row["rank"] != 2:
            assert max(row["waits_for"], key=lambda one: one["ns"])["rank"] == 2, row


def kernel(name, begin, end, **args):
    return {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 7, "ts": begin, "dur": end - begin, "args": args}


def mark(number, begin, end):
    return {"ph": "X", "cat": "gpu_user_annotation", "name": f"ProfilerStep#{number}", "pid": 0, "tid": 7,
            "ts": begin, "dur": end - begin}


def folder(ranks, **more):
    """A folder of profiles; times in microseconds."""
    path = pathlib.Path(tempfile.mkdtemp(dir=work))
    for rank, events in ranks.items():
        (path / f"rank{rank}.json").write_text(json.dumps(
            {"schemaVersion": 1, "distributedInfo": {"rank": rank}, "baseTimeNanoseconds": 10**18,
             "traceEvents": events, **more}))
    return path


def collective(begin, end, group="tp0", op="allreduce", name="ncclDevKernel_AllReduce_Sum_bf16_RING_LL(x)"):
    return kernel(name, begin, end, **{"Collective name": op, "Process Group Name": group, "dtype": "BFloat16",
                                       "Process Group Description": "TENSOR_MODEL_PARALLEL_GROUP",
                                       "In msg nelems": 8, "Out msg nelems": 8})


def made_by_hand():
    # Rank 1 computes 60 of 100, rank 0 20; the all-reduce takes 30 once both are in it. Groups of one description.
    ranks = {0: [mark(7, 0, 100), kernel("gemm", 0, 20), collective(20, 90)],
             1: [mark(7, 0, 100), kernel("gemm", 0, 60), collective(60, 90)],
             2: [mark(7, 0, 40), kernel("gemm", 0, 30), collective(30, 40, "tp1")],
             3: [mark(7, 0, 40), kernel("gemm", 0, 30), collective(30, 40, "tp1")]}
    document = answer(folder(ranks))
    rows = {row["rank"]: row for row in document["steps"]}
    assert [rows[0][part] // 1000 for part in PARTS] == [20, 30, 40, 0, 10], rows[0]
    assert rows[0]["waits_for"] == [{"rank": 1, "ns": 40000}]
    assert [rows[1][part] // 1000 for part in PARTS] == [60, 30, 0, 0, 10], rows[1]
    assert [rows[2][part] // 1000 for part in PARTS] == [30, 10, 0, 0, 0], rows[2]
    assert document["straggler"]["rank"] == 1 and abs(document["straggler"]["share"] - 40 / 180) < 1e-9
    assert "it computes longer" in document["sentence"]

    # A chain: 0 waits for 1, which waits for 2, which computes.
    def transfer(op, begin, end, peer):
        return kernel("ncclDevKernel_SendRecv(x)", begin, end,
                      **{"Collective name": op, "Src Rank" if op == "recv" else "Dst Rank": peer})

    chain = answer(folder({0: [kernel("a", 0, 10), transfer("recv", 10, 92, 1), kernel("a", 92, 100)],
                           1: [kernel("a", 0, 10), transfer("recv", 10, 82, 2), kernel("a", 82, 88),
                               transfer("send", 88, 92, 0), kernel("a", 92, 100)],
                           2: [kernel("a", 0, 80), transfer("send", 80, 82, 1), kernel("a", 82, 100)]}))
    rows = {row["rank"]: row for row in chain["steps"]}
    waits = {one["rank"]: one["ns"] // 1000 for one in rows[0]["waits_for"]}
    assert waits == {2: 70, 1: 6} and rows[0]["communicating_ns"] == 6000, rows[0]  # 80 to 82 and 88 to 92 travel
    assert chain["straggler"]["rank"] == 2

    # Families by their kernels; copies are transfers that meet nobody; data is loaded.
    names = {"NCCL": "ncclDevKernel_ReduceScatter_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
             "RCCL": "ncclDevKernel_Generic_1(ncclDevComm*)",
             "DeepEP": "void deep_ep::internode::dispatch<false, 8>(int4*, float*)",
             "NVSHMEM": "void alltoall_on_stream_kernel<char>(nvshmem_team_t, char*, char const*)"}
    events = [mark(1, 0, 100)]
    for i, name in enumerate(names.values()):
        events.append(kernel(name, 10 * i, 10 * i + 5))
    events.append({"ph": "X", "cat": "gpu_memcpy", "name": "Memcpy HtoD", "pid": 0, "tid": 8, "ts": 50, "dur": 10})
    events.append({"ph": "X", "cat": "user_annotation", "name": "enumerate(DataLoader)#_It.__next__", "pid": 1,
                   "tid": 1, "ts": 70, "dur": 20})
    alone = answer(folder({0: events}))
    profile = alone["profiles"][0]
    assert {row["family"]: row["events"] for row in profile["families"]} == dict.fromkeys(names, 1), profile
    assert (profile["kernels"], profile["kernels_ns"]) == (4, 20000)
    row = alone["steps"][0]
    assert [row[part] // 1000 for part in PARTS] == [0, 30, 0, 20, 50], row
    assert alone["straggler"] is None and "One rank alone" in alone["sentence"]

    # Kernels of a name that say no group meet those that run at one time: of four ranks, two and two.
    def dispatch(begin, end):
        return kernel("void deep_ep::intranode::dispatch<8, 768>(int4*, float*)", begin, end)

    experts = answer(folder({0: [kernel("a", 0, 20), dispatch(20, 90)], 1: [kernel("a", 0, 60), dispatch(60, 90)],
                             2: [kernel("a", 0, 95), dispatch(95, 120)], 3: [kernel("a", 0, 95), dispatch(95, 120)]}))
    rows = {row["rank"]: row for row in experts["steps"]}
    assert rows[0]["waits_for"] == [{"rank": 1, "ns": 40000}] and rows[0]["communicating_ns"] == 30000, rows[0]
    assert all(rows[rank]["waits_for"] == [] for rank in (1, 2, 3)), rows

    # A kernel that is over at once is one of its group all the same.
    once = answer(folder({rank: [kernel("a", 0, 20), dispatch(20, 20), kernel("a", 30, 40)] for rank in (0, 1)}))
    assert all(row["host_ns"] == 10000 for row in once["steps"]), once

    # Steps that all have count, whatever else a file holds.
    ranks = {r: [mark(n, 100 * n, 100 * n + 90) for n in range(r, 3 + r)] + [kernel("gemm", 100, 190)] for r in (0, 1)}
    assert [(row["step"], row["rank"]) for row in answer(folder(ranks))["steps"]] == [(1, 0), (1, 1), (2, 0), (2, 1)]


def of_nsight_systems():
    """Two ranks, two steps; the host launches a step's kernels long before the device runs them."""
    nccl = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
    path = pathlib.Path(tempfile.mkdtemp(dir=work))
    for rank, busy in ((0, 20_000), (1, 60_000)):
        file = NsysFile(path / f"report_rank{rank}.sqlite", start=10**18 + rank * 7)
        for step in (4, 5):
            host, device = 1_000 * step, 1_000_000 * step - rank * 7  # the two started 7 ns apart
            file.mark(f"iteration{step}", host, host + 900, interned=step == 5)
            file.kernel("void gemm<128>(float*)", host + 100, device, device + busy)
            file.kernel(nccl, host + 200, device + busy, device + 90_000, thread=2)  # of another thread
            file.copy(device + 90_000, device + 95_000)
            file.kernel("void adam(float*)", host + 300, device + 95_000, device + 100_000)
        file.mark("optimizer", 0, 10)
        file.kernel("void before(float*)", 10, 20, 30)  # in no step
        file.close()
    document = answer(path)
    rows = {(row["step"], row["rank"]): row for row in document["steps"]}
    assert sorted(rows) == [(4, 0), (4, 1), (5, 0), (5, 1)]
    for step in (4, 5):
        assert [rows[step, 0][part] for part in PARTS] == [25_000, 35_000, 40_000, 0, 0], rows[step, 0]
        assert rows[step, 0]["waits_for"] == [{"rank": 1, "ns": 40_000}]
        assert [rows[step, 1][part] for part in PARTS] == [65_000, 35_000, 0, 0, 0], rows[step, 1]
    assert document["straggler"]["rank"] == 1 and abs(document["straggler"]["share"] - 0.4) < 1e-9
    profile = document["profiles"][0]
    assert (profile["kernels"], profile["kernels_ns"]) == (7, 2 * 95_000 + 10), profile
    assert profile["families"] == [{"family": "NCCL", "events": 2, "time_ns": 140_000}]

    # A file of a node: a rank for each process.
    node = work / "node1.sqlite"
    file = NsysFile(node)
    for device in (0, 1):
        file.kernel("void gemm(float*)", 0, 10, 50, pid=100 + device, device=device)
    file.close()
    assert [row["rank"] for row in answer(node)["steps"]] == [2, 3]

    whole = (path / "report_rank0.sqlite").read_bytes()
    for size in (100, 4096, len(whole) // 2):
        cut = work / "cut1.sqlite"
        cut.write_bytes(whole[:size])
        refused("cut1.sqlite: ", cut)
    other = work / "other.sqlite"
    NsysFile(other).close()
    refused("other.sqlite: holds no CUPTI_ACTIVITY_KIND_KERNEL", other)
    refused("name files of one kind", path / "report_rank0.sqlite", recorded)


def of_opentelemetry():
    """Megatron-LM's spans of two stages and four micro-batches: 1F1B, whose steady part has no spans of transfers."""
    F, B = 10, 20  # [us]; stage 1 takes as long again

    def spans(rank):
        slow = 2 if rank == 1 else 1
        at, out = 1_000, []

        def add(name, begin, end, **attributes):
            out.append({"traceId": "0" * 32, "spanId": "0" * 16, "name": name, "startTimeUnixNano": str(10**18 + begin * 1000),
                        "endTimeUnixNano": str(10**18 + end * 1000),
                        "attributes": [{"key": key, "value": {"intValue": str(value)}} for key, value in attributes.items()]})

        if rank == 0:  # F0 | F1 .. B0 | F2 .. B1 | F3 .. B2 | .. B3
            add("megatron.p2p.recv_forward", at, at)
            add("megatron.microbatch.forward", at, at + F)
            add("megatron.p2p.send_forward", at + F, at + F + 1)
            at += F + 1
            for i in range(3):
                add("megatron.microbatch.forward", at, at + F)
                done = 1_000 + F + 1 + (i + 1) * slow_pair
                add("megatron.microbatch.backward", done, done + B)
                at = done + B
            done = 1_000 + F + 1 + 4 * slow_pair
            add("megatron.p2p.recv_backward", at, done)
            add("megatron.microbatch.backward", done, done + B)
            end = done + B
        else:
            add("megatron.p2p.recv_forward", at, at + F + 1)
            at += F + 1
            for i in range(4):
                add("megatron.microbatch.forward", at, at + F * slow)
                add("megatron.microbatch.backward", at + F * slow, at + slow_pair)
                at += slow_pair
            add("megatron.p2p.send_backward", at, at)
            end = 1_000 + F + 1 + 4 * slow_pair + B
        add("megatron.train.iteration.forward_backward", 1_000, end, num_microbatches=4)
        add("megatron.train.iteration.optimizer", end, end + 5)
        add("megatron.train.iteration", 1_000, end + 5, **{"megatron.iteration": 12})
        return out

    slow_pair = 2 * (F + B)

    def batch(rank, part):
        values = {"dl.rank": {"intValue": str(rank)}, "dl.world_size": {"intValue": "2"},
                  "dl.pipeline_parallel.size": {"intValue": "2"}, "dl.tensor_parallel.size": {"intValue": "1"},
                  "service.name": {"stringValue": "megatron-lm"}}
        return json.dumps({"resourceSpans": [{
            "resource": {"attributes": [{"key": key, "value": value} for key, value in values.items()]},
            "scopeSpans": [{"scope": {"name": "nemo.lens"}, "spans": part}]}]})

    # A collector's file: batches as they came, one a line, of whatever rank.
    path = work / "spans.jsonl"
    path.write_text("".join(batch(rank, spans(rank)[i::2]) + "\n" for i in (0, 1) for rank in (1, 0)))
    assert path.read_text() == pathlib.Path("tests/data/profiles/megatron_spans.jsonl").read_text()  # a fuzzer's seed
    document = answer(path)
    rows = {row["rank"]: row for row in document["steps"]}
    assert sorted(rows) == [0, 1] and {row["step"] for row in document["steps"]} == {12}
    assert rows[0]["computing_ns"] == 1000 * (4 * (F + B) + 5) and rows[0]["host_ns"] == 0, rows[0]
    assert rows[1]["computing_ns"] == 1000 * (4 * slow_pair + 5), rows[1]
    # Rank 0 waits while rank 1 computes, but for the microsecond in which it sends.
    assert rows[0]["waits_for"] == [{"rank": 1, "ns": rows[0]["waiting_ns"]}]
    idle = rows[0]["length_ns"] - rows[0]["computing_ns"]
    assert rows[0]["waiting_ns"] + rows[0]["communicating_ns"] == idle and rows[0]["communicating_ns"] <= 1000, rows[0]
    assert rows[1]["waits_for"] == [{"rank": 0, "ns": 1000 * F}], rows[1]
    assert document["straggler"]["rank"] == 1 and "it computes longer" in document["sentence"]

    broken = work / "broken.jsonl"
    broken.write_text(path.read_text()[:3000])
    refused("broken.jsonl: byte ", broken)
    broken.write_text(path.read_text().replace("dl.rank", "dl.other"))
    refused("dl.rank is missing", broken)
    broken.write_text('{"resourceSpans": []}')
    refused("holds no span of a training step", broken)
    refused("name files of one kind", path, recorded)


def with_a_prediction():
    """A trace of a run, and of a prediction, which is then the prediction itself."""
    trace = work / "predicted.trace"
    code, _, err = run("simulate", "tiny-pp-4", "--trace", trace)
    assert code == 0, err
    document = answer(trace, "--scenario", "tiny-pp-4")
    predicted = document["predicted"]
    assert predicted["low_s"] < predicted["step_time_s"] < predicted["high_s"]
    by_rank = {row["rank"]: row for row in predicted["ranks"]}
    assert len(document["steps"]) == 4
    for row in document["steps"]:
        assert row == by_rank[row["rank"]], (row, by_rank)
        assert abs(row["length_ns"] - 1e9 * predicted["step_time_s"]) < 2
    assert document["profiles"][0]["families"] == []
    # Busy and idle are the report's.
    code, out, _ = run("simulate", "tiny-pp-4", "--json")
    report = json.loads(out)
    idle = sum(row["length_ns"] - row["computing_ns"] for row in document["steps"])
    assert abs(idle / sum(row["length_ns"] for row in document["steps"]) - report["bubble_ratio"]) < 1e-6

    # A replica that was made slower: the others wait for what it takes longer.
    code, _, err = run("simulate", "tiny-dp-4", "--set", 'variation={"slow": [{"ranks": "1", "speed": 0.7}]}', "--trace",
                       trace)
    assert code == 0, err
    slow = answer(trace)
    rows = {row["rank"]: row for row in slow["steps"]}
    longer = (rows[1]["computing_ns"] - rows[0]["computing_ns"]) / rows[0]["length_ns"]
    assert slow["straggler"]["rank"] == 1 and abs(slow["straggler"]["share"] - longer) < 0.005, (slow["straggler"], longer)
    assert abs(rows[0]["computing_ns"] / rows[1]["computing_ns"] - 0.7) < 0.01, rows

    beside = answer(recorded, "--scenario", "tiny-pp-4")
    assert [row["rank"] for row in beside["predicted"]["ranks"]] == [0, 1, 2, 3]
    code, text, _ = run("doctor", recorded, "--scenario", "tiny-pp-4")
    assert text.count("  predicted ") == 12 and "predicts a step of" in text, text
    refused("tiny-one: has 1 ranks, and a profile is of rank 1", recorded, "--scenario", "tiny-one")


def refusals():
    good = recorded / "rank0.json.gz"
    whole = gzip.open(good, "rb").read()
    cut = work / "rank0.json.gz"
    cut.write_bytes(good.read_bytes()[:9000])
    refused("rank0.json.gz: the gzip stream is broken or cut short", cut)
    cut = work / "rank0.json"
    cut.write_bytes(whole[:20000])
    refused("rank0.json: byte ", cut)
    small = (folder({0: [mark(1, 0, 100), collective(0, 90)]}) / "rank0.json").read_bytes()
    spans = pathlib.Path("tests/data/profiles/megatron_spans.jsonl").read_bytes().split(b"\n")[0]
    for text, name in ((small, "rank0.json"), (spans, "spans.jsonl")):
        for size in range(1, len(text), 41):  # cut anywhere
            cut = work / name
            cut.write_bytes(text[:size])
            refused(f"{name}:", cut)
    empty = work / "rank9.json"
    empty.write_text('{"traceEvents": []}')
    refused("rank9.json: no events that take time", empty)
    text = work / "notes.txt"
    text.write_text("hello")
    refused("notes.txt: neither a profile", text)
    refused("notes.txt: neither a profile", good, text)
    broken = work / "broken.json"
    broken.write_text('{"steps": [1,}')
    refused("broken.json:1", broken)
    refused("no-such-file", work / "no-such-file.json")
    refused("a second profile of rank 0", good, good)
    refused("name files of one kind", good, "tests/data/hangs/order")
    refused("of a hang", "tests/data/hangs/order", "--scenario", "tiny-pp-4")
    refused("no-such-scenario", good, "--scenario", "no-such-scenario")
    nowhere = work / "trace.json"
    nowhere.write_text(json.dumps({"traceEvents": [kernel("a", 0, 1)]}))
    assert answer(nowhere)["steps"][0]["rank"] == 0  # alone it needs no rank
    refused("trace.json: says no rank", good, nowhere)
    late = folder({0: [mark(1, 0, 10), kernel("a", 0, 5)]}, baseTimeNanoseconds=10**18 + 2 * 86400 * 10**9)
    refused("of another run", late, folder({1: [mark(1, 0, 10), kernel("a", 0, 5)]}))
    refused("has no step that all the others have", folder({0: [mark(1, 0, 10), kernel("a", 0, 5)],
                                                           1: [mark(2, 0, 10), kernel("a", 0, 5)]}))
    exported = work / "ours.json"
    code, _, err = run("export", work / "predicted.trace", "--to", "chrome", exported)
    assert code == 0, err
    refused("rehearse exported it: name the trace itself", exported)


the_recorded_run()
made_by_hand()
of_nsight_systems()
of_opentelemetry()
with_a_prediction()
refusals()
print("doctor of profiles: ok")
