# SPDX-License-Identifier: Apache-2.0
"""rehearse doctor: five recorded hangs, each named from its dumps alone; dumps as NCCL's are; RAS text; what is refused.
usage: doctor_test.py REHEARSE"""
import json
import os
import pathlib
import pickle
import subprocess
import sys
import tempfile

rehearse = os.path.abspath(sys.argv[1])
root = pathlib.Path(__file__).parents[3]
os.chdir(root)
work = pathlib.Path(tempfile.mkdtemp())


def run(*words):
    done = subprocess.run([rehearse, "doctor", *map(str, words)], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


def answer(*words):
    code, out, err = run(*words, "--json")
    assert code == 0 and err == "", (words, code, err)
    document = json.loads(out)
    assert document["schema"] == "rehearse.hang/1"
    code, text, _ = run(*words)
    assert code == 0 and text.split("\n")[0] == document["sentence"], text
    return document


def standing(document, rank):
    return next(row for row in document["ranks"] if row["rank"] == rank)


def recorded():
    """tests/data/hangs: three or four ranks over Gloo, recorded by record.py beside them."""
    missing = answer("tests/data/hangs/missing")
    assert (missing["kind"], missing["culprits"]) == ("missing", [2]), missing["sentence"]
    assert "anks 0 and 1 wait for it in all_reduce 3 of default_pg" in missing["sentence"]
    assert "its last call, all_reduce 2 of default_pg, is finished" in missing["sentence"]
    assert standing(missing, 0)["waits_for"] == [2] and standing(missing, 2)["state"] == "elsewhere"

    swapped = answer("tests/data/hangs/swapped")
    assert (swapped["kind"], sorted(swapped["culprits"])) == ("circle", [0, 1]), swapped["sentence"]
    assert swapped["in_a_circle"] and "recv from rank 1" in swapped["sentence"]

    order = answer("tests/data/hangs/order")
    assert (order["kind"], sorted(order["culprits"])) == ("circle", [0, 1]), order["sentence"]
    assert "pair_a" in order["sentence"] and "pair_b" in order["sentence"]

    shape = answer("tests/data/hangs/shape")
    assert (shape["kind"], shape["culprits"]) == ("mismatch", [1]), shape["sentence"]
    assert "24 Float" in shape["sentence"] and "16 Float" in shape["sentence"]
    assert standing(shape, 0)["state"] == "no_dump"  # Gloo ended it

    died = answer("tests/data/hangs/died")
    assert (died["kind"], died["culprits"]) == ("dead", [1]), died["sentence"]
    assert "all_reduce 2 of default_pg" in died["sentence"] and standing(died, 1)["state"] == "no_dump"


def entry(number, op, group="tp", sequence=0, state="scheduled", sizes=((4, 16),), line=0):
    return {"record_id": number, "process_group": ["7", group], "collective_seq_id": sequence, "p2p_seq_id": 0,
            "profiling_name": "nccl:" + op, "input_sizes": [list(one) for one in sizes],
            "input_dtypes": ["BFloat16"] * len(sizes), "state": state,
            "frames": [{"name": "all_reduce", "filename": "/x/torch/distributed/c10d.py", "line": 1},
                       {"name": "step", "filename": "/home/me/train.py", "line": line}]}


def dumps(ranks, groups):
    """Writes what each rank called; a folder of its own."""
    folder = pathlib.Path(tempfile.mkdtemp(dir=work))
    for rank, entries in ranks.items():
        (folder / f"nccl_trace_rank_{rank}.json").write_text(json.dumps({
            "version": "2.10", "entries": entries,
            "pg_config": {str(i): {"name": str(i), "desc": name, "ranks": str(list(members))}
                          for i, (name, members) in enumerate(groups.items())}}))
    return folder


def as_nccl_has_them():
    groups = {"default_pg": [0, 1, 2, 3], "pp": [1, 3], "tp": [2, 3]}
    # A pipeline: ranks of a group are counted from 0 in the group, and named as the job's.
    found = answer(dumps({1: [entry(0, "send 0->1", "pp", state="completed"), entry(1, "send 0->1", "pp", line=42)],
                          3: [entry(0, "recv 1<-0", "pp", state="completed"),
                              entry(1, "all_reduce", "tp", 5, "started", line=7)],
                          2: [entry(0, "all_reduce", "tp", 4, "completed")], 0: []}, groups))
    assert (found["kind"], found["culprits"]) == ("missing", [2]), found["sentence"]
    assert "(train.py:7 step)" in found["sentence"], found["sentence"]
    first = standing(found, 1)
    assert first["waits_for"] == [3] and first["call"]["peer"] == 3 and first["call"]["place"] == "train.py:42 step"
    assert standing(found, 0)["call"] is None

    # Recorders that have forgotten what is long over: it was finished.
    groups = {"dp": [0, 1]}
    assert answer(dumps({0: [entry(900, "all_gather", "dp", 90, "started")],
                         1: [entry(999, "all_gather", "dp", 99, "completed")]}, groups))["kind"] == "all_in"
    assert answer(dumps({0: [entry(1, "all_gather", "dp", 1, "completed")],
                         1: [entry(1, "all_gather", "dp", 1, "completed")]}, groups))["kind"] == "nothing"
    # Another op of the same number.
    other = answer(dumps({0: [entry(1, "all_gather", "dp", 1)], 1: [entry(1, "all_reduce", "dp", 1)],
                          2: [entry(1, "all_gather", "dp", 1)]}, {"dp": [0, 1, 2]}))
    assert (other["kind"], other["culprits"]) == ("mismatch", [1]), other["sentence"]
    # A circle of three.
    ring = answer(dumps({r: [entry(1, f"recv {r}<-{(r + 1) % 3}", "pp")] for r in range(3)}, {"pp": [0, 1, 2]}))
    assert ring["kind"] == "circle" and sorted(ring["culprits"]) == [0, 1, 2], ring
    # Everybody at once, with a circle behind a dead rank: death comes first.
    assert answer(dumps({0: [entry(1, "recv 0<-1", "pp")], 1: [entry(1, "recv 1<-2", "pp")]},
                        {"pp": [0, 1, 2]}))["culprits"] == [2]


RAS = """Job summary
===========

  Nodes  Processes         GPUs  Processes     GPUs
(total)   per node  per process    (total)  (total)
      4          8            1         32       32

Communicators... (0.00s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         4         8        32        32   RUNNING  %s

"""
BEHIND = RAS % "MISMATCH" + """Warnings
========

#0-0 (27a079b828ff1a75) MISMATCH
  Communicator ranks have different AllReduce operation counts
  30 ranks have launched up to operation 6650
  2 ranks have launched up to operation 6649
  Rank 5 -- GPU 5 managed by process 483077 on node 172.16.64.210
  Rank 21 -- GPU 5 managed by process 3487984 on node 172.16.64.213
"""
ALONE = RAS % "MISMATCH" + """Warnings
========

#0-0 (78db921d1c117b4a) MISMATCH
  Communicator ranks have different AllReduce operation counts
  7 ranks have launched up to operation 64
  Rank 7 has launched up to operation 60 -- GPU 3 managed by process 1650386 on node node1
"""
GONE = RAS % "INCOMPLETE" + """Errors
======

DEAD
  1 job process is considered dead (unreachable via the RAS network)
  Process 3487984 on node 172.16.64.213 managing GPU 5

#0-0 (cf264af53edbe986) INCOMPLETE
  Missing communicator data from 1 rank
  %s

"""


def ras():
    def of(text):
        path = work / "ras.txt"
        path.write_text(text)
        return answer(path)

    behind = of(BEHIND)
    assert (behind["kind"], behind["culprits"]) == ("missing", [5, 21]), behind
    assert "AllReduce up to 6649" in behind["sentence"] and "#0-0 (27a079b828ff1a75)" in behind["sentence"]
    alone = of(ALONE)
    assert (alone["kind"], alone["culprits"]) == ("missing", [7]) and "up to 60" in alone["sentence"], alone
    for line in ("The missing rank: 21", "Rank 21 -- GPU 5 managed by process 3487984 on node 172.16.64.213",
                 "Rank 21 -- [process information not found]"):
        gone = of(GONE % line)
        assert (gone["kind"], gone["culprits"]) == ("dead", [21]), gone
    assert of(RAS % "OK")["kind"] == "nothing"


def pickles():
    """The script of ours turns them into JSON, and runs nothing that is in them."""
    script = root / "docs/flight_recorder_json.py"
    folder = pathlib.Path(tempfile.mkdtemp(dir=work))
    for rank, entries in {0: [entry(1, "all_reduce", "tp", 1)], 1: []}.items():
        path = folder / f"nccl_trace_rank_{rank}"
        path.write_bytes(pickle.dumps({"entries": entries, "pg_config": {"0": {"name": "0", "desc": "tp",
                                                                                "ranks": "[0, 1]"}}}))
        code, _, err = run(path)
        assert code == 2 and "docs/flight_recorder_json.py" in err and err.count("\n") == 1, err
        subprocess.run([sys.executable, script, path], check=True, capture_output=True)
    found = answer(*sorted(folder.glob("*.json")))
    assert (found["kind"], found["culprits"]) == ("missing", [1]), found

    class Evil:
        def __reduce__(self):
            return (os.mkdir, (str(folder / "owned"),))

    path = folder / "evil_3"
    path.write_bytes(pickle.dumps({"entries": [Evil()]}))
    done = subprocess.run([sys.executable, script, path], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "no list, dict, text or number" in done.stderr, done.stderr
    assert not (folder / "owned").exists()


def refused():
    def of(text, *words, name="x_1.json"):
        path = work / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        code, out, err = run(path, *words)
        assert code == 2 and out == "" and err.count("\n") == 1, (text, code, err)
        return err

    assert "entries" in of("{}")
    assert "rank" in of('{"entries": []}', name="noname.json")
    assert "profiling_name" in of('{"entries": [{}]}')
    of('{"entries": 3}')
    of('{"entries": [3]}')
    of("[]")
    of("nonsense")
    of(b"\0" * 100)
    assert "no events that take time" in of('{"traceEvents": []}')
    of(b"SQLite format 3\0")
    assert "beside a profile" in of('{"entries": []}', "--scenario", "3d-8-gpus")
    assert "no such file" in run(work / "nothing")[2]
    empty = pathlib.Path(tempfile.mkdtemp(dir=work))
    assert "holds no file" in run(empty)[2]
    same = dumps({1: []}, {})
    assert "two dumps are of rank 1" in run(same, same)[2]
    # A dump cut at any byte is refused, or read where nothing of it is missing.
    whole = pathlib.Path("tests/data/hangs/order/rank_0.json").read_bytes().strip()
    for cut in range(0, len(whole) - 1, max(1, len(whole) // 60)):
        of(whole[:cut] or b" ")


for test in (recorded, as_nccl_has_them, ras, pickles, refused):
    test()
    print(test.__name__, "passed")
