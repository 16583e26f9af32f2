// SPDX-License-Identifier: Apache-2.0
// Why a plan is the best: the situation that the model is in, and what other hardware would give.
#include <algorithm>
#include <limits>

#include "schedules/body/sizes.h"
#include "schedules/passes/planned/plan_order.h"
#include "schedules/scenario/keys/plan_rows.h"
#include "schedules/scenario/memory/optimizer_state.h"
#include "sim/memory/memory_script.h"
#include "sim/search/estimate/search_estimate.h"
#include "sim/search/search.h"

namespace rehearse::sim {
namespace {

// One replica on one GPU: a legal family of the space without any splitting, or as near as the
// scenario lets it be.
std::optional<Plan> whole_replica(const Space& space) {
  Space whole = space;
  const auto splits = [](std::string_view key) {
    const PlanRow* row = find_plan_row(key);
    return row != nullptr && row->splits;
  };
  const auto is_split = [&](const SpaceKey& list) { return splits(list.key); };
  std::erase_if(whole.lists, is_split);
  std::erase_if(whole.ranges, is_split);
  for (JsonMember& member : whole.plan.members) {
    if (splits(member.key)) member.value = {};
  }
  whole.gpus = 1;
  std::optional<Error> refused;
  std::vector<PlanFamily> families = families_of(whole, {1, 1, 1}, refused);
  if (families.empty()) return std::nullopt;
  Plan plan = families.front().plan;
  plan.micro_batch_auto = false;
  plan.global_batch = plan.micro_batch = 1;
  const std::vector<Recompute> modes = recomputes_of(space, plan);
  if (!modes.empty()) plan.recompute = modes.front();
  return plan;
}

// Everything that a program moves through, scaled; what the data sheet and the tables say alike.
void scale(std::optional<double>& value, double factor) {
  if (value) *value *= factor;
}
void scale(std::optional<BytesPerSecond>& value, double factor) {
  if (value) value->value *= factor;
}

}  // namespace

Result<SituationReport> situation_of(const Space& space, const Cluster& cluster) {
  SituationReport report;
  report.capacity = cluster.capacity().value;
  const std::optional<Plan> replica = whole_replica(space);
  if (!replica) return Error{"no whole replica is legal"};
  const Transformer& model = space.base.model;
  const Result<MemoryProfile> profile = read_memory_profile(RuntimeTraits{}.name);
  if (!profile) return profile.error();
  Plan plan = *replica;
  plan.runtime = {};
  const Result<Schedule> order = order_of(model, plan);
  if (!order) return order.error();
  const Layout layout(model, plan);
  const MemoryReport whole = predict_memory(profile.value(), layout, cluster, order.value());
  report.replica_bytes = whole.peak_device;
  report.weights_bytes = total_parameters(model) * layout.shape.element;
  report.weights_fit = report.weights_bytes <= report.capacity;

  // A layer with its training state, and the most that its forward holds at once.
  std::int64_t largest = 0;
  for (std::int64_t l = 0; l < model.layers; ++l)
    largest = std::max(largest, layer_parameters(model, l));
  const Precision& bytes = plan.precision;
  const SegmentProgram program = segment_program(
      profile.value(), layout,
      model.experts.count > 0 ? SegmentShape::ExpertLayer : SegmentShape::DenseLayer);
  report.layer_bytes = largest * (bytes.parameters + bytes.gradients) + state_bytes(plan, largest) +
                       forward_bytes(program).peak +
                       profile.value().context.of(cluster.gpu.compute_capability.value_or(0));
  report.situation = whole.fits                              ? Situation::EverythingFits
                     : report.layer_bytes <= report.capacity ? Situation::StateTooLarge
                                                             : Situation::LayerTooLarge;
  return report;
}

std::optional<Change> changed(const Cluster& cluster, std::int32_t what, double factor) {
  Change change{.what = {}, .cluster = cluster};
  Cluster& c = change.cluster;
  switch (what) {
    case kMoreMemory:
      change.what = "GPU memory";
      c.gpu.memory_capacity_gb *= factor;
      scale(c.gpu.usable_memory_gib, factor);
      return change;
    case 1:
      change.what = "NIC bandwidth";
      c.nics.bandwidth_each.value *= factor;
      if (c.fabric) c.fabric->port_bandwidth.value *= factor;
      return change;
    case 2:
      change.what = "scale-up links";
      scale(c.scale_up.bandwidth_per_gpu, factor);
      scale(c.scale_up.bandwidth_per_pair, factor);
      scale(c.scale_up.bandwidth_per_link, factor);
      for (TorusAxis& axis : c.scale_up.axes) axis.bandwidth_per_link.value *= factor;
      scale(c.scale_up.reference, factor);
      scale(c.gpu.nvlink, factor);
      scale(c.gpu.calibration.all_reduce_8_asymptotic_busbw, factor);
      scale(c.gpu.calibration.all_reduce_8_busbw, factor);
      scale(c.gpu.calibration.nvls_busbw, factor);
      scale(c.gpu.calibration.ring_busbw, factor);
      change.scale_up = factor;
      return change;
    case 3:  // at the same energy per FLOP: the power limit goes with it
      change.what = "FLOP/s";
      for (std::optional<double>* rate : {&c.gpu.peaks.fp32_vector, &c.gpu.peaks.tf32,
                                          &c.gpu.peaks.fp16, &c.gpu.peaks.bf16, &c.gpu.peaks.fp8}) {
        scale(*rate, factor);
      }
      c.gpu.tdp_w *= factor;
      return change;
    case 4:
      change.what = "memory bandwidth";
      c.gpu.memory_bandwidth.value *= factor;
      return change;
    default:
      return std::nullopt;
  }
}

}  // namespace rehearse::sim
