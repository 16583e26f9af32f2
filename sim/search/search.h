// SPDX-License-Identifier: Apache-2.0
// Which plan is best: every legal one estimated, the best confirmed by predict(), with reasons.
//
// Memory first: a bound refuses what cannot fit, the replay decides what may. Time second: the
// estimates rank, the engines confirm in that order until what is left cannot come into the list
// (as far as the estimates have been wrong so far). Results do not depend on the number of threads:
// work is dealt in fixed batches and decided between them. Reads no clock; the caller does.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "schedules/base/result.h"
#include "sim/predict/predict.h"
#include "sim/search/space/space.h"

namespace rehearse::sim {

// A plan that another one stands for.
struct EqualPlan {
  Plan plan;
  double step_s = 0;
};

// A plan that lies nearer to the best than the band of their difference (difference_band.h).
struct NearPlan {
  Plan plan;
  double step_s = 0;
  double band = 0;  // ln
};

// What is kept of a confirmed plan's prediction: the report's figures of the same names.
struct FoundPlan {
  Plan plan;
  double estimate_s = 0;
  double step_s = 0, tokens_per_s = 0, bubble_ratio = 0, energy_j = 0, error_band = 0;
  std::optional<double> mfu, usd_per_step;
  std::int64_t peak_device = 0, capacity = 0;  // [B] of the fullest rank
  Verdict verdict = Verdict::Yes;
  BadDayCause bad_day = BadDayCause::None;  // on which a tight plan breaks
  DayLoad load;                             // of its worst day
  bool remaps = false;                      // every step empties the allocator's cache
  MemoryParts parts;                        // of the fullest rank, at its peak
  double busy_s = 0;                        // mean over ranks
  std::array<double, kNumIdleCauses> causes_s{};
  // By how much the order of a planned schedule is longer, at most, than the bound below which none
  // comes.
  std::optional<double> above_bound;
  std::vector<CommunicationRow> communication;
  double low_s = 0, high_s = 0;  // between which the truth lies, nine times in ten
  std::vector<NearCases> nearest;
  StepFeatures features;
  std::vector<EqualPlan> equal;    // that the prediction cannot tell from it (equal_plans.h)
  std::string launched_elsewhere;  // who can launch it, where its own framework cannot

  double seconds_per_token() const {
    return step_s /
           (static_cast<double>(plan.global_batch) * static_cast<double>(plan.sequence_length));
  }
};
FoundPlan summarize(const Prediction& prediction);

// The three situations of the practitioners' guides (docs/search.md).
enum class Situation : std::uint8_t {
  EverythingFits,  // a replica with all its training state on every GPU
  StateTooLarge,   // a layer with its state and work fits on a GPU, the whole does not
  LayerTooLarge,   // not even one layer's work fits
};
struct SituationReport {
  Situation situation = Situation::EverythingFits;
  bool weights_fit = true;         // the bare weights of the model on one GPU
  std::int64_t replica_bytes = 0;  // one whole replica, micro-batch 1, as predicted
  std::int64_t weights_bytes = 0, layer_bytes = 0, capacity = 0;
};

// One change of the hardware, and what the best plan then takes.
struct Sensitivity {
  std::string what;  // "GPU memory", "NIC bandwidth", ...
  double factor = 1;
  double step_s = 0;  // of the best plan under it
  Plan plan;          // which may be another one
};

// What holds the best plan of a model with experts back, and whether it pays that their tokens
// cross nodes (expert_advice.h).
enum class ExpertLimit : std::uint8_t { None, Nic, ScaleUp, Imbalance, Memory };
struct ExpertAdvice {
  ExpertLimit limit = ExpertLimit::None;
  double dispatch_s = 0;           // compute waits for tokens, mean over ranks
  double imbalance_s = 0;          // likewise for the rank with most of them
  std::int64_t state_bytes = 0;    // of experts, on the fullest rank
  bool crosses = false;            // tokens of the best plan leave their node
  bool has_other = false;          // a plan of the other kind is within the bound
  std::optional<FoundPlan> other;  // the fastest of those found that fit
};

struct SearchProgress {
  std::int64_t plans = 0, confirmed = 0;
  std::int32_t meshes_done = 0, meshes = 0;
  const FoundPlan* best = nullptr;
};

inline constexpr std::size_t kToldApart = 16;

struct SearchOptions {
  std::int32_t top = 10, threads = 1;
  bool explain = true;                 // situation and sensitivities too
  bool front = true;                   // memory against time too; REQUIRES explain
  bool merge = false;                  // plans that are equal are one row (equal_plans.h)
  std::optional<double> merge_within;  // ln; left out: what measured pairs say
  double headroom = 0;                 // share of the capacity that is kept free
  bool survive = false;                // plans alone that hold on their bad day: verdict yes
  std::vector<Framework> frameworks;   // that may be named beside a plan
  double change = 1.2;                 // factor of the sensitivities
  std::int32_t changed_plans = 8;      // of the fastest, that each change is tried on
  // Looks first at so many plans of the least memory, and ends where none of them fits; 0: no.
  std::int32_t probe = 0;
  const std::atomic<bool>* stop = nullptr;  // set: end early with what there is
  // Called between batches by one thread at a time; may be empty.
  std::function<void(const SearchProgress&)> progress;
};

struct SearchResult {
  std::int32_t gpus = 1;
  std::int64_t plans = 0;     // legal ones considered
  std::int64_t possible = 0;  // of them not refused by the memory bound
  std::int64_t replayed = 0, too_large = 0, confirmed = 0;  // of those: looked at exactly
  bool interrupted = false;
  bool complete = true;     // false: a limit of work ended it before the estimates did
  double fastest_s = 0;     // step of the fastest plan, which need not be the one that a row shows
  double ordered_from = 0;  // ln: so far apart, nine pairs in ten are in order
  double equal_within = 0;  // ln: what tells two plans apart, where they were merged
  std::vector<std::string> left_out;  // schedules that no released framework runs; of the caller
  std::vector<FoundPlan> best;        // by time per token, at most `top`
  // The rows behind the first that the prediction does not tell from it: among the fastest
  // kToldApart, by time.
  std::vector<NearPlan> near;
  std::vector<FoundPlan> front;  // memory against time: each faster than all smaller ones
  std::optional<SituationReport> situation;  // where it was asked for, and a replica is legal
  std::vector<Sensitivity> sensitivities;    // best first
  std::optional<ExpertAdvice> experts;       // of a model that has some
  std::vector<std::string> warnings;
};

// Errors: nothing legal in the space (the reader's words). A space in which nothing fits is a
// result without plans.
Result<SearchResult> search(const Space& space, const Cluster& cluster,
                            const SearchOptions& options);

// Which of the situations a model is in on this cluster, and why (search_why.cc).
Result<SituationReport> situation_of(const Space& space, const Cluster& cluster);
// The cluster with one thing changed; `what` counts up from 0, empty at the end.
struct Change {
  std::string what;
  Cluster cluster;
  double scale_up = 1;  // for PredictOptions
};
inline constexpr std::int32_t kMoreMemory = 0;
std::optional<Change> changed(const Cluster& cluster, std::int32_t what, double factor);

}  // namespace rehearse::sim
