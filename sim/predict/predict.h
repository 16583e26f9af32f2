// SPDX-License-Identifier: Apache-2.0
// One training step, predicted: scenario and cluster in, everything that reports show out.
#pragma once

#include <array>
#include <cassert>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "schedules/ir/schedule.h"
#include "schedules/passes/lower.h"
#include "schedules/scenario/scenario.h"
#include "schedules/trace/resident_memory.h"
#include "sim/band/band.h"
#include "sim/cluster/cluster.h"
#include "sim/compute/body_cost.h"
#include "sim/compute/kernel_scalars.h"
#include "sim/engine/bubbles.h"
#include "sim/engine/repetition.h"
#include "sim/engine/timeline.h"
#include "sim/memory/memory.h"
#include "sim/network/collective_model.h"
#include "sim/network/topology.h"
#include "sim/predict/pricing/pricing.h"

namespace rehearse::sim {

// Row of the report's `communication`. Count, bytes and times are of the rank that has most of
// them.
struct CommunicationRow {
  Traffic traffic;          // its time and links: as if nothing else were sent meanwhile
  double contended_s = 0;   // what it took longer in the simulation, as others load its links
  ResourceId busiest_link;  // that most of contended_s was lost to; none: nothing was
  double exposed_s = 0;     // the rank's compute stream idles for it, mean over all ranks
  double bus_bandwidth_gb_per_s = 0;  // of the time without Traffic::waits
};

// The hash that names a schedule: of its content, where a run may have it; of its program
// (schedules/ir/program_hash.h) where it is a framework's, which nobody performs here and which may
// be long.
std::string hash_of(const Schedule& schedule, const Plan& plan);

// How many orders a planned schedule was chosen among (schedules/passes/planned/plan_order.h).
struct OrderChoice {
  std::int32_t considered = 0, fitting = 0;  // 0: there was nothing to choose
};

// A micro-batch that was tried where the plan leaves it open. What does not fit has no time.
struct MicroBatchTried {
  std::int32_t micro_batch = 1;
  bool fits = false;
  double step_s = 0;
};

// What priced a prediction, kept for who asks later what a kernel inside an op takes.
struct CostModels {
  Cluster cluster;
  CollectiveModel collectives;
  std::optional<Network> network;  // of this cluster and these collectives
  std::optional<ComputeModel> compute;
};

// What a prediction reads beside the cluster: read once by who predicts many plans.
struct HardwareTables {
  CollectiveModel collectives;
  KernelScalars scalars;
  ErrorTable errors;
  std::map<std::string, MemoryProfile> memory;  // by the runtime's name

  // REQUIRES: one of the runtimes that were asked for.
  const MemoryProfile& profile(const Plan& plan) const {
    const auto found = memory.find(plan.runtime.name);
    assert(found != memory.end());
    return found->second;
  }
};

// What a step repeats in its middle, where that was performed a few times only and stands for all
// (docs/steady_state.md). Order and schedule are then the step with the rest left out: what stands
// behind it has the times and micro-batches that it has in the whole.
struct Omitted {
  std::int64_t times = 0;  // periods that were left out; 0: none
  Repetition repetition;
  // Per memory.ranks: when the op starts at which it is fullest, where it was left out; else -1.
  std::vector<std::int64_t> fullest_at;
  std::string whole_because;  // why none was, where leaving out was asked for

  // How often the step does what the op does.
  std::int64_t times_of(RankClass row, OpId op) const {
    return times > 0 && repetition.contains(row, op) ? 1 + times : 1;
  }
  std::int64_t ops() const {  // that were left out, of all rows
    std::int64_t sum = 0;
    for (const std::int32_t length : repetition.length) sum += times * length;
    return sum;
  }
};

struct Prediction {
  Plan plan;  // micro-batch and order chosen
  OrderChoice choice;
  std::vector<MicroBatchTried> micro_batches;  // empty: it was not left open
  Schedule order;                              // L0: the compute order
  Schedule schedule;                           // L1: lowered from it
  // Where replicas that differ have rows of their own: per row of the schedule the one that was
  // lowered, and the hash of what was lowered. Empty: the schedule is as it was lowered.
  std::vector<std::int32_t> row_class;
  std::string lowered_hash;
  std::shared_ptr<const CostModels> models;  // null: memory alone was asked for
  // What was read for it, kept for who predicts another plan on the cluster; null: it was given.
  std::shared_ptr<const HardwareTables> hardware;
  Pricing pricing;
  Timeline timeline;
  Omitted left_out;
  Bubbles bubbles;
  MemoryReport memory;
  // Per memory.ranks: the op with the peak, as text; empty: it is before step 0.
  std::vector<std::string> memory_ops;
  std::vector<CommunicationRow> communication;
  std::vector<std::string> link_names;  // per resource of the pricing's table

