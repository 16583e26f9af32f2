// SPDX-License-Identifier: Apache-2.0
// What must hold for any bytes in the place of a file that some reader reads: it answers, with one
// line where it refuses, and what it has read can be used. Shared by the fuzz targets and the test
// that runs a second of each.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace rehearse::testing {

struct Reader {
  std::string_view name;
  // Reads `bytes` as a file of its kind, and uses what it got. Stops the process where something
  // does not hold. Returns whether the bytes were read, for the test: mutations must be near
  // enough.
  bool (*one_input)(std::string_view bytes);
  // Files and folders of the repository (all of their files) that it begins with.
  std::vector<std::string> seeds;
  int inputs = 2000;  // that the test gives it: about a second of one core
};

std::span<const Reader> readers();
const Reader* find_reader(std::string_view name);  // nullptr: none

// The bytes of a reader's seeds, and of tests/data/fuzz/NAME: inputs that once broke it.
// REQUIRES: in the project's root.
std::vector<std::string> seeds_of(const Reader& reader);

}  // namespace rehearse::testing
