// SPDX-License-Identifier: Apache-2.0
// A small trace with every optional column filled, for writers and readers.
#pragma once

#include "tests/viz/picture/pipeline_fixture.h"
#include "viz/analysis/analysis.h"

namespace rehearse::viz::fixture {

inline Trace full_trace(std::int32_t p = 3, std::int32_t m = 5) {
  Trace trace = one_f_one_b_trace(p, m, {.forward = 1001, .backward = 2003, .transfer = 97},
                                  {.title = "three \"positions\"", .caption = "F=1 µs\\B=2 µs"});
  const auto n = static_cast<std::size_t>(trace.num_ops());
  attribute_idle(trace);
  trace.strings.push_back("rail <0>");
  std::vector<std::uint8_t> level(n);
  std::vector<std::int64_t> expected(n), communicating(n);
  for (std::size_t i = 0; i < n; ++i) {
    level[i] = static_cast<std::uint8_t>(i % 4);
    expected[i] = trace.start_ns[i] + static_cast<std::int64_t>(i);
    communicating[i] = static_cast<std::int64_t>(i % 3);
  }
  trace.cost_level = std::move(level);
  trace.expected_start_ns = std::move(expected);
  trace.communicating_ns = std::move(communicating);
  trace.memory_parts = {"parameters", "activations"};
  std::vector<std::int64_t> begin{0}, time, bytes;
  std::vector<TraceRow> rows;
  for (std::int32_t row = 0; row < p; ++row) {
    for (std::int64_t sample = 0; sample < 4 + row; ++sample) {
      time.push_back(sample * 1500);
      bytes.push_back(1 << 20);
      bytes.push_back((sample % 3) << 18);
    }
    begin.push_back(static_cast<std::int64_t>(time.size()));
    rows.push_back(
        {.position = {row}, .multiplicity = 8, .first_rank = {8 * row}, .capacity_bytes = 3 << 20});
  }
  trace.rows = std::move(rows);
  trace.memory_begin = std::move(begin);
  trace.memory_time = std::move(time);
  trace.memory_bytes = std::move(bytes);
  const auto name = static_cast<TraceString>(trace.strings.size()) - 1;
  trace.links = std::vector<TraceLink>{{.name = name, .bytes_per_second = 25'000'000'000},
                                       {.name = name, .bytes_per_second = 1}};
  trace.link_begin = std::vector<std::int64_t>{0, 2, 3};
  trace.link_samples = std::vector<LinkSample>{{.time = 5, .load_ppm = 250'000},
                                               {.time = 1005, .load_ppm = 0},
                                               {.time = 7, .load_ppm = 1'000'000}};
  return trace;
}

}  // namespace rehearse::viz::fixture
