// SPDX-License-Identifier: Apache-2.0
// Ids and quantities that cannot be mistaken for one another.
//
// An id names a thing (`Stage{3}`), a quantity measures one (`Bytes{4096}`).
// Both fit in a register, are trivially copyable, and never convert implicitly.
#pragma once

#include <compare>
#include <cstdint>

namespace rehearse {

template <class Tag>
struct Id {
  std::int32_t value = -1;  // -1 is "none"
  constexpr auto operator<=>(const Id&) const = default;
  constexpr explicit operator bool() const { return value >= 0; }
  // REQUIRES: *this
  constexpr std::size_t index() const { return static_cast<std::size_t>(value); }
};

using OpId = Id<struct OpTag>;
using Rank = Id<struct RankTag>;              // one process and its one device, global number
using Position = Id<struct PositionTag>;      // coordinate on the pp axis
using RankClass = Id<struct RankClassTag>;    // a rank class: ranks that share one program
using Stage = Id<struct StageTag>;            // one contiguous range of layers (torch's stage)
using Microbatch = Id<struct MicrobatchTag>;  // one slice of the global batch
using ValueId = Id<struct ValueTag>;
using GroupId = Id<struct GroupTag>;
using BucketId = Id<struct BucketTag>;
// the ops that meet: a SEND and its RECV, a collective's members
using MatchId = Id<struct MatchTag>;

template <class Tag, class Rep>
struct Quantity {
  Rep value{};
  constexpr auto operator<=>(const Quantity&) const = default;
  constexpr Quantity& operator+=(Quantity other) {
    value += other.value;
    return *this;
  }
  constexpr Quantity& operator-=(Quantity other) {
    value -= other.value;
    return *this;
  }
  friend constexpr Quantity operator+(Quantity a, Quantity b) { return a += b; }
  friend constexpr Quantity operator-(Quantity a, Quantity b) { return a -= b; }
  friend constexpr Quantity operator*(Rep times, Quantity a) { return {times * a.value}; }
};

using Bytes = Quantity<struct BytesTag, std::int64_t>;
using Flops = Quantity<struct FlopsTag, double>;  // 2 per multiply-add; exceeds 2^63 for long runs
// Time is an integer so that equal schedules give equal traces, on every machine.
using Nanoseconds = Quantity<struct NanosecondsTag, std::int64_t>;
using BytesPerSecond = Quantity<struct BytesPerSecondTag, double>;

}  // namespace rehearse
