#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What coding agents read is true: every command of skills/rehearse/SKILL.md and llms.txt runs, every page that they link
# is there, and the server's tools are those that they name. usage: agents.sh REHEARSE
cd "$(dirname "$0")/../.." || exit 2
bin=$(cd "$(dirname "$1")" && pwd)
export PATH="$bin:$PATH" COLUMNS=100
status=0 ran=0
fail() { echo "agents.sh: $*"; status=1; }

for page in skills/rehearse/SKILL.md llms.txt; do
  folder=$(dirname "$page")
  while read -r command; do
    bash -c "$command" >/dev/null 2>&1 </dev/null || fail "$page: exit $?: $command"
    ran=$((ran + 1))
  done < <(awk '/^```/ { inside = !inside; next } inside' "$page")
  while read -r link; do
    [ -e "$folder/$link" ] || fail "$page: no $link"
  done < <(grep -o '](\([^)]*\))' "$page" | sed 's/](\(.*\))/\1/' | grep -v '^http')
  # Files named in code marks.
  while read -r file; do
    [ -e "$file" ] || fail "$page: no $file"
  done < <(grep -oE '`(docs|scenarios|skills)/[a-zA-Z0-9_./-]+`' "$page" | tr -d '`')
done
[ "$ran" -ge 10 ] || fail "only $ran commands were found"
head -1 skills/rehearse/SKILL.md | grep -qx -- '---' && grep -qx 'name: rehearse' skills/rehearse/SKILL.md ||
  fail "SKILL.md has no front matter"
tools=$(echo '{"jsonrpc": "2.0", "id": 1, "method": "tools/list"}' | rehearse serve |
  python3 -c 'import json, sys; print(*[t["name"] for t in json.loads(sys.stdin.read())["result"]["tools"]])')
for tool in $tools; do
  grep -q "^| \`$tool\`" docs/agents.md || fail "docs/agents.md: no tool $tool"
  grep -q "\`$tool\`" skills/rehearse/SKILL.md || fail "SKILL.md: no $tool"
done
[ -n "$tools" ] || fail "the server lists no tools"
exit $status
