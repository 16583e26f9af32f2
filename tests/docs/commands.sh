#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs every command that README.md, docs/*.md, docs/*/*.md, scenarios/README.md (blocks without a
# language) and every --help print, in order, as a reader would from the project's root: each must exit 0, and
# must leave nothing in the root that git does not ignore.
# usage: commands.sh REHEARSE. Blocks of ```console are examples.sh's, which compares their outputs.
cd "$(dirname "$0")/../.." || exit 2
set -u
bin=$(cd "$(dirname "$1")" && pwd)
project=$(pwd)
export PATH="$bin:$PATH" COLUMNS=100
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
work=$tmp/root
mkdir "$work"
status=0 ran=0

# Not run, each for its reason. A command that is no longer printed is named, so that this list does
# not outlive its reasons.
exceptions() {
  cat <<'X'
./run demo|needs minutes: .ci/run calls the parts of it
rehearse view predicted.trace profiles/|needs a folder of PyTorch's profiles
X
}
# Run otherwise: what would take a minute or a display.
instead() {
  case "$1" in
    "./run rehearse "*) printf '%s' "${1#./run }" ;;  # as it was built
    *"rehearse calibrate"*) printf '%s' "${1//rehearse calibrate/rehearse calibrate --quick}" ;;
    *"rehearse view"*) printf '%s --svg view.svg' "$1" ;;
    *"llama3-70b.json --gpus 64 128 256 --cluster dgx-a100-80gb dgx-h100"*)  # six searches
      [ -n "${REHEARSE_TEST_LONG:-}" ] && printf '%s' "$1" || printf '%s' "${1/64 128 256/64}" ;;
    *) printf '%s' "$1" ;;
  esac
}

# "a; b": a, then b.
one_by_one() { printf '%s\n' "${1//; /$'\n'}"; }

printed() {  # every command, as FILE<tab>COMMAND
  awk -v OFS='\t' '
    FNR == 1 { inside = 0 }
    /^```/ { inside = inside ? 0 : ($0 == "```" || $0 == "```sh") ? 1 : 2; next }
    inside == 1 && (/^(rehearse|\.\/run|cp|echo) / || joined) {
      line = joined $0
      joined = ""
      if (sub(/\\$/, "", line)) { joined = line; next }
      sub(/ +# .*$/, "", line)
      if (line !~ /^rehearse: /) print FILENAME, line
    }' README.md docs/*.md docs/*/*.md scenarios/README.md
  rehearse --help | sed -n '/^SUBCOMMANDS/I,$s/^  \([a-z]*\) .*/\1/p' | while read -r command; do
    rehearse "$command" --help | awk -v OFS='\t' -v name="rehearse $command --help" '
      /^ *Example: / { sub(/^ *Example: /, ""); print name, $0; found = 1 }
      END { if (!found) print name, "false  # prints no example" }'
  done
}

# A folder that looks like the project's root, and may be written into.
for entry in "$project"/*; do
  [ "$(basename "$entry")" = build ] || ln -s "$entry" "$work/"
done
printed >"$tmp/commands"
: >"$tmp/done"
exceptions >"$tmp/exceptions"
cd "$work" || exit 1
while IFS='|' read -r command reason; do
  cut -f2- "$tmp/commands" | grep -qxF -- "$command" && continue
  echo "excepted, but no longer printed: $command"
  status=1
done <"$tmp/exceptions"
while IFS=$'\t' read -r file command; do
  if reason=$(grep -F -- "$command|" "$tmp/exceptions"); then
    echo "not run: $file: $command (${reason#*|})"
    continue
  fi
  ran=$((ran + 1))
  begin=$SECONDS
  # What two pages print is run once: its files are still here.
  one_by_one "$command" >"$tmp/steps"
  while IFS= read -r step; do
    grep -qxF -- "$step" "$tmp/done" && continue
    printf '%s\n' "$step" >>"$tmp/done"
    (eval "$(instead "$step")") >"$tmp/out" 2>&1 </dev/null && continue
    echo "$file: exit $?: $step"
    tail -3 "$tmp/out"
    status=1
  done <"$tmp/steps"
  [ $((SECONDS - begin)) -lt 3 ] || echo "$((SECONDS - begin)) s: $file: $command"
done <"$tmp/commands"
echo "$ran commands"
[ "$ran" -gt 30 ] || { echo "too few commands were found"; status=1; }

# docs/commands.md has every option of every command.
rehearse --help | sed -n '/^SUBCOMMANDS/I,$s/^  \([a-z]*\) .*/\1/p' >"$tmp/names"
while read -r name; do
  row=$(grep -E "^\| \`rehearse $name[ \`]" docs/commands.md) || { echo "docs/commands.md: no $name"; status=1; }
  for option in $(rehearse "$name" --help | sed -nE 's/^ +(-[a-z],)?(--[a-z-]+).*/\2/p'); do
    case "$option:$row" in
      --help:*) ;;
      *"$option"*"$option"*) ;;
      *) echo "docs/commands.md: rehearse $name: no $option"; status=1 ;;
    esac
  done
done <"$tmp/names"
[ -s "$tmp/names" ] || { echo "no commands were found"; status=1; }

if git -C "$project" rev-parse --git-dir >/dev/null 2>&1; then
  for left in "$work"/*; do
    [ -L "$left" ] && continue
    name=$(basename "$left")
    [ "$name" = view.svg ] && continue  # of `instead`
    git -C "$project" check-ignore -q "$name$([ -d "$left" ] && echo /)" && continue
    echo "left in the root, and not ignored by git: $name"
    status=1
  done
fi
exit $status
