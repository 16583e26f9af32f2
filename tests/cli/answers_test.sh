#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What the command answers where output is lost, text is odd, names are wrong or a plan cannot be.
# Usage: answers_test.sh REHEARSE.
cd "$(dirname "$0")/../.." || exit 2
rehearse=$1
. tests/command.sh
tiny '"pipeline_parallel": 2, "schedule": "1f1b", "micro_batch": 1, "global_batch": 4' '"steps": 1'

# An answer that is lost is no answer: exit 3, and one line.
"$rehearse" simulate "$scenario" --trace "$work/t.trace" >/dev/null || fail "simulate"
lost() {
  "$rehearse" "$@" >/dev/full 2>"$work/err"
  code=$?
  [ "$code" = 3 ] || fail "exit $code to a full disk: $*"
  [ "$(grep -c "standard output: cannot write: No space left" "$work/err")" = 1 ] ||
    fail "not said once: $*: $(cat "$work/err")"
}
lost simulate "$scenario"
lost simulate "$scenario" --json
lost run "$scenario"
lost run "$scenario" --dry-run
lost schedule --schedule 1f1b --stages 2 --microbatches 2
lost schedule --schedule 1f1b --stages 2 --microbatches 2 --format json
lost check "$scenario"
lost check tests/data/schedules/negative/pytorch-172668-deadlock.p2.json
lost compare "$work/t.trace" "$work/t.trace"
lost render "$work/t.trace" --text
lost validate tests/data/validation/megatron_sc21.json
lost search "$scenario" --top 1
lost --help
lost simulate --help
lost --version

# Numbers that are none, or mean nothing.
for value in nan NaN -1 -nan inf -inf 1e400; do
  refused 2 "--max-error: must be a number from 0" validate "--max-error=$value" \
    tests/data/validation/megatron_sc21.json
done
for times in F=1e308 F=nan W=inf comm=1e13 FB=1e-13; do
  refused 2 "is not 0 or a number from 1e-12 to 1e12" schedule --schedule 1f1b --stages 2 \
    --microbatches 2 --times "$times"
done
says "makespan 6e+12;" schedule --schedule 1f1b --stages 2 --microbatches 1 --times \
  F=1e12,I=1e12,W=1e12
refused 2 "--memory-limit: it must be a number above 0" schedule --schedule zb_1p --stages 2 \
  --microbatches 2 --memory-limit inf

# A flag that would be passed over.
refused 2 "--stages: belongs to --schedule NAME" schedule "$scenario" --stages 4
refused 2 "--set: changes a scenario" schedule --schedule 1f1b --stages 2 --microbatches 2 \
  --set plan.micro_batch=2
printf '0F0,0B0\n1F0,1B0\n' >"$work/order.csv"
refused 2 "--microbatches: 2 is not what" schedule --schedule "file:$work/order.csv" \
  --microbatches 2
refused 2 "--group-size: belongs to" schedule --schedule "file:$work/order.csv" --group-size 2

# A picture of one kind in a file of another's name.
refused 2 "it writes png, not svg: name a file that ends in .png" render "$work/t.trace" \
  --png "$work/x.svg"
refused 2 "it writes svg, not png" render "$work/t.trace" --svg "$work/x.png"
refused 2 "it writes svg, not png" view "$work/t.trace" --svg "$work/x.png"
refused 2 "it writes svg, not png" search "$scenario" --svg "$work/x.png"
[ -e "$work/x.svg" ] || [ -e "$work/x.png" ] && fail "it was written all the same"
refused 2 "exclude each other" search "$scenario" --json --csv

# Text that is no UTF-8, and text of other scripts.
broken=$(printf '\332')
refused 2 "name: --set: the value is not UTF-8 text" simulate "$scenario" --json \
  --set "name=$broken"
is_utf8() { iconv -f UTF-8 -t UTF-8 >/dev/null; }
cp tests/data/validation/megatron_sc21.json "$work/$broken.json"
"$rehearse" validate --json "$work/$broken.json" | is_utf8 || fail "validate --json: a file's name"
cp "$scenario" "$work/s$broken.json"
sed -i 's/"name": "[^"]*", //' "$work/s$broken.json"
"$rehearse" simulate --json "$work/s$broken.json" | is_utf8 || fail "simulate --json: a file's name"
"$rehearse" check --json "$work/s$broken.json" | is_utf8 || fail "check --json: a file's name"
"$rehearse" run --json "$work/s$broken.json" 2>/dev/null | is_utf8 || fail "run --json: a name"
title="日本語 мир"
"$rehearse" simulate "$scenario" --set "name=$title" --trace "$work/u.trace" | grep -qF "$title" ||
  fail "simulate: the title's letters"
says "$title" render "$work/u.trace" --text
"$rehearse" render "$work/u.trace" --svg "$work/u.svg" 2>"$work/err" || fail "render --svg"
[ -s "$work/err" ] && fail "render --svg complains: $(cat "$work/err")"
grep -qF "$title" "$work/u.svg" || fail "render --svg: the title's letters"
FONTCONFIG_FILE=/dev/null says "no font here has the letters of \"$title\", and ? stands for them: --svg keeps them" render "$work/u.trace" --png \
  "$work/u.png"
"$rehearse" render "$work/t.trace" --title "$broken" --svg "$work/b.svg"
is_utf8 <"$work/b.svg" ||
  fail "render --title: broken text breaks the picture"

