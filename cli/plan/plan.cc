// SPDX-License-Identifier: Apache-2.0
// rehearse plan: the shortest way from a config.json and a number of GPUs to an answer.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <thread>

#include "cli/commands.h"
#include "cli/plan/find_config.h"
#include "cli/plan/flags_on.h"
#include "cli/plan/plan_answer.h"
#include "schedules/base/files.h"
#include "schedules/base/json_document.h"
#include "schedules/base/shipped.h"
#include "schedules/model/config/hf_config.h"
#include "schedules/scenario/keys/plan_rows.h"
#include "schedules/scenario/memory/offload.h"
#include "schedules/scenario/plan_names.h"
#include "sim/search/report/saved_plan.h"
#include "sim/search/space/framework.h"

namespace rehearse::cli {
namespace {

struct PlanOptions {
  std::string config, on, framework = "megatron", save, adapter, base;
  std::vector<std::string> set;
  std::int32_t gpus = 0;
  std::int64_t sequence_length = 0, global_batch = 0;
  bool json = false;
};

// A step's tokens where nobody says: 4 M, as Llama 2 and 3 (arXiv 2307.09288, 2407.21783) and GPT-3
// of this size have; below 32 GPUs as many as keep 128 k on each.
constexpr std::int64_t kTokensOfStep = 1 << 22, kTokensOfGpu = 1 << 17;
constexpr std::int64_t kMostSequence = 8192;

// What a person leaves out, and what is said of it.
struct Batch {
  std::int64_t sequence_length = 0, global_batch = 0;
  std::vector<std::string> assumed;
};
Batch batch_of(const PlanOptions& options, const Transformer& model) {
  Batch batch{.sequence_length = options.sequence_length, .global_batch = options.global_batch};
  if (batch.sequence_length == 0) {
    const std::int64_t longest = model.max_positions > 0 ? model.max_positions : kMostSequence;
    batch.sequence_length = std::min(longest, kMostSequence);
    batch.assumed.push_back(
        fmt::format("sequences of {} tokens (--sequence-length)", batch.sequence_length));
  }
  if (batch.global_batch == 0) {
    const std::int64_t tokens = std::min(kTokensOfStep, kTokensOfGpu * options.gpus);
    const std::int64_t each =
        std::max<std::int64_t>(1, tokens / batch.sequence_length / options.gpus);
    batch.global_batch = each * options.gpus;
    batch.assumed.push_back(
        fmt::format("{} of them per step, {:.1f} M tokens (--global-batch)", batch.global_batch,
                    static_cast<double>(batch.global_batch * batch.sequence_length) * 1e-6));
  }
  return batch;
}

constexpr double kHeadroom = 0.05;  // share of the capacity that is kept free, as search does
// ln: of plans so near to the fastest the simplest is recommended.
constexpr double kAlike = 0.01;

// What the framework can launch, priced by its profile; any other name is a profile's.
Result<> narrow(sim::Space& space, const std::string& named) {
  const Result<std::vector<sim::Framework>> frameworks = sim::shipped_frameworks();
  if (!frameworks) return frameworks.error();
  for (const sim::Framework& framework : frameworks.value()) {
    if (framework.name == named) return use_framework(space, framework);
  }
  keep_released(space, frameworks.value());
  return {};
}

// Whether a framework has this name; else it is a runtime profile's. Errors: it is neither.
Result<bool> is_framework(const std::string& named) {
  const Result<std::vector<sim::Framework>> frameworks = sim::shipped_frameworks();
  if (!frameworks) return frameworks.error();
  std::vector<std::string> known = shipped_names("runtimes");
  for (const sim::Framework& framework : frameworks.value()) {
    if (framework.name == named) return true;
    known.push_back(framework.name);
  }
  if (named.ends_with(".json") || std::ranges::find(known, named) != known.end()) return false;
  const std::vector<std::string_view> words(known.begin(), known.end());
  return Error{"--for " + json_excerpt(named) + ": neither a framework nor a runtime" +
               what_is_known(named, words)};
}

// A search over everything that the scenario leaves open. `probe`: as in SearchOptions; then
// nothing is explained. `survive`: plans alone that hold on their bad day.
struct Search {
  sim::Space space;
  sim::Cluster cluster;
  sim::SearchResult result;
};
Result<Search> searched(const PlanOptions& options, const std::string& model, const Batch& batch,
                        std::int32_t gpus, const Json& more, std::int32_t probe,
                        bool survive = true) {
  const auto key = [](const PlanField& field) { return std::string(key_of(field)); };
  Json plan{{key(&Plan::sequence_length), batch.sequence_length},
            {key(&Plan::global_batch), batch.global_batch}};
  const Result<bool> framework = is_framework(options.framework);
  if (!framework) return framework.error();
  if (!framework.value()) plan[key(&Plan::runtime)] = options.framework;
  plan.update(more);
  const Json scenario{{"name", stem_of(model)},
                      {"model", model},
                      {"cluster", options.on},
                      {"gpus", gpus},
                      {"plan", plan}};
  Result<sim::Space> read = sim::parse_space(scenario.dump(), "plan", {.overrides = options.set});
  if (!read) return read.error();
  sim::Space space = std::move(read).value();
  if (const Result<> narrowed = narrow(space, options.framework); !narrowed) {
    return narrowed.error();
  }
  Result<sim::Cluster> cluster = sim::read_cluster(space.base.cluster);
  if (!cluster) return cluster.error();
  if (const Result<> enough = sim::check_gpus(cluster.value(), gpus); !enough) {
    return enough.error();
  }
  // The answer names both, and what it saves says them.
  space.base.given.push_back(key(&Plan::runtime));
  space.base.given.push_back(key(&Plan::attention_kernel));
  const auto threads = std::max(1, static_cast<std::int32_t>(std::thread::hardware_concurrency()));
  Result<sim::SearchResult> result = sim::search(space, cluster.value(),
                                                 {.top = 1,
                                                  .threads = threads,
                                                  .explain = probe == 0,
                                                  .front = false,
                                                  .merge = true,
                                                  .merge_within = kAlike,
                                                  .headroom = survive ? kHeadroom : 0,
                                                  .survive = survive,
                                                  .changed_plans = 1,
                                                  .probe = probe});
  if (!result) return result.error();
  return Search{std::move(space), std::move(cluster).value(), std::move(result).value()};
}

// Plans of the least memory that are looked at before more GPUs are.
constexpr std::int32_t kProbe = 32;

// The cheapest changes first: what costs time alone, then more GPUs. Recomputation, ZeRO and other
// layouts were searched already.
// `possible`: whether some plan is within the memory bound, which knows no bad day.
std::vector<Way> ways_of(const PlanOptions& options, const std::string& model, const Batch& batch,
                         bool possible) {
  std::vector<Way> ways;
  const auto attempt = [&](const std::string& what, std::int32_t gpus, const Json& more,
                           bool survive = true) {
    Batch fitted = batch;
    fitted.global_batch = std::max<std::int64_t>(batch.global_batch, gpus);
    Result<Search> found = searched(options, model, fitted, gpus, more, kProbe, survive);
    if (!found || found.value().result.best.empty()) return false;
    ways.push_back({what, std::move(found.value().result.best.front())});
    return true;
  };
  if (possible) {
    attempt("as long as no bad day comes", options.gpus, Json::object(), /*survive=*/false);
  }
  attempt("with optimizer states in host memory", options.gpus,
          {{path_of(&Plan::offload), offload_text({.optimizer = true})}});
  for (std::int32_t times = 2; times <= 64; times *= 2) {
    const std::int32_t gpus = options.gpus * times;
    if (attempt(fmt::format("on {} GPUs", gpus), gpus, Json::object())) break;
  }
  return ways;
}

int plan(const PlanOptions& options) {
  for (const auto& [flag, value] :
       {std::pair{"--adapter", &options.adapter}, std::pair{"--base", &options.base}}) {
    if (!value->empty()) return fail(fmt::format("plan: {} is not built yet", flag));
  }
  const Result<FoundConfig> found = find_config(options.config);
  if (!found) return fail(found.error().message);
  if (!found.value().note.empty()) print_error("plan: " + found.value().note);
  const std::string model =
      std::filesystem::absolute(found.value().path).lexically_normal().string();
  const Result<ModelFile> read = read_model_file(model);
  if (!read) return fail(read.error().message);
  const Transformer& transformer = read.value().model;
  const Batch batch = batch_of(options, transformer);
  Result<Search> made = searched(options, model, batch, options.gpus, Json::object(), 0);
  if (!made) return fail(made.error().message);
  const Search& search = made.value();
  for (const std::string& warning : search.result.warnings) print_error(warning);

  const bool folder = std::filesystem::path(model).stem() == "config";
  PlanAnswer answer{.model = folder ? options.config : stem_of(model),
                    .parameters = total_parameters(transformer),
                    .cluster = search.cluster.name,
                    .gpu = search.cluster.gpu.name,
                    .gpus = options.gpus,
                    .gpus_per_node = search.cluster.gpus_per_node,
                    .assumed = batch.assumed,
                    .near = search.result.near,
                    .fastest_s = search.result.fastest_s,
                    .sensitivities = search.result.sensitivities,
                    .experts = search.result.experts,
                    .capacity = search.cluster.capacity().value,
                    .considered = search.result.plans,
                    .saved = options.save};
  if (search.result.best.empty()) {
    answer.ways = ways_of(options, model, batch, search.result.possible > 0);
    answer.saved.clear();
  } else {
    answer.best = search.result.best.front();
    Scenario scenario = search.space.base;
    scenario.plan = answer.best->plan;
    Result<std::string> flags = flags_on(search.cluster, scenario, options.framework,
                                         model_object(search.space.model_json));
    if (!flags) return fail(flags.error());
    answer.flags = std::move(flags).value();
    if (!options.save.empty()) {
      const int code =
          write_file(options.save, sim::scenario_text(search.space, *answer.best, answer.model));
      if (code != kDone) return code;
    }
  }
  print_text(options.json ? answer_json(answer) : answer_text(answer));
  return answer.best ? kDone : kNo;
}

}  // namespace

Command plan_command() {
  const auto o = std::make_shared<PlanOptions>();
  Command command{"plan", "does this model fit on these GPUs, how long is a step, laid out how"};
  command.options = {
      required({"CONFIG", &o->config,
                "a Hugging Face config.json: file, folder, a repository in the hub's cache, or a "
                "shipped model"}),
      required({"--gpus", &o->gpus, "how many", Whole{1, 1 << 17}}),
      required({"--on", &o->on, "cluster: a file, or a shipped one's name: h100"}),
      {"--sequence-length", &o->sequence_length, "tokens; left out: the model's, at most 8192"},
      {"--global-batch", &o->global_batch,
       "sequences per step; left out: 131,072 tokens a GPU, at most 4 M"},
      shows_default({"--for", &o->framework,
                     "framework: megatron, torchtitan, deepspeed, nanotron, or a runtime profile"}),
      one_each({"--set", &o->set, "fix a key of the plan: --set plan.tensor_parallel=8"}),
      {"--adapter", &o->adapter, "lora:RANK:TARGETS; not built yet"},
      {"--base", &o->base, "type of a frozen base; not built yet"},
      {"--json", &o->json, "one JSON document on stdout"},
      writes({"--save", &o->save, "write the plan as a scenario for simulate, run and view"}),
  };
  command.footer = "Example: rehearse plan llama3-8b --gpus 16 --on h100";
  command.perform = [o](const Given&) { return plan(*o); };
  return command;
}

}  // namespace rehearse::cli
