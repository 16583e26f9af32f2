# SPDX-License-Identifier: Apache-2.0
# Sourced by tests of the command: a folder for their files, what has failed, what many of them ask.
# REQUIRES: $rehearse, in the project's root. A test ends with `exit $status`.
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
status=0
fail() { echo "$(basename "$0"): $*"; status=1; }

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

# key FILE KEY: its first value in a report.
key() { sed -n "s/^ *\"$2\": \([^,]*\),\{0,1\}$/\1/p" "$1" | head -1; }

# losses FILE: losses and norms of a report, as printed: 17 digits, so equal text is equal bits.
losses() { sed -n '/"losses"/,/]/p;/"grad_norms"/,/]/p' "$1"; }
