// SPDX-License-Identifier: Apache-2.0
// What a member brings to a collective and what it gets: all of the array, one part of it, nothing.
#pragma once

#include <cstdint>

#include "schedules/ir/op.h"

namespace rehearse {

enum class Portion : std::uint8_t { Nothing, Part, Whole };
struct ExchangeParts {
  Portion brings = Portion::Nothing, gets = Portion::Nothing;
};

constexpr ExchangeParts exchange_parts(OpKind kind, bool root) {
  using enum Portion;
  switch (kind) {
    case OpKind::AllReduce:
    case OpKind::AllToAll:
      return {Whole, Whole};
    case OpKind::AllGather:
      return {Part, Whole};
    case OpKind::ReduceScatter:
      return {Whole, Part};
    case OpKind::Broadcast:
      return root ? ExchangeParts{Whole, Nothing} : ExchangeParts{Nothing, Whole};
    case OpKind::Reduce:
      return {Whole, root ? Whole : Nothing};
    case OpKind::Gather:
      return {Part, root ? Whole : Nothing};
    case OpKind::Scatter:
      return {root ? Whole : Nothing, Part};
    default:
      return {};
  }
}

constexpr bool has_root(OpKind kind) {
  return kind == OpKind::Broadcast || kind == OpKind::Reduce || kind == OpKind::Gather ||
         kind == OpKind::Scatter;
}
// Whether the array is cut into a part for every member.
constexpr bool is_parted(OpKind kind) {
  const ExchangeParts root = exchange_parts(kind, true), other = exchange_parts(kind, false);
  return kind == OpKind::AllToAll || root.brings == Portion::Part || other.gets == Portion::Part;
}

}  // namespace rehearse
