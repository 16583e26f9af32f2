// SPDX-License-Identifier: Apache-2.0
// Which ops and rows a person asked for: by kind, rank, chunk, micro-batch and length. Other ops
// are drawn grey, never left out (a gap would read as a bubble); other rows are not shown.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "schedules/base/result.h"
#include "schedules/trace/trace.h"
#include "viz/picture/coloring.h"

namespace rehearse::viz {

enum class FilterPart : std::uint8_t { Kinds, Ranks, Chunks, Microbatches, Longer };
inline constexpr std::size_t kNumFilterParts = 5;
inline constexpr std::array<std::string_view, kNumFilterParts> kFilterPartNames{
    "kinds", "ranks", "chunks", "microbatches", "longer"};
// What a part takes, as an example.
inline constexpr std::array<std::string_view, kNumFilterParts> kFilterExamples{
    "F,SEND_F", "0-15,32", "0", "0-3", "2ms"};

// As it was typed; an empty part asks for nothing, and so does one that cannot be understood.
struct Filter {
  std::array<std::string, kNumFilterParts> text;
  std::string& of(FilterPart part) { return text[static_cast<std::size_t>(part)]; }
  const std::string& of(FilterPart part) const { return text[static_cast<std::size_t>(part)]; }
  bool empty() const;
  bool by_ops() const;  // something but ranks is asked for
  bool operator==(const Filter&) const = default;
};

// Why a part's text cannot be understood, in words; empty: it can.
std::string filter_fault(const Trace& trace, FilterPart part, const std::string& text);

// Numbers and ranges of them: "0-15,32", "0-63/8" (every eighth).
class NumberSet {
 public:
  // Error: what is no number or range.
  static Result<NumberSet> parse(std::string_view text);
  bool has(std::int32_t number) const;

 private:
  struct Range {
    std::int32_t first = 0, last = 0, step = 1;
  };
  std::vector<Range> ranges_;
};

// Per op: 1 where it is asked for.
std::vector<std::uint8_t> kept_ops(const Trace& trace, const Coloring& chunks,
                                   const Filter& filter);
// Per row: 1 where it is asked for. A row is known by the first of its ranks.
std::vector<std::uint8_t> kept_rows(const Trace& trace, const Filter& filter);

}  // namespace rehearse::viz
