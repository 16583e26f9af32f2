// One compute op on the CPU: its bodies node by node, stopping where the tensor-parallel group meets.
//
// A cursor never blocks: it returns at a collective and goes on once the caller has performed it.
// fp32 only. Single-threaded; equal inputs give equal bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "schedules/body.h"
#include "schedules/schedule.h"

namespace rehearse::exec {

// Where everything of one compute op lies on one rank; nullptr: the op does not have it.
struct OpAddresses {
  float *x_in = nullptr, *x_out = nullptr;  // (local, hidden): input of the first, output of the last segment
  float* d_in = nullptr;    // gradient of that output (comes in; may be overwritten once used)
  float* d_out = nullptr;   // gradient of that input (goes out)
  std::byte *slab_input = nullptr, *slab_weight = nullptr, *left = nullptr, *workspace = nullptr;
  const std::int32_t *tokens = nullptr, *targets = nullptr;  // (tokens) of this micro-batch
  float* loss = nullptr;    // accumulated
  // Per segment of the op (in order) and tensor of segment_parameters(). A tied head has one more
  // entry at the end: the table. Gradients: nullptr where the op does not touch them; accumulated.
  std::vector<std::vector<const float*>> parameter;
  std::vector<std::vector<float*>> gradient;
};

// Before node `name` runs, its inputs must be summed (or gathered, or maximised) over tp.
struct CollectiveRequest {
  NodeKind kind{};            // AllReduce, AllGather, ReduceScatter
  bool maximum = false;       // AllReduce: largest instead of sum
  float* in = nullptr;        // AllGather: own part; else the whole array
  float* out = nullptr;       // AllGather: the whole array; ReduceScatter: own part. May alias `in`
  std::int64_t elements = 0;  // of the whole array
};

enum class Progress : std::uint8_t { Done, Collective };

// What all ops of a run share: shapes and bodies. Immutable after construction.
class BodyRunner {
 public:
  // REQUIRES: dense model, plan.runtime rehearse, fp32, context_parallel 1; both outlive the runner.
  BodyRunner(const Transformer& model, const Plan& plan);
  ~BodyRunner();
  struct Shared;
  const Shared& shared() const { return *shared_; }

 private:
  std::unique_ptr<Shared> shared_;
};

// One op half done. An OVERLAP pair is two cursors, one after the other.
class OpCursor {
 public:
  // `kind`: Forward, Backward, InputGradient or WeightGradient. `segments`: those that it covers.
  // `coordinate`: on tp. `scale`: 1 / (m * d * tokens), what d_logits and the loss carry.
  OpCursor(const BodyRunner& runner, OpKind kind, std::span<const SegmentInfo> segments,
           const OpAddresses& at, std::int32_t coordinate, float scale);
  ~OpCursor();
  OpCursor(OpCursor&&) noexcept;
  OpCursor& operator=(OpCursor&&) noexcept;
  // Runs to the end, or to the next collective: then the caller performs it and runs again.
  Progress run(CollectiveRequest* request);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace rehearse::exec
