#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The Python package over librehearse, without a wheel and without a registry.
# Usage: package_test.sh LIBRARY REHEARSE
cd "$(dirname "$0")/../.." || exit 2
python=$(command -v python3) || { echo "SKIPPED: no python3"; exit 77; }
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 9))' || { echo "SKIPPED: python3 is older than 3.9"; exit 77; }
work=$(mktemp -d) || exit 2
trap 'rm -rf "$work"' EXIT
cp -r python/rehearse_train "$work/rehearse_train"
cp tests/python/library_core.py "$work/rehearse_train/_core.py"
PYTHONPATH=$work PYTHONDONTWRITEBYTECODE=1 REHEARSE_LIBRARY=$1 REHEARSE=$2 "$python" tests/python/package_test.py
