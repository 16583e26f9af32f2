// SPDX-License-Identifier: Apache-2.0
#include "sim/memory/host_memory.h"

#include <algorithm>

namespace rehearse::sim {

std::vector<std::int64_t> host_bytes(const Schedule& s) {
  std::vector<std::int64_t> most(static_cast<std::size_t>(s.num_rows()), 0);
  if (!s.host_bytes.empty()) {
    std::ranges::transform(s.host_bytes, most.begin(), &Bytes::value);
    return most;
  }
  // First and last op of every value there; state that outlives the step is there all along.
  struct Life {
    std::int32_t first = -1, last = -1;
  };
  std::vector<Life> lives(s.values.size());
  for (std::int32_t op = 0; op < s.num_ops(); ++op) {
    for (const Operand& operand : s.operands_of({op})) {
      Life& life = lives[operand.value.index()];
      if (life.first < 0) life.first = op;
      life.last = op;
    }
  }
  std::vector<std::int64_t> change(s.ops.size() + 1, 0);
  for (std::size_t v = 0; v < s.values.size(); ++v) {
    const Value& value = s.values[v];
    if (!in_host_arena(value) || lives[v].first < 0) continue;
    const std::size_t begin = s.first_op(value.row), end = s.first_op({value.row.value + 1});
    change[value.persistent ? begin : static_cast<std::size_t>(lives[v].first)] +=
        value.bytes.value;
    change[value.persistent ? end : static_cast<std::size_t>(lives[v].last) + 1] -=
        value.bytes.value;
  }
  std::int64_t now = 0;
  for (RankClass row{0}; row.value < s.num_rows(); ++row.value) {
    for (std::size_t op = s.first_op(row); op < s.first_op({row.value + 1}); ++op) {
      now += change[op];
      most[row.index()] = std::max(most[row.index()], now);
    }
  }
  return most;
}

}  // namespace rehearse::sim
