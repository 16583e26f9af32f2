// SPDX-License-Identifier: Apache-2.0
#include "sim/search/nearest_fit.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <limits>
#include <optional>
#include <vector>

#include "schedules/passes/planned/plan_order.h"
#include "schedules/scenario/keys/plan_rows.h"
#include "schedules/scenario/memory/recompute_parts.h"
#include "sim/predict/left_out.h"
#include "sim/search/estimate/search_estimate.h"
#include "sim/search/estimate/search_live.h"
#include "sim/search/space/plan_changes.h"

namespace rehearse::sim {
namespace {

constexpr std::int32_t kMostChanges = 3;
// A further key is changed only for a step this much shorter.
constexpr double kWorthAChange = 0.9;
// What is replayed of one number of changes, and of the whole space for the least memory. Our own
// runtime's arena comes of a whole lowering, so fewer of its plans are tried.
constexpr std::int32_t kMostFitReplays = 48, kMostArenas = 8;
// The first plan that fits is predicted, and more while their steps have fewer ops in all.
constexpr std::int32_t kMostPredictions = 3;
constexpr std::int64_t kFewOps = 4000;
// Ops of all steps that are lowered for one answer: about half a second. A replay alone takes as
// long as a sixteenth of them.
constexpr std::int64_t kMostOps = 1'000'000, kReplayShare = 16;

class Finder {
 public:
  Finder(const Space& space, const Cluster& cluster, const Plan& plan, bool every_row)
      : space_(with_open_keys(space, plan)),
        cluster_(cluster),
        plan_(plan),
        runtime_said_(given_in(space.plan, &Plan::runtime) != nullptr),
        every_row_(every_row) {}

  Result<NearestPlan> run() {
    Result<SearchSetup> setup = search_setup(space_, cluster_);
    if (!setup) return setup.error();
    setup_ = std::move(setup).value();
    look();
    if (!whole_memory() && nearest_.fits) {  // another row than the one that was replayed
      every_row_ = true;
      nearest_ = {};
      found_.reset();
      ops_ = 0;
      look();
      whole_memory();
    }
    if (found_) nearest_.changes = changes_of(plan_, *found_, runtime_said_);
    return nearest_;
  }

 private:
  // A plan that the estimates let in.
  struct Choice {
    double key = 0;  // estimated step [s], or bound [B]
    std::int32_t changes = 0;
    std::size_t mesh = 0, index = 0;  // into the candidates that fit
  };

  void look() {
    estimate_changes();
    for (std::int32_t changes = 1; changes <= kMostChanges; ++changes) look_at(by_time(changes));
    if (!nearest_.fits) look_at(by_memory());
  }
  // Replays every row of what was found. False: it does not fit.
  bool whole_memory() {
    if (!found_) return false;
    const std::optional<MemoryReport> memory = memory_of(*found_);
    if (!memory) return false;
    nearest_.peak_device = memory->peak_device;
    nearest_.host = memory->host;
    return memory->fits;
  }

  void estimate(const std::function<double(const Candidate&)>& key) {
    meshes_.clear();
    choices_.clear();
    for (const MeshSize& mesh : meshes(space_)) {
      meshes_.push_back(estimate_mesh(setup_, mesh, times_, /*keep_refused=*/0));
      const MeshCandidates& made = meshes_.back();
      for (std::size_t i = 0; i < made.fitting.size(); ++i) {
        const Candidate& c = made.fitting[i];
        const Plan& family = made.families[static_cast<std::size_t>(c.family)].plan;
        choices_.push_back({.key = key(c),
                            .changes = changes_to(family, c.micro_batch, c.recompute),
                            .mesh = meshes_.size() - 1,
                            .index = i});
      }
    }
    std::ranges::stable_sort(choices_, {}, &Choice::key);
  }
  std::int32_t changes_to(const Plan& family, std::int32_t micro_batch,
                          const Recompute& recompute) const {
    return changed_family_keys(plan_, family) + (micro_batch != plan_.micro_batch) +
           (recompute != plan_.recompute);
  }
  const Plan& family_of(const Choice& choice) const {
    const MeshCandidates& mesh = meshes_[choice.mesh];
    return mesh.families[static_cast<std::size_t>(mesh.fitting[choice.index].family)].plan;
  }
  std::optional<Plan> plan_at(const Choice& choice) const {
    const Candidate& c = meshes_[choice.mesh].fitting[choice.index];
    Result<Plan> made = plan_of(family_of(choice), c.micro_batch, c.recompute);
    if (!made) return std::nullopt;
    return std::move(made).value();
  }

