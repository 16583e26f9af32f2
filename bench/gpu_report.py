# SPDX-License-Identifier: Apache-2.0
"""What bench/gpu.sh says of the files that it has: a line or a table each, with the target and whether it is reached.

  get FILE EXPRESSION          of r, the JSON in FILE
  curves A B TARGET [losses]   largest relative differences of losses and of gradient norms; "losses": norms have no target
  gradients A B TARGET         checkpoints after one step: first moments, tensor by tensor, relative to the largest
  speed OURS [TORCH TIMES RATE]  tokens per second; against PyTorch's, and the targets
  overlap APART BESIDE [TARGET]  seconds of a step without and with overlap; the numbers are to be equal, or the losses as near
  prediction NAME RUN DRY      a row: step predicted and measured, memory
  memory RUN CALIBRATION       what cudaMemGetInfo says against arenas, buffers and the context that was calibrated
  kernels CALIBRATION          a table: every kernel against the best product and the best bandwidth
"""
import array
import json
import os
import statistics
import struct
import sys


def read(path):
    with open(path) as file:
        return json.load(file)


def reached(good, target):
    return f"target {target}: {'reached' if good else '**missed**'}"


def relative(a, b):
    assert len(a) == len(b) > 0, (len(a), len(b))
    return max(abs(x - y) / max(abs(x), abs(y), 1e-30) for x, y in zip(a, b))


def get(path, expression):
    return str(eval(expression, {"r": read(path)}))


def curves(a, b, target, which=None):
    a, b = read(a), read(b)
    losses, norms = (relative(a[key], b[key]) for key in ("losses", "grad_norms"))
    worst = losses if which or float(target) >= 1e-2 else max(losses, norms)  # norms of bf16 have no target
    return f"losses {losses:.1e}, norms {norms:.1e} ({reached(worst <= float(target), target)})"


def newest(folder):
    return os.path.join(folder, sorted(n for n in os.listdir(folder) if n.startswith("step-"))[-1])


def moments(folder):
    with open(os.path.join(newest(folder), "optimizer.safetensors"), "rb") as file:
        data = file.read()
    length = struct.unpack("<Q", data[:8])[0]
    for name, tensor in json.loads(data[8:8 + length]).items():
        if not name.startswith("exp_avg."):
            continue
        begin, end = (8 + length + at for at in tensor["data_offsets"])
        yield name[len("exp_avg."):], array.array("f", data[begin:end])


def gradients(a, b, target):
    worst, where, count = 0, "", 0
    for (name, x), (same, y) in zip(moments(a), moments(b)):
        assert name == same and len(x) == len(y), name
        distance = max(abs(p - q) for p, q in zip(x, y)) / max(max(map(abs, y)), 1e-30)
        count += 1
        if distance >= worst:
            worst, where = distance, name
    return f"{count} tensors, largest difference {worst:.1e} of {where} ({reached(worst <= float(target), target)})"


def step_seconds(run):  # the first takes memory, the second captures graphs
    times = run["step_times_s"]
    return statistics.median(times[2:] or times)


def speed(ours, torch=None, times=None, rate=None):
    run = read(ours)
    seconds = step_seconds(run)
    tokens = run["step_time_s"] * run["tokens_per_s"] / seconds
    gpu = run["memory"].get("gpu", {})
    line = f"{tokens:.0f} tokens/s, step {1e3 * seconds:.1f} ms (median), arena {run['memory']['peak_reserved_bytes']} B"
    if gpu:
        line += f", GPU memory taken {gpu['taken_bytes']} B"
    if rate:
        line += f" ({reached(tokens >= float(rate), rate + ' tokens/s')})"
    if torch and os.path.exists(torch) and os.path.getsize(torch):
        peer = read(torch)
        ratio = tokens / peer["tokens_per_s"]
        line += (f"; PyTorch {peer['version']}{'' if peer['compiled'] else ', not compiled'}: {peer['tokens_per_s']:.0f} tokens/s, "
                 f"step {peer['ms']:.1f} ms, peak {peer['peak_bytes']} B: ratio {ratio:.3f} ({reached(ratio >= float(times), times)})")
    elif torch:
        why = os.path.join(os.path.dirname(torch), "torch.err")
        said = open(why).read().strip().splitlines() if os.path.exists(why) else []
        line += f"; beside PyTorch (target {times}): SKIPPED: {said[-1] if said else 'it was not measured'}"
    return line


