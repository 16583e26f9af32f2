// SPDX-License-Identifier: Apache-2.0
// What the bodies of our executor share: their shape as one context, and the sums and gathers over
// tp around their products.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "schedules/body/body_builder.h"

namespace rehearse::own {

using T = BodyBuilder::T;
constexpr T kNone = BodyBuilder::kNone;

struct Context {
  const Layout& layout;
  const Transformer& model;
  const Plan& plan;
  const RankShape& s;
  Direction direction;
  bool experts = false;          // in place of the dense MLP
  std::int32_t slice = -1;       // of the sequence; -1: not sliced, or the mean of the slices
  std::optional<Reach> reach{};  // of the layer; none: the mean of all
  bool rotates = true;           // of the layer: queries and keys
  std::int64_t activation = 0;   // bytes of (local, hidden)
  std::int64_t gathered = 0;     // bytes of (tokens, hidden)
  std::int64_t statistics = 0;   // bytes of a norm's saved statistics, fp32
  bool split = false;            // I or W instead of B
  bool apart = false;            // an R has gone before
};

Context context_of(const Layout& layout, const BodyShape& shape);

// Into how many pieces a product and the collective over tp beside it are cut, each piece of the
// one beside the next of the other (overlap.tensor_parallel); 1: they are not.
//
// Piece i has rows i w ... (i + 1) w of every rank's shard under sequence parallelism, w = tokens /
// (t pieces), and of the whole array without it; so shards stay contiguous, and every row's sums
// are those of the whole product: the bits are the same where the kernel computes rows alike.
std::int32_t pieces_of(const Context& c);

// A product over all tokens: (tokens, k) -> (tokens, n).
struct Product {
  Kernel kernel{};
  ParameterRole weight{};
  std::string_view name;
  std::int64_t n = 0, k = 0;
  T out = kNone;
};
// The product of what is gathered of `local`, and of `local` itself without sequence parallelism.
// Returns what is gathered.
T gather_and_multiply(BodyBuilder& b, const Context& c, T local, std::string_view gathered,
                      const Product& product, NodePhase phase = NodePhase::Main);
// The product, and the sum of what it gives over tp, as reduce_output.
void multiply_and_reduce(BodyBuilder& b, const Context& c, const Product& product, T in,
                         NodePhase phase = NodePhase::Main, T own = kNone);

// Sum over the tp ranks of a row-parallel product: (tokens, hidden) partial -> (local, hidden).
// `own`: where, under sequence parallelism, this rank's tokens go; left out: they stay in place.
void reduce_output(BodyBuilder& b, const Context& c, T partial, NodePhase phase = NodePhase::Main,
                   T own = kNone);

// (local, hidden) -> (tokens, hidden): a gather under sequence parallelism, else the tensor itself.
// With overlap.tensor_parallel what follows and does not need it runs beside it.
T gather_input(BodyBuilder& b, const Context& c, T local, std::string_view name,
               NodePhase phase = NodePhase::Main);

}  // namespace rehearse::own
