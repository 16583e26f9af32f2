#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Turns dumps of PyTorch's Flight Recorder, which are pickles, into the JSON that `rehearse doctor` reads.

usage: flight_recorder_json.py FILE...        writes FILE.json beside each

A pickle may run any code while it is read. This reader builds lists, dicts, texts and numbers and refuses all else, so
that a dump from a machine that is not yours can do nothing. The rank of a dump is its own "rank", or the number that
its file's name ends in, as torch names them (TORCH_NCCL_DEBUG_INFO_TEMP_FILE).
"""
import json
import os
import pickle
import re
import sys


class Plain(pickle.Unpickler):
    """Nothing that has a name in some module."""

    def find_class(self, module, name):
        raise pickle.UnpicklingError(f"{module}.{name} is no list, dict, text or number")

    def persistent_load(self, pid):
        raise pickle.UnpicklingError("a dump refers to nothing outside of itself")


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    for path in sys.argv[1:]:
        try:
            with open(path, "rb") as file:
                dump = Plain(file).load()
        except Exception as fault:  # a broken pickle raises what it likes
            sys.exit(f"{path}: not a plain pickle: {fault}")
        if not isinstance(dump, dict) or "entries" not in dump:
            sys.exit(f"{path}: no dump: it has no \"entries\"")
        number = re.search(r"(\d+)$", os.path.splitext(os.path.basename(path))[0])
        if "rank" not in dump and number:
            dump["rank"] = int(number[1])
        with open(path + ".json", "w", encoding="utf-8") as file:
            json.dump(dump, file, default=repr)
        print(path + ".json")


if __name__ == "__main__":
    main()
