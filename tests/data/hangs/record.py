# SPDX-License-Identifier: Apache-2.0
"""Plants hangs in jobs of three or four ranks over Gloo and records what PyTorch's Flight Recorder says of each.
usage: record.py FOLDER [HANG] (a Python with torch; recorded with torch 2.15.0 on a CPU).

Gloo's collectives are recorded by torch itself; its sends and receives are not, so that for these the ranks write
the entries that NCCL's would be (torch/csrc/distributed/c10d/FlightRecorder.hpp), beside torch's own. Nor does torch
list the members of Gloo's groups: the ranks write `pg_config` as NCCL's dumps have it. Every rank dumps as soon as a call has not been finished for some seconds, and leaves.
"""
import json
import os
import sys
import time

os.environ["TORCH_FR_BUFFER_SIZE"] = os.environ["TORCH_NCCL_TRACE_BUFFER_SIZE"] = "200"
os.environ["GLOO_SOCKET_IFNAME"] = "lo"
PATIENCE = 6.0  # [s]


def world_of(folder):
    """Of `shape` one rank dies, of Gloo's own error: the three others show who differed."""
    return 4 if os.path.basename(folder) == "shape" else 3


class Rank:
    def __init__(self, rank, folder):
        import torch
        import torch.distributed as dist
        self.torch, self.dist, self.rank, self.folder = torch, dist, rank, folder
        self.transfers = []
        torch.set_num_threads(1)
        dist.init_process_group("gloo", rank=rank, world_size=world_of(folder), init_method=f"file://{folder}/meet")
        self.pairs = [dist.new_group([0, 1], group_desc="pair_a"), dist.new_group([0, 1], group_desc="pair_b")]

    def dump(self):
        from torch._C import _distributed_c10d as c10d
        text = c10d._dump_fr_trace_json(includeCollectives=True, onlyActive=False)
        dump = json.loads(text)
        dump["rank"] = self.rank
        dump["pg_config"] = {str(number): {"name": str(number), "desc": name, "ranks": str(ranks)} for number, (name, ranks)
                             in enumerate([("default_pg", list(range(self.dist.get_world_size()))), ("pair_a", [0, 1]),
                                           ("pair_b", [0, 1])])}
        dump["entries"] = [entry | {"frames": entry.get("frames", [])} for entry in dump["entries"]] + self.transfers
        with open(os.path.join(self.folder, f"rank_{self.rank}.json"), "w", encoding="utf-8") as file:
            json.dump(dump, file, indent=1)
        time.sleep(2 * PATIENCE)  # the others go on meanwhile
        os._exit(0)

    def finish(self, work, entry=None):
        """Waits for a call; a rank that would stand in it dumps."""
        until = time.monotonic() + PATIENCE
        while not work.is_completed():
            if time.monotonic() > until:
                self.dump()
            time.sleep(0.05)
        if entry is not None:
            entry["state"] = "completed"

    def reduce(self, elements=16, group=None):
        self.finish(self.dist.all_reduce(self.torch.ones(elements), group=group, async_op=True))

    def transfer(self, op, peer, elements=16):
        tensor = self.torch.ones(elements)
        arrow = "->" if op == "send" else "<-"
        entry = {"record_id": 1000 + len(self.transfers), "process_group": ["0", "default_pg"],
                 "collective_seq_id": 0, "p2p_seq_id": len(self.transfers) + 1, "is_p2p": True,
                 "profiling_name": f"gloo:{op} {self.rank}{arrow}{peer}", "state": "scheduled",
                 "input_sizes": [[elements]], "input_dtypes": ["Float"], "frames": []}
        self.transfers.append(entry)
        work = self.dist.isend(tensor, peer) if op == "send" else self.dist.irecv(tensor, peer)
        if op == "send":  # a rendezvous, as NCCL's: done when the other end has come
            key = f"{self.rank}>{peer}:{sum(t['profiling_name'] == entry['profiling_name'] for t in self.transfers)}"
            store = self.dist.distributed_c10d._get_default_store()
            work = Arrived(store, key)
        else:
            key = f"{peer}>{self.rank}:{sum(t['profiling_name'] == entry['profiling_name'] for t in self.transfers)}"
            self.dist.distributed_c10d._get_default_store().set(key, "1")
        self.finish(work, entry)


class Arrived:
    """A send that is finished when its receive was posted."""

    def __init__(self, store, key):
        self.store, self.key = store, key

    def is_completed(self):
        return self.store.check([self.key])


def missing(rank):
    """Rank 2 reads data and never comes to the third sum."""
    rank.reduce()
    rank.reduce()
    if rank.rank == 2:
        time.sleep(1.5 * PATIENCE)
        rank.dump()
    rank.reduce()


def swapped(rank):
    """Ranks 0 and 1 both receive first."""
    rank.reduce()
    if rank.rank < 2:
        rank.transfer("recv", 1 - rank.rank)
        rank.transfer("send", 1 - rank.rank)
    else:
        rank.dump()


def order(rank):
    """Rank 1 takes the two groups of ranks 0 and 1 in another order."""
    rank.reduce()
    if rank.rank < 2:
        for pair in rank.pairs if rank.rank == 0 else rank.pairs[::-1]:
            rank.reduce(group=pair)
    else:
        rank.dump()


def shape(rank):
    """Rank 1 sums 24 numbers where the others sum 16: an error of Gloo, of which rank 0 dies."""
    rank.reduce()
    rank.reduce(24 if rank.rank == 1 else 16)
    rank.dump()


def died(rank):
    """Rank 1 ends after the first sum."""
    rank.reduce()
    if rank.rank == 1:
        os._exit(1)
    rank.reduce()


HANGS = [missing, swapped, order, shape, died]

if __name__ == "__main__":
    if len(sys.argv) == 4:
        place = os.path.join(sys.argv[1], sys.argv[2])
        one = Rank(int(sys.argv[3]), place)
        dict((hang.__name__, hang) for hang in HANGS)[sys.argv[2]](one)
        one.dump()
    import subprocess
    for hang in [hang for hang in HANGS if len(sys.argv) < 3 or hang.__name__ == sys.argv[2]]:
        place = os.path.join(sys.argv[1], hang.__name__)
        os.makedirs(place, exist_ok=True)
        for old in os.listdir(place):
            os.remove(os.path.join(place, old))
        ranks = [subprocess.Popen([sys.executable, __file__, sys.argv[1], hang.__name__, str(r)]) for r in range(world_of(place))]
        for process in ranks:
            process.wait()
        if os.path.exists(os.path.join(place, "meet")):
            os.remove(os.path.join(place, "meet"))
        print(hang.__name__, sorted(os.listdir(place)), flush=True)
