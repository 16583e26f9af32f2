// SPDX-License-Identifier: Apache-2.0
#include "sim/search/search.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <map>
#include <mutex>
#include <span>
#include <tuple>
#include <utility>

#include "schedules/scenario/plan_shape.h"
#include "sim/band/difference_band.h"
#include "sim/search/balanced_stages.h"
#include "sim/search/equal_plans.h"
#include "sim/search/estimate/search_estimate.h"
#include "sim/search/estimate/search_live.h"
#include "sim/search/expert_advice.h"
#include "sim/search/parallel_for.h"
#include "sim/search/sensitivities.h"

namespace rehearse::sim {
namespace {

std::string no_mesh(const Space& space) {
  const std::string fixed = fixed_sizes(space);
  if (fixed.empty()) return "no combination of the sizes gives the number of gpus";
  const std::string first = fixed.substr(0, fixed.find(' '));
  return "no combination of the sizes gives the number of gpus: " + fixed + " fixed; --set plan." +
         first + "=null leaves one open";
}

constexpr std::size_t kBatch = 16;        // candidates decided upon together
constexpr std::size_t kKeepRefused = 48;  // plans per mesh that more memory might allow
constexpr std::int64_t kMostReplays = 4000, kMostConfirmed = 240;
// Ops of the steps that are simulated one after another for the list.
constexpr double kMostConfirmedOps = 1 << 25;
constexpr std::array<double, 6> kFrontShares{0.75, 0.6, 0.45, 0.3, 0.2, 0.1};

struct Entry {
  double key = 0;  // estimated seconds per token
  std::int32_t mesh = 0;
  std::int32_t index = 0;  // into the mesh's fitting or refused
};

// What became of a candidate that was evaluated.
struct Evaluated {
  enum class State : std::uint8_t { TooLarge, Failed, Confirmed } state = State::Failed;
  bool replayed = false;
  std::int64_t even_peak = 0;  // [B] MemoryReport::even_peak_device, where it is confirmed
  FoundPlan found;
};

// What was found out of an entry before, with so much memory.
struct Looked {
  Evaluated what;
  std::int64_t limit = 0;  // [B]
};

class Searcher {
 public:
  Searcher(const Space& space, const Cluster& cluster, const SearchOptions& options)
      : space_(space), cluster_(cluster), options_(options) {}

  Result<SearchResult> run() {
    Result<SearchSetup> setup = search_setup(space_, cluster_);
    if (!setup) return setup.error();
    setup_ = std::move(setup).value();
    setup_.stop = options_.stop;
    if (options_.explain) {  // what more memory would give is asked of this much
      const std::optional<Change> memory = changed(cluster_, kMoreMemory, options_.change);
      if (memory) setup_.most_wanted = allowed_bytes(memory->cluster, options_);
    }
    result_.warnings = space_.base.warnings;
    if (const std::optional<Error> error = estimate()) return *error;
    confirm_best();
    balance_stages();
    if (options_.explain && !stopped()) explain();
    finish();
    return std::move(result_);
  }

 private:
  bool stopped() const { return options_.stop != nullptr && options_.stop->load(); }

  std::optional<Error> estimate() {
    const std::vector<MeshSize> sizes = meshes(space_);
    meshes_.resize(sizes.size());
    std::mutex mutex;
    SearchProgress progress{.meshes = static_cast<std::int32_t>(sizes.size())};
    parallel_for(sizes.size(), options_.threads, [&](std::size_t i) {
      if (stopped()) return;
      const std::size_t keep = options_.explain ? kKeepRefused : 0;
      meshes_[i] = estimate_mesh(setup_, sizes[i], pipelines_, keep);
      const std::lock_guard lock(mutex);
      progress.plans += meshes_[i].plans;
      ++progress.meshes_done;
      if (options_.progress) options_.progress(progress);
    });
    std::optional<Error> refused;
    std::int64_t too_long = 0;
    for (std::size_t m = 0; m < meshes_.size(); ++m) {
      const MeshCandidates& mesh = meshes_[m];
      result_.plans += mesh.plans;
      too_long += mesh.too_long;
      result_.possible += static_cast<std::int64_t>(mesh.fitting.size());
      if (!mesh.families.empty()) result_.gpus = mesh.families.front().plan.gpus();
      if (mesh.error && !refused) refused = mesh.error;
      for (std::size_t i = 0; i < mesh.fitting.size(); ++i) {
        entries_.push_back({key_of(mesh, mesh.fitting[i]), static_cast<std::int32_t>(m),
                            static_cast<std::int32_t>(i)});
      }
    }
    if (result_.plans == 0 && !stopped()) {
      const bool legal = std::ranges::any_of(
          meshes_, [](const MeshCandidates& mesh) { return !mesh.families.empty(); });
      if (refused && !legal) return refused;
      if (too_long > 0) {
        std::int64_t batch = 0;
        for (const MeshCandidates& mesh : meshes_) {
          for (const PlanFamily& family : mesh.families) batch = family.plan.global_batch;
        }
        return Error{
            space_.base.path + ": plan.global_batch: " + std::to_string(batch) +
            " samples a step make so many micro-batches that every plan has more than the " +
            most_ops() + " million ops that are searched"};
      }
      return Error{
          space_.base.path + ": plan: " +
          (legal ? "no micro_batch divides global_batch / data_parallel" : no_mesh(space_))};
    }
    if (too_long > 0) {
      result_.warnings.push_back("plan.global_batch: plans of more than " + most_ops() +
                                 " million ops a step (small micro-batches) are not searched");
    }
    std::ranges::sort(entries_, [](const Entry& a, const Entry& b) {
      return std::tie(a.key, a.mesh, a.index) < std::tie(b.key, b.mesh, b.index);
    });
    return std::nullopt;
  }

