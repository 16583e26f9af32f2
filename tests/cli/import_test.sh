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

# What trains and computes again sparse attention and residual streams, of a model that has them.
"$rehearse" import --from megatron --model deepseek-v4-flash --gpus 64 --cluster gb300-nvl72 -o "$work/streams.json" -- \
  --micro-batch-size 1 --global-batch-size 512 --seq-length 4096 --bf16 --num-experts 256 --expert-model-parallel-size 64 \
  --recompute-granularity selective --recompute-modules mla_up_proj mhc --mhc-recompute-layer-num 2 \
  --dsa-indexer-loss-coeff 0.01 --dsa-indexer-use-sparse-loss >"$work/out" 2>&1 || fail "import of mhc: $(cat "$work/out")"
python3 - "$work/streams.json" <<'PYTHON' || fail "import: mhc and the indexer's loss are not the plan's"
import json, sys
plan = json.load(open(sys.argv[1]))["plan"]
want = {"recompute": ["latent_up", "residual_streams"], "recompute_stream_layers": 2, "indexer_loss": "sparse"}
sys.exit(any(plan[key] != value for key, value in want.items()))
PYTHON

# A recipe whose base stands in other files of the same checkout: by the package's name from a folder
# above, by dots, under another name, as the argument of a function that goes on with it.
bridge=$work/checkout/megatron/bridge/recipes
mkdir -p "$bridge"
cat >"$bridge/common.py" <<'PYTHON'
from megatron.bridge.training.config import ConfigContainer, TrainingConfig

LENGTH = 2048

def _common(micro_batch: int = 4) -> ConfigContainer:
    cfg = ConfigContainer(train=TrainingConfig(global_batch_size=64, micro_batch_size=micro_batch))
    cfg.dataset.seq_length = LENGTH
    return cfg

def _fast(cfg, impl: str = "te") -> None:
    if impl == "te":
        cfg.model.cross_entropy_loss_fusion = True
        cfg.model.cross_entropy_fusion_impl = impl
    cfg.model.seq_length = cfg.dataset.seq_length

def _split(model, tensor):
    model.tensor_model_parallel_size = tensor
PYTHON
cat >"$bridge/llama.py" <<'PYTHON'
from . import common
from .common import _fast, _split
from .common import LENGTH as TOKENS
from megatron.bridge import AutoBridge

def base_config():
    cfg = common._common(micro_batch=2)
    cfg.model = AutoBridge.from_hf_pretrained("meta-llama/Meta-Llama-3-8B").get_model_config()
    _split(cfg.model, 4)
    _fast(cfg)
    return cfg

def _with_batch(cfg, batch):
    cfg.train.global_batch_size = batch
    return cfg

llama_config = base_config
PYTHON
cat >"$bridge/mine.py" <<'PYTHON'
from megatron.bridge.recipes.llama import (
    _with_batch,
    llama_config as start,
)

def mine_64gpu_config():
    cfg = _with_batch(start(), 256)
    cfg.model.pipeline_model_parallel_size = 2
    return cfg
PYTHON
"$rehearse" import "$bridge/mine.py" -o - >"$work/mine.json" 2>"$work/out" || fail "a base in other files: $(cat "$work/out")"
for key in '"tensor_parallel": 4' '"pipeline_parallel": 2' '"micro_batch": 2' '"global_batch": 256' '"sequence_length": 2048' '"gpus": 64'; do
  grep -q "$key" "$work/mine.json" || fail "a base in other files: no $key in $(cat "$work/mine.json")"
done
cp "$bridge/mine.py" "$work/alone.py"
refused 2 "what it rests on, _with_batch of megatron/bridge/recipes/llama.py, is not beside it" import "$work/alone.py"

# A table of keys that lies over others (Hydra's defaults): the file's own keys count.
mkdir "$work/conf"
sed 's/tensor_model_parallel_size: .*/tensor_model_parallel_size: 2/' $data/nemo-gpt3-175b.yaml >"$work/conf/base.yaml"
cat >"$work/conf/mine.yaml" <<'YAML'
defaults:
  - base
  - _self_
model: {tensor_model_parallel_size: 4}
YAML
says '"tensor_parallel": 4' import "$work/conf/mine.yaml" -o -
sed 's/- base/- nowhere/' "$work/conf/mine.yaml" >"$work/conf/lost.yaml"
refused 2 'lies over "nowhere.yaml", which is not beside it' import "$work/conf/lost.yaml"

# Stages of a file: by name, else the first; the others are named.
cat $data/nanotron-tiny-llama.yaml - >"$work/stages.yaml" <<'YAML'
data_stages:
  - {name: Stable, start_training_step: 1}
  - {name: Long, start_training_step: 10, sequence_length: 512}
