// SPDX-License-Identifier: Apache-2.0
// Assembles a Body: tensors and nodes in order, then slabs and workspace planned from their uses.
#pragma once

#include <initializer_list>
#include <string_view>
#include <utility>
#include <vector>

#include "schedules/body/body.h"

namespace rehearse {

class BodyBuilder {
 public:
  using T = std::int16_t;  // index of a tensor; kNone: absent (left out of reads and writes)
  static constexpr T kNone = -1;

  // `apart`: what it computes again, an R has made before (BodyShape::apart).
  BodyBuilder(SegmentKind segment, Direction direction, bool apart = false);

  T tensor(std::string_view name, TensorHome home, std::int64_t bytes);
  // What lies in the slab of an earlier slice where `own` lies in that of the op's; of it, `bytes`.
  T earlier(std::string_view name, T own, std::int32_t slice, std::int64_t bytes);
  // A memory-bound node: its bytes are those of what it reads and writes.
  Node& node(Kernel kernel, std::string_view name, std::initializer_list<T> reads,
             std::initializer_list<T> writes, NodePhase phase = NodePhase::Main);
  // C[m,n] += A[m,k] B[k,n]
  Node& gemm(Kernel kernel, ParameterRole weight, std::string_view name, std::int64_t m,
             std::int64_t n, std::int64_t k, std::initializer_list<T> reads,
             std::initializer_list<T> writes, NodePhase phase = NodePhase::Main);
  Node& collective(Kernel kernel, std::string_view name, std::int64_t bytes, T in, T out,
                   NodePhase phase = NodePhase::Main);
  // Lets the nodes behind the collective run while it is under way, up to the next
  // collective or the first node that touches what it writes, or writes what it reads; other pieces
  // of what it is a piece of touch other rows.
  static void runs_beside(Node& collective) { collective.until = 0; }
  bool is_weight_only() const { return body_.direction == Direction::WeightGradient; }
  bool is_split() const { return is_weight_only() || body_.direction == Direction::InputGradient; }

  // Keeps the nodes of the direction's half and of recomputation, plans slabs and workspace. Of an
  // R and of a backward behind one, what nodes of recomputation leave to others lies in slabs.
  Body finish();

 private:
  Body body_;
  bool apart_;
  std::vector<std::pair<T, T>> earlier_;  // tensor, own
};

}  // namespace rehearse