  static std::string most_ops() {
    char text[16];
    std::snprintf(text, sizeof text, "%.1f", kMostOpsOfPlan / 1e6);
    return text;
  }

  static double key_of(const MeshCandidates& mesh, const Candidate& candidate) {
    const Plan& plan = mesh.families[static_cast<std::size_t>(candidate.family)].plan;
    return candidate.seconds /
           (static_cast<double>(plan.global_batch) * static_cast<double>(plan.sequence_length));
  }

  const Candidate& candidate_at(const Entry& entry) const {
    return meshes_[static_cast<std::size_t>(entry.mesh)]
        .fitting[static_cast<std::size_t>(entry.index)];
  }
  Plan plan_at(const Entry& entry) const {
    const MeshCandidates& mesh = meshes_[static_cast<std::size_t>(entry.mesh)];
    const Candidate& c = candidate_at(entry);
    return plan_of(mesh.families[static_cast<std::size_t>(c.family)].plan, c.micro_batch,
                   c.recompute)
        .value();
  }

  Result<Prediction> predicted(const Plan& plan, const PredictOptions& how) const {
    Scenario scenario = space_.base;
    scenario.plan = plan;
    scenario.gpus = plan.gpus();
    PredictOptions numbers = how;
    numbers.lifetimes = false;
    numbers.leave_out = true;
    return predict(scenario, cluster_, numbers);
  }

  // Memory exactly, then time. `limit`: what the fullest rank may have [B].
  Evaluated evaluate(const Entry& entry, std::int64_t limit) {
    const Plan plan = plan_at(entry);
    Evaluated evaluated;
    const LiveBounds::Bound bound = live_.bound(setup_, plan, cluster_);
    evaluated.state = Evaluated::State::TooLarge;
    if (bound.bytes > limit) return evaluated;
    evaluated.replayed = true;
    evaluated.state = Evaluated::State::Failed;
    if (const Evaluated* before = known(entry, limit)) {
      if (before->state == Evaluated::State::Confirmed && before->even_peak <= limit) {
        return *before;
      }
      evaluated.state = Evaluated::State::TooLarge;
      return evaluated;
    }
    const Result<Prediction> made =
        predicted(plan, {.memory_limit = limit,
                         .need = MemoryNeed{limit, options_.survive, bound.fullest},
                         .tables = &setup_.tables});
    if (!made) return evaluated;
    if (!is_within(made.value().memory, limit, options_)) {
      evaluated.state = Evaluated::State::TooLarge;
      return evaluated;
    }
    evaluated.state = Evaluated::State::Confirmed;
    evaluated.even_peak = made.value().memory.even_peak_device;
    evaluated.found = summarize(made.value());
    evaluated.found.estimate_s = candidate_at(entry).seconds;
    return evaluated;
  }

  // Null: nothing is known that says what the plan is with this limit.
  const Evaluated* known(const Entry& entry, std::int64_t limit) const {
    const auto found = looked_.find({entry.mesh, entry.index});
    if (found == looked_.end()) return nullptr;
    const auto& [what, before] = found->second;
    if (options_.survive ? limit != before : limit > before) return nullptr;
    return &what;
  }

  static bool faster(const FoundPlan& a, const FoundPlan& b) {
    return a.seconds_per_token() < b.seconds_per_token();
  }

