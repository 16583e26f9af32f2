// SPDX-License-Identifier: Apache-2.0
// One compute op: its bodies node by node, stopping where a group of ranks meets.
//
// A cursor never blocks: it returns at a collective and goes on once the caller has performed it.
// Equal inputs give equal bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "exec/backend/backend.h"
#include "schedules/body/body.h"
#include "schedules/ir/schedule.h"
#include "schedules/scenario/mesh.h"

namespace rehearse::exec {

// Where everything of one compute op lies on one rank; nullptr: the op does not have it.
struct OpAddresses {
  // (local, hidden): input of the first, output of the last segment
  std::byte *x_in = nullptr, *x_out = nullptr;
  std::byte* d_in = nullptr;   // gradient of that output (comes in; may be overwritten once used)
  std::byte* d_out = nullptr;  // gradient of that input (goes out)
  std::byte *slab_input = nullptr, *slab_weight = nullptr, *left = nullptr, *workspace = nullptr;
  std::byte *remade_input = nullptr, *remade_weight = nullptr;  // what an R makes again
  // By slice of the sequence: slab_input of those before the op's own; gradients of keys and values
  // of those and, last, of its own.
  std::vector<std::byte*> earlier_input, dkv;
  const std::int32_t *tokens = nullptr, *targets = nullptr;  // (tokens) of this micro-batch
  float* loss = nullptr;                                     // accumulated
  // Per segment of the op (in order) and tensor of segment_parameters(). A tied head has one more
  // entry at the end: the table. Gradients: nullptr where the op does not touch them; accumulated.
  std::vector<std::vector<const std::byte*>> parameter;
  std::vector<std::vector<float*>> gradient;
};

// One compute op, or one half of an OVERLAP pair, resolved before the first step.
struct ComputeOp {
  OpKind kind{};                      // Forward, Recompute, Backward or one of its halves
  bool apart = false;                 // its micro-batch has an R of its own
  std::int32_t slice = -1;            // of the sequence; -1: the whole
  std::int64_t first_sample = 0;      // its first sample's number in the step's batch
  std::vector<SegmentInfo> segments;  // those that it covers
  OpAddresses at;
  std::vector<std::pair<void*, std::int64_t>> clear;  // gradients that it writes first [B]
};

// Before the cursor goes on with them, arrays must be summed (or gathered, or maximised) over a
// group.
struct CollectiveRequest {
  Axis axis = Axis::Tensor;
  OpKind kind{};  // AllReduce, AllGather, ReduceScatter; Send: a shift round the ring
  ElementType type{};
  bool maximum = false;       // AllReduce: largest instead of sum
  std::byte* in = nullptr;    // AllGather: own part; else the whole array
  std::byte* out = nullptr;   // AllGather: the whole array; ReduceScatter: own part. May alias `in`
  std::int64_t elements = 0;  // of the whole array
  std::int32_t root = 0;      // Broadcast, Reduce: the member
  std::int64_t pitch = 0;     // as Exchange has it
  std::int32_t layer = -1;    // of the model; -1: of its ends
  // AllToAll in unequal parts: by member, until the cursor goes on (Contribution).
  const std::int64_t *sends = nullptr, *receives = nullptr;
  Lane lane;  // on which it is issued
};

enum class Progress : std::uint8_t {
  Done,
  Collective,  // asks for one
  Waits,       // for the end of the one that it asked for last
  Failed
};

// Coefficients of the routers' losses (TrainOptions).
struct RouterLosses {
  double auxiliary = 0, z = 0;
};

// What a rank counts in a step, in the device's memory; null: it is not counted.
struct ExpertCounts {
  double* rows = nullptr;     // (layers, experts of the model): those of its experts
  double* dropped = nullptr;  // (layers, experts): copies of its tokens that the plan drops
  // (kExpertLimits, layers): the most that had to find room together, ever, on any of the ranks
  // that share the experts.
  double* most = nullptr;
  double* lost = nullptr;  // (layers): tokens whose scores are not numbers, ever
};

// What an op of a step needs to know beside its addresses.
struct StepFacts {
  std::int64_t seed = 0, step = 0;  // of the run; what is dropped follows from them
  // What the loss and its gradients carry: 1 / (tokens of the global batch), times fp16's scale.
  float loss_scale = 1;
  RouterLosses losses;
  ExpertCounts expert_counts;
  // (layers, experts): what the router adds where it chooses, in the device's memory; or nullptr.
  const float* correction = nullptr;
};

// What a rank has room for in a layer: `rows` where `mean` come on average. what: as a line says
// it.
struct ExpertLimit {
  std::int64_t rows = 0;
  double mean = 1;
  std::string_view what;
};
// Limits of a rank's experts, and of slots.
inline constexpr std::size_t kExpertLimits = 2;
using ExpertLimits = std::array<ExpertLimit, kExpertLimits>;
// What a rank has counted so far, where the host can read it; only `most` and `lost` are looked at.
struct RankCounts {
  std::int32_t rank = 0;
  ExpertCounts counts;
};
// Why a run ends in which more came than there is room for; empty: all had room. The line names the
// rank and layer that lack most, and a factor that holds all that the ranks have seen, and those
// that share their experts.
std::string too_many_rows(std::span<const RankCounts> ranks, std::int64_t layers,
                          const ExpertLimits& limits);
// The rank and the first layer whose router's scores are no numbers; empty: all are numbers.
std::string lost_scores(std::span<const RankCounts> ranks, std::int64_t layers);

// What all ops of a run share: shapes and bodies. Immutable after construction.
class BodyRunner {
 public:
  // REQUIRES: plan.runtime rehearse; both outlive the runner.
  BodyRunner(const Layout& layout);
  ~BodyRunner();
  // No body of the op meets other ranks, and it does the same in every step: dropout does not.
  bool alone(const ComputeOp& op) const;
  // A body of the op meets other ranks.
  bool meets(const ComputeOp& op) const;
  // The limits of ExpertCounts::most.
  const ExpertLimits& expert_limits() const;
  struct Shared;
  const Shared& shared() const { return *shared_; }

 private:
  std::unique_ptr<Shared> shared_;
};

// One compute op half done; used again for the next op of its lane.
class OpCursor {
 public:
  // `at`: of the rank.
  OpCursor(const BodyRunner& runner, Device& device, Kernels& kernels, Lane lane,
           const Coordinates& at);
  ~OpCursor();
  OpCursor(OpCursor&&) noexcept;
  OpCursor& operator=(OpCursor&&) noexcept;
  // `op` must live until run() says Done. `track`: of the cursor's lane. `beside`: another cursor
  // goes on while a collective of this one is under way.
  void start(const ComputeOp& op, const StepFacts& facts, Track track, bool beside);
  // Runs to the end, or to the next collective. The caller has that performed, and may run the
  // cursor before it has ended: then it performs what does not need it.
  Progress run(CollectiveRequest* request);
  // The collective that was asked for last is now handed on; has ended.
  void hands_on();
  void met();
  // Why the last run() failed: more rows came to this rank's experts than memory is planned for.
  const std::string& failure() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace rehearse::exec
