#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Fails if a comment or a page names a file of ours that is not there, or a numbered section of a
# page (pages have named sections only). A path may be written from the root, from the file that
# names it, or as the end of a path. Looks into the folder that is given, else into its own checkout.
#
# Read are pages whole, and of sources what stands behind `//` or `#`. Made-up names of examples are
# written in capitals (`NAME.cc`).
cd "${1:-$(dirname "$0")/..}" || exit 2
rooms='schedules|sim|exec|viz|cli|api|python|web|packaging|docs|scenarios|tests|bench'
suffixes='cc|h|cu|cuh|inc|md|json|py|sh|svg|png'

files() { find $(echo "$rooms" | tr '|' ' ') *.md run .ci -type f 2>/dev/null; }
there=$(files | sort)
pages() { grep -E '\.md$' <<<"$there"; }
sources() { grep -E '\.(cc|h|cu|cuh|inc|sh|py)$|CMakeLists.txt$|^run$' <<<"$there" | grep -vE '^tests/check_paths'; }

# words: "FILE:LINE TEXT" of everything that is prose.
words() {
  pages | tr '\n' '\0' | xargs -0 grep -HnE '.'
  sources | tr '\n' '\0' | xargs -0 grep -HnE '(//|^ *#) '
}

words | awk -v rooms="$rooms" -v suffixes="$suffixes" '
  FNR == NR { there[$0]; n = split($0, part, "/"); end = part[n]; ends[end]
    for (i = n - 1; i > 0; --i) { end = part[i] "/" end; ends[end] }
    next }
  {
    match($0, /^[^:]*:[0-9]+:/); at = substr($0, 1, RLENGTH); text = substr($0, RLENGTH + 1)
    file = at; sub(/:.*/, "", file)
    if (file !~ /\.md$/) {  # behind the mark alone
      mark = file ~ /\.(sh|py)$|CMakeLists.txt$|^run$/ ? "(^| )# " : "// "
      if (!match(text, mark)) next
      text = substr(text, RSTART)
    }
    if (match(text, /[A-Za-z_-]+\.md,? (section )?[0-9]+\.[0-9]/)) {
      print at " names a numbered section: " substr(text, RSTART, RLENGTH); bad = 1
    }
    while (match(text, "(^|[^A-Za-z0-9_./-])(" rooms ")/[A-Za-z0-9_/.-]*\\.(" suffixes ")($|[^A-Za-z0-9_])")) {
      path = substr(text, RSTART, RLENGTH); text = substr(text, RSTART + RLENGTH - 1)
      gsub(/^[^A-Za-z]+|[^A-Za-z0-9]+$/, "", path)
      if (path ~ /[A-Z][A-Z]/ || path in there || path in ends) continue
      folder = file; if (!sub(/\/[^\/]*$/, "/", folder)) folder = ""
      if ((folder path) in there) continue
      print at " no such file: " path; bad = 1
    }
  }
  END { exit bad }
' <(echo "$there") -