  double step_s = 0, tokens_per_s = 0;
  double remap_s = 0;  // of it: the allocator empties its cache (sim/predict/corrected/remapping.h)
  std::int64_t parameters = 0;
  bool has_experts = false;                      // its model
  double model_flops = 0, recomputed_flops = 0;  // of the whole step
  FlopsConvention flops_convention = FlopsConvention::Megatron;
  std::optional<double> peak_flops;                 // of one GPU in precision.compute
  std::array<double, kNumCostLevels> confidence{};  // shares, sum 1
  // Measured tables that a part of the time was read from, by their files' names.
  std::vector<std::pair<std::string, double>> tables;
  double error_band = 0;  // half the width of the band, relative; of a CPU to either side
  Band band;              // what the errors of validated steps say of this one
  double scatter = 0;     // of the measurements that it rests on (calibration.h)
  std::optional<double> usd_per_gpu_hour;
  double energy_j = 0;
  std::int32_t gpus = 1;
  // Filled by the caller, as sim reads no clock: of the prediction, and of the search for the
  // nearest plan that fits (memory.instead) beside it.
  double wall_s = 0, instead_wall_s = 0;
  std::string
      variation_note;        // sim/predict/corrected/variation.h; empty: all GPUs are as described
  std::string overlap_note;  // sim/report/overlap_note.h; filled by the caller
  // Where a change of the plan changed the choice among micro_batches; filled by the caller, too.
  std::string micro_batch_note;
  std::string dropped_note;  // of tokens that experts drop; empty: none that even routing brings
  std::string network_note;  // of a NIC that nobody has benchmarked; empty: nothing uses one
  // What was priced instead of what the plan says. Commands print these lines on stderr, and the
  // JSON report has them among its notes.
  std::vector<std::string> warnings;
  // Memory of this very machine's processes, for a run on it; filled by the caller, too.
  std::optional<ResidentPlan> resident;

  // The hash of the schedule as it was lowered, which a run of the same plan has.
  std::string schedule_hash() const {
    return lowered_hash.empty() ? hash_of(schedule, plan) : lowered_hash;
  }
  // Between these the truth lies, nine times in ten.
  double low_s() const { return step_s * band.low; }
  double high_s() const { return step_s * band.high; }
  double tflops(double flops) const { return flops / (gpus * step_s) * 1e-12; }
  // Shares of peak_flops, at most 1; none where the peak is not known.
  std::optional<double> mfu() const { return share(model_flops); }
  std::optional<double> hfu() const { return share(model_flops + recomputed_flops); }
  double bubble_ratio() const {
    return static_cast<double>(bubbles.idle) / static_cast<double>(bubbles.idle + bubbles.busy);
  }

 private:
  std::optional<double> share(double flops) const {
    if (!peak_flops) return {};
    return tflops(flops) * 1e12 / *peak_flops;
  }
};

// With the memory profiles of these runtimes.
Result<HardwareTables> read_hardware_tables(const Cluster& cluster,
                                            const std::vector<std::string>& runtimes);

struct PredictOptions {
  bool timeline = true;  // false: memory alone
  bool memory = true;    // false: left out, where it is known and no cache is emptied for it
  // [B] of the fullest rank: a plan that needs more gets memory alone, too
  std::optional<std::int64_t> memory_limit;
  // A plan whose memory is not as needed gets nothing (MemoryReport::ruled_out). A framework's.
  std::optional<MemoryNeed> need;
  // false: the schedule carries no versions, last uses and holds; for who reads numbers only
  bool lifetimes = true;
  bool confidence = true;  // false: no band and no shares of levels; for who compares steps
  bool record_load = false;
  // A long step may be predicted from a shorter one (Prediction::left_out); for who reads numbers
  // and no ops. They are the same.
  bool leave_out = false;
  double scale_up_factor = 1;  // links inside a node this much faster than measured (what-if)
  const HardwareTables* tables = nullptr;  // of this very cluster; null: read
  std::string without_source;              // of measured steps, for the band (band.h)
  // Decides the order of transfers (order_prices.h); none: the prices of this cluster. predict()
  // fills it in where a run of ours is ordered by another.
  PriceOps order_by;
};

// Chooses micro-batch and order where the plan leaves them open: of the orders of `auto`, zb_1p and
// zb_2p (schedules/passes/planned/plan_order.h) that which is predicted to be the fastest of those
// that fit in memory, the one that needs least memory where none fits. Errors: one line, as readers
// give them.
Result<Prediction> predict(const Scenario& scenario, const Cluster& cluster,
                           const PredictOptions& options = {});

}  // namespace rehearse::sim