  // The estimate that a plan must have to come among the best `count`, by the smallest ratio of
  // confirmed to estimated time seen so far; what all seen so far share (a ZeRO stage, an order)
  // may be what was underestimated, so no ratio above 1 is taken for granted.
  double horizon(std::size_t count) const {
    if (confirmed_.size() < count) return std::numeric_limits<double>::infinity();
    std::vector<double> keys;
    double ratio = 1;
    for (const FoundPlan& found : confirmed_) {
      keys.push_back(found.seconds_per_token());
      ratio = std::min(ratio, found.step_s / found.estimate_s);
    }
    std::ranges::nth_element(keys, keys.begin() + static_cast<std::ptrdiff_t>(count) - 1);
    return keys[count - 1] / ratio;
  }

  void confirm_best() {
    const auto top = static_cast<std::size_t>(std::max(options_.top, 1));
    const std::size_t wanted = std::max<std::size_t>(3 * top, kBatch);
    std::size_t next = 0;
    if (options_.probe > 0 && !any_fits()) return;
    while (next < entries_.size()) {
      if (stopped() && !confirmed_.empty()) break;
      if (confirmed_.size() >= wanted && entries_[next].key > horizon(top)) break;
      if (static_cast<std::int64_t>(confirmed_.size()) >=
              std::max<std::int64_t>(kMostConfirmed, static_cast<std::int64_t>(wanted)) ||
          result_.replayed >= kMostReplays ||
          (confirmed_ops_ > kMostConfirmedOps && !confirmed_.empty())) {
        result_.complete = false;
        break;
      }
      next = look_at(next, std::min(next + kBatch, entries_.size()));
    }
    if (confirmed_.empty() && !stopped()) smallest(next);
  }

  std::vector<Evaluated> evaluated(std::span<const Entry> entries) {
    std::vector<Evaluated> made(entries.size());
    const std::int64_t limit = allowed_bytes(cluster_, options_);
    parallel_for(made.size(), options_.threads,
                 [&](std::size_t i) { made[i] = evaluate(entries[i], limit); });
    for (std::size_t i = 0; i < made.size(); ++i) {
      if (made[i].state == Evaluated::State::Failed || !made[i].replayed) continue;
      looked_.try_emplace({entries[i].mesh, entries[i].index}, Looked{made[i], limit});
    }
    return made;
  }
  std::size_t look_at(std::size_t begin, std::size_t end) {
    for (Evaluated& one : evaluated(std::span(entries_).subspan(begin, end - begin))) {
      take(std::move(one));
    }
    return end;
  }

  void take(Evaluated one) {
    result_.replayed += one.replayed ? 1 : 0;
    result_.too_large += one.state == Evaluated::State::TooLarge ? 1 : 0;
    if (one.state != Evaluated::State::Confirmed) return;
    ++result_.confirmed;
    confirmed_ops_ += simulated_ops(space_.base, one.found.plan);
    confirmed_.push_back(std::move(one.found));
    const auto best = std::ranges::min_element(confirmed_, faster);
    if (options_.progress) {
      options_.progress({.plans = result_.plans,
                         .confirmed = result_.confirmed,
                         .meshes_done = static_cast<std::int32_t>(meshes_.size()),
                         .meshes = static_cast<std::int32_t>(meshes_.size()),
                         .best = &*best});
    }
  }

  bool any_fits() {
    std::vector<Entry> all = entries_;
    smallest(0, static_cast<std::size_t>(options_.probe));
    entries_ = std::move(all);
    return !confirmed_.empty();
  }

  // Nothing among the fastest fits: those with the smallest bound, if any, do.
  void smallest(std::size_t from, std::size_t most = 512) {
    std::vector<Entry> rest(entries_.begin() + static_cast<std::ptrdiff_t>(from), entries_.end());
    const auto bound = [&](const Entry& entry) {
      return meshes_[static_cast<std::size_t>(entry.mesh)]
          .fitting[static_cast<std::size_t>(entry.index)]
          .bound;
    };
    std::ranges::stable_sort(rest, {}, bound);
    if (rest.size() > most) rest.resize(most);
    entries_ = std::move(rest);
    for (std::size_t next = 0; next < entries_.size() && confirmed_.empty();) {
      next = look_at(next, std::min(next + kBatch, entries_.size()));
    }
  }

