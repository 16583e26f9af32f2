// A lower bound of the replay's peak, for a search that must rule plans out quickly.
#include <algorithm>
#include <optional>

#include "schedules/sizes.h"
#include "sim/closed_form.h"
#include "sim/memory.h"
#include "sim/memory_script.h"
#include "sim/memory_states.h"

namespace rehearse::sim {
namespace {

struct ForwardBytes {
  std::int64_t kept = 0;  // when the forward has ended
  std::int64_t peak = 0;  // inside it
};

ForwardBytes forward_bytes(const SegmentProgram& program) {
  std::vector<std::int64_t> held(static_cast<std::size_t>(program.slots), 0);
  ForwardBytes bytes;
  for (const ScriptStep& step : program.forward) {
    std::int64_t& slot = held[static_cast<std::size_t>(step.slot)];
    bytes.kept += step.bytes - slot;
    slot = step.bytes;
    bytes.peak = std::max(bytes.peak, bytes.kept);
  }
  return bytes;
}

// What is there all the time from the second step on, without what is gathered.
std::int64_t state_bytes(const MemoryProfile& profile, const Plan& plan, std::int64_t parameters) {
  const Precision& bytes = plan.precision;
  const bool gathers = plan.zero_stage >= profile.gather_units_from;
  const std::int64_t shard = parameters / shard_ranks(plan);
  std::int64_t sum = (gathers ? shard : parameters) * bytes.parameters;
  if (plan.offload != OffloadMode::Optimizer) {
    sum += (plan.zero_stage >= 1 || gathers ? shard : parameters) * bytes.optimizer;
  }
  if (profile.contiguous_gradients && !gathers) {
    sum += (plan.zero_stage >= 2 ? shard : parameters) * bytes.gradients;
  }
  return sum;
}

}  // namespace

std::int64_t memory_lower_bound(const MemoryProfile& profile, const Transformer& model,
                                const Plan& plan) {
  const auto stages = static_cast<std::int32_t>(plan.stage_layers.size());
  const std::int32_t p = plan.pipeline_parallel, m = plan.microbatches();
  const std::int32_t chunks = std::max(stages / p, 1);
  // Orders with a loop placement whose number of chunks in flight is known; else one chunk.
  std::optional<std::int32_t> known = peak_activations(plan.schedule, 0, p, m, chunks);
  if (p == 1 || plan.schedule.starts_with("zb") || plan.sequence_slices > 1) known.reset();
  const bool one_stage = stages == 1;

  const ForwardBytes layer =
      forward_bytes(segment_program(profile, model, plan, SegmentShape::DenseLayer));
  const ForwardBytes expert =
      model.experts.count > 0
          ? forward_bytes(segment_program(profile, model, plan, SegmentShape::ExpertLayer))
          : layer;
  const ForwardBytes head =
      forward_bytes(segment_program(profile, model, plan, SegmentShape::Head));
  // A layer's output is the next one's input.
  const std::int64_t per_layer =
      plan.offload == OffloadMode::Activations ? 0 : std::min(layer.kept, expert.kept);

  std::int64_t bound = 0;
  const std::int32_t groups =
      known || one_stage ? p : stages;  // stages s, s + p, ... of a position
  for (std::int32_t position = 0; position < groups; ++position) {
    std::vector<Stage> own;
    for (std::int32_t s = position; s < stages; s += groups) own.push_back({s});
    std::int32_t fewest = plan.stage_layers[static_cast<std::size_t>(position)];
    for (const Stage stage : own) fewest = std::min(fewest, plan.stage_layers[stage.index()]);
    std::int32_t in_flight = 1;
    if (known) in_flight = *peak_activations(plan.schedule, position, p, m, chunks);
    const std::int64_t states =
        state_bytes(profile, plan, parameters_of(row_units(model, plan, own, stages)));
    std::int64_t alive = per_layer * fewest * in_flight;
    if (own.back().value == stages - 1) {
      const std::int32_t at_loss = std::min(in_flight, (chunks - 1) * std::min(m, p) + 1);
      alive = std::max(alive, per_layer * fewest * (known ? at_loss : 1) + head.peak);
    }
    bound = std::max(bound, states + alive);
  }
  return bound;
}

}  // namespace rehearse::sim
