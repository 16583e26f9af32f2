#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Every broken schedule file through `rehearse check`: its one line on stderr, nothing on stdout,
# exit 2. Usage: broken_schedules.sh REHEARSE. Runs.
cd "$(dirname "$0")/../.." || exit 2
rehearse=$1
. tests/command.sh
for file in tests/error/schedules/*; do
  refused_as "$(grep -F "$file:" tests/error/schedules.txt)" check "$file"
done
exit $status