  // The fastest plans once more with their layers dealt out by priced time, where layers differ.
  void balance_stages() {
    constexpr std::size_t kMostBalanced = 8;
    if (space_.says(&Plan::stage_layers) || stopped()) return;
    std::vector<FoundPlan> plans = confirmed_;
    std::ranges::stable_sort(plans, faster);
    if (plans.size() > kMostBalanced) plans.resize(kMostBalanced);
    std::vector<std::optional<FoundPlan>> balanced(plans.size());
    const std::int64_t limit = allowed_bytes(cluster_, options_);
    parallel_for(plans.size(), options_.threads, [&](std::size_t i) {
      Plan plan = plans[i].plan;
      if (!placement_of(plan).up.empty()) return;  // both directions share a stage's layers
      std::vector<std::int32_t> layers =
          balanced_stage_layers(space_.base.model, plan, cluster_, setup_.tables);
      if (layers.empty() || layers == plan.stage_layers) return;
      plan.stage_layers = std::move(layers);
      const LiveBounds::Bound bound = live_.bound(setup_, plan, cluster_);
      if (bound.bytes > limit) return;
      const Result<Prediction> made =
          predicted(plan, {.memory_limit = limit,
                           .need = MemoryNeed{limit, options_.survive, bound.fullest},
                           .tables = &setup_.tables});
      if (!made || !is_within(made.value().memory, limit, options_)) return;
      balanced[i] = summarize(made.value());
      balanced[i]->estimate_s = plans[i].estimate_s;
    });
    for (std::optional<FoundPlan>& found : balanced) {
      if (!found) continue;
      ++result_.confirmed;
      confirmed_.push_back(std::move(*found));
    }
  }

  void explain() {
    const Result<SituationReport> situation = situation_of(space_, cluster_);
    if (situation) result_.situation = situation.value();
    if (confirmed_.empty()) return;
    if (options_.front) front();
    sensitivities();
    if (space_.base.model.experts.count > 0) experts();
  }

  // The plan that is answered first: the fastest, or the simplest of those that are equal to it.
  FoundPlan recommended() const {
    std::vector<FoundPlan> plans = confirmed_;
    std::ranges::stable_sort(plans, faster);
    if (options_.merge) {
      plans = merge_equal(std::move(plans),
                          options_.merge_within.value_or(setup_.tables.errors.pair_equal));
    }
    return plans.front();
  }

  // The fastest plan whose experts' tokens cross nodes where the best's do not, or the other way:
  // of some that fit, as the estimates rank them.
  void experts() {
    // What the walk of an order refuses costs microseconds.
    constexpr std::size_t kEnough = 16, kMostReplayed = 64, kMostLooked = 50'000;
    const FoundPlan best = recommended();
    ExpertAdvice advice = expert_advice(best, cluster_);
    const auto is_other = [&](const Plan& plan) {
      return experts_cross_nodes(plan, cluster_.gpus_per_node) != advice.crosses;
    };
    std::size_t fit = 0;
    const auto take = [&](const FoundPlan& found) {
      ++fit;
      if (!advice.other || faster(found, *advice.other)) advice.other = found;
    };
    for (const FoundPlan& found : confirmed_) {
      if (is_other(found.plan)) take(found);
    }
    std::size_t replayed = 0, looked = 0;
    std::vector<Entry> batch;
    for (std::size_t i = 0; i < entries_.size() && !stopped(); ++i) {
      const MeshCandidates& mesh = meshes_[static_cast<std::size_t>(entries_[i].mesh)];
      const Candidate& c = mesh.fitting[static_cast<std::size_t>(entries_[i].index)];
      if (is_other(mesh.families[static_cast<std::size_t>(c.family)].plan)) {
        batch.push_back(entries_[i]);
      }
      if (batch.size() < kBatch && i + 1 < entries_.size()) continue;
      looked += batch.size();
      for (const Evaluated& one : evaluated(batch)) {
        replayed += one.replayed ? 1 : 0;
        if (one.state == Evaluated::State::Confirmed) take(one.found);
      }
      batch.clear();
      if (fit >= kEnough || replayed >= kMostReplayed || looked >= kMostLooked) break;
    }
    advice.has_other = fit > 0 || looked > 0;
    if (advice.crosses && !advice.other) advice.limit = ExpertLimit::Memory;
    result_.experts = std::move(advice);
  }

