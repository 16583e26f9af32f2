// SPDX-License-Identifier: Apache-2.0
// The orders in which rows lie.
#include "exec/cpu/kernels/routing.h"

#include <algorithm>
#include <numeric>
#include <vector>

namespace rehearse::exec {

void drop_copies(const DropShape& s, const std::int32_t* chosen, const float* weights,
                 std::int32_t* kept) {
  const std::int64_t copies = s.tokens * s.per_token;
  std::copy_n(chosen, copies, kept);
  std::vector<std::vector<std::int64_t>> of_expert(static_cast<std::size_t>(s.experts));
  for (std::int64_t i = 0; i < copies; ++i) {
    of_expert[static_cast<std::size_t>(chosen[i])].push_back(i);
  }
  for (std::vector<std::int64_t>& mine : of_expert) {
    if (static_cast<std::int64_t>(mine.size()) <= s.capacity) continue;
    const auto first_dropped = mine.begin() + s.capacity;
    std::nth_element(mine.begin(), first_dropped, mine.end(), [&](std::int64_t a, std::int64_t b) {
      return weights[a] != weights[b] ? weights[a] > weights[b] : a < b;
    });
    for (auto at = first_dropped; at != mine.end(); ++at) kept[*at] = -1;
  }
}

void sort_copies(const CopiesShape& s, const std::int32_t* chosen, std::int32_t* row,
                 std::int32_t* token, std::int32_t* begin) {
  const std::int64_t copies = s.tokens * s.per_token;
  const auto here = [&](std::int64_t i) {
    return chosen[i] >= s.first && chosen[i] < s.first + s.experts;
  };
  std::fill_n(begin, s.experts + 1, 0);
  for (std::int64_t i = 0; i < copies; ++i) {
    if (here(i)) ++begin[chosen[i] - s.first + 1];
  }
  std::partial_sum(begin, begin + s.experts + 1, begin);
  std::vector<std::int32_t> next(begin, begin + s.experts);
  for (std::int64_t i = 0; i < copies; ++i) {
    row[i] = -1;
    if (!here(i)) continue;
    const std::int32_t at = next[static_cast<std::size_t>(chosen[i] - s.first)]++;
    if (at >= s.room) continue;
    row[i] = at;
    token[at] = static_cast<std::int32_t>(i / s.per_token);
  }
}

void sort_rows(const ArrivedShape& s, const std::int32_t* begins, std::int32_t* from,
               std::int32_t* begin) {
  const auto count = [&](std::int64_t source, std::int64_t e) {
    const std::int32_t* at = begins + source * (s.experts + 1) + s.first + e;
    return std::int64_t{at[1]} - at[0];
  };
  // Where the rows of each source begin, by expert.
  std::vector<std::int64_t> start(static_cast<std::size_t>(s.sources * s.per_source));
  std::vector<std::int64_t> used(static_cast<std::size_t>(s.members), 0);
  for (std::int64_t source = 0; source < s.sources; ++source) {
    std::int64_t& at = used[static_cast<std::size_t>(source % s.members)];
    for (std::int64_t e = 0; e < s.per_source; ++e) {
      start[static_cast<std::size_t>(source * s.per_source + e)] =
          source % s.members * s.stride + at;
      at += count(source, e);
    }
  }
  std::int64_t row = 0;
  for (std::int64_t e = 0; e < s.per_source; ++e) {
    begin[e] = static_cast<std::int32_t>(row);
    for (std::int64_t source = 0; source < s.sources; ++source) {
      const std::int64_t at = start[static_cast<std::size_t>(source * s.per_source + e)];
      for (std::int64_t i = 0; i < count(source, e); ++i, ++row) {
        if (row < s.room) from[row] = static_cast<std::int32_t>(at + i);
      }
    }
  }
  begin[s.per_source] = static_cast<std::int32_t>(row);
}

}  // namespace rehearse::exec
