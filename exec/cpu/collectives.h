// SPDX-License-Identifier: Apache-2.0
// Collectives among ranks of one process: whoever comes last performs it for all, in rank order.
//
// Fixed-order sums: every element is added over members 0, 1, ... in its own type (elements of 16
// bits in fp32, and rounded once), so reruns are bitwise equal and two terms give the same bits on
// every layout.
#pragma once

#include "exec/backend/exchange.h"

namespace rehearse::exec {

// REQUIRES: every member's contribution is here (host memory); in and out of a member are equal or
// do not overlap (AllToAll, Send: do not overlap).
void perform(const Exchange& exchange);

// Sums (or takes the largest of) `count` elements of every array, in order, into `to`, which may be
// one of them. For communicators that have gathered the arrays from elsewhere.
void combine(ElementType type, std::span<const void* const> arrays, std::int64_t count,
             bool maximum, void* to);

}  // namespace rehearse::exec
