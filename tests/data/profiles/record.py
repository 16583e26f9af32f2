# SPDX-License-Identifier: Apache-2.0
"""Records what PyTorch's profiler says of a pipeline of four ranks over Gloo, one of which is slowed on purpose.
usage: record.py FOLDER (a Python with torch; slow_rank was recorded with torch 2.15.0 on a CPU).

Rank 2 sleeps before each of its four forwards of a step, as a rank would whose host is slow. The profile has these
sleeps as ranges "planted": how much was planted, and where, the recorded files say themselves.
"""
import os
import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.profiler import ProfilerActivity, profile, record_function, schedule

RANKS, SLOW, SLEEP = 4, 2, 0.04  # [s]
HIDDEN, ROWS, MICROBATCHES = 64, 64, 4


class Stage(torch.nn.Module):
    def __init__(self, slow):
        super().__init__()
        self.slow = slow
        self.layers = torch.nn.Sequential(torch.nn.Linear(HIDDEN, HIDDEN), torch.nn.Linear(HIDDEN, HIDDEN))

    def forward(self, x):
        if self.slow:
            with record_function("planted"):
                time.sleep(SLEEP)
        return self.layers(x)


def work(rank, folder):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29777", RANK=str(rank), WORLD_SIZE=str(RANKS),
                      GLOO_SOCKET_IFNAME="lo")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=RANKS)
    torch.manual_seed(1)
    module = Stage(rank == SLOW)
    pipeline = Schedule1F1B(PipelineStage(module, rank, RANKS, torch.device("cpu")), n_microbatches=MICROBATCHES,
                            loss_fn=torch.nn.MSELoss())
    optimizer = torch.optim.SGD(module.parameters(), lr=1e-3)
    rows, target = torch.randn(ROWS, HIDDEN), torch.randn(ROWS, HIDDEN)

    def step():
        optimizer.zero_grad()
        if rank == 0:
            pipeline.step(rows)
        elif rank == RANKS - 1:
            pipeline.step(target=target, losses=[])
        else:
            pipeline.step()
        optimizer.step()

    def ready(profiler):
        profiler.export_chrome_trace(os.path.join(folder, f"rank{rank}.json.gz"))

    with profile(activities=[ProfilerActivity.CPU], record_shapes=True,
                 schedule=schedule(wait=1, warmup=1, active=3), on_trace_ready=ready) as profiler:
        for _ in range(5):
            step()
            profiler.step()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    os.makedirs(sys.argv[1], exist_ok=True)
    mp.spawn(work, args=(sys.argv[1],), nprocs=RANKS)
