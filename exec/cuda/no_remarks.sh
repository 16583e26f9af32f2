#!/bin/sh
# Runs a compiler, and fails where it only remarks (C7510 to C7519) that products of wgmma wait for one
# another: they would compute the same, slowly. Usage: no_remarks.sh COMPILER ARGUMENTS...
remarks=$("$@" 2>&1)
status=$?
[ -z "$remarks" ] || printf '%s\n' "$remarks" >&2
case $remarks in *"wgmma.mma_async instructions are serialized"*) exit 1 ;; esac
exit $status
