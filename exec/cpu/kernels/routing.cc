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

void sort_visits(const VisitsShape& s, const std::int32_t* chosen, std::int32_t* token,
                 std::int32_t* sent, std::int32_t* row, std::int32_t* weight, std::int32_t* begins,
                 std::int32_t* arrived) {
  const std::int64_t k = s.per_token, line = s.ranks + 1;
  const auto of = [&](std::int64_t source, std::int64_t t) {
    return chosen + (source * s.tokens + t) * k;
  };
  const auto rank_of = [&](const std::int32_t* mine, std::int64_t j) {
    return mine[j] / s.per_rank;
  };
  // Experts ascend, so a token's experts of one rank are neighbours, but for dropped ones between.
  const auto first_there = [&](const std::int32_t* mine, std::int64_t j) {
    if (mine[j] < 0) return false;
    std::int64_t before = j - 1;
    while (before >= 0 && mine[before] < 0) --before;
    return before < 0 || rank_of(mine, j) != rank_of(mine, before);
  };
  std::fill_n(begins, s.ranks * line, 0);
  std::fill_n(arrived, s.room * k, -1);
  std::int64_t here = 0;
  for (std::int64_t source = 0; source < s.ranks; ++source, begins += line) {
    for (std::int64_t t = 0; t < s.tokens; ++t) {
      const std::int32_t* mine = of(source, t);
      for (std::int64_t j = 0; j < k; ++j) {
        if (!first_there(mine, j)) continue;
        ++begins[rank_of(mine, j) + 1];
        if (rank_of(mine, j) != s.rank || here == s.room) continue;
        std::copy_n(mine, k, arrived + here++ * k);
      }
    }
    std::partial_sum(begins, begins + line, begins);
    if (source == s.rank) std::copy_n(begins, line, sent);
  }
  std::vector<std::int32_t> next(sent, sent + s.ranks);
  for (std::int64_t t = 0; t < s.tokens; ++t) {
    const std::int32_t* mine = of(s.rank, t);
    std::int32_t at = 0;
    for (std::int64_t j = 0; j < k; ++j) {
      const bool fresh = first_there(mine, j);
      if (fresh) {
        at = next[static_cast<std::size_t>(rank_of(mine, j))]++;
        token[at] = static_cast<std::int32_t>(t);
      }
      row[t * k + j] = fresh ? at : -1;
      weight[t * k + j] = mine[j] < 0 ? -1 : static_cast<std::int32_t>(at * k + j);
    }
  }
}

}  // namespace rehearse::exec
