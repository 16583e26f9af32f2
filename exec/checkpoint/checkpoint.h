// SPDX-License-Identifier: Apache-2.0
// Checkpoints: whole tensors by Hugging Face's names, so that any layout reads what any other
// wrote.
//
// DIR/step-000020/ holds model.safetensors, optimizer.safetensors (exp_avg.NAME, exp_avg_sq.NAME,
// shaped like the parameters) and state.json; DIR/latest names the newest. checkpoint_folder.h says
// how a folder gets its name, checkpoint_digests.h how a changed byte is found.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "exec/checkpoint/checkpoint_state.h"
#include "exec/checkpoint/tensor_files.h"
#include "exec/step/interpreter.h"

namespace rehearse::exec {

// What processes do together. `agree` is called by all of them the same number of times; each gives
// its own outcome and all get an error if one has one. A single process keeps the defaults.
struct Together {
  bool first = true;  // makes files and renames them; exactly one process
  std::function<Result<>(const Result<>&)> agree = [](const Result<>& own) { return own; };
};

// Makes `directory` where it is missing. Error: nothing can be written there.
Result<> prepare_checkpoints(const std::string& directory);

// Between steps: writes the checkpoint of state.step and makes it the latest; one of the same step
// is replaced. Error: the first one of any process, after what was half written has been removed;
// `infeasible` where a parameter or moment is not finite: what was good is not replaced by that.
Result<> save_checkpoint(const std::string& directory, const CheckpointState& state,
                         const Interpreter& run, const Together& together,
                         std::int64_t shard_bytes = kShardBytes);

// A checkpoint that fits a model, or weights alone. Nothing is read before load().
class Checkpoint {
 public:
  // `path`: a checkpoint folder, a folder of such (its newest), a safetensors file, its index, or a
  // folder with model.safetensors as Hugging Face's are. Errors: what is missing, unknown, cut
  // short, has another shape or is of another model, with its file.
  static Result<Checkpoint> open(const std::string& path, const Layout& layout,
                                 const std::vector<TensorPlace>& places);

  // One line where a folder's newest whole checkpoint is not the one that its `latest` names.
  const std::string& note() const { return note_; }
  const CheckpointState& state() const { return state_; }  // of weights alone: step 0
  bool has_optimizer() const { return !moments_.empty(); }
  // Fills what the ranks of this process keep; of weights alone the moments become 0. Error: the
  // first tensor that is not as it was written (of those that these ranks read).
  // REQUIRES: a run of open()'s model and places.
  Result<> load(Interpreter& run) const;

 private:
  CheckpointState state_;
  std::string note_;
  std::vector<TensorFiles> files_;
  // By number in the order of checkpoint.cc's tensor list.
  std::vector<TensorFiles::Tensor> parameters_, moments_;
};

}  // namespace rehearse::exec