  // The fastest plan within each share of the memory, as the estimates rank them. Where replays
  // find a mesh's plans too large its bounds are too low, and the others' turn comes.
  void front() {
    front_ = confirmed_;
    const auto capacity = static_cast<double>(cluster_.capacity().value);
    std::vector<Evaluated> evaluated(kFrontShares.size());
    parallel_for(evaluated.size(), options_.threads, [&](std::size_t i) {
      constexpr std::int64_t kMost = 60;
      constexpr std::int32_t kMostOfMesh = 3;
      std::vector<std::int32_t> too_large(meshes_.size());
      const auto limit = static_cast<std::int64_t>(kFrontShares[i] * capacity);
      std::int64_t tried = 0;
      for (const Entry& entry : entries_) {
        const MeshCandidates& mesh = meshes_[static_cast<std::size_t>(entry.mesh)];
        const Candidate& candidate = mesh.fitting[static_cast<std::size_t>(entry.index)];
        std::int32_t& refused = too_large[static_cast<std::size_t>(entry.mesh)];
        if (candidate.bound > limit || refused == kMostOfMesh) continue;
        if (stopped() || tried >= kMost) return;
        Evaluated one = evaluate(entry, limit);
        tried += one.replayed ? 1 : 0;
        refused += one.replayed ? 1 : 0;
        if (one.state != Evaluated::State::Confirmed) continue;
        evaluated[i] = std::move(one);
        return;
      }
    });
    for (Evaluated& one : evaluated) {
      if (one.state == Evaluated::State::Confirmed) front_.push_back(std::move(one.found));
    }
    std::ranges::stable_sort(front_, [](const FoundPlan& a, const FoundPlan& b) {
      return std::pair(a.peak_device, a.seconds_per_token()) <
             std::pair(b.peak_device, b.seconds_per_token());
    });
    for (FoundPlan& plan : front_) {
      if (result_.front.empty() || faster(plan, result_.front.back())) {
        result_.front.push_back(std::move(plan));
      }
    }
  }

  // Every change re-simulates the confirmed plans; more memory also those that it lets in.
  void sensitivities() {
    const auto most_plans = static_cast<std::size_t>(std::max(options_.changed_plans, 1));
    std::vector<FoundPlan> plans = confirmed_;
    std::ranges::stable_sort(plans, faster);
    if (plans.size() > most_plans) plans.resize(most_plans);
    const double best = plans.front().seconds_per_token();
    std::vector<std::pair<double, Plan>> refused;  // by estimate
    for (const MeshCandidates& mesh : meshes_) {
      for (const Candidate& c : mesh.refused) {
        const double key = key_of(mesh, c);
        if (key >= best) continue;
        refused.emplace_back(key, plan_of(mesh.families[static_cast<std::size_t>(c.family)].plan,
                                          c.micro_batch, c.recompute)
                                      .value());
      }
    }
    for (const Entry& entry : entries_) {
      if (entry.key >= best || refused.size() > 4000) break;
      refused.emplace_back(entry.key, plan_at(entry));
    }
    std::ranges::stable_sort(refused, {}, &std::pair<double, Plan>::first);
    result_.sensitivities = sensitivities_of(setup_, options_, live_, plans, refused);
  }

  void finish() {
    result_.interrupted = stopped();
    std::ranges::stable_sort(confirmed_, faster);
    if (!confirmed_.empty()) result_.fastest_s = confirmed_.front().step_s;
    if (options_.merge) {
      result_.equal_within = options_.merge_within.value_or(setup_.tables.errors.pair_equal);
      result_.ordered_from = setup_.tables.errors.pair_ordered;
      confirmed_ = merge_equal(std::move(confirmed_), result_.equal_within);
    }
    tell_apart();
    if (confirmed_.size() > static_cast<std::size_t>(std::max(options_.top, 1))) {
      confirmed_.resize(static_cast<std::size_t>(std::max(options_.top, 1)));
    }
    result_.best = std::move(confirmed_);
    for (FoundPlan& plan : result_.best) {
      plan.launched_elsewhere = launched_elsewhere(options_.frameworks, plan.plan);
    }
  }

  // Which rows lie within the band of their difference from the first.
  void tell_apart() {
    for (std::size_t i = 1; i < std::min(confirmed_.size(), kToldApart); ++i) {
      const FoundPlan &first = confirmed_.front(), &other = confirmed_[i];
      const double apart = std::log(other.seconds_per_token() / first.seconds_per_token());
      const double band = difference_band(first.features, other.features, setup_.tables.errors);
      if (std::abs(apart) < band) result_.near.push_back({other.plan, other.step_s, band});
    }
  }

  const Space& space_;
  const Cluster& cluster_;
  const SearchOptions& options_;
  SearchSetup setup_;
  PipelineTimes pipelines_;
  LiveBounds live_;
  SearchResult result_;
  std::vector<MeshCandidates> meshes_;
  std::vector<Entry> entries_;                                      // by estimate
  std::map<std::pair<std::int32_t, std::int32_t>, Looked> looked_;  // by mesh and index
  std::vector<FoundPlan> confirmed_, front_;
  double confirmed_ops_ = 0;  // of the steps of all of these
};

}  // namespace

Result<SearchResult> search(const Space& space, const Cluster& cluster,
                            const SearchOptions& options) {
  return Searcher(space, cluster, options).run();
}

}  // namespace rehearse::sim
