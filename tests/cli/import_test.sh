#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# import and emit as commands: exit codes, where answers go, and the way there and back.
# Usage: import_test.sh REHEARSE.
cd "$(dirname "$0")/../.." || exit 2
rehearse=$1
. tests/command.sh
data=tests/data/frameworks

# The scenario of a script is one: it can be predicted, and says what the script does.
"$rehearse" import $data/megatron-mixtral-8x22b.yaml --gpus 128 --cluster dgx-h100 -o "$work/mixtral.json" >"$work/out" ||
  fail "import: exit $?"
grep -q '^Megatron-LM: tp 2 pp 8 ep 8 etp 2 dp 8' "$work/out" || fail "no layout in: $(head -1 "$work/out")"
says "step time" simulate "$work/mixtral.json"
"$rehearse" import $data/titan-llama3-8b.toml --gpus 64 --cluster dgx-h100 -o - 2>/dev/null >"$work/titan.json" ||
  fail "import -o -: exit $?"
says "step time" simulate "$work/titan.json"

# JSON is one document, with a word for every flag.
"$rehearse" import $data/megatron-gpt3-175b.sh --json >"$work/json" || fail "import --json: exit $?"
python3 - "$work/json" <<'PYTHON' || fail "import --json: not as docs/import.md says"
import json, sys
made = json.load(open(sys.argv[1]))
words = {"used", "no_effect", "not_modelled"}
ok = made["schema"] == "rehearse.import/1" and len(made["flags"]) == 34
ok = ok and all(f["class"] in words and f["line"] > 0 for f in made["flags"])
sys.exit(not (ok and made["plan"]["pipeline_parallel"] == 16))
PYTHON

# What lies over a file, and what the files do not say.
says "pp 2" import $data/titan-cli-3d.toml --gpus 16 -- --parallelism.pipeline_parallel_degree 2 \
  --parallelism.data_parallel_shard_degree=4 --parallelism.tensor_parallel_degree 2
refused 2 "--gpus N" import $data/titan-llama3-8b.toml
refused 2 "--model" import $data/ds-compile-z3.json --gpus 8
refused 2 "nearest is --num-layers" import -- --num-layer 12 --hidden-size 64 --bf16
refused 2 "no such file" import nowhere.sh
refused 2 "scenario already" import scenarios/pipeline-1f1b.json
says "unknown here" import --ignore-unknown --gpus 1 -- --num-layers 2 --hidden-size 64 --num-attention-heads 4 \
  --micro-batch-size 1 --seq-length 16 --max-position-embeddings 16 --vocab-size 128 --bf16 --nobody-knows 3

# There and back: what is emitted is the same plan, or a key is named.
"$rehearse" emit pipeline-1f1b --for nemo >"$work/out" 2>"$work/err"
[ $? -eq 2 ] && grep -q "none are written" "$work/err" || fail "emit --for nemo: $(cat "$work/err")"
"$rehearse" emit pipeline-1f1b --for megatron -o "$work/launch" >"$work/out" 2>&1 || fail "emit: $(cat "$work/out")"
bash -n "$work/launch/train.sh" || fail "train.sh is no script"
"$rehearse" import "$work/launch/train.sh" --cluster dgx-a100-80gb -o "$work/back.json" >/dev/null 2>&1 || fail "import of what was emitted"
for framework in megatron torchtitan deepspeed nanotron; do
  "$rehearse" emit pipeline-gpipe --for $framework >"$work/out" 2>"$work/err"
  code=$?
  [ $code -eq 0 ] || [ $code -eq 1 ] || fail "emit --for $framework: exit $code: $(cat "$work/err")"
  if [ $code -eq 1 ] && ! grep -q '^rehearse: ' "$work/err"; then fail "emit --for $framework does not say why not"; fi
done
refused 1 'plan.schedule: "gpipe": Megatron-LM would run "1f1b"' emit pipeline-gpipe --for megatron
refused 2 "no such framework" emit pipeline-1f1b --for megatrn
exit $status
