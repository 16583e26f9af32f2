# SPDX-License-Identifier: Apache-2.0
# Runs a test on a display without a screen. Where none can be started: says why, and is skipped.
# usage: on_a_display.sh TEST [ARGUMENT...]
command -v xvfb-run >/dev/null || { echo "SKIPPED: no xvfb-run (packages xvfb, xauth)"; exit 77; }
why=$(xvfb-run -a -e /dev/stderr true 2>&1) ||
  { echo "SKIPPED: no X server can be started: $why"; exit 77; }
exec xvfb-run -a -s "-screen 0 1600x1000x24 -noreset" "$@"
