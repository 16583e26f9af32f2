// SPDX-License-Identifier: Apache-2.0
// The orders in which rows lie.
#include "exec/cpu/kernels/routing.h"

#include <algorithm>
#include <cmath>
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
    // What is not a number is the least.
    const auto weight = [&](std::int64_t i) { return std::isnan(weights[i]) ? -1 : weights[i]; };
    std::nth_element(mine.begin(), first_dropped, mine.end(), [&](std::int64_t a, std::int64_t b) {
      const float x = weight(a), y = weight(b);
      return x != y ? x > y : a < b;
    });
    for (auto at = first_dropped; at != mine.end(); ++at) kept[*at] = -1;
  }
}

void count_dropped(const DropShape& s, const std::int32_t* chosen, const std::int32_t* kept,
                   double* dropped) {
  for (std::int64_t i = 0; i < s.tokens * s.per_token; ++i) {
    if (kept[i] < 0) dropped[chosen[i]] += 1;
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
  std::fill_n(token, s.room, -1);
  std::vector<std::int32_t> next(begin, begin + s.experts);
  for (std::int64_t i = 0; i < copies; ++i) {
    row[i] = -1;
    if (!here(i)) continue;
    const std::int64_t expert = chosen[i] - s.first;
    std::int64_t at = next[static_cast<std::size_t>(expert)]++;
    if (s.slot > 0) {
      at -= begin[expert / s.per_slot * s.per_slot];
      if (at >= s.slot) continue;
      at += expert / s.per_slot * s.slot;
    }
    if (at >= s.room) continue;
    row[i] = static_cast<std::int32_t>(at);
    token[at] = static_cast<std::int32_t>(i / s.per_token);
  }
}

void sort_rows(const ArrivedShape& s, const std::int32_t* begins, std::int32_t* from,
               std::int32_t* begin) {
  const auto count = [&](std::int64_t source, std::int64_t e) {
    const std::int32_t* first = begins + source * (s.experts + 1) + s.first;
    const auto place = [&](std::int64_t of) {
      const std::int64_t rows = std::int64_t{first[of]} - first[0];
      return s.slot > 0 ? std::min(rows, s.slot) : rows;
    };
    return place(e + 1) - place(e);
  };
  // Where the rows of each source begin, by expert.
  std::vector<std::int64_t> start(static_cast<std::size_t>(s.sources * s.per_source));
  std::vector<std::int64_t> used(static_cast<std::size_t>(s.members), 0);
  for (std::int64_t source = 0; source < s.sources; ++source) {
    std::int64_t& at = used[static_cast<std::size_t>(source % s.members)];
    if (s.slot > 0) at = source / s.members * s.slot;
    for (std::int64_t e = 0; e < s.per_source; ++e) {
      start[static_cast<std::size_t>(source * s.per_source + e)] =
          source % s.members * s.stride + at;
      at += count(source, e);
    }
  }
  std::fill_n(from, s.room, -1);
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
  // Calls use(j, rank, fresh) for a token's experts: their ranks ascend, so those of one are
  // neighbours, of which the first is fresh.
  const auto for_experts_of = [&](std::int64_t source, std::int64_t t, const auto& use) {
    const std::int32_t* mine = chosen + (source * s.tokens + t) * k;
    std::int64_t last = -1;
    for (std::int64_t j = 0; j < k; ++j) {
      if (mine[j] < 0) continue;
      const std::int64_t rank = mine[j] / s.per_rank;
      use(j, rank, rank != last);
      last = rank;
    }
  };
  std::fill_n(begins, s.ranks * line, 0);
  std::fill_n(arrived, s.room * k, -1);
  std::int64_t here = 0;
  for (std::int64_t source = 0; source < s.ranks; ++source, begins += line) {
    if (s.slot > 0) here = source * s.slot;
    const std::int64_t end = s.slot > 0 ? here + s.slot : s.room;
    for (std::int64_t t = 0; t < s.tokens; ++t) {
      for_experts_of(source, t, [&](std::int64_t, std::int64_t rank, bool fresh) {
        if (!fresh) return;
        ++begins[rank + 1];
        if (rank != s.rank || here == end) return;
        std::copy_n(chosen + (source * s.tokens + t) * k, k, arrived + here++ * k);
      });
    }
    std::partial_sum(begins, begins + line, begins);
    if (source == s.rank) std::copy_n(begins, line, sent);
  }
  std::fill_n(token, s.leaving(), -1);
  std::fill_n(row, s.tokens * k, -1);
  std::fill_n(weight, s.tokens * k, -1);
  std::vector<std::int64_t> next(sent, sent + s.ranks);
  for (std::int64_t rank = 0; rank < s.ranks && s.slot > 0; ++rank) {
    next[static_cast<std::size_t>(rank)] = rank * s.slot;
  }
  for (std::int64_t t = 0; t < s.tokens; ++t) {
    std::int64_t at = 0;
    for_experts_of(s.rank, t, [&](std::int64_t j, std::int64_t rank, bool fresh) {
      if (fresh) {
        at = next[static_cast<std::size_t>(rank)]++;
        if (s.slot > 0 && at >= (rank + 1) * s.slot) at = -1;
        row[t * k + j] = static_cast<std::int32_t>(at);
        if (at >= 0) token[at] = static_cast<std::int32_t>(t);
      }
      if (at >= 0) weight[t * k + j] = static_cast<std::int32_t>(at * k + j);
    });
  }
}

void count_choices(const CountShape& s, std::int64_t copies, const std::int32_t* chosen,
                   double* most) {
  std::vector<std::int64_t> rows(static_cast<std::size_t>(s.experts / s.together), 0);
  for (std::int64_t i = 0; i < copies; ++i) {
    if (chosen[i] >= 0) ++rows[static_cast<std::size_t>(chosen[i] / s.together)];
  }
  *most = std::max(*most, static_cast<double>(*std::ranges::max_element(rows)));
}

void count_not_finite(std::int64_t count, const float* x, double* found) {
  *found += static_cast<double>(
      std::count_if(x, x + count, [](float one) { return !std::isfinite(one); }));
}

void count_rows(const CountShape& s, const std::int32_t* begin, double* rows, double* most) {
  for (std::int64_t e = 0; e < s.experts && rows != nullptr; ++e)
    rows[e] += begin[e + 1] - begin[e];
  if (most == nullptr) return;
  for (std::int64_t line = 0; line < s.lines; ++line, begin += s.experts + 1) {
    for (std::int64_t e = 0; e < s.experts; e += s.together) {
      *most = std::max(*most, static_cast<double>(begin[e + s.together] - begin[e]));
    }
  }
}

}  // namespace rehearse::exec
