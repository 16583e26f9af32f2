// The interpreter: all ranks of a scenario in one process, their lowered schedule performed op by op.
//
// Every (rank, stream) is an in-order queue; an op may start when its waits have ended. Workers take
// the ready op with the smallest place in the global order; no worker blocks inside an op: at a
// collective the op is put back until its last member arrives, who performs it for all. So every
// layout runs with one worker. Inside a step no arena memory is allocated; cursors are.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "exec/body_runner.h"
#include "exec/parameters.h"
#include "schedules/mesh.h"
#include "schedules/result.h"
#include "schedules/schedule.h"

namespace rehearse::exec {

// What the optimizer of one step needs to know.
struct StepOptions {
  std::int64_t step = 0;        // 0, 1, ...
  double learning_rate = 0;     // of this step
  TrainOptions train;
};

struct StepResult {
  double loss = 0;       // mean over the global batch, before the update
  double grad_norm = 0;  // before clipping
  std::int64_t wall_ns = 0;
};

class InProcess {
 public:
  // Allocates one arena per rank as the schedule plans it.
  // REQUIRES: model, plan and schedule outlive it; the schedule is lowered from them for runtime
  // rehearse in fp32, with an arena. Errors: what this version does not execute, in one line.
  static Result<std::unique_ptr<InProcess>> create(const Transformer& model, const Plan& plan,
                                                   const Schedule& schedule, int workers);
  ~InProcess();

  // Calls `value_of(name, element)` for every element of every parameter, by its Hugging Face name
  // and number in the whole [out, in] tensor; clears the optimizer's state.
  void initialise(const std::function<double(const std::string&, std::int64_t)>& value_of);
  // Tokens of replica r (data * cp + context) for micro-batch j: (micro-batches, tokens).
  std::vector<std::int32_t>& inputs(std::int32_t replica) { return inputs_[static_cast<std::size_t>(replica)]; }
  std::vector<std::int32_t>& targets(std::int32_t replica) { return targets_[static_cast<std::size_t>(replica)]; }

  // One step. Error: a deadlock (ours), or numbers that are not finite, with rank and op.
  Result<StepResult> run(const StepOptions& options);

  // A whole tensor, gathered from the ranks that hold it (fp32). REQUIRES: a name of places().
  std::vector<float> parameter(const std::string& name) const;
  const std::vector<TensorPlace>& places() const { return places_; }

  // Of the last step, per op of the schedule: on the first rank of its row [ns since the step began].
  const std::vector<Nanoseconds>& start() const { return start_; }
  const std::vector<Nanoseconds>& end() const { return end_; }
  // Largest sum of live bytes of a rank of the row, counted over the addresses that its ops use.
  std::int64_t peak_bytes(Row row) const { return peak_[row.index()]; }

  struct RankState;  // rank_state.h
  struct Scheduler;  // in_process.cc

 private:
  // Elements [first, last) of a bucket that a rank stores, at `data`.
  struct Stored {
    float* data = nullptr;
    std::int64_t first = 0, last = 0;
  };
  InProcess(const Transformer& model, const Plan& plan, const Schedule& schedule);
  Result<> check_arenas();
  Stored stored(const RankState& rank, BucketId bucket) const;

  const Transformer& model_;
  const Plan& plan_;
  const Schedule& s_;
  Mesh mesh_;
  std::vector<TensorPlace> places_;
  std::vector<std::vector<std::int32_t>> inputs_, targets_;
  std::vector<std::unique_ptr<RankState>> ranks_;
  std::unique_ptr<BodyRunner> runner_;
  std::unique_ptr<Scheduler> scheduler_;
  std::vector<Nanoseconds> start_, end_;
  std::vector<std::int64_t> peak_;
};

}  // namespace rehearse::exec
