// SPDX-License-Identifier: Apache-2.0
// state.json of a checkpoint: where the run was, and of which model and plan.
#pragma once

#include <cstdint>
#include <string>

#include "exec/checkpoint/checkpoint_digests.h"
#include "schedules/base/result.h"
#include "schedules/model/model.h"

namespace rehearse::exec {

struct CheckpointState {
  std::int64_t step = 0;     // steps done
  std::int64_t samples = 0;  // read so far: the next step begins with this sample
  std::int64_t sequence_length = 0;
  std::int64_t seed = 0;  // of first weights and synthetic data; there is no other randomness
  std::string data;       // train.data
  double learning_rate = 0, loss = 0, grad_norm = 0;  // of the last step
  // fp16's loss scale [0: none], steps since it changed, and steps without an update. Checkpoints
  // of before have none.
  double loss_scale = 0;
  std::int64_t clean_steps = 0, skipped_steps = 0;
  std::string schedule_hash;
  std::string plan;       // JSON (plan_json)
  std::string optimizer;  // its plan's, as read back
  // Which one of its folder's it is, counted as they were written; 0: the file does not say (0.1).
  std::int64_t written = 0;
  Digests digests;  // of the files beside it; empty: the file has none (0.1)
};

std::string state_json(const CheckpointState& state, const Transformer& model);
// Errors: "FILE: KEY: what"; a checkpoint of another model names the first key that differs. What a
// run does not need (the rest of the plan, hash, data, rates) is not read back.
// Error: "FILE: digest: ...": some byte of it is not as it was written.
Result<CheckpointState> read_state(const std::string& path, const Transformer& model);

// What tells checkpoints of one folder apart, of any model's.
struct CheckpointHead {
  std::int64_t step = 0, written = 0;
};
Result<CheckpointHead> read_head(const std::string& path);

}  // namespace rehearse::exec
