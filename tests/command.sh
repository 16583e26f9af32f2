# SPDX-License-Identifier: Apache-2.0
# Sourced by tests of the command: a folder for their files, what has failed, what many of them ask.
# REQUIRES: $rehearse, in the project's root: a test goes there first. It ends with `exit $status`.
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
status=0
fail() { echo "$(basename "$0"): $*" >&2; status=1; }

# one_line FILE TEXT WHAT: exactly one line, which has TEXT (a regular expression).
one_line() {
  [ "$(wc -l <"$1")" -eq 1 ] || fail "$3: not one line: $(cat "$1")"
  grep -Eq -- "$2" "$1" || fail "$3: no \"$2\" in: $(cat "$1")"
}

# refused CODE TEXT ARGS...: the command exits with CODE and says one line on stderr, which has TEXT.
refused() {
  code=$1 text=$2; shift 2
  "$rehearse" "$@" >"$work/out" 2>"$work/err"
  got=$?
  [ "$got" -eq "$code" ] || fail "exit $got instead of $code: $*"
  [ -s "$work/out" ] && fail "stdout is not empty: $*"
  one_line "$work/err" "$text" "$*"
}

# refused_as LINE ARGS...: the command exits with 2, and LINE is all that it says.
refused_as() {
  expected=$1; shift
  said=$("$rehearse" "$@" 2>&1 >"$work/out")
  code=$?
  [ "$code" -eq 2 ] && [ "$said" = "rehearse: $expected" ] && [ ! -s "$work/out" ] ||
    fail "exit $code: $*
  said:     $said
  expected: rehearse: $expected"
}

# says TEXT ARGS...: exit 0 and TEXT in what is printed; says_not: without TEXT.
says() {
  text=$1; shift
  "$rehearse" "$@" >"$work/out" 2>&1 || fail "exit $?: $*: $(cat "$work/out")"
  grep -qF -- "$text" "$work/out" || fail "no \"$text\": $*: $(cat "$work/out")"
}
says_not() {
  text=$1; shift
  "$rehearse" "$@" >"$work/out" 2>&1 || fail "exit $?: $*: $(cat "$work/out")"
  grep -qF -- "$text" "$work/out" && fail "\"$text\": $*"
}

# tiny PLAN TRAIN: $scenario, a small GPT on 4 ranks; PLAN and TRAIN are keys beside those given here.
tiny() {
  scenario=$work/tiny.json
  cat >"$scenario" <<JSON
{
  "name": "$(basename "$0" .sh)", "cluster": "clusters/dgx-a100-80gb.json", "gpus": 4,
  "model": {"model_type": "gpt2", "n_embd": 32, "n_layer": 4, "n_head": 4, "n_positions": 16,
            "vocab_size": 256, "resid_pdrop": 0},
  "plan": {"sequence_length": 16, "precision": "fp32", $1},
  "train": {"learning_rate": 0.003, $2}
}
JSON
}

# tiny_experts MODEL PLAN TRAIN: $scenario, 8 experts, 2 for a token, on 4 ranks that train README.md;
# MODEL has its dialect's words for them.
tiny_experts() {
  scenario=$work/experts.json
  cp LICENSE "$work"  # a text that nobody edits: losses and choices of experts stay
  cat >"$scenario" <<JSON
{
  "name": "$(basename "$0" .sh)", "cluster": "clusters/dgx-a100-80gb.json", "gpus": 4,
  "model": {"hidden_size": 32, "vocab_size": 256, "num_attention_heads": 4, "num_key_value_heads": 2,
            "intermediate_size": 48, "num_experts_per_tok": 2, "max_position_embeddings": 32, $1},
  "plan": {"sequence_length": 32, "precision": "fp32", "data_parallel": 4, "expert_parallel": 4,
           "zero_stage": 1, "micro_batch": 1, "global_batch": 8, $2},
  "train": {"learning_rate": 0.003, "steps": 4, "data": "LICENSE"$3}
}
JSON
}

# appears FILE: waits until it is there and not empty, for ten minutes at most (a hang; ctest's limit is the same).
# catches PID: waits until the process catches SIGINT: a signal before would find the system's own handler.
appears() { awaited=0; until [ -s "$1" ]; do [ $((awaited += 1)) -lt 6000 ] || return 1; sleep 0.1; done; }
catches() {
  awaited=0
  until grep -qx "$(basename "$rehearse")" "/proc/$1/comm" 2>/dev/null &&  # the shell has traps of its own
    sed -n 's/^SigCgt:.*\(.\)$/\1/p' "/proc/$1/status" 2>/dev/null | grep -q '[2367abef]'; do
    [ $((awaited += 1)) -lt 6000 ] && kill -0 "$1" 2>/dev/null || return 1
    sleep 0.1
  done
}

# key FILE KEY: its first value in a report.
key() { sed -n "s/^ *\"$2\": \([^,]*\),\{0,1\}$/\1/p" "$1" | head -1; }

# losses FILE: losses and norms of a report, as printed: 17 digits, so equal text is equal bits.
losses() { sed -n '/"losses"/,/]/p;/"grad_norms"/,/]/p' "$1"; }
