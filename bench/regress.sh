#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What a change did to speed: builds BASE and what stands here, runs both in turn, prints ratios.
#   bench/regress.sh BASE [--rounds 9] [--threshold 1.05] [--only PART] [--json FILE]
# BASE: any commit. It is checked out and built in build/regress/base, with our benchmark programs
# where they compile there (else with its own); what stands here, uncommitted changes too, is built
# in build/release. Options go to bench/regress.py, which says what is measured and how.
# A ratio is time now / time at BASE: above 1 is slower. Exit 1 if a median exceeds --threshold.
set -euo pipefail
cd "$(dirname "$0")/.."
if [ $# -eq 0 ] || [ "${1#-}" != "$1" ]; then
  sed -n '3,8s/^# \{0,1\}//p' "$0"
  case "${1:-}" in -h | --help) exit 0 ;; *) exit 2 ;; esac
fi
commit=$(git rev-parse --verify --quiet "$1^{commit}") || { echo "regress: $1 is no commit" >&2; exit 2; }
shift
base=build/regress/base
log=$PWD/build/regress/build.log
programs=(engine_bench proof_bench viz_bench)
mkdir -p build/regress

if [ -e "$base/.git" ]; then
  git -C "$base" checkout --quiet --force --detach "$commit"
else
  git worktree prune
  git worktree add --quiet --force --detach "$base" "$commit"
fi

# One cache for both trees: paths in it are relative, and build folders do not count.
build() {  # build TREE TARGET...
  local tree=$1; shift
  export CCACHE_BASEDIR=$PWD/$tree CCACHE_NOHASHDIR=1
  (
    cd "$tree"
    [ -f build/release/build.ninja ] || cmake --preset release
    ninja -C build/release "$@"
  ) >"$log" 2>&1
}
failed() { grep -E 'error|FAILED' "$log" | head -20 >&2; echo "regress: $1 does not build; all of it is in $log" >&2; exit 2; }

echo "regress: building $(git rev-parse --short "$commit") and what stands here" >&2
cp bench/*.cc bench/CMakeLists.txt "$base/bench/"
# Headers that lie elsewhere in BASE, or that it does not have: it declares the same in others.
grep -hoE '^#include "[a-z_]+/[^"]+"' bench/*.cc | sort -u | cut -d'"' -f2 | while read -r header; do
  [ -e "$base/$header" ] && continue
  there=$(git -C "$base" ls-files "*/$(basename "$header")" | head -n 1)
  if [ -n "$there" ]; then edit="s|\"$header\"|\"$there\"|"; else edit="\\|\"$header\"|d"; fi
  sed -i "$edit" "$base"/bench/*.cc
done
if ! build "$base" rehearse "${programs[@]}"; then
  echo "regress: our benchmarks do not compile at BASE: it runs its own" >&2
  git -C "$base" checkout --quiet --force -- bench
  git -C "$base" clean --quiet --force -- bench
  build "$base" rehearse "${programs[@]}" || failed BASE
fi
build . rehearse "${programs[@]}" || failed "what stands here"
status=0
python3 bench/regress.py --base "$base/build/release/bin" --head build/release/bin \
  --names "$(git rev-parse --short "$commit")" "$(git describe --always --dirty)" "$@" || status=$?
exit $status