def overlap(apart, beside, target=None):
    a, b = read(apart), read(beside)
    first, second = step_seconds(a), step_seconds(b)
    times = f"{1e3 * first:.2f} ms a step one after the other, {1e3 * second:.2f} ms beside one another ({second / first:.3f}); "
    if target:
        return times + curves(apart, beside, target)
    return times + f"losses and norms {reached(all(a[key] == b[key] for key in ('losses', 'grad_norms')), 'equal')}"


def prediction(name, run, dry):
    run, dry = read(run), read(dry)
    seconds, said = step_seconds(run), dry["step_time_s"]
    error = said / seconds - 1
    planned = dry["memory"]["peak_reserved_bytes"], run["memory"]["peak_reserved_bytes"]
    used = run["memory"]["peak_allocated_bytes"] == run["peak_planned_bytes"]
    return (f"| {name} | {1e3 * said:.2f} | {1e3 * seconds:.2f} | {100 * error:+.1f} % ({reached(abs(error) <= 0.05, '5 %')}) | "
            f"{planned[0]} / {planned[1]} B | {'yes' if used else '**no**'} |")


def memory(run, calibration):
    gpu = read(run)["memory"]["gpu"]
    context = read(calibration)["scalars"]["device.context_bytes"]
    graphs = gpu["graphs"]
    stated = gpu["held_bytes"] + graphs["bytes"] + context
    error = gpu["taken_bytes"] / stated - 1
    return (f"taken {gpu['taken_bytes']} B, arena and buffers {gpu['held_bytes']} B + {graphs['count']} graphs of {graphs['nodes']} nodes {graphs['bytes']} B (made in {1e3 * graphs['instantiate_s']:.0f} ms) + calibrated context {context:.0f} B: "
            f"{100 * error:+.2f} % ({reached(abs(error) <= 0.02, '2 %')})")


def kernels(calibration):
    c = read(calibration)
    product = lambda p: 2e-6 * p.get("batch", 1) * p["m"] * p["n"] * p["k"] / p["time_us"]  # TFLOP/s
    moved = lambda p: 1e-3 * p["bytes"] / p["time_us"]  # GB/s
    best = max(map(product, c["gemm"]))
    largest = {}
    for p in c["memory_bound"]:
        key = p["op"] + (" backward" if p.get("direction") == "backward" else "")
        if p["bytes"] >= largest.get(key, p)["bytes"]:
            largest[key] = p
    roof = max(map(moved, largest.values()))
    rows = ["| kernel | size | achieved | of the best measured |", "|---|---|---|---|"]
    grouped = [p for p in c["gemm"] if p.get("batch", 1) > 1]
    for p in sorted((p for p in c["gemm"] if p.get("batch", 1) == 1), key=product)[-3:]:
        rows.append(f"| product {p['layout']} | {p['m']} × {p['n']} × {p['k']} | {product(p):.1f} TFLOP/s | {100 * product(p) / best:.0f} % |")
    for p in grouped:
        rows.append(f"| product {p['layout']} of {p['batch']} experts | {p['m']} × {p['n']} × {p['k']} each | {product(p):.1f} TFLOP/s | {100 * product(p) / best:.0f} % |")
    for p in c["attention"]:  # causal: two products of half a square forward, five backward; else of the square
        keys, values = p["head_dim"], p.get("value_dim", p["head_dim"])
        wide = 3 * keys + 2 * values if p["direction"] == "backward" else keys + values
        flops = wide * p["batch"] * p["heads"] * p["sequence"] ** 2
        rate = 1e-6 * flops * (1 if p["causal"] else 2) / p["time_us"]
        part = ", another's keys" if not p["causal"] else ", own keys of a ring" if p.get("part") else ""
        rows.append(f"| attention {p['direction']}{part} | {p['batch']} × {p['heads']} heads of {keys}{f' and {values}' if values != keys else ''}, {p['sequence']} tokens | "
                    f"{rate:.1f} TFLOP/s | {100 * rate / best:.0f} % |")
    for name, p in largest.items():
        rows.append(f"| {name} | {p['bytes']} B | {moved(p):.1f} GB/s | {100 * moved(p) / roof:.0f} % |")
    return "\n".join(rows)


if __name__ == "__main__":
    commands = {f.__name__: f for f in (get, curves, gradients, speed, overlap, prediction, memory, kernels)}
    print(commands[sys.argv[1]](*sys.argv[2:]))
