// SPDX-License-Identifier: Apache-2.0
#include "schedules/proof/validate.h"

#include <algorithm>

#include "schedules/proof/rules/rules.h"

namespace rehearse {
namespace {

using RuleCheck = bool (*)(const Facts&, Report&);
constexpr std::array<RuleCheck, 14> kChecks{
    check_completeness, check_order,     check_transfers, check_collectives, check_deadlock,
    check_lives,        check_arena,     check_gathers,   check_gradients,   check_memory,
    check_pairs,        check_placement, check_folding,   check_lowering,
};
static_assert(kChecks.size() + 1 == kRules.size());

}  // namespace

HappensBefore::HappensBefore(const Schedule& schedule) {
  const bool waits = schedule.wait_begin.size() == schedule.ops.size() + 1;
  stream_.resize(schedule.ops.size());
  before_.resize(schedule.ops.size());
  for (RankClass row{0}; row.value < schedule.num_rows(); ++row.value) {
    // What is known once the latest op of each stream has ended: what it knew, and itself.
    std::array<std::array<std::int32_t, kNumStreams>, kNumStreams> after{};
    for (auto& clock : after) clock.fill(-1);
    for (std::size_t i = schedule.first_op(row); i < schedule.first_op({row.value + 1}); ++i) {
      const auto stream = static_cast<std::size_t>(schedule.ops[i].stream);
      auto& clock = after[stream];
      if (waits) {
        for (std::int32_t w = schedule.wait_begin[i]; w < schedule.wait_begin[i + 1]; ++w) {
          const OpId wait = schedule.waits[static_cast<std::size_t>(w)];
          if (wait.index() >= i) continue;  // not issued yet: it orders nothing
          for (std::size_t s = 0; s < kNumStreams; ++s) {
            clock[s] = std::max(clock[s], before_[wait.index()][s]);
          }
          auto& own = clock[stream_[wait.index()]];
          own = std::max(own, wait.value);
        }
      }
      stream_[i] = static_cast<std::uint8_t>(stream);
      before_[i] = clock;
      clock[stream] = static_cast<std::int32_t>(i);
    }
  }
}

Validation validate(const Schedule& schedule, const ValidateOptions& options) {
  Validation validation;
  Report form(kRules[0].name, options.most, validation);
  bool readable = true;
  validation.applied[0] = check_form(schedule, form, readable);
  if (!readable) return validation;
  const StageIndex index(schedule);
  const Facts facts{schedule, options, index, Survey(schedule, index),
                    schedule.values.empty() ? HappensBefore() : HappensBefore(schedule)};
  for (std::size_t r = 0; r < kChecks.size(); ++r) {
    Report report(kRules[r + 1].name, options.most, validation);
    validation.applied[r + 1] = kChecks[r](facts, report);
  }
  return validation;
}

}  // namespace rehearse
