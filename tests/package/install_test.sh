#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What `cmake --install` installs, moved elsewhere: the command with its data, manual, completions and
# licences; librehearse, by the example, which is built outside the tree. Usage: install_test.sh BUILD REHEARSE
cd "$(dirname "$0")/../.." || exit 2
build=$1 rehearse=$2
. tests/command.sh
built=$rehearse

for part in command viewer gloo dev; do
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

cp -r moved/share/doc/rehearse-dev/example .
cmake -S example -B example/build -DCMAKE_PREFIX_PATH="$work/moved" >"$work/log" 2>&1 &&
  cmake --build example/build >>"$work/log" 2>&1 || { fail "the example: $(tail -n 15 "$work/log")"; exit 1; }
[ "$(example/build/fits 3d-8-gpus 2>"$work/err")" = fits ] || fail "fits: $(cat "$work/err")"
example/build/fits nowhere.json >"$work/out" 2>"$work/err"
[ $? -eq 2 ] || fail "the example and a scenario that is not there"
one_line "$work/err" "^rehearse: nowhere.json: no such file" "fits nowhere.json"
example/build/best >"$work/out" 2>"$work/err" || fail "best: $(cat "$work/err")"
cmp -s <(head -n "$(wc -l <"$work/plan.json")" "$work/out") "$work/plan.json" || fail "the library's answer is not the command's"

# A package that cannot be made is said, with the reason, and none is empty.
cmake -DCPACK_INSTALL_CMAKE_PROJECTS="$work/nothing" -DCPACK_REHEARSE_PARTS="cuda|rehearse_cuda.so|no nvcc" \
  -P "$OLDPWD/packaging/components.cmake" >"$work/out" 2>&1
one_line "$work/out" "^-- rehearse-cuda is not made: no nvcc$" "a package that cannot be made"
exit $status
