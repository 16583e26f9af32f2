#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Does what the pages on adding a kind of layer, a family and a GPU say, with the examples that stand in them, in copies
# of the shipped data: each is found, priced, and refused where its page says so.
# usage: add_pages.sh REHEARSE
cd "$(dirname "$0")/../.." || exit 2
set -u
pages=$(pwd)/docs
PATH="$(cd "$(dirname "$1")" && pwd):$PATH"
work=$(mktemp -d) || exit 2
trap 'rm -rf "$work"' EXIT
cp -rL scenarios "$work/scenarios"
cd "$work" || exit 2
status=0
says() {  # says WHAT WORDS COMMAND...: what the command prints has the words
  local what=$1 words=$2
  shift 2
  "$@" >said 2>&1
  tr -s ' ' <said | grep -qF -- "$words" && return
  echo "$what: nothing says \"$words\":"
  head -5 said
  status=1
}
# The n-th block of a language in a page.
block() { awk -v n="$3" -v head="\`\`\`$2" '/^```/ { if (inside) inside = 0; else if ($0 == head) inside = ++count == n; next } inside' "$pages/$1"; }

cp -r scenarios layer
block add_a_layer.md json 1 >layer/layers/made_up.json
block add_a_layer.md json 2 >layer/mappings/made_up_model.json
mkdir model
block add_a_layer.md json 3 >model/config.json
scenario() { printf '{"model": "model/config.json", "cluster": "dgx-a100-80gb", "plan": {"tensor_parallel": %s, "data_parallel": 2, "global_batch": 4, "micro_batch": 1, "sequence_length": 512}}' "$1" >scenario.json; }
export REHEARSE_SCENARIOS=layer
scenario 2
says "a kind of layer, in four layers" " made_up 4 " rehearse simulate scenario.json
# Embedding and head of 32,000 x 2,048, the last norm, and four layers of norm and kind: f h + f + h f/2 + h.
says "its parameters" " $(python3 -c 'f, h = 1024, 2048; print(f"{2 * 32000 * h + h + 4 * (h + f * h + f + h * f // 2 + h):,}")') parameters" \
  rehearse simulate scenario.json
says "a run of it" "layers of kind made_up" rehearse run scenario.json
scenario 3
says "three tensor ranks" "need f % tp == 0, with f = 1024, tp = 3" rehearse simulate scenario.json

# The page copies the data itself; its last line asks for a prediction.
export REHEARSE_SCENARIOS=scenarios
says "a GPU" '"cluster": "orion"' bash -e <(block add_a_gpu.md bash 1)
says "a generation without a row" 'the nearest is "orion"' \
  bash -c 'sed -i "s/\"architecture\": \"orion\"/\"architecture\": \"orio\"/" orion/clusters/orion.json; REHEARSE_SCENARIOS=orion rehearse simulate gpt3-175b-1024 --cluster orion'
exit $status
