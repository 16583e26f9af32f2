#!/usr/bin/env python3
"""Writes keys.json: every key of transformers' configuration classes for our dialects, with its
default, for each version of transformers that it is run with.

    python3 -m venv v5 && v5/bin/pip install transformers==5.23.0
    python3 -m venv v4 && v4/bin/pip install transformers==4.57.6
    v4/bin/python make_config_keys.py keys.json; v5/bin/python make_config_keys.py keys.json

A file that exists keeps what other versions have written. The test that reads it
(tests/schedules/model/config_keys_test.cc) needs neither Python nor transformers.
"""
import json
import os
import sys

import transformers
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

DIALECTS = ("gpt2 llama mistral mixtral qwen2 qwen2_moe qwen3 qwen3_moe gpt_neox bloom mpt "
            "deepseek_v2 deepseek_v3 gpt_oss olmoe glm4_moe llama4_text gemma2 gemma3_text phi3 olmo2 "
            "glm4 starcoder2").split()


def main(path):
    book = {"source": "to_dict() of the configuration classes of transformers, attribute_map beside it",
            "versions": {}}
    if os.path.exists(path):
        with open(path) as file:
            book = json.load(file)
    classes = {}
    for name in DIALECTS:
        made = CONFIG_MAPPING[name]()
        defaults = json.loads(json.dumps(made.to_dict(), default=str))
        classes[name] = {"defaults": dict(sorted(defaults.items())),
                         "also": dict(sorted(made.attribute_map.items()))}
    book["versions"][transformers.__version__] = classes
    book["versions"] = dict(sorted(book["versions"].items()))
    with open(path, "w") as file:
        file.write("{\n  \"source\": " + json.dumps(book["source"]) + ",\n  \"versions\": {")
        for v, (version, found) in enumerate(book["versions"].items()):
            file.write(("," if v else "") + f"\n    {json.dumps(version)}: {{")
            for d, (name, one) in enumerate(found.items()):
                file.write(("," if d else "") + f"\n      {json.dumps(name)}: {json.dumps(one)}")
            file.write("\n    }")
        file.write("\n  }\n}\n")


if __name__ == "__main__":
    main(sys.argv[1])
