// SPDX-License-Identifier: Apache-2.0
// Attention and its gradients by the definition, in double, with every form; dropout's bits by
// Philox4x32-7 as its authors write it.
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

#include "exec/backend/shapes.h"
#include "tests/exec/cpu/noise.h"

namespace rehearse::exec {

using Doubles = std::vector<double>;
using Words = std::array<std::uint32_t, 4>;

// Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3", section 3.3.
inline Words exact_philox(int rounds, Words counter, std::array<std::uint32_t, 2> key) {
  for (int round = 0; round < rounds; ++round) {
    const std::uint64_t a = std::uint64_t{0xD2511F53} * counter[0],
                        b = std::uint64_t{0xCD9E8D57} * counter[2];
    counter = {
        static_cast<std::uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(b),
        static_cast<std::uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(a)};
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  return counter;
}

// What an element is multiplied by; `row` counts from the array's first.
inline double kept(const DropoutShape& shape, std::int64_t row, std::int64_t column,
                   std::int64_t head = 0) {
  if (shape.threshold == 0) return 1;
  const auto number = static_cast<std::uint64_t>(shape.first + row);
  const Words words = exact_philox(
      7,
      {static_cast<std::uint32_t>(column / 64 * 8 + column % 8), static_cast<std::uint32_t>(number),
       static_cast<std::uint32_t>(number >> 32),
       shape.site * 65536 + static_cast<std::uint32_t>(head)},
      {static_cast<std::uint32_t>(shape.key), static_cast<std::uint32_t>(shape.key >> 32)});
  const std::uint32_t word = words[at(column / 8 % 4)];
  const bool dropped = (column % 64 < 32 ? word % 65536 : word / 65536) < shape.threshold;
  return dropped ? 0 : static_cast<double>(shape.scale);
}

// As the BLOOM of transformers builds it: powers of 2^(-8 / n) for the n heads of the largest power
// of two, then odd powers of its root.
inline double exact_slope(std::int64_t head, std::int64_t heads) {
  const auto whole = static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(heads)));
  const double base = std::pow(2.0, -8.0 / static_cast<double>(whole));
  if (head < whole) return std::pow(base, static_cast<double>(head + 1));
  return std::pow(std::sqrt(base), static_cast<double>(2 * (head - whole) + 1));
}

// o, lse, the gradient of qkv and of the sinks for the loss sum(o * d_o).
struct Exact {
  template <class Numbers>
  Exact(const AttentionShape& s, const Numbers& qkv, const Floats& d_o)
      : o(at(s.tokens * s.heads * s.values())),
        lse(at(s.heads * s.tokens)),
        dqkv(qkv.size()),
        d_sinks(at(s.heads)) {
    const AttentionForm& form = s.form;
    const std::int64_t n = s.sequence, d = s.head_dim, values = s.values(), columns = s.columns();
    const double scale = form.scale != 0 ? form.scale : 1 / std::sqrt(static_cast<double>(d));
    const auto* sinks = static_cast<const float*>(form.sinks);
    const auto value = [&](std::int64_t row, std::int64_t column) {
      return static_cast<double>(qkv[at(row * columns + column)]);
    };
    for (std::int64_t sample = 0; sample < s.tokens / n; ++sample) {
      for (std::int64_t h = 0; h < s.heads; ++h) {
        const std::int64_t shared = h / (s.heads / s.kv_heads), keys = s.heads * d, q = h * d,
                           k = keys + shared * d, v = keys + s.kv_heads * d + shared * values,
                           first = sample * n, head = form.first_head + h;
        const double slope = form.alibi_heads > 0 ? exact_slope(head, form.alibi_heads) : 0;
        for (std::int64_t i = 0; i < n; ++i) {
          const std::int64_t begin =
              form.window > 0 ? std::max<std::int64_t>(i - form.window + 1, 0) : 0;
          Doubles p(at(i + 1)), dp(at(i + 1)), steepness(at(i + 1), 1.0);
          const double sink = sinks == nullptr ? 0 : std::exp(static_cast<double>(sinks[h]));
          double sum = sink, mean = 0;
          for (std::int64_t j = begin; j <= i; ++j) {
            double score = 0;
            for (std::int64_t x = 0; x < d; ++x)
              score += value(first + i, q + x) * value(first + j, k + x);
            score *= scale;
            if (form.softcap > 0) {
              const double t = std::tanh(score / form.softcap);
              score = form.softcap * t;
              steepness[at(j)] = 1 - t * t;
            }
            sum += p[at(j)] = std::exp(score + slope * static_cast<double>(j - i));
          }
          lse[at(h * s.tokens + first + i)] = std::log(sum);
          for (std::int64_t j = begin; j <= i; ++j) {
            const double factor = kept(form.dropout, sample * form.dropout_sequence + i, j, head);
            p[at(j)] /= sum;
            for (std::int64_t x = 0; x < values; ++x) {
              const std::int64_t out = ((first + i) * s.heads + h) * values + x;
              const auto g = static_cast<double>(d_o[at(out)]);
              o[at(out)] += factor * p[at(j)] * value(first + j, v + x);
              dp[at(j)] += factor * g * value(first + j, v + x);
              dqkv[at((first + j) * columns + v + x)] += factor * p[at(j)] * g;
            }
            mean += p[at(j)] * dp[at(j)];
          }
          d_sinks[at(h)] -= sink / sum * mean;
          for (std::int64_t j = begin; j <= i; ++j) {
            const double ds = scale * steepness[at(j)] * p[at(j)] * (dp[at(j)] - mean);
            for (std::int64_t x = 0; x < d; ++x) {
              dqkv[at((first + i) * columns + q + x)] += ds * value(first + j, k + x);
              dqkv[at((first + j) * columns + k + x)] += ds * value(first + i, q + x);
            }
          }
        }
      }
    }
  }
  Doubles o, lse, dqkv, d_sinks;
};

// Largest difference, as a share of the largest value; itself where all should be zero.
inline double distance(const Floats& is, const Doubles& should) {
  double worst = 0, size = 0;
  for (std::size_t i = 0; i < is.size(); ++i) {
    const double difference = std::abs(static_cast<double>(is[i]) - should[i]);
    if (!(difference <= worst)) worst = difference;  // not a number too
    size = std::max(size, std::abs(should[i]));
  }
  return size > 0 ? worst / size : worst;
}

}  // namespace rehearse::exec
