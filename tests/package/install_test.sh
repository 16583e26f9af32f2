#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What `cmake --install` installs, moved elsewhere: the command with its data, manual, completions and
# licences. Usage: install_test.sh BUILD REHEARSE
cd "$(dirname "$0")/../.." || exit 2
build=$1 rehearse=$2
. tests/command.sh
built=$rehearse

for part in command viewer gloo; do
  cmake --install "$build" --prefix "$work/first" --component $part >"$work/log" 2>&1 ||
    { fail "cmake --install: $(tail -n 3 "$work/log")"; exit 1; }
done
mv "$work/first" "$work/moved"
rehearse=$work/moved/bin/rehearse
cd "$work" || exit 1  # not where scenarios/ lies
"$rehearse" plan llama3-8b --gpus 8 --on h100 --json >"$work/plan.json" 2>"$work/err" || fail "plan: $(cat "$work/err")"
"$built" plan llama3-8b --gpus 8 --on h100 --json 2>/dev/null | cmp -s - "$work/plan.json" || fail "another answer than before it was installed"
"$rehearse" --version | grep -q 0.2.0 || fail "--version: $("$rehearse" --version)"
for part in $("$built" --version | sed -n 's/^built in: *//p'); do
  case $part in cuda | nccl | nothing | optional) continue ;; esac
  "$rehearse" --version | grep -q "built in:.*$part" || fail "$part is not found where it was installed"
done
for file in share/man/man1/rehearse.1.gz share/bash-completion/completions/rehearse share/zsh/vendor-completions/_rehearse \
    share/fish/vendor_completions.d/rehearse.fish share/doc/rehearse/LICENSE share/doc/rehearse/NOTICE \
    share/doc/rehearse/THIRD_PARTY.md share/doc/rehearse/copyright; do
  [ -s "moved/$file" ] || fail "not installed: $file"
done
gzip -dc moved/share/man/man1/rehearse.1.gz | grep -q '^\.TH REHEARSE 1' || fail "the manual is none"
grep -rqaF "$OLDPWD/scenarios" moved/bin moved/lib && fail "what is installed names the folder that it was built in"
exit $status
