#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# An empty Debian, the packages, an answer: `apt install ./rehearse_*.deb`, then `rehearse plan`; then the
# modules' packages, which a run of two processes uses, and those of librehearse, which its example is built with,
# and of CUDA, where they were made. Usage: empty_root_test.sh BUILD
cd "$(dirname "$0")/../.." || exit 2
build=$1
skip() { echo "SKIPPED: $*"; exit 77; }
[ "$(id -u)" -eq 0 ] || skip "an empty root is made by root alone"
for tool in mmdebstrap dpkg-shlibdeps cpack; do command -v $tool >/dev/null || skip "no $tool (mmdebstrap, dpkg-dev)"; done
suite=$(. /etc/os-release; [ "$ID" = debian ] && echo "$VERSION_CODENAME")
[ -n "$suite" ] || skip "what is built here is for another distribution than Debian"
work=$(mktemp -d) || exit 2
trap 'rm -rf "$work"' EXIT

cpack --config "$build/CPackConfig.cmake" -B "$work/packages" >"$work/log" 2>&1 ||
  { echo "cpack: $(tail -n 20 "$work/log")"; exit 1; }
ls "$work/packages"/rehearse_*.deb >/dev/null || exit 1
for package in "$work/packages"/*.deb; do
  for file in $(dpkg-deb -c "$package" | awk '{ print $6 }'); do
    case $file in *_CPack* | *"$PWD"*) echo "$package holds $file"; exit 1 ;; esac
  done
done
curl -fsI --max-time 20 http://deb.debian.org/debian/dists/"$suite"/Release >/dev/null 2>&1 ||
  skip "no Debian mirror is reached"

# Steps inside the new root, each with a mark where it is through.
cat >"$work/steps" <<'STEPS'
set -e
cd /packages
export DEBIAN_FRONTEND=noninteractive
apt-get install -y --no-install-recommends ./rehearse_*.deb
echo "== installed"
cd /
rehearse plan llama3-8b --gpus 16 --on h100
echo "== planned"
rehearse --version
rehearse run tiny-dp-4 --steps 2
if rehearse run tiny-dp-4 --steps 2 --processes 2; then exit 1; fi
echo "== alone"
if ls /packages/rehearse-gloo_*.deb; then
  apt-get install -y --no-install-recommends /packages/rehearse-gloo_*.deb
  rehearse run tiny-dp-4 --steps 2 --processes 2
fi
if ls /packages/rehearse-dev_*.deb; then
  apt-get install -y --no-install-recommends /packages/rehearse-dev_*.deb g++ cmake make
  cp -r /usr/share/doc/rehearse-dev/example /example
  cmake -S /example -B /example/build
  cmake --build /example/build
  test "$(/example/build/fits 3d-8-gpus)" = fits
  echo "== dev"
fi
if ls /packages/rehearse-cuda_*.deb; then
  apt-get install -y --no-install-recommends /packages/rehearse-cuda_*.deb
  test -e /usr/lib/rehearse/rehearse_cuda.so
  if rehearse run tiny-dp-4 --steps 2 --device cuda; then exit 1; fi
  echo "== cuda"
fi
apt-get purge -y rehearse
if ls /usr/share/rehearse /usr/lib/rehearse; then exit 1; fi
echo "== removed"
STEPS
mmdebstrap --mode=root --variant=apt "$suite" /dev/null http://deb.debian.org/debian \
  --customize-hook="copy-in $work/packages $work/steps /" \
  --customize-hook='chroot "$1" sh /steps' >"$work/log" 2>&1
made=$?
grep -q 'installing remaining packages\|installing essential packages' "$work/log" ||
  skip "an empty root cannot be made here: $(grep '^E:' "$work/log" | head -1)"
marks=(installed planned alone removed)
for part in dev cuda; do
  if ls "$work/packages/rehearse-$part"_*.deb >/dev/null 2>&1; then marks+=($part); fi
done
for mark in "${marks[@]}"; do
  grep -q "^== $mark" "$work/log" || { echo "not $mark:"; tail -n 30 "$work/log"; exit 1; }
done
sed -n '/^== installed/,/^== planned/p' "$work/log" | grep -q 'step' || { echo "no answer"; exit 1; }
grep -q 'no Gloo here.*install rehearse-gloo' "$work/log" || { echo "does not say what to install"; exit 1; }
exit $made
