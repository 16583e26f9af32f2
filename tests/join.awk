# SPDX-License-Identifier: Apache-2.0
# Several test sources as one unit: awk -f tests/join.awk -v unit=UNIT FILE..., from the project's root. The anonymous namespace
# of each lies in a namespace of its own, so that helpers of one name do not meet; lines keep their numbers and files.
# Exit 1: a source whose anonymous namespace is not a line "namespace {" and one "}  // namespace" (tests/CMakeLists.txt:
# ALONE is for it).
function whole() {
  if (opened == closed && opened <= 1) return
  printf "%s: its anonymous namespace cannot be found: ALONE is for it (tests/CMakeLists.txt)\n", file >"/dev/stderr"
  failed = 1
}
FNR == 1 {
  if (file) whole()
  file = FILENAME; opened = closed = 0
  name = file
  gsub(/[^a-z0-9]/, "_", name)
  printf "#line 1 \"%s\"\n", file >unit
}
/^namespace \{$/ { ++opened; print "namespace of_" name " { namespace {" >unit; next }
/^\}  \/\/ namespace$/ { ++closed; print "} }  // namespace" >unit; next }
{ print >unit }
END { whole(); exit failed }
