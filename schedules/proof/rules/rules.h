// SPDX-License-Identifier: Apache-2.0
// Inside the validator: what rules share, and their names. See validate.h.
#pragma once

#include <array>
#include <string>
#include <utility>
#include <vector>

#include "schedules/ir/stage_index.h"
#include "schedules/ir/where.h"
#include "schedules/proof/rules/survey.h"
#include "schedules/proof/validate.h"

namespace rehearse {

// What is known to have ended when an op starts, from stream order and waits: per op and stream the
// last op of its row on that stream, by index; -1: none.
class HappensBefore {
 public:
  HappensBefore() = default;
  explicit HappensBefore(const Schedule& schedule);
  // Whether `first` has ended when `second`, of the same row, starts.
  bool operator()(std::int32_t first, std::int32_t second) const {
    const auto stream = static_cast<std::size_t>(stream_[static_cast<std::size_t>(first)]);
    return first <= before_[static_cast<std::size_t>(second)][stream];
  }

 private:
  std::vector<std::uint8_t> stream_;
  std::vector<std::array<std::int32_t, kNumStreams>> before_;
};

// Found once, read by several rules.
struct Facts {
  const Schedule& schedule;
  const ValidateOptions& options;
  StageIndex index;
  Survey survey;
  HappensBefore before{};  // Level::Full with values; else empty

  bool full() const { return schedule.level == Level::Full; }
  bool has_values() const { return !schedule.values.empty(); }
  const Op& op(std::int32_t id) const { return schedule.ops[static_cast<std::size_t>(id)]; }
  std::string where(std::int32_t id) const { return rehearse::where(schedule, {id}); }
  // Calls visit(row, id, op) for every op, in program order.
  template <class Visit>
  void each_op(Visit visit) const {
    for (RankClass row{0}; row.value < schedule.num_rows(); ++row.value) {
      const std::size_t end = schedule.first_op({row.value + 1});
      for (std::size_t i = schedule.first_op(row); i < end; ++i) {
        visit(row, static_cast<std::int32_t>(i), schedule.ops[i]);
      }
    }
  }
};

class Report {
 public:
  Report(std::string_view rule, std::size_t most, Validation& to)
      : rule_(rule), most_(most), to_(to) {}
  // `message` is a function, so that a million equal violations cost a million counts.
  template <class Message>
  void add(std::int32_t op, Message message) {
    if (count_++ < most_) {
      to_.violations.push_back({rule_, OpId{op}, message()});
    } else {
      ++to_.unreported;
    }
  }
  std::size_t count() const { return count_; }
  DeadlockProof& deadlock() { return to_.deadlock; }

 private:
  std::string_view rule_;
  std::size_t most_, count_ = 0;
  Validation& to_;
};

// Every rule returns whether it had anything to look at.
bool check_form(const Schedule& schedule, Report& report, bool& readable);  // V1
bool check_completeness(const Facts& facts, Report& report);                // V2
bool check_order(const Facts& facts, Report& report);                       // V3
bool check_transfers(const Facts& facts, Report& report);                   // V4
bool check_collectives(const Facts& facts, Report& report);                 // V5
bool check_deadlock(const Facts& facts, Report& report);                    // V6
bool check_lives(const Facts& facts, Report& report);                       // V7
bool check_arena(const Facts& facts, Report& report);                       // V8
bool check_gathers(const Facts& facts, Report& report);                     // V9
bool check_gradients(const Facts& facts, Report& report);                   // V10
bool check_memory(const Facts& facts, Report& report);                      // V11
bool check_pairs(const Facts& facts, Report& report);                       // V12
bool check_placement(const Facts& facts, Report& report);                   // V13
bool check_folding(const Facts& facts, Report& report);                     // V14
bool check_lowering(const Facts& facts, Report& report);                    // V15

}  // namespace rehearse
