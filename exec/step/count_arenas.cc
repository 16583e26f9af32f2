// SPDX-License-Identifier: Apache-2.0
// The arena plan, checked over the addresses that ops use: the plan once more, not a measurement
// (exec/processes/process_memory.h measures).
#include <map>

#include "exec/step/rank_state.h"
#include "schedules/body/sizes.h"
#include "schedules/ir/listing.h"

namespace rehearse::exec {

Result<std::vector<std::int64_t>> count_arenas(const Schedule& s) {
  std::vector<std::int64_t> peaks;
  for (std::int32_t r = 0; r < s.num_rows(); ++r) {
    std::map<std::int64_t, std::int64_t> alive;  // begin -> end
    std::int64_t sum = 0, peak = 0;
    const auto add = [&](const Value& value) {
      const std::int64_t begin = value.offset.value, end = begin + aligned(value.bytes.value);
      const auto after = alive.lower_bound(begin);
      const bool clash = (after != alive.end() && after->first < end) ||
                         (after != alive.begin() && std::prev(after)->second > begin);
      alive[begin] = end;
      peak = std::max(peak, sum += end - begin);
      return !clash && end <= s.arena_bytes[static_cast<std::size_t>(r)].value;
    };
    std::vector<std::vector<std::int32_t>> begins, ends;
    const std::int32_t first = s.row_begin[static_cast<std::size_t>(r)];
    const std::int32_t last = s.row_begin[static_cast<std::size_t>(r) + 1];
    begins.resize(static_cast<std::size_t>(last - first));
    ends.resize(begins.size());
    for (std::size_t v = 0; v < s.values.size(); ++v) {
      const Value& value = s.values[v];
      if (value.row.value != r || value.home != Home::Device || value.bytes.value == 0) continue;
      if (!value.define) {
        if (!add(value)) return Error{value_name(s, {static_cast<std::int32_t>(v)}) + " overlaps"};
      } else {
        begins[static_cast<std::size_t>(value.define.value - first)].push_back(
            static_cast<std::int32_t>(v));
      }
      if (value.hold_until) {
        ends[static_cast<std::size_t>(value.hold_until.value - first)].push_back(
            static_cast<std::int32_t>(v));
      }
    }
    for (std::size_t i = 0; i < begins.size(); ++i) {
      for (const std::int32_t v : begins[i]) {
        if (!add(s.values[static_cast<std::size_t>(v)]))
          return Error{value_name(s, {v}) + " overlaps"};
      }
      for (const std::int32_t v : ends[i]) {
        const Value& value = s.values[static_cast<std::size_t>(v)];
        alive.erase(value.offset.value);
        sum -= aligned(value.bytes.value);
      }
    }
    peaks.push_back(peak);
  }
  return peaks;
}

}  // namespace rehearse::exec