YAML
says '"Stable" is read; --stage NAME reads another: "Long"' import "$work/stages.yaml"
says '"sequence_length": 512' import "$work/stages.yaml" --stage Long -o -
refused 2 'no such stage, the nearest known one is Long' import "$work/stages.yaml" --stage Lon
refused 2 "nothing that is read has stages" import $data/titan-llama3-8b.toml --gpus 8 --stage Long

# A file that the script makes of another with sed, and a program that nobody here knows.
cat >"$work/sed.sh" <<'SHELL'
config=ds_config_made.json
sed "s/SIZE/${BATCH:-16}/" ds_TEMPLATE.json | sed "s/STAGE/$ZERO/" > ${config}
deepspeed pretrain_gpt.py --num-layers 2 --hidden-size 64 --num-attention-heads 4 --seq-length 16 \
  --max-position-embeddings 16 --vocab-size 128 --micro-batch-size 2 --global-batch-size 16 --fp16 \
  --deepspeed --deepspeed_config ${config} --no-pipeline-parallel --lr 1e-4 2>&1 | tee log
SHELL
echo '{"train_batch_size": SIZE, "zero_optimization": {"stage": STAGE}}' >"$work/ds_TEMPLATE.json"
refused 2 'says more in "ds_TEMPLATE.json"' import "$work/sed.sh" --gpus 8
refused 2 "STAGE becomes .ZERO, which only a run knows: --var ZERO=VALUE" import "$work/sed.sh" "$work/ds_TEMPLATE.json" --gpus 8
says "ZeRO-2" import "$work/sed.sh" "$work/ds_TEMPLATE.json" --gpus 8 --var ZERO=2
refused 2 "its file says 8 samples a step" import "$work/sed.sh" "$work/ds_TEMPLATE.json" --gpus 8 --var ZERO=2 --var BATCH=8
echo 'deepspeed mine.py --my-own 3 --other 4 --seed 1' >"$work/mine.sh"
refused 2 "mine.py: no program of a framework that is known here" import "$work/mine.sh"

# A recipe is of the framework whose module it imports; functions of its file are followed.
cat >"$work/recipe.py" <<'PYTHON'
from megatron.bridge.training.config import ConfigContainer
SEQUENCE = 4 * 1024
def base(seq=2048, wide=False):
    cfg = _pretrain_common()
    cfg.model = AutoBridge.from_hf_pretrained("meta-llama/Meta-Llama-3-8B").get_model_config()
    cfg.model.seq_length = seq
    cfg.train.global_batch_size = 16
    cfg.train.micro_batch_size = 1
    if wide:
        cfg.model.tensor_model_parallel_size = 2
    else:
        cfg.model.tensor_model_parallel_size = 4
    if seen_nowhere:
        cfg.train.micro_batch_size = 8
    return cfg
def mine():
    cfg = base(SEQUENCE, wide=True)
    cfg.train.global_batch_size = 32
    return cfg
PYTHON
says "left out: if seen_nowhere" import "$work/recipe.py" --recipe mine --gpus 8
"$rehearse" import "$work/recipe.py" --recipe mine --gpus 8 --json >"$work/json" || fail "recipe: exit $?"
python3 - "$work/json" <<'PYTHON' || fail "a recipe that calls another is not read as both"
import json, sys
plan = json.load(open(sys.argv[1]))["plan"]
want = {"tensor_parallel": 2, "sequence_length": 4096, "global_batch": 32, "micro_batch": 1}
sys.exit(any(plan[key] != value for key, value in want.items()))
PYTHON
sed 's/megatron.bridge/nobody.knows/' "$work/recipe.py" >"$work/unknown.py"
refused 2 "imports no module of a framework" import "$work/unknown.py" --recipe mine --gpus 8

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
# States on drives whose parts are swapped beside the update, there and back.
"$rehearse" emit zero-to-drives --for deepspeed --set plan.pad_vocabulary_to=1 --set plan.swap_pipeline=read \
  --set plan.swap_elements=200000000 -o "$work/drives" >"$work/out" 2>&1 || fail "emit --for deepspeed: $(cat "$work/out")"
grep -q '"pipeline_read": true' "$work/drives/ds_config.json" || fail "no pipeline_read"
grep -q 'pipeline_write' "$work/drives/ds_config.json" && fail "pipeline_write of nothing"
"$rehearse" import "$work/drives/ds_config.json" --gpus 32 --model llama2-13b --cluster dgx-a100-80gb \
  -o "$work/drives.json" >"$work/out" 2>&1 || fail "import of states on drives: $(cat "$work/out")"
grep -q '"swap_pipeline": "read"' "$work/drives.json" && grep -q '"swap_elements": 200000000' "$work/drives.json" ||
  fail "states on drives came back as $(grep swap "$work/drives.json")"
# Of an update that torchtitan has not it would run another.
refused 1 "plan.optimizer_bytes: 30: torchtitan updates fused" emit fsdp-64 --for torchtitan --set plan.optimizer_bytes=30
exit $status
