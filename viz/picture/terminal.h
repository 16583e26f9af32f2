// SPDX-License-Identifier: Apache-2.0
// A trace as text, for terminals and login nodes: one line per rank, one letter per column.
#pragma once

#include <string>

#include "viz/analysis/index.h"
#include "viz/picture/coloring.h"

namespace rehearse::viz {

struct TerminalOptions {
  std::int32_t columns = 100;                 // of the time axis
  bool color = false;                         // ANSI 256-colour codes
  Nanoseconds begin{0}, end{0};               // equal: the whole step
  std::int32_t first_row = 0, last_row = -1;  // -1: all
  // What letters stand for; null: what ops do. REQUIRES: the index sums up time by its classes.
  const Coloring* coloring = nullptr;
};

// The letter is the kind that takes most of the column's time; small if the rank idles for a
// twentieth of the column or more; '.' is a bubble, '~' one that waits for communication. The
// numbers at the end of a line are exact.
std::string terminal_chart(const TraceIndex& index, const TerminalOptions& options);
// The letters of one row alone, within [begin, end).
std::string terminal_row(const TraceIndex& index, std::int32_t row, std::int64_t begin,
                         std::int64_t end, std::int64_t columns, bool color,
                         const Coloring* coloring = nullptr);

}  // namespace rehearse::viz
