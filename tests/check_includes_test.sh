#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# check_includes.sh finds what it is there for: faults planted in a copy of the five folders.
cd "$(dirname "$0")/.." || exit 2
copy=$(mktemp -d) || exit 2
trap 'rm -rf "$copy"' EXIT
failed=0

# must_say WHAT: the check fails and says WHAT; then the copy is made anew.
must_say() {
  if said=$(sh tests/check_includes.sh "$copy"); then
    echo "check_includes.sh takes it, and should say: $1"; failed=1
  elif ! echo "$said" | grep -qF "$1"; then
    echo "check_includes.sh says:"; echo "$said"; echo "and should say: $1"; failed=1
  fi
  anew
}
anew() { rm -rf "${copy:?}"/*; cp -r schedules sim exec viz cli "$copy"; }

anew
sh tests/check_includes.sh "$copy" || { echo "check_includes.sh refuses an untouched copy"; failed=1; }
echo '#include "sim/engine/sweep.h"' >> "$copy/sim/compute/power.cc"
must_say "sim/compute/power.cc: sim/compute may not include sim/engine (sim/engine/sweep.h)"
echo '#include "exec/backend/shapes.h"' >> "$copy/sim/predict/predict.cc"
must_say "sim/predict may not include exec/backend"
echo '#include "cli/commands.h"' >> "$copy/viz/window/window.cc"
must_say "viz/window may not include cli"
echo '#include <nlohmann/json.hpp>' >> "$copy/cli/list.cc"
must_say "cli/list.cc: includes a parser of JSON"
touch "$copy/sim/loose.cc"
must_say "sim/loose.cc: lies in no room"
i=0; while [ $i -lt 28 ]; do touch "$copy/sim/cost/file_$i.h"; i=$((i + 1)); done
must_say "sim/cost: has more than 27 source files"
rm "$copy"/sim/formulas/*
must_say "sim/formulas: is listed, and has no file"
# An arrow drawn upwards by hand, and one that nothing uses.
upwards=$copy/check_includes.sh
sed 's|^sim/cluster:.*|& sim/search|' tests/check_includes.sh > "$upwards"
sh "$upwards" "$copy" | grep -qF "sim/cluster: may include sim/search, which does not stand above it" ||
  { echo "an arrow upwards is not found"; failed=1; }
sed 's|^viz/picture:.*|& schedules/proof|' tests/check_includes.sh > "$upwards"
sh "$upwards" "$copy" | grep -qF "viz/picture schedules/proof: is allowed, and no file does it" ||
  { echo "an arrow that nothing uses is not found"; failed=1; }
exit $failed
