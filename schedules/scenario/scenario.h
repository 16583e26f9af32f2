// SPDX-License-Identifier: Apache-2.0
// A scenario as read: model, plan, train options, and where the cluster is (sim opens it).
// The reader checks everything that docs/scenario.md's table of plan keys says, and fills in every
// default.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "schedules/base/key_use.h"
#include "schedules/base/result.h"
#include "schedules/model/model.h"
#include "schedules/scenario/plan.h"
#include "schedules/scenario/variation.h"

namespace rehearse {

struct PlanRow;  // keys/plan_rows.h

// The cluster of a scenario: a file, or the text of an inline object with where it stands.
struct ClusterSource {
  std::string path;                // resolved file; the scenario's own file where inline
  std::string inline_json;         // empty: read `path`
  std::int32_t line = 0;           // first line of the inline object
  std::int32_t gpus_per_node = 0;  // used; read ahead: defaults of `gpus` need it
  std::int32_t domain_gpus = 0;    // used of each node's; 0: all
};

struct Scenario {
  std::string path, name;
  Transformer model;
  Plan plan;
  TrainOptions train;
  ClusterSource cluster;
  // That the file names, where --cluster has another take its place: it orders a run all the same
  // (sim/predict/order_prices.h).
  std::optional<ClusterSource> file_cluster;
  Variation variation;  // of the predicted GPUs
  std::int32_t gpus = 1;
  std::vector<std::string> given;     // keys of the plan that the file, or the command, says
  std::vector<std::string> warnings;  // one line each: nothing is wrong, but should be said
  // What of model file and plan `run` refuses and everything else prices (config_keys.h,
  // plan_use.h), and what of the model file nobody knows.
  std::vector<Unperformed> unperformed;
  std::vector<std::string> model_notes;
  std::vector<std::string> run_notes;  // of the plan, what `run` does otherwise
  // Says which default a key of the plan was given, where another key decides about it.
  std::vector<std::string> plan_notes;
  // For the report of a prediction: what was priced instead of what the files say, plan_notes and
  // model_notes.
  std::vector<std::string> notes() const;
};

struct ScenarioOptions {
  std::vector<std::string> overrides;  // --set KEY=VALUE, VALUE is JSON or else a string
  std::optional<std::string> cluster;  // --cluster FILE
  std::optional<std::int32_t> gpus;    // --gpus N
  // Default of the command; the file's key wins. None: as the file says without `overrides`.
  std::optional<std::string> runtime;
  // `schedule` and `check` can do without: then model.layers is 0 and what needs a model (sequence
  // length, layers per stage, padded vocabulary) is left at 0; cluster.path is empty.
  bool needs_model = true, needs_cluster = true;
};

// Errors: one line, "FILE:LINE: KEY.PATH: what is wrong". Paths in the file are absolute, relative
// to the file, then to the shipped scenarios/ (shipped_directory()).
Result<Scenario> read_scenario(const std::string& path, const ScenarioOptions& options);
// The same from text (a validation case, an inline scenario); `path` and `line` name its origin.
Result<Scenario> parse_scenario(std::string_view text, const std::string& path, std::int32_t line,
                                const ScenarioOptions& options);
// The plan as JSON text, every key, defaults filled in (report key `plan`; --save of search).
std::string plan_json(const Plan& plan, int indent);
std::string plan_json(const Plan& plan, int indent, std::span<const PlanRow> rows);

// What plan.bucket_bytes is where it is left out; 0: one bucket per position.
std::int64_t default_bucket_bytes(const Plan& plan);

// Micro-batch candidates of `auto`: divisors of global_batch / data_parallel, ascending.
std::vector<std::int32_t> micro_batch_candidates(const Plan& plan);

}  // namespace rehearse
