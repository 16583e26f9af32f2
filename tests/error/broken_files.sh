#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Every broken file through the command itself: its one line on stderr, nothing on stdout, exit 2.
# Usage: broken_files.sh REHEARSE. Runs.
cd "$(dirname "$0")/../.." || exit 2
rehearse=$1
. tests/command.sh
while IFS= read -r expected; do
  file=${expected%%.json*}.json
  case $file in
    */models/*) refused_as "$PWD/$expected" simulate tests/error/base.json --set "model=$PWD/$file" ;;
    */clusters/*) refused_as "$expected" simulate tests/error/base.json --cluster "$file" ;;
    *) refused_as "$expected" simulate "$file" ;;
  esac
done <tests/error/expected.txt
exit $status
