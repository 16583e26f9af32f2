// SPDX-License-Identifier: Apache-2.0
// The executor: the ranks of this process perform a lowered schedule on a backend, step by step.
//
// One arena per rank, planned by the schedule and allocated before the first step; inside a step no
// device memory is allocated. Ranks of other processes are met through a Communicator.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "exec/backend/communicator.h"
#include "exec/step/exchanges/exchange_counts.h"
#include "exec/step/exchanges/own_exchanges.h"
#include "exec/step/observer.h"
#include "exec/step/rank_state.h"
#include "exec/weights/stored_bucket.h"
#include "schedules/base/result.h"

namespace rehearse::exec {

class Scheduler;

struct StepResult {
  double loss = 0;       // mean over the global batch, before the update
  double grad_norm = 0;  // before clipping
  // A scaled gradient was not finite: parameters, moments and corrections of routers are as before.
  bool skipped = false;
  std::int64_t wall_ns = 0;
  // Rows of each expert, (layers, experts), over all ranks; empty: a dense model. Where the plan
  // drops copies, how many of each expert were.
  std::vector<std::int64_t> expert_rows, expert_dropped;
};

struct InterpreterOptions {
  // threads that perform ops; an asynchronous backend takes one
  int workers = 1;
  Communicator* communicator = nullptr;  // where this process holds only a part of the ranks
  Observer* observer = nullptr;          // told of every op as it begins, waits and ends
  std::string drives;                    // directory of OffloadFile
};

class Interpreter {
 public:
  // REQUIRES: model, plan, schedule and the backend's two outlive it; the schedule is lowered from
  // model and plan for runtime rehearse, with an arena; the communicator's processes divide the
  // ranks. Errors: what this version does not execute, in one line; memory that is not there.
  static Result<std::unique_ptr<Interpreter>> create(const Layout& layout, const Schedule& schedule,
                                                     const Backend& backend,
                                                     const InterpreterOptions& options);
  ~Interpreter();

  // Calls `value_of(name, element)` for every element of every parameter held here, and of what
  // routers add (correction_tensors), by its Hugging Face name and number in the whole [out, in]
  // tensor; clears the optimizer's state. `threads` do so, each with a copy of `value_of`: where a
  // value depends on name and element alone, the weights do not depend on their number.
  void initialise(const std::function<double(const std::string&, std::int64_t)>& value_of,
                  int threads = 1);
  // Where kernels are chosen by trial: tries all that the ops of the ranks here need, so that no
  // step does, while nobody else uses the device. REQUIRES: nothing is in the arenas yet.
  Result<> try_kernels();
  // Has this process ranks of replica r (Mesh::replica)? Only those have tokens.
  bool holds_replica(std::int32_t replica) const {
    return !local_.inputs[replica_at(replica)].empty();
  }
  // Their tokens for micro-batch j: (micro-batches, slices, tokens).
  std::vector<std::int32_t>& inputs(std::int32_t replica) {
    return local_.inputs[replica_at(replica)];
  }
  std::vector<std::int32_t>& targets(std::int32_t replica) {
    return local_.targets[replica_at(replica)];
  }

  // What the routers add where they choose, (layers, experts), equal on all ranks: moves by
  // router_bias_rate after every step. Empty: no router has such a correction.
  const std::vector<float>& correction() const { return local_.correction; }
  void set_correction(std::vector<float> values);

  // One step. Error: a dead partner, a deadlock (ours), or `infeasible`: numbers that are not
  // finite, and not by their scale.
  Result<StepResult> run(const StepOptions& options);
  // Ends the step under way with this error; from any thread.
  void fail(const std::string& message);

  const LocalRanks& local() const { return local_; }
  const std::vector<TensorPlace>& places() const { return local_.places; }
  std::vector<StoredBucket> stored() const;
  // Of what was just written there the pages of drives are handed over: no second bucket of the
  // same process need stay in memory.
  void rest(const StoredBucket& stored);
  // What the ranks here held for the exchanges of a file's own groups.
  std::vector<HeldExchange> exchanged() const { return held_exchanges(local_); }
  // A whole tensor in fp32, gathered from its holders. REQUIRES: a name of places(), all ranks
  // here.
  std::vector<float> parameter(const std::string& name) const;

  // When the ops of the last step ran [ns since began_ns()]: of every rank here, rank after rank,
  // each as its row has them. Where all ranks are here, these are the ops of
  // schedules/ranks/unfold.h.
  const std::vector<Nanoseconds>& start() const;
  const std::vector<Nanoseconds>& end() const;
  // In what collectives the ranks here met in the last step; those inside ops too.
  std::vector<CollectiveCount> collectives() const;
  std::int64_t began_ns() const;  // on this machine's steady clock
  // Largest sum of live bytes of a rank of the row, by the plan: counted before the first step over
  // the addresses that its ops use.
  std::int64_t peak_bytes(RankClass row) const { return peak_[row.index()]; }

 private:
  static std::size_t replica_at(std::int32_t replica) { return static_cast<std::size_t>(replica); }
  explicit Interpreter(LocalRanks local);
  void balance(const TrainOptions& train, const StepResult& step);
  // Why a step of experts has failed: a router's scores are no numbers (`infeasible`), where the
  // step gave none or a rank had room for too few rows; or that room. gave_numbers: loss and norm.
  // Looks at what the ranks here have counted; the step has ended.
  Result<> experts_held(std::int64_t step, bool gave_numbers) const;
  LocalRanks local_;
  std::unique_ptr<BodyRunner> runner_;
  std::unique_ptr<Scheduler> scheduler_;
  std::vector<std::int64_t> peak_;
};

}  // namespace rehearse::exec
