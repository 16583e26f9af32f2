// SPDX-License-Identifier: Apache-2.0
// The collectives inside compute ops, proved: an independent look at what bodies' builders made,
// and at who runs them.
//
//   order   all rows of a position run the same bodies in the same order, so that members of a
//   group
//           that are in several rows (along context, data, experts) meet as the others do
//   lanes   a collective is waited for before the next one begins: ranks that run equal bodies in
//           one order ask for the same collectives in the same order, one at a time
//   beside  what runs while a collective is under way touches nothing that it writes and writes
//           nothing that it reads, but other rows of an array in pieces
//   pieces  pieces of a node come in order, each once; one of a product behind the gather of its
//           rows, the sum of its rows behind it
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "schedules/body/body.h"

namespace rehearse {

// Empty: it is sound. Else what is wrong, with the node's number and name.
std::string body_fault(const Body& body);

// Collectives of one kind along one axis, of the rank that has most of them.
struct InsideSum {
  Axis axis{};
  OpKind kind{};  // RingExchange: Send
  std::int64_t count = 0, bytes = 0;
};
struct InsideProof {
  std::string fault;  // empty: it is sound
  OpId op{};          // where
  std::vector<InsideSum> sums;
};
// REQUIRES: the schedule was lowered from `layout`.
InsideProof prove_inside(const Schedule& schedule, const Layout& layout);

}  // namespace rehearse
