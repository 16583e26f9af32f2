// SPDX-License-Identifier: Apache-2.0
// A layout that the executor runs: its name, the model, its plan's keys, and how near it comes to
// one rank.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "tests/exec/step/layout_case.h"

namespace rehearse::exec {

enum class Equal { Bitwise, Close };

struct Cell {
  const char* name;
  Family family;
  Equal equal;
  std::vector<std::string> plan;
};
inline void PrintTo(const Cell& cell, std::ostream* out) {
  *out << cell.name;
}

using enum Family;
using enum Equal;

}  // namespace rehearse::exec
