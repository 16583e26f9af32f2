#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# check_types.py finds what it is there for, and takes what is allowed.
cd "$(dirname "$0")/.." || exit 2
copy=$(mktemp -d) || exit 2
trap 'rm -rf "$copy"' EXIT
mkdir "$copy/sim" "$copy/viz"
cat >"$copy/sim/a.h" <<'CODE'
namespace rehearse { struct Mapping { int a; /* struct Other { */ }; class Known; struct Row final : Base::Of { char c = '{'; }; }
CODE
cat >"$copy/viz/b.cc" <<'CODE'
namespace rehearse::viz { struct Mapping { }; namespace { struct Row { }; } }
namespace rehearse { class Known { struct Mapping { }; }; struct Known::Part { }; namespace { struct Mapping { }; } }
CODE
python3 tests/check_types.py "$copy" || { echo "it refuses what is allowed"; exit 1; }
echo 'namespace rehearse { class Row { }; }' >"$copy/viz/c.h"
said=$(python3 tests/check_types.py "$copy") && { echo "it takes two types of one name"; exit 1; }
echo "$said" | grep -qF 'rehearse::Row: in sim/a.h and in viz/c.h' || { echo "it says: $said"; exit 1; }
seen=$(python3 tests/check_types.py "$copy" | tail -n 1)
[ "$seen" = "4 types" ] || { echo "it sees $seen"; exit 1; }
