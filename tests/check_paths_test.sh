#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# check_paths.sh finds what it is there for: faults planted in a small tree.
cd "$(dirname "$0")/.." || exit 2
copy=$(mktemp -d) || exit 2
trap 'rm -rf "$copy"' EXIT
failed=0
mkdir -p "$copy"/{schedules/ir,sim,exec,viz,cli,docs,scenarios,tests,bench,.ci}
: >"$copy/run"; : >"$copy/.ci/run"; : >"$copy/schedules/ir/op.h"; : >"$copy/docs/other.md"
echo 'See [other](other.md), `schedules/ir/op.h`, docs/other.md; add `schedules/order/NAME.cc`.' >"$copy/docs/page.md"
echo 'int x;  // docs/page.md says why; "sim/absent.h" is no path outside a comment' >"$copy/sim/a.cc"
echo 'const char* path = "scenarios/absent.json";' >"$copy/sim/b.cc"
sed -i 's|; "sim/absent.h".*||' "$copy/sim/a.cc"

bash tests/check_paths.sh "$copy" || { echo "check_paths.sh refuses a sound tree"; failed=1; }
# must_say FILE LINE WHAT: with the line behind the file's end the check fails and says WHAT.
must_say() {
  cp "$copy/$1" "$copy/kept"
  echo "$2" >>"$copy/$1"
  if said=$(bash tests/check_paths.sh "$copy"); then
    echo "check_paths.sh takes it, and should say: $3"; failed=1
  elif ! grep -qF "$3" <<<"$said"; then
    echo "check_paths.sh says:"; echo "$said"; echo "and should say: $3"; failed=1
  fi
  mv "$copy/kept" "$copy/$1"
}
must_say sim/a.cc '// see sim/absent.h' 'sim/a.cc:2: no such file: sim/absent.h'
must_say docs/page.md 'It lies in `exec/nccl/nccl.cc`.' 'docs/page.md:2: no such file: exec/nccl/nccl.cc'
must_say run '# as tests/absent_test.sh does' 'run:1: no such file: tests/absent_test.sh'
must_say sim/b.cc '// the formula of docs/page.md 4.2' 'sim/b.cc:2: names a numbered section'
exit $failed