# A checkpoint's state with an object of many lines for a number.
mkdir "$work/ck"
printf '{"schema": "rehearse.checkpoint/1",\n"model": {"model_type": {"a": 1,\n"b": 2,\n"c": [3,\n4]}}}\n' \
  >"$work/ck/state.json"
refused 2 "model.model_type: the checkpoint's model has [{]" run "$scenario" --resume "$work/ck" \
  --set train.steps=2

# Names: of commands, of shipped scenarios, of files that are something else.
refused 2 "simulat: no such command; the nearest is simulate" simulat x
refused 2 "compare: B is required" compare "$work/t.trace"
for name in 3d-8-gpus 3d-8-gpus.json scenarios/3d-8-gpus.json; do
  says "Llama 2 7B on 8 A100s" simulate "$name"
  (cd "$work" && "$(cd - >/dev/null && realpath "$rehearse")" simulate "$name" >/dev/null) || fail "elsewhere: $name"
  says "sound" check "$name"
  says "8 GPUs" search "$name" --top 1
  says "1f1b(" schedule "$name"
done
says "micro-batch" run tiny-gpt-4-ranks --dry-run
refused 2 "3d-8-gpu: no such file; the nearest shipped scenario is 3d-8-gpus" simulate 3d-8-gpu
refused 2 "is a model, not a scenario" simulate scenarios/models/gpt2-124m.json
refused 2 "--set model=scenarios/models/gpt2-124m.json" search scenarios/models/gpt2-124m.json
refused 2 "is a model, not a scenario" check scenarios/models/gpt2-124m.json
refused 2 "is a cluster, not a scenario" simulate scenarios/clusters/dgx-h100.json
printf '{"orders": [["0F0", "0B0"]]}' >"$work/order.json"
refused 2 "is a schedule, not a scenario: rehearse check" simulate "$work/order.json"

# What a report says.
says " J per step" simulate "$scenario"
says " kJ per step" simulate 3d-8-gpus
says "2 micro-batches of 1 x" simulate "$scenario"
says "; 1 micro-batch of" simulate dp-ddp
says_not "DOES NOT FIT" simulate dp-ddp
says "communication: none, one GPU does it all" simulate scenarios/memory-bf16.json
"$rehearse" simulate dp-ddp --set plan.micro_batch=64 --set plan.global_batch=512 >"$work/out" ||
  fail "a plan that does not fit is exit $?"
[ "$(grep -n "DOES NOT FIT: position 0 needs" "$work/out" | cut -d: -f1)" -lt \
  "$(grep -n "^step time" "$work/out" | cut -d: -f1)" ] || fail "said below the step time"
grep -qF "rehearse search" "$work/out" || fail "does not say where plans that fit are found"
grep -q "The nearest plan that fits needs" "$work/out" || fail "names no plan that fits"
# The flags that it prints make a plan that fits, which has nothing to say of another one.
flags=$(sed -n 's/^ *\(--set plan\..*\)$/\1/p' "$work/out")
# shellcheck disable=SC2086
"$rehearse" simulate dp-ddp --set plan.micro_batch=64 --set plan.global_batch=512 $flags --json \
  --require-fit >"$work/out" || fail "what is named does not fit: $flags"
grep -q '"instead": null' "$work/out" || fail "a plan that fits names another"
"$rehearse" simulate dp-ddp --set plan.micro_batch=64 --set plan.global_batch=512 --json \
  >"$work/out" || fail "as JSON"
grep -A3 '"instead": {' "$work/out" | grep -q '"fits": true' || fail "JSON names no plan that fits"
refused 2 "but there are 4 gpus: data_parallel 4 fits them" simulate dp-ddp --gpus 4
refused 2 "data_parallel 8 fixed; --set plan.data_parallel=null leaves one open" search dp-ddp \
  --gpus 4
says "fixed by the scenario: tensor_parallel 2, pipeline_parallel 2" search 3d-8-gpus --top 1
says "capital letters are a rank's first chunk" schedule --schedule zb_v --stages 2 \
  --microbatches 2
"$rehearse" simulate "$scenario" --set plan.schedule=gpipe --trace "$work/g.trace" >/dev/null ||
  fail "gpipe"
refused 2 "different schedules .1f1b" compare "$work/t.trace" "$work/g.trace"
"$rehearse" simulate "$scenario" --cluster dgx-h100 --trace "$work/h.trace" >/dev/null || fail "h100"
says "all in all: the step differs by -" compare "$work/t.trace" "$work/h.trace"
"$rehearse" export "$work/t.trace" --to csv "$work/t.csv" || fail "export"
grep -q "FETCH tokens" "$work/t.csv" || fail "the batch's copy is not named"
grep -q "OFFLOAD metrics" "$work/t.csv" || fail "the loss's copy is not named"

# Colours: a terminal's, but not where NO_COLOR is set.
if command -v script >/dev/null; then
  coloured() { env "$@" TERM=xterm script -qec "$rehearse schedule --schedule 1f1b --stages 2 \
--microbatches 2" /dev/null | grep -c "$(printf '\033')\["; }
  [ "$(coloured NO_COLOR=)" -gt 0 ] || fail "no colour on a terminal"
  [ "$(coloured NO_COLOR=1)" = 0 ] || fail "colour in spite of NO_COLOR"
fi
exit $status
