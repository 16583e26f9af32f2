// SPDX-License-Identifier: Apache-2.0
// The router's choice and its gradient. A token's scores are fp64 and rounded once.
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <vector>

#include "exec/backend/element.h"
#include "exec/cpu/kernels/routing.h"

namespace rehearse::exec {
namespace {

constexpr double kLeast = -std::numeric_limits<double>::infinity();

double sigmoid(double x) {
  return 1 / (1 + std::exp(-x));
}

double log_of_sum(std::int64_t count, const float* logits) {
  const auto largest = static_cast<double>(*std::max_element(logits, logits + count));
  double sum = 0;
  for (std::int64_t e = 0; e < count; ++e) {
    sum += std::exp(static_cast<double>(logits[e]) - largest);
  }
  return largest + std::log(sum);
}

// The first `count` of `order` become the indices of the largest values, ascending; of equal ones
// the lower. What is not a number is the least: such a step ends by its loss.
void choose(const std::vector<double>& values, std::int64_t count,
            std::vector<std::int32_t>& order) {
  order.resize(values.size());
  std::iota(order.begin(), order.end(), 0);
  const auto value = [&](std::int32_t i) {
    const double x = values[static_cast<std::size_t>(i)];
    return std::isnan(x) ? kLeast : x;
  };
  std::partial_sort(order.begin(), order.begin() + count, order.end(),
                    [&](std::int32_t a, std::int32_t b) {
                      const double x = value(a), y = value(b);
                      return x != y ? x > y : a < b;
                    });
  std::sort(order.begin(), order.begin() + count);
}

// What experts outside the kept groups are chosen by becomes the least that there is.
void keep_groups(const RouteShape& s, std::vector<double>& choice,
                 std::vector<std::int32_t>& order) {
  const std::int64_t each = s.experts / s.groups, best = std::min(s.group_best, each);
  std::vector<double> sums, group;
  for (std::int64_t g = 0; g < s.groups; ++g) {
    group.assign(choice.begin() + g * each, choice.begin() + (g + 1) * each);
    std::partial_sort(group.begin(), group.begin() + best, group.end(), std::greater<>());
    sums.push_back(std::accumulate(group.begin(), group.begin() + best, 0.0));
  }
  choose(sums, s.kept_groups, order);
  for (std::int64_t g = 0, next = 0; g < s.groups; ++g) {
    if (next < s.kept_groups && order[static_cast<std::size_t>(next)] == g) {
      ++next;
      continue;
    }
    std::fill_n(choice.begin() + g * each, each, kLeast);
  }
}

constexpr double kBesideSum = 1e-20;  // of a token's scores

}  // namespace

void route(const RouteShape& s, const float* logits, std::int32_t* chosen, float* weights,
           float* scores, float* logsum) {
  const auto count = static_cast<std::size_t>(s.experts);
  std::vector<double> score(count), choice(count);
  std::vector<std::int32_t> order;
  // Scores rise with the logits, which tell more of them apart.
  const bool by_logits = s.correction == nullptr && s.group_best == 1;
  for (std::int64_t t = 0; t < s.tokens; ++t, logits += s.experts, scores += s.experts) {
    const double log = log_of_sum(s.experts, logits);
    logsum[t] = static_cast<float>(log);
    for (std::size_t e = 0; e < count; ++e) {
      const auto x = static_cast<double>(logits[e]);
      score[e] = s.sigmoid ? sigmoid(x) : std::exp(x - log);
      scores[e] = s.sigmoid ? logits[e] : static_cast<float>(score[e]);
      const double more = s.correction == nullptr ? 0 : static_cast<double>(s.correction[e]);
      choice[e] = by_logits ? x : score[e] + more;
    }
    if (s.kept_groups < s.groups) keep_groups(s, choice, order);
    choose(choice, s.per_token, order);
    double whole = kBesideSum;
    for (std::int64_t k = 0; k < s.per_token; ++k) {
      whole += score[static_cast<std::size_t>(order[static_cast<std::size_t>(k)])];
    }
    for (std::int64_t k = t * s.per_token; k < (t + 1) * s.per_token; ++k) {
      chosen[k] = order[static_cast<std::size_t>(k - t * s.per_token)];
      const double mine = score[static_cast<std::size_t>(chosen[k])];
      weights[k] =
          static_cast<float>(static_cast<double>(s.scale) * (s.normalised ? mine / whole : mine));
    }
  }
}

void count_chosen(std::int64_t copies, std::int64_t /*experts*/, const std::int32_t* chosen,
                  float* counts) {
  for (std::int64_t i = 0; i < copies; ++i) counts[chosen[i]] += 1;
}

// With s the scores, S the sum of the chosen and w = c s / S: ds = (c dw - sum dw w) / S, or ds =
// c dw where weights are c s. The auxiliary loss weighs P = s / (sum of all s), which a softmax is
// itself: dP/ds as for w. Then d_logit = s (ds - sum ds s) of a softmax, ds s (1 - s) of a sigmoid,
// and z logsum softmax of what the z-loss adds.
template <class Element>
void route_backward(const RouteShape& s, const float* d_weights, const std::int32_t* chosen,
                    const float* weights, const float* scores, const float* logsum,
                    const float* counts, Element* d_logits) {
  const auto count = static_cast<std::size_t>(s.experts);
  std::vector<double> from_counts(count, 0.0), d_scores, score(count);
  if (s.auxiliary != 0) {
    for (std::size_t e = 0; e < count; ++e) {
      from_counts[e] = static_cast<double>(s.auxiliary) * static_cast<double>(counts[e]);
    }
  }
  for (std::int64_t t = 0; t < s.tokens; ++t, scores += s.experts, d_logits += s.experts) {
    const std::int64_t first = t * s.per_token;
    double all = 0, counted = 0;
    for (std::size_t e = 0; e < count; ++e) {
      const auto x = static_cast<double>(scores[e]);
      score[e] = s.sigmoid ? sigmoid(x) : x;
      all += score[e];
      counted += from_counts[e] * score[e];
    }
    d_scores = from_counts;
    if (s.sigmoid) {
      for (double& d : d_scores) d = (d - counted / all) / all;
    }
    double whole = kBesideSum, common = 0;
    for (std::int64_t k = first; k < first + s.per_token; ++k) {
      whole += score[static_cast<std::size_t>(chosen[k])];
      common += static_cast<double>(d_weights[k]) * static_cast<double>(weights[k]);
    }
    for (std::int64_t k = first; k < first + s.per_token; ++k) {
      const double d = static_cast<double>(s.scale) * static_cast<double>(d_weights[k]);
      d_scores[static_cast<std::size_t>(chosen[k])] += s.normalised ? (d - common) / whole : d;
    }
    double mean = 0;
    for (std::size_t e = 0; e < count; ++e) mean += d_scores[e] * score[e];
    const auto log = static_cast<double>(logsum[t]);
    const double z = static_cast<double>(s.z) * log;
    for (std::size_t e = 0; e < count; ++e) {
      const double soft = s.sigmoid ? std::exp(static_cast<double>(scores[e]) - log) : score[e];
      const double d =
          s.sigmoid ? score[e] * (1 - score[e]) * d_scores[e] : score[e] * (d_scores[e] - mean);
      d_logits[e] = static_cast<float>(d + z * soft);
    }
  }
}

#define OF_TYPE(T)                                                                                 \
  template void route_backward(const RouteShape&, const float*, const std::int32_t*, const float*, \
                               const float*, const float*, const float*, T*);
OF_TYPE(float)
OF_TYPE(BFloat16)
OF_TYPE(Float16)
#undef OF_TYPE

}  // namespace rehearse::exec
