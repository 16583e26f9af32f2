# SPDX-License-Identifier: Apache-2.0
"""How long the command takes from start to its help: the median of many starts, by the clock and in CPU time,
which a busy machine does not stretch. At most 10 ms of CPU time, or exit 1.
usage: python3 bench/start.py [REHEARSE]"""
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

MOST_MS, STARTS = 10.0, 40
command = sys.argv[1] if len(sys.argv) > 1 else str(Path(__file__).parents[1] / "build/release/bin/rehearse")


def started() -> tuple[float, float]:
    def used() -> float:
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime
    before, began = used(), time.perf_counter()
    subprocess.run([command, "--help"], stdout=subprocess.DEVNULL, check=True)
    return 1e3 * (time.perf_counter() - began), 1e3 * (used() - before)


started()
times = [started() for _ in range(STARTS)]
clock, cpu = (statistics.median(column) for column in zip(*times))
print(f"start to help, median of {STARTS}: {clock:.1f} ms by the clock, {cpu:.1f} ms of CPU time (at most {MOST_MS:.0f})")
sys.exit(cpu > MOST_MS)
