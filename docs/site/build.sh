#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the site from the pages as they stand; a link, an anchor or a picture that leads nowhere, and a page
# that is not in the side bar, fail it.
# usage: docs/site/build.sh OUT [--links]     --links also asks every address outside, which needs the network
# Exit 77: the distribution's python3-sphinx, python3-myst-parser or furo is not here.
cd "$(dirname "$0")/../.." || exit 2
set -u
out=$1 python=/usr/bin/python3  # the distribution's: another one in PATH does not see its packages
$python -c 'import furo, myst_parser, sphinx' 2>/dev/null ||
  { echo "SKIPPED: the site: no python3-sphinx, python3-myst-parser and furo here"; exit 77; }
site() { nice $python -m sphinx -q -W --keep-going -c docs/site -d "$out/.trees" -b "$1" . "$2"; }
site html "$out" || exit 1
cp "$out/README.html" "$out/index.html"
echo "$(find "$out" -name '*.html' | wc -l) pages in $out, every link inside leads somewhere"
[ "${2:-}" != --links ] || site linkcheck "$out/.links"
