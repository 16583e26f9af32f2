// SPDX-License-Identifier: Apache-2.0
#include "sim/search/nearest_fit.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <vector>

#include "schedules/passes/plan_order.h"
#include "sim/search/plan_changes.h"
#include "sim/search/search_estimate.h"
#include "sim/search/search_live.h"

namespace rehearse::sim {
namespace {

constexpr std::int32_t kMostChanges = 3;
// A further key is changed only for a step this much shorter.
constexpr double kWorthAChange = 0.9;
// What is replayed of one number of changes, and of the whole space for the least memory. Our own
// runtime's arena comes of a whole lowering, so fewer of its plans are tried.
constexpr std::int32_t kMostReplays = 48, kMostArenas = 8;
// How many of those that fit are predicted whole, for each number of changes.
constexpr std::int32_t kMostPredictions = 3;
// Ops of all steps that are lowered for one answer: about half a second. A replay alone takes as
// long as a sixteenth of them.
constexpr std::int64_t kMostOps = 1'000'000, kReplayShare = 16;

class Finder {
 public:
  Finder(const Space& space, const Cluster& cluster, const Plan& plan)
      : space_(with_open_keys(space, plan)),
        cluster_(cluster),
        plan_(plan),
        runtime_said_(space.plan.given("runtime") != nullptr) {}

  Result<NearestPlan> run() {
    Result<SearchSetup> setup = search_setup(space_, cluster_);
    if (!setup) return setup.error();
    setup_ = std::move(setup).value();
    for (std::int32_t changes = 1; changes <= kMostChanges; ++changes) look_at(by_time(changes));
    if (!nearest_.fits) look_at(by_memory());
    if (found_) nearest_.changes = changes_of(plan_, *found_, runtime_said_);
    return nearest_;
  }

 private:
  struct Choice {
    double key = 0;  // estimated step [s], or bound [B]
    Plan plan;
  };

  template <class Wanted, class Key>
  std::vector<Choice> choices(Wanted wanted, Key key) {
    setup_.wanted = wanted;
    std::vector<Choice> found;
    for (const MeshSize& mesh : meshes(space_)) {
      const MeshCandidates candidates = estimate_mesh(setup_, mesh, times_, /*keep_refused=*/0);
      for (const Candidate& c : candidates.fitting) {
        const PlanFamily& family = candidates.families[static_cast<std::size_t>(c.family)];
        const Result<Plan> made = plan_of(family.plan, c.micro_batch, c.recompute);
        if (made) found.push_back({key(c), made.value()});
      }
    }
    std::ranges::stable_sort(found, {}, &Choice::key);
    return found;
  }
  // Exactly so many keys changed, the fastest first; but last what leaves for the host, for which
  // the estimates are too low.
  std::vector<Choice> by_time(std::int32_t changes) {
    std::vector<Choice> found = choices(
        [this, changes](const Plan& family, std::int32_t micro_batch, RecomputeMode recompute) {
          return changed_family_keys(plan_, family) + (micro_batch != plan_.micro_batch) +
                     (recompute != plan_.recompute) ==
                 changes;
        },
        [](const Candidate& c) { return c.seconds; });
    std::ranges::stable_partition(
        found, [this](const Choice& c) { return c.plan.offload == plan_.offload; });
    return found;
  }
  // Everything that saves memory without another layout, on every layout; the smallest bound first.
  std::vector<Choice> by_memory() {
    Cluster boundless = cluster_;
    boundless.gpu.usable_memory_gib = 1e9;
    setup_.cluster = &boundless;
    const auto found = choices(
        [](const Plan& family, std::int32_t micro_batch, RecomputeMode recompute) {
          return micro_batch == 1 && recompute == RecomputeMode::Full &&
                 (family.zero_stage > 0 || family.replicas() == 1);
        },
        [](const Candidate& c) { return static_cast<double>(c.bound); });
    setup_.cluster = &cluster_;
    return found;
  }

  // Replays them in their order. Of the first few that fit the fastest is taken, if it is worth its
  // changes; as long as none fits, the one that needs least.
  void look_at(const std::vector<Choice>& choices) {
    std::int32_t replays = plan_.runtime.own_executor ? kMostArenas : kMostReplays;
    std::int32_t predictions = kMostPredictions;
    const std::int64_t capacity = cluster_.capacity().value;
    double shorter_than = std::numeric_limits<double>::infinity();
    if (nearest_.fits) shorter_than = kWorthAChange * nearest_.step_s;
    for (const Choice& choice : choices) {
      if (nearest_.fits && choice.key >= shorter_than) continue;
      // One is replayed in any case, so that a least is known.
      if (found_ && live_.lower_bound(setup_, choice.plan, cluster_) > capacity) continue;
      ops_ += ops_of(choice.plan) / (is_lowered_for_memory(choice.plan) ? 1 : kReplayShare);
      if (replays-- == 0 || (found_ && ops_ > kMostOps)) return;
      ++nearest_.tried;
      const std::optional<MemoryReport> memory = memory_of(choice.plan);
      if (!memory) continue;
      if (memory->fits) {
        ops_ += ops_of(choice.plan);
        if (predictions-- == 0 || (nearest_.fits && ops_ > kMostOps)) return;
        const Result<Prediction> made = predicted(choice.plan, /*timeline=*/true);
        if (!made || made.value().step_s >= shorter_than) continue;
        shorter_than = nearest_.step_s = made.value().step_s;
      } else if (nearest_.fits || (found_ && memory->peak_device >= nearest_.peak_device)) {
        continue;
      }
      found_ = choice.plan;
      nearest_.peak_device = memory->peak_device;
      nearest_.host = memory->host;
      nearest_.fits = memory->fits;
    }
  }

  // Ops of a step, about.
  std::int64_t ops_of(const Plan& plan) const {
    const bool by_layer = plan.runtime.own_executor || plan.offload == OffloadMode::Activations;
    const auto parts =
        by_layer ? space_.base.model.layers : static_cast<std::int64_t>(plan.stage_layers.size());
    return 4 * parts * plan.microbatches();
  }
  bool is_lowered_for_memory(const Plan& plan) const {
    return plan.runtime.own_executor || plan.offload != OffloadMode::None;
  }

  Result<Prediction> predicted(const Plan& plan, bool timeline) const {
    Scenario scenario = space_.base;
    scenario.plan = plan;
    scenario.gpus = plan.gpus();
    return predict(scenario, cluster_,
                   {.timeline = timeline, .lifetimes = false, .tables = &setup_.tables});
  }
  // A framework's memory needs the order alone, unless something lies on the host.
  std::optional<MemoryReport> memory_of(const Plan& plan) const {
    if (is_lowered_for_memory(plan)) {
      Result<Prediction> made = predicted(plan, /*timeline=*/false);
      if (!made) return std::nullopt;
      return std::move(made.value().memory);
    }
    Plan filled = plan;
    const Result<Schedule> order = order_of(space_.base.model, filled);
    if (!order) return std::nullopt;
    return predict_memory(setup_.tables.profile(plan), {space_.base.model, filled}, cluster_,
                          order.value());
  }

  Space space_;
  const Cluster& cluster_;
  const Plan& plan_;
  bool runtime_said_;
  SearchSetup setup_;
  PipelineTimes times_;
  LiveBounds live_;
  NearestPlan nearest_;
  std::optional<Plan> found_;
  std::int64_t ops_ = 0;  // lowered so far
};

}  // namespace

Result<NearestPlan> nearest_fit(const Space& space, const Cluster& cluster, const Plan& plan) {
  return Finder(space, cluster, plan).run();
}

}  // namespace rehearse::sim
