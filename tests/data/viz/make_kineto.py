#!/usr/bin/env python3
"""Writes kineto_pipeline/rank*.json.gz: files of the shape that PyTorch's profiler writes for a
pipeline of four ranks under 1F1B with 8 micro-batches. Made up, not measured: what a reader must
cope with (host events, flows, instants, ranges, NCCL's arguments, one file per rank, a base time).
Keys as in kineto's output_json.cpp, torch's ParamCommsUtils.hpp and pipelining/schedules.py."""
import gzip
import json
import pathlib
import random

P, M = 4, 8
F, B, TRANSFER, LAUNCH = 1000.0, 2000.0, 40.0, 6.0  # [us]
BASE_NS = 1_760_000_000_000_000_000


def order(s):
    warm = min(P - s - 1, M)
    out = [("F", i) for i in range(warm)]
    for i in range(M - warm):
        out += [("F", warm + i), ("B", i)]
    return out + [("B", i) for i in range(M - warm, M)]


def times(rng):
    """(stage, kind, micro-batch) -> begin, end [us]."""
    done, free, at = {}, [0.0] * P, [0] * P
    while any(at[s] < 2 * M for s in range(P)):
        for s in range(P):
            while at[s] < 2 * M:
                kind, b = order(s)[at[s]]
                feeder = s - 1 if kind == "F" else s + 1
                if 0 <= feeder < P and (feeder, kind, b) not in done:
                    break
                ready = done[(feeder, kind, b)][1] + TRANSFER if 0 <= feeder < P else 0.0
                begin = round(max(free[s], ready), 3)
                took = (F if kind == "F" else B) * rng.uniform(0.97, 1.05)
                done[(s, kind, b)] = (begin, round(begin + took, 3))
                free[s] = done[(s, kind, b)][1]
                at[s] += 1
    return done


def device(events, s, name, cat, tid, ts, dur, args):
    events.append({"ph": "X", "cat": cat, "name": name, "pid": s, "tid": tid, "ts": round(ts, 3),
                   "dur": round(dur, 3), "args": args})


def collective(name, elements, group, ranks, **more):
    return {"device": 0, "stream": 20, "Collective name": name, "In msg nelems": elements,
            "Out msg nelems": elements, "Group size": len(ranks), "dtype": "BFloat16",
            "In split size": "[]", "Out split size": "[]", "Process Group Name": "1",
            "Process Group Description": group, "Process Group Ranks": str(ranks), **more}


def file_of(s, done):
    events = [{"name": "process_name", "ph": "M", "ts": 0, "pid": 4000 + s, "tid": 0,
               "args": {"name": "python"}},
              {"name": "process_labels", "ph": "M", "ts": 0, "pid": s, "tid": 0,
               "args": {"labels": f"GPU {s}"}},
              {"name": "thread_name", "ph": "M", "ts": 0, "pid": s, "tid": 7,
               "args": {"name": "stream 7 "}},
              {"name": "thread_name", "ph": "M", "ts": 0, "pid": s, "tid": 20,
               "args": {"name": "stream 20 "}}]
    correlation = 100
    for kind, b in order(s):
        begin, end = done[(s, kind, b)]
        name = f"PP:{s}{kind}{b}"
        host = {"pid": 4000 + s, "tid": 4000 + s}
        events.append({"ph": "X", "cat": "user_annotation", "name": name, **host,
                       "ts": round(begin - 30, 3), "dur": 25.5, "args": {"External id": b}})
        device(events, s, name, "gpu_user_annotation", 7, begin, end - begin, {"External id": b})
        cut = [begin, begin + 0.6 * (end - begin), begin + 0.9 * (end - begin), end]
        for i, kernel in enumerate(["nvjet_hsh_128x256_64x4_2x1_v_bz_coopA_TNT",
                                    "void pytorch_flash::flash_fwd_kernel<...>(Flash_fwd_params)",
                                    "void at::native::vectorized_elementwise_kernel<4, ...>"]):
            correlation += 1
            events.append({"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", **host,
                           "ts": round(begin - 28 + 8 * i, 3), "dur": LAUNCH,
                           "args": {"correlation": correlation}})
            events.append({"ph": "s", "id": correlation, "cat": "ac2g", "name": "ac2g", **host,
                           "ts": round(begin - 28 + 8 * i, 3)})
            device(events, s, kernel, "kernel", 7, cut[i], cut[i + 1] - cut[i],
                   {"device": s, "stream": 7, "correlation": correlation, "grid": [132, 1, 1]})
            events.append({"ph": "f", "id": correlation, "cat": "ac2g", "name": "ac2g", "bp": "e",
                           "pid": s, "tid": 7, "ts": round(cut[i], 3)})
        to = s + 1 if kind == "F" else s - 1
        if 0 <= to < P:
            device(events, s, "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", "kernel",
                   20, end, TRANSFER, collective("send", 4194304, "pp", [s, to], **{"Dst Rank": to}))
        events.append({"ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", **host,
                       "ts": round(begin, 3), "args": {"Total Allocated": 1 << 30, "Bytes": 512}})
    last = max(end for (stage, _, _), (_, end) in done.items() if stage == s)
    device(events, s, "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
           "kernel", 20, last + 50, 700.0, collective("allreduce", 50331648, "dp", [s, s + P]))
    device(events, s, "Memcpy DtoH (Device -> Pinned)", "gpu_memcpy", 7, last + 800, 2.0,
           {"stream": 7, "bytes": 4})
    return {"schemaVersion": 1,
            "deviceProperties": [{"id": s, "name": "made up", "totalGlobalMem": 85017755648}],
            "distributedInfo": {"backend": "nccl", "rank": s, "world_size": 2 * P,
                                "pg_count": 2, "pg_config": [{"pg_name": "0", "ranks": [0]}]},
            "displayTimeUnit": "ms", "baseTimeNanoseconds": BASE_NS, "traceEvents": events,
            "traceName": f"rank{s}.json"}


def main():
    folder = pathlib.Path(__file__).parent / "kineto_pipeline"
    done = times(random.Random(6))
    for s in range(P):
        with open(folder / f"rank{s}.json.gz", "wb") as out:
            out.write(gzip.compress(json.dumps(file_of(s, done), indent=1).encode(), mtime=0))


main()
