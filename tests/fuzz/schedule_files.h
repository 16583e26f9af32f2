// SPDX-License-Identifier: Apache-2.0
// What must hold for any bytes that claim to be a schedule: readers answer, the validator answers,
// and what it calls sound really runs. Shared by the fuzz target and the test that runs a second.
#pragma once

#include <string_view>

#include "schedules/formats/csv.h"
#include "schedules/formats/schedule_file.h"
#include "schedules/formats/text_reader.h"
#include "schedules/proof/validate.h"
#include "schedules/transfers/add_transfers.h"
#include "tests/fuzz/must.h"
#include "tests/schedules/proof/rendezvous.h"

namespace rehearse::testing {

inline void prove_in_all_models(const Schedule& schedule, const Schedule* order) {
  for (const StreamModelInfo& model : kStreamModels) {
    const Validation validation =
        validate(schedule, {.streams = model.model, .compute_order = order});
    if (!validation.sound()) continue;
    must(validation.deadlock.complete, "sound, but not free of deadlock");
    if (schedule.level != Level::Full) continue;
    // Sliced, cut or with other ops besides: the oracle plays plain schedules only.
    const bool plain = std::ranges::all_of(schedule.ops, [](const Op& op) {
      return op.segment_end < 0 &&
             (is_compute(op.kind) || op.kind == OpKind::Send || op.kind == OpKind::Recv);
    });
    if (plain) must(fixture::Rendezvous(schedule, model.model).run(), "proved, but it hangs");
  }
}

inline void try_schedule_file(std::string_view text) {
  (void)parse_op(text.substr(0, 64));
  (void)parse_cell(text.substr(0, 64));
  (void)parse_csv(text, "fuzz.csv");
  const Result<ScheduleFile> file = parse_schedule_file(text, "fuzz");
  if (!file) {
    must(file.error().message.find('\n') == std::string::npos, "an error of several lines");
    return;
  }
  const Schedule& schedule = file.value().schedule;
  if (schedule.ops.size() > 2000 || schedule.num_rows() > 64) return;  // seconds are for variety
  prove_in_all_models(schedule, nullptr);
  const Result<ScheduleFile> back = parse_schedule_json(to_schedule_json(schedule), "back.json");
  must(static_cast<bool>(back), "what was written cannot be read");
  must(content_hash(back.value().schedule) == content_hash(schedule), "it reads back differently");
  const Schedule order = compute_order_of(schedule);
  if (order.ops.empty() || !validate(order).sound()) return;
  const DeadlockProof timed = prove_no_deadlock(order, StreamModel::One);
  for (const TransferPolicyInfo& policy : kTransferPolicies) {
    const Schedule lowered = add_transfers(order, timed.finish, policy.policy);
    const bool sound = validate(lowered, {.compute_order = &order}).sound();
    must(sound || policy.policy == TransferPolicy::Naive, "a lowering of ours is not sound");
    prove_in_all_models(lowered, &order);
  }
}

}  // namespace rehearse::testing
