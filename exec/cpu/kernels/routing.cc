// SPDX-License-Identifier: Apache-2.0
// Sums over a token's scores are fp64 and rounded once.
#include "exec/cpu/kernels/routing.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

namespace rehearse::exec {

void route(const RouteShape& s, const float* logits, std::int32_t* chosen, float* weights,
           float* scores, float* logsum) {
  std::vector<std::int32_t> order(static_cast<std::size_t>(s.experts));
  for (std::int64_t t = 0; t < s.tokens; ++t, logits += s.experts, scores += s.experts) {
    const float largest = *std::max_element(logits, logits + s.experts);
    double sum = 0;
    for (std::int64_t e = 0; e < s.experts; ++e) {
      sum += std::exp(static_cast<double>(logits[e]) - static_cast<double>(largest));
    }
    const double log = static_cast<double>(largest) + std::log(sum);
    logsum[t] = static_cast<float>(log);
    for (std::int64_t e = 0; e < s.experts; ++e) {
      scores[e] = static_cast<float>(std::exp(static_cast<double>(logits[e]) - log));
    }
    std::iota(order.begin(), order.end(), 0);
    std::partial_sort(order.begin(), order.begin() + s.per_token, order.end(),
                      [&](std::int32_t a, std::int32_t b) {
                        return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
                      });
    std::int32_t* mine = chosen + t * s.per_token;
    std::copy_n(order.begin(), s.per_token, mine);
    std::sort(mine, mine + s.per_token);
    double whole = 0;
    for (std::int64_t k = 0; k < s.per_token; ++k) whole += static_cast<double>(scores[mine[k]]);
    for (std::int64_t k = 0; k < s.per_token; ++k) {
      const auto score = static_cast<double>(scores[mine[k]]);
      weights[t * s.per_token + k] = static_cast<float>(s.normalised ? score / whole : score);
    }
  }
}

// With P the softmax, S the sum of the chosen and w = P / S: dP = (dw - sum dw w) / S, or dP = dw
// where weights are the scores; d_logit = P (dP - sum dP P).
void route_backward(const RouteShape& s, const float* d_weights, const std::int32_t* chosen,
                    const float* weights, const float* scores, const float* logsum,
                    float* d_logits) {
  std::vector<double> from_counts(static_cast<std::size_t>(s.experts), 0.0), d_scores;
  if (s.auxiliary != 0) {
    for (std::int64_t i = 0; i < s.tokens * s.per_token; ++i) {
      from_counts[static_cast<std::size_t>(chosen[i])] += static_cast<double>(s.auxiliary);
    }
  }
  for (std::int64_t t = 0; t < s.tokens; ++t, scores += s.experts, d_logits += s.experts) {
    const std::int64_t first = t * s.per_token;
    double whole = 0, common = 0;
    for (std::int64_t k = first; k < first + s.per_token; ++k) {
      whole += static_cast<double>(scores[chosen[k]]);
      common += static_cast<double>(d_weights[k]) * static_cast<double>(weights[k]);
    }
    d_scores = from_counts;
    for (std::int64_t k = first; k < first + s.per_token; ++k) {
      const auto d = static_cast<double>(d_weights[k]);
      d_scores[static_cast<std::size_t>(chosen[k])] += s.normalised ? (d - common) / whole : d;
    }
    double mean = 0;
    for (std::int64_t e = 0; e < s.experts; ++e) {
      mean += d_scores[static_cast<std::size_t>(e)] * static_cast<double>(scores[e]);
    }
    const double z = static_cast<double>(s.z) * static_cast<double>(logsum[t]);
    for (std::int64_t e = 0; e < s.experts; ++e) {
      d_logits[e] = static_cast<float>(static_cast<double>(scores[e]) *
                                       (d_scores[static_cast<std::size_t>(e)] - mean + z));
    }
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
