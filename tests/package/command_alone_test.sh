#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The command on a machine that has none of the libraries of its modules: what it links, and that it says
# what to install. Usage: command_alone_test.sh REHEARSE
cd "$(dirname "$0")/../.." || exit 2
rehearse=$1
. tests/command.sh

allowed='libc libstdc++ libm libgcc_s libfmt libz'
for library in $(ldd "$rehearse" | sed -n 's/^[[:space:]]*\(lib[^ ]*\)\.so.*/\1/p'); do
  case " $allowed " in *" $library "*) ;; *) fail "the command links $library" ;; esac
done

mkdir -p "$work/bin" "$work/share/rehearse"
cp "$rehearse" "$work/bin/rehearse" && ln -s "$PWD/scenarios" "$work/share/rehearse/scenarios"
rehearse=$work/bin/rehearse
tiny '"data_parallel": 4, "micro_batch": 1, "global_batch": 4' '"steps": 1'
says "built in: nothing optional" --version
says "step time" simulate "$scenario"
says "step" run "$scenario"
"$rehearse" simulate "$scenario" --trace "$work/step.trace" >/dev/null || fail "no trace"
refused 2 "no window here: install rehearse-viewer" view "$work/step.trace"
refused 3 "no page here: build the target modules where clang" render "$work/step.trace" --html "$work/step.html"
refused 3 "no Gloo here.*: install rehearse-gloo" run "$scenario" --processes 2
[ -e /dev/nvidiactl ] || refused 3 "CUDA: no backend for it here: install rehearse-cuda" run "$scenario" --device cuda
# A file that is no module, and one of another version, are said so.
mkdir "$work/modules"
echo text >"$work/modules/rehearse_window.so"
export REHEARSE_MODULES=$work/modules
refused 2 "rehearse_window.so: " view "$work/step.trace"
printf '%s\n' 'static const int version = 12345;' 'const void* rehearse_window_module() { return &version; }' >"$work/w.c"
if cc -shared -fPIC "$work/w.c" -o "$work/modules/rehearse_window.so" 2>/dev/null; then
  refused 2 "rehearse_window.so: of another version" view "$work/step.trace"
fi
exit $status