  // All plans with so many keys changed at most.
  void estimate_changes() {
    setup_.wanted = [this](const Plan& family, std::int32_t micro_batch,
                           const Recompute& recompute) {
      const std::int32_t changes = changes_to(family, micro_batch, recompute);
      return changes > 0 && changes <= kMostChanges;
    };
    estimate([](const Candidate& c) { return c.seconds; });
  }
  // Exactly so many keys changed, the fastest first; but last what leaves for the host, for which
  // the estimates are too low.
  std::vector<Choice> by_time(std::int32_t changes) const {
    std::vector<Choice> found;
    std::ranges::copy_if(choices_, std::back_inserter(found),
                         [&](const Choice& c) { return c.changes == changes; });
    std::stable_partition(found.begin(), found.end(),
                          [&](const Choice& c) { return family_of(c).offload == plan_.offload; });
    return found;
  }
  // Everything that saves memory without another layout, on every layout; the smallest bound first.
  std::vector<Choice> by_memory() {
    Cluster boundless = cluster_;
    boundless.gpu.usable_memory_gib = 1e9;
    setup_.cluster = &boundless;
    const bool never_full = !unfit_word(space_.base.model, Recompute::full()).empty();
    setup_.wanted = [never_full](const Plan& family, std::int32_t micro_batch,
                                 const Recompute& recompute) {
      return micro_batch == 1 && (never_full || recompute.is_full()) &&
             (family.zero_stage > 0 || family.replicas() == 1);
    };
    estimate([](const Candidate& c) { return static_cast<double>(c.bound); });
    setup_.cluster = &cluster_;
    return choices_;
  }

  // Replays them in their order, the fullest row alone. Of the first few that fit the fastest is
  // taken, if it is worth its changes; as long as none fits, the one that needs least.
  void look_at(const std::vector<Choice>& choices) {
    std::int32_t replays = plan_.runtime.performer().plans_arena ? kMostArenas : kMostFitReplays;
    std::int32_t predictions = 0;
    std::int64_t predicted_ops = 0;
    const double shorter_than =
        nearest_.fits ? kWorthAChange * nearest_.step_s : std::numeric_limits<double>::infinity();
    for (const Choice& choice : choices) {
      if (nearest_.fits && choice.key >= std::min(shorter_than, nearest_.step_s)) continue;
      const std::optional<Plan> made = plan_at(choice);
      if (!made) continue;
      const Plan& plan = *made;
      const LiveBounds::Bound bound = live_.bound(setup_, plan, cluster_);
      // One is replayed in any case, so that a least is known.
      if (found_ && bound.bytes > cluster_.capacity().value) continue;
      ops_ += ops_of(plan) / (is_lowered_for_memory(plan) ? 1 : kReplayShare);
      if (replays-- == 0 || (found_ && ops_ > kMostOps)) return;
      ++nearest_.tried;
      const std::optional<Needs> needs = needs_of(plan, bound.fullest);
      if (!needs) continue;
      if (!needs->fits) {
        keep_least(plan, *needs);
        continue;
      }
      predicted_ops += ops_of(plan);
      ops_ += ops_of(plan);
      const bool enough = predictions > 0 && predicted_ops > kFewOps;
      if (predictions == kMostPredictions || enough || (nearest_.fits && ops_ > kMostOps)) return;
      const Result<Prediction> whole = predicted(plan, /*timeline=*/true);
      if (!whole) continue;
      ++predictions;
      const double step_s = whole.value().step_s;
      if (step_s >= shorter_than || (nearest_.fits && step_s >= nearest_.step_s)) continue;
      found_ = plan;
      nearest_.step_s = step_s;
      nearest_.peak_device = needs->device;
      nearest_.host = needs->host;
      nearest_.fits = true;
    }
  }

