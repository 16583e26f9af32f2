#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Building where a home cannot be written, and where a checkout was renamed; what ./run says meanwhile.
# Usage: set_up_test.sh BUILD COMPILER; BUILD a folder that CMake has configured.
cd "$(dirname "$0")/.." || exit 2
build=$1 compiler=$2
. tests/command.sh

# The compiler's cache needs no home. (/dev/null: not even root can make a folder in it.)
if [ -x "$build/compile_cached" ]; then
  echo 'int f() { return 1; }' >"$work/f.cc"
  sed "s|^: .*|: \"\${CCACHE_DIR:=$work/ccache}\"|" "$build/compile_cached" >"$work/compile_cached"
  grep -q "$work/ccache" "$work/compile_cached" || fail "compile_cached names no folder"
  (unset CCACHE_DIR; HOME=/dev/null XDG_CACHE_HOME=/dev/null XDG_CONFIG_HOME=/dev/null \
    sh "$work/compile_cached" "$compiler" -c "$work/f.cc" -o "$work/f.o") >"$work/out" 2>&1 ||
    fail "does not compile without a home: $(cat "$work/out")"
  [ -d "$work/ccache" ] || fail "the cache is not where it is said to be"
  CCACHE_DIR=$work/own sh "$build/compile_cached" "$compiler" -c "$work/f.cc" -o "$work/f.o" 2>"$work/out" ||
    fail "does not compile with the user's cache: $(cat "$work/out")"
  [ -d "$work/own" ] || fail "the user's CCACHE_DIR is not kept"
fi

# ./run on a project that builds in no time: a stage a line, silence where nothing is to do.
command -v dpkg-query >/dev/null || { echo "SKIPPED: ./run installs by dpkg, which is not here"; exit $status; }
mkdir "$work/here"
cp run "$work/here/run"
sed -i 's/^need() {/need() { return 0; }\nunused() {/' "$work/here/run"  # installs nothing
cp CMakePresets.json "$work/here/"
cat >"$work/here/CMakeLists.txt" <<'CMAKE'
cmake_minimum_required(VERSION 3.25)
project(small LANGUAGES NONE)
set(command ${CMAKE_BINARY_DIR}/bin/rehearse)
add_custom_command(OUTPUT first COMMAND touch first VERBATIM)
add_custom_command(OUTPUT ${command} COMMAND sleep 1 COMMAND cp /bin/echo ${command} DEPENDS first VERBATIM)
add_custom_target(rehearse DEPENDS ${command})
add_custom_target(modules)
file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
CMAKE
run() { (cd "$work/$1" && ./run rehearse well) >"$work/out" 2>"$work/err" || fail "$2: $(cat "$work/err")"; }
says() {  # says WHAT LINE...: what ./run said, whole
  what=$1; shift
  [ "$(cat "$work/out")" = well ] || fail "$what: does not run the command: $(cat "$work/out")"
  # On a machine that is busy enough it says how far it is, and how long it took.
  sed -i '/^run: built (release) in [0-9]* s$/d; /^run: building (release) [0-9]/d' "$work/err"
  printf '%s\n' "$@" | grep . | cmp -s - "$work/err" || fail "$what: says $(cat "$work/err")"
}
run here "first build"
says "first build" "run: configuring (release)"
run here "nothing to do"
says "nothing to do"
mv "$work/here" "$work/there"
run there "renamed"
says "renamed" "run: build/release was configured in $work/here, and this is $work/there: configuring and building it anew" \
  "run: configuring (release)"
exit $status
