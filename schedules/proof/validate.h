// SPDX-License-Identifier: Apache-2.0
// What every schedule must satisfy, as a table of independent rules. It reports; it never repairs.
//
// A rule applies where the schedule has the columns that it speaks of: at L0 there are no transfers
// to match, without a model no values to free. Such a rule finds nothing, and `applies` says so.
//
//   V1  form          every index, number and kind is within what the schedule declares
//   V2  completeness  F once, and B once or I and W once, of every stage, micro-batch and slice
//   V3  order         on a row F before B or I before W; slices, parts; a transfer beside its op
//   V4  transfers     every hand-over has one SEND and one RECV, first in first out per channel
//   V5  collectives   all members list it, of the same kind and bytes, in the same order
//   V6  deadlock      the quotient graph has no cycle (deadlock.h)
//   V7  lives         no use before definition, none after the end, order across streams; no leak
//   V8  arena         memory is given on only when every use of it has ended
//   V9  gathers       full parameters: gathered before use, once at a time
//   V10 gradients     all micro-batches contribute before the reduction, that before the optimizer
//   V11 memory        the peak of every row is within its capacity
//   V12 pairs         the two ops of an OVERLAP do not depend on one another
//   V13 placement     every stage lies somewhere, and every op runs where its stage lies
//   V14 folding       rows stand for all ranks, each once, and folded rows meet their like
//   V15 lowering      erasing what L1 adds gives the compute order back
#pragma once

#include <array>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "schedules/ir/schedule.h"
#include "schedules/proof/deadlock.h"

namespace rehearse {

struct ValidateOptions {
  StreamModel streams = StreamModel::One;
  const Schedule* compute_order = nullptr;  // for V15: the L0 that this was lowered from
  std::span<const Bytes> capacity{};        // for V11: per row; empty: not asked
  std::size_t most = 16;                    // violations that each rule reports; it counts all
};

struct Violation {
  std::string_view rule;  // "V6"
  OpId op{};              // where; none when something is missing
  std::string message{};  // what is wrong, with the op's name and row, and what would be right
};

struct Validation {
  std::vector<Violation> violations;  // by rule, in program order
  std::size_t unreported = 0;         // beyond options.most
  DeadlockProof deadlock;             // of V6; empty where V1 forbids looking
  std::array<bool, 15> applied{};     // which rules had anything to look at
  bool sound() const { return violations.empty(); }
};

struct RuleInfo {
  std::string_view name, title;
};
inline constexpr std::array<RuleInfo, 15> kRules{{
    {"V1", "form"},
    {"V2", "completeness"},
    {"V3", "order"},
    {"V4", "transfers"},
    {"V5", "collectives"},
    {"V6", "deadlock"},
    {"V7", "lives"},
    {"V8", "arena"},
    {"V9", "gathers"},
    {"V10", "gradients"},
    {"V11", "memory"},
    {"V12", "pairs"},
    {"V13", "placement"},
    {"V14", "folding"},
    {"V15", "lowering"},
}};

// All rules. Where V1 finds an index that leads nowhere, the others are not asked: they could not
// be. Cost: O(ops + operands + waits), and O(values log values) for V8.
Validation validate(const Schedule& schedule, const ValidateOptions& options = {});

}  // namespace rehearse
