// SPDX-License-Identifier: Apache-2.0
// Tokens to rows of a table and back, and rotary positions: memory and angles, no arithmetic worth
// an instruction set.
#include "exec/cpu/kernels/embedding.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "exec/backend/element.h"

namespace rehearse::exec {

template <class Element>
void embed(std::int64_t tokens, std::int64_t h, const std::int32_t* ids, const Element* table,
           const VocabularyShape& shape, Element* out) {
  for (std::int64_t t = 0; t < tokens; ++t) {
    const std::int64_t row = ids[t] - shape.first;
    if (row >= 0 && row < shape.columns) {
      for (std::int64_t i = 0; i < h; ++i) out[t * h + i] = table[row * h + i] * shape.scale;
    } else {
      std::fill_n(out + t * h, h, 0.0F);
    }
  }
}

// Tokens of one row are added in token order, row after row.
template <class Element>
void embed_backward(std::int64_t tokens, std::int64_t h, const std::int32_t* ids, const Element* dy,
                    const VocabularyShape& shape, std::int32_t* order, float* d_table) {
  std::iota(order, order + tokens, 0);
  std::sort(order, order + tokens, [&](std::int32_t a, std::int32_t b) {
    return ids[a] != ids[b] ? ids[a] < ids[b] : a < b;
  });
  for (std::int64_t k = 0; k < tokens; ++k) {
    const std::int64_t t = order[k], row = ids[t] - shape.first;
    if (row < 0 || row >= shape.columns || ids[t] == shape.frozen) continue;
    for (std::int64_t i = 0; i < h; ++i) d_table[row * h + i] += dy[t * h + i] * shape.scale;
  }
}

namespace {

// The iterations of the loop behind it do not meet; clang looks for itself.
#ifdef __clang__
#define REHEARSE_INDEPENDENT
#else
#define REHEARSE_INDEPENDENT _Pragma("GCC ivdep")
#endif

constexpr std::int64_t kPairs = 64;  // of a head that are turned at a time

// Turns `count` pairs of numbers, whose second lies `apart` behind the first: beside it where pairs
// are interleaved, else half of the rotary part away.
template <class Element>
void turn(std::int64_t count, std::int64_t apart, const float* cosine, const float* sine,
          Element* x) {
  if (apart == 1) {
    REHEARSE_INDEPENDENT
    for (std::int64_t i = 0; i < count; ++i) {
      const float a = x[2 * i], b = x[2 * i + 1];
      x[2 * i] = a * cosine[i] - b * sine[i];
      x[2 * i + 1] = b * cosine[i] + a * sine[i];
    }
    return;
  }
  REHEARSE_INDEPENDENT
  for (std::int64_t i = 0; i < count; ++i) {
    const float a = x[i], b = x[apart + i];
    x[i] = a * cosine[i] - b * sine[i];
    x[apart + i] = b * cosine[i] + a * sine[i];
  }
}

}  // namespace

template <class Element>
void rope(const AttentionShape& s, const RotaryShape& rotary, bool inverse, Element* qkv) {
  const std::int64_t half = rotary.rotary_dim / 2, columns = s.columns();
  const std::int64_t step = rotary.interleaved ? 2 : 1, apart = rotary.interleaved ? 1 : half;
  std::array<float, kPairs> cosine, sine;
  for (std::int64_t t = 0; t < s.tokens; ++t) {
    const auto position = static_cast<double>((s.first + t) % s.sequence);
    for (std::int64_t begin = 0; begin < half; begin += kPairs) {
      const std::int64_t count = std::min(kPairs, half - begin);
      for (std::int64_t i = 0; i < count; ++i) {
        const double angle = position * rotary.inverse_frequency[begin + i];
        const double across = rotary.attention_factor * std::sin(angle);
        const auto at = static_cast<std::size_t>(i);
        cosine[at] = static_cast<float>(rotary.attention_factor * std::cos(angle));
        sine[at] = static_cast<float>(inverse ? -across : across);
      }
      for (std::int64_t head = 0; head < s.heads + s.kv_heads; ++head) {
        turn(count, apart, cosine.data(), sine.data(),
             qkv + t * columns + head * s.head_dim + begin * step);
      }
    }
  }
}

template <class Element>
void temper_queries(const AttentionShape& s, const Temperature& temperature, Element* qkv) {
  for (std::int64_t t = 0; t < s.tokens; ++t) {
    const auto position = static_cast<double>((s.first + t) % s.sequence);
    const auto by = static_cast<float>(
        1 + temperature.scale * std::log1p(std::floor((position + 1) / temperature.floor)));
    Element* queries = qkv + t * s.columns();
    for (std::int64_t c = 0; c < s.heads * s.head_dim; ++c) queries[c] = queries[c] * by;
  }
}

#define OF_TYPE(T)                                                                        \
  template void embed(std::int64_t, std::int64_t, const std::int32_t*, const T*,          \
                      const VocabularyShape&, T*);                                        \
  template void embed_backward(std::int64_t, std::int64_t, const std::int32_t*, const T*, \
                               const VocabularyShape&, std::int32_t*, float*);            \
  template void rope(const AttentionShape&, const RotaryShape&, bool, T*);                \
  template void temper_queries(const AttentionShape&, const Temperature&, T*);
OF_TYPE(float)
OF_TYPE(BFloat16)
OF_TYPE(Float16)
#undef OF_TYPE

}  // namespace rehearse::exec
