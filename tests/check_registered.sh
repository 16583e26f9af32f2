#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Fails if a test is in the tree and in no CMakeLists.txt: it would never be built, and nobody would notice.
cd "$(dirname "$0")/.." || exit 2
status=0
for test in $(find tests -name '*_test.cc'); do
  grep -qF "$(basename "$test")" tests/CMakeLists.txt tests/*/CMakeLists.txt && continue
  echo "$test: in no CMakeLists.txt"
  status=1
done
exit $status