  // Memory of a plan that was looked at: of its fullest row at least.
  struct Needs {
    std::int64_t device = 0, host = 0;  // [B]
    bool fits = true;
  };
  void keep_least(const Plan& plan, const Needs& needs) {
    if (nearest_.fits || (found_ && needs.device >= nearest_.peak_device)) return;
    found_ = plan;
    nearest_.peak_device = needs.device;
    nearest_.host = needs.host;
  }
  std::optional<Needs> needs_of(const Plan& plan, RankClass fullest) const {
    if (every_row_ || is_lowered_for_memory(plan) || !fullest) {
      const std::optional<MemoryReport> memory = memory_of(plan);
      if (!memory) return std::nullopt;
      return Needs{memory->peak_device, memory->host, memory->fits};
    }
    Plan filled = plan;
    const Result<Schedule> order = order_of(space_.base.model, filled);
    if (!order) return std::nullopt;
    const RankMemory memory = predict_row_memory(
        setup_.tables.profile(plan), {space_.base.model, filled}, cluster_, order.value(), fullest);
    return Needs{memory.peak_device, 0, memory.fits};
  }

  // Ops of a step, about.
  std::int64_t ops_of(const Plan& plan) const {
    const bool by_layer = plan.runtime.performer().plans_arena || plan.offload.activations;
    const auto parts =
        by_layer ? space_.base.model.layers : static_cast<std::int64_t>(plan.stage_layers.size());
    return 4 * parts * plan.microbatches();
  }
  bool is_lowered_for_memory(const Plan& plan) const {
    return plan.runtime.performer().plans_arena || plan.offload.any();
  }

  Result<Prediction> predicted(const Plan& plan, bool timeline) const {
    Scenario scenario = space_.base;
    scenario.plan = plan;
    scenario.gpus = plan.gpus();
    return predict(scenario, cluster_,
                   {.timeline = timeline,
                    .memory = !timeline || plan.runtime.performer().plans_arena,
                    .lifetimes = false,
                    .leave_out = true,
                    .tables = &setup_.tables});
  }
  // A framework's memory needs the order alone, unless something lies on the host.
  std::optional<MemoryReport> memory_of(const Plan& plan) const {
    if (is_lowered_for_memory(plan)) {
      Result<Prediction> made = predicted(plan, /*timeline=*/false);
      if (!made) return std::nullopt;
      return std::move(made.value().memory);
    }
    Result<MemoryReport> made =
        memory_of_plan(setup_.tables.profile(plan), space_.base.model, plan, cluster_);
    if (!made) return std::nullopt;
    return std::move(made).value();
  }

  Space space_;
  const Cluster& cluster_;
  const Plan& plan_;
  bool runtime_said_, every_row_;
  SearchSetup setup_;
  PipelineTimes times_;
  LiveBounds live_;
  NearestPlan nearest_;
  std::optional<Plan> found_;
  std::vector<MeshCandidates> meshes_;
  std::vector<Choice> choices_;  // of the meshes, by key
  std::int64_t ops_ = 0;         // lowered so far
};

}  // namespace

Result<NearestPlan> nearest_fit(const Space& space, const Cluster& cluster, const Plan& plan,
                                bool every_row) {
  return Finder(space, cluster, plan, every_row).run();
}

}  // namespace rehearse::sim
