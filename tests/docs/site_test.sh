#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The site builds, and every link inside it leads somewhere; a link that does not is noticed.
# usage: site_test.sh OUT
cd "$(dirname "$0")/../.." || exit 2
set -u
docs/site/build.sh "$1" || exit $?
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp -r docs/site --parents "$work"
cp CHANGELOG.md "$work"
printf '# A page\n\n[nowhere](docs/none.md)\n' >"$work/README.md"
if (cd "$work" && docs/site/build.sh "$work/out") >"$work/log" 2>&1; then
  echo "a link that leads nowhere was not noticed"
  exit 1
fi
grep -q 'docs/none.md' "$work/log" || { echo "the link is not named:"; cat "$work/log"; exit 1; }
