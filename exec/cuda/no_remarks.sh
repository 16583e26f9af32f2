#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs a compiler, and fails where ptxas only remarks (C75xx) that products of wgmma wait for one another,
# or that it added a wait: they would compute the same, slowly. Usage: no_remarks.sh COMPILER ARGUMENTS...
remarks=$("$@" 2>&1)
status=$?
[ -z "$remarks" ] || printf '%s\n' "$remarks" >&2
case $remarks in *"(C75"*) exit 1 ;; esac
exit $status
