# SPDX-License-Identifier: Apache-2.0
"""The schedule that write_ops wrote, in SimPy, as anybody would model it: a process per stream, an
event per op, and for a transfer an event that the end which comes first waits for.

usage: simpy_pipeline.py FILE     prints `ops simpy_seconds makespan_ns`; fails if it is not ours
"""
import sys
import time

import simpy

with open(sys.argv[1]) as file:
    makespan_ns = int(file.readline().split()[0])
    ops = [tuple(int(x) for x in line.split()) for line in file]

env = simpy.Environment()
done = [env.event() for _ in ops]
waiting = {}  # match -> op of the end that came first


def stream(numbers):
    for i in numbers:
        _, _, duration, match, *waits = ops[i]
        for w in waits:
            if not done[w].processed:
                yield done[w]
        if match < 0:
            yield env.timeout(duration)
            done[i].succeed()
        elif match in waiting:
            first, arrived = waiting.pop(match)
            yield env.timeout(duration)
            done[i].succeed()
            done[first].succeed()
            arrived.succeed()
        else:
            arrived = env.event()
            waiting[match] = (i, arrived)
            yield arrived


queues = {}
for number, op in enumerate(ops):
    queues.setdefault(op[:2], []).append(number)
for numbers in queues.values():
    env.process(stream(numbers))
begin = time.perf_counter()
env.run()
seconds = time.perf_counter() - begin
if env.now != makespan_ns or not all(event.processed for event in done):
    sys.exit(f"SimPy ends at {env.now}, ours at {makespan_ns}")
print(len(ops), f"{seconds:.6f}", int(env.now))
