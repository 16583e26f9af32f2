// SPDX-License-Identifier: Apache-2.0
// How a fuzz target says that something does not hold.
#pragma once

#include <cstdio>
#include <cstdlib>

namespace rehearse::testing {

// Stops the process, as sanitizers do: a fuzzer keeps the input that did it.
inline void must(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "fuzz: %s\n", what);
  std::abort();
}

}  // namespace rehearse::testing
