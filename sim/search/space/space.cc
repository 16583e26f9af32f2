// SPDX-License-Identifier: Apache-2.0
#include "sim/search/space/space.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "schedules/order/registry.h"
#include "schedules/runtime/runtime_file.h"
#include "schedules/scenario/memory/recompute_parts.h"
#include "schedules/scenario/plan_names.h"
#include "schedules/scenario/reader/plan_reader.h"
#include "sim/search/space/space_values.h"

namespace rehearse::sim {
namespace {

// Whether the plan lists parts of layers to compute again, which then every family's does.
bool has_parts(const Space& space) {
  const JsonValue* given = given_in(space.plan, &Plan::recompute);
  return given != nullptr && given->is(JsonKind::Array);
}
std::int64_t gpus_of(const Space& space) {
  if (space.gpus) return *space.gpus;
  const JsonValue* data = given_in(space.plan, &Plan::data_parallel);
  if (data == nullptr) return space.base.cluster.gpus_per_node;
  return std::min<std::int64_t>(data->integer * said_gpus_of_a_replica(space.plan), 1 << 24);
}

// Chunks per position worth trying: those that divide the layers, or the layers with a slot each
// for embedding and head; where there are none, the smallest.
std::vector<JsonValue> usual_chunks(std::int64_t layers, std::int64_t p) {
  std::vector<JsonValue> found;
  for (std::int64_t v = 2; p * v <= layers + 2; ++v) {
    if (layers % (p * v) == 0 || (layers + 2) % (p * v) == 0) found.push_back(integer_value(v));
  }
  if (found.empty()) {
    for (std::int64_t v = 2; v <= 4 && p * v <= layers; ++v) found.push_back(integer_value(v));
  }
  return found;
}

struct ScheduleChoice {
  JsonValue name, chunks;
};

// Names that are not tried unless asked for: one stage's alone; dominated ones; planned ones, which
// take seconds each; and whatever its row says.
bool is_usual(const ScheduleInfo& info) {
  return !info.one_stage && !info.dominated && !info.planned && !info.asked_only;
}

std::vector<JsonValue> said_of_pairs(const Space& space) {
  if (const JsonValue* one = given_in(space.plan, &Plan::overlap_pair)) return {*one};
  return values_of(space, path_of(&Plan::overlap_pair), {});
}
// What pairs of its plans may hide: as the file says; else as the one framework does that is
// searched for, or whole.
std::vector<PairOverlap> pairs_of(const Space& space) {
  std::vector<PairOverlap> found;
  for (const JsonValue& word : said_of_pairs(space)) {
    found.push_back(static_cast<PairOverlap>(std::ranges::find(kPairOverlapNames, word.text) -
                                             kPairOverlapNames.begin()));
  }
  if (!found.empty()) return found;
  return {space.frameworks.size() == 1 ? space.frameworks.front().pairs : PairOverlap::Full};
}
bool is_kept(const Space& space, std::string_view schedule) {
  return space.frameworks.empty() ||
         std::ranges::any_of(space.frameworks, [&](const Framework& framework) {
           return framework.runs(std::string(schedule)) &&
                  std::ranges::any_of(pairs_of(space), [&](PairOverlap overlap) {
                    return framework.pairs_so(std::string(schedule), overlap);
                  });
         });
}
bool is_kept(const Space& space, const Plan& plan) {
  return space.frameworks.empty() ||
         std::ranges::any_of(space.frameworks,
                             [&](const Framework& framework) { return framework.launches(plan); });
}

std::vector<ScheduleChoice> schedule_choices(const Space& space, std::int64_t p) {
  const std::int64_t layers = space.base.model.layers;
  if (p == 1) return {{text_value("none"), integer_value(1)}};
  std::vector<JsonValue> names;
  for (const ScheduleInfo& info : schedule_table()) {
    if (is_usual(info) && is_kept(space, info.name)) names.push_back(text_value(info.name));
  }
  names = values_of(space, &Plan::schedule, std::move(names));
  std::vector<ScheduleChoice> choices;
  for (const JsonValue& name : names) {
    const ScheduleInfo* info = find_schedule(name.text);
    const bool waves = info != nullptr && info->chunks == ChunkRule::Waves;
    if (info == nullptr || (info->chunks != ChunkRule::Many && !waves)) {
      // The others have their own number of chunks; a scenario's is for those that take one.
      choices.push_back({name, {}});
      continue;
    }
    for (const JsonValue& v : values_of(space, &Plan::virtual_stages, usual_chunks(layers, p))) {
      if (waves && v.integer % 2 != 0) continue;  // two a wave
      choices.push_back({name, v});
    }
  }
  return choices;
}

}  // namespace

std::vector<std::string> keep_released(Space& space, const std::vector<Framework>& frameworks) {
  std::vector<std::string> left_out;
  const JsonValue* runtime = given_in(space.plan, &Plan::runtime);
  const bool own =
      runtime != nullptr && std::ranges::any_of(space.runtimes, [&](const RuntimeTraits& traits) {
        return traits.name == runtime->text && traits.own_executor;
      });
  if (own || !is_open(space, &Plan::schedule)) return left_out;
  space.frameworks = frameworks;
  for (const ScheduleInfo& info : schedule_table()) {
    if (is_usual(info) && !is_kept(space, info.name)) left_out.emplace_back(info.name);
  }
  return left_out;
}

Result<> use_framework(Space& space, const Framework& framework) {
  space.frameworks = {framework};
  if (!is_open(space, &Plan::runtime)) return {};
  Result<RuntimeTraits> runtime = read_runtime(framework.runtimes.front(), space.base.path);
  if (!runtime) return runtime.error();
  member_of(space.plan, &Plan::runtime) = text_value(runtime.value().name);
  space.base.given.emplace_back(key_of(&Plan::runtime));
  space.runtimes.push_back(std::move(runtime).value());
  return {};
}

namespace {

// A rank that is left with fewer tokens than this has shorter kernels than launches: more context
// parallelism than that is tried where it is asked for.
constexpr std::int64_t kLeastTokens = 1024;

std::vector<JsonValue> usual_contexts(const Space& space, std::int64_t ranks) {
  std::int64_t longest = 0;
  for (const JsonValue& length :
       values_of(space, &Plan::sequence_length, {integer_value(space.base.model.max_positions)})) {
    longest = std::max(longest, length.integer);
  }
  std::vector<JsonValue> found = divisors(ranks);
  std::erase_if(found, [&](const JsonValue& c) {
    return c.integer > 1 && longest < c.integer * kLeastTokens;
  });
  return found;
}

}  // namespace

std::string fixed_sizes(const Space& space) {
  std::string text;
  for (const auto key : {&Plan::tensor_parallel, &Plan::pipeline_parallel, &Plan::context_parallel,
                         &Plan::data_parallel}) {
    const JsonValue* size = given_in(space.plan, key);
    if (size == nullptr) continue;
    text +=
        (text.empty() ? "" : ", ") + std::string(key_of(key)) + " " + std::to_string(size->integer);
  }
  return text;
}

bool Space::says(const PlanField& key) const {
  return !is_open(*this, key);
}

std::vector<MeshSize> meshes(const Space& space) {
  const std::int64_t gpus = gpus_of(space);
  const std::vector<JsonValue> data = values_of(space, &Plan::data_parallel, {});
  std::vector<MeshSize> found;
  std::vector<JsonValue> widths = divisors(gpus);
  const JsonValue* grid = given_in(space.plan, &Plan::tensor_parallel_2d);
  if (grid != nullptr && grid->items.size() == 2) {
    widths = {integer_value(grid->items[0].integer * grid->items[1].integer)};
  }
  for (const JsonValue& t : values_of(space, &Plan::tensor_parallel, std::move(widths))) {
    const Transformer& model = space.base.model;
    if (gpus % t.integer != 0) continue;
    const bool cuts_heads = model.has_attention && grid == nullptr;  // columns of a grid do
    if (cuts_heads && model.heads % t.integer != 0) continue;
    for (const JsonValue& p :
         values_of(space, &Plan::pipeline_parallel, divisors(gpus / t.integer))) {
      const std::int64_t inner = t.integer * p.integer;
      if (gpus % inner != 0 || p.integer > space.base.model.layers + 2) continue;
      for (const JsonValue& c :
           values_of(space, &Plan::context_parallel, usual_contexts(space, gpus / inner))) {
        if (gpus % (inner * c.integer) != 0) continue;
        const std::int64_t d = gpus / (inner * c.integer);
        const auto is_d = [&](const JsonValue& value) { return value.integer == d; };
        if (!data.empty() && std::ranges::none_of(data, is_d)) continue;
        found.push_back({static_cast<std::int32_t>(t.integer), static_cast<std::int32_t>(p.integer),
                         static_cast<std::int32_t>(c.integer)});
      }
    }
  }
  return found;
}

namespace {

std::vector<JsonValue> expert_cuts(const MeshSize& mesh) {
  if (mesh.tensor == 1) return {JsonValue{}};
  return {integer_value(1), integer_value(mesh.tensor)};
}
// Experts that lie whole on every rank send no tokens, by whichever dispatcher.
bool sends_nothing_twice(const Space& space, const JsonValue& plan) {
  const JsonValue *ranks = given_in(plan, &Plan::expert_parallel),
                  *dispatch = given_in(plan, &Plan::expert_dispatch);
  return space.base.model.experts.count > 0 && is_open(space, &Plan::expert_dispatch) &&
         ranks != nullptr && ranks->integer == 1 && dispatch != nullptr &&
         dispatch->text != "all_to_all";
}

// Calls visit(assignment of the lists that no loop below owns), one per combination.
template <class Visit>
void each_extra(const Space& space, const MeshSize& mesh, Visit visit) {
  static const std::array kOwn{key_of(&Plan::tensor_parallel),  key_of(&Plan::pipeline_parallel),
                               key_of(&Plan::context_parallel), key_of(&Plan::data_parallel),
                               key_of(&Plan::schedule),         key_of(&Plan::virtual_stages),
                               key_of(&Plan::zero_stage),       key_of(&Plan::sequence_parallel),
                               key_of(&Plan::micro_batch),      key_of(&Plan::recompute)};
  std::vector<const SpaceKey*> extra;
  for (const SpaceKey& list : space.lists) {
    if (std::ranges::find(kOwn, list.key) == kOwn.end()) extra.push_back(&list);
  }
  // Experts on as many ranks as divide their number, whole or cut as the dense matrices are, their
  // tokens sent copy by copy or once to each rank and node (an all-gather sends more, unless more
  // experts are chosen than there are ranks); the reader refuses what a mesh cannot hold.
  const std::array experts{
      SpaceKey{std::string(key_of(&Plan::expert_parallel)),
               divisors(space.base.model.experts.count)},
      SpaceKey{std::string(key_of(&Plan::expert_tensor_parallel)), expert_cuts(mesh)},
      SpaceKey{std::string(key_of(&Plan::expert_dispatch)),
               {text_value("all_to_all"), text_value("deduplicated")}}};
  for (const SpaceKey& key : experts) {
    if (space.base.model.experts.count > 0 && is_open(space, key.key)) extra.push_back(&key);
  }
  // As the runtime does, and with heads exchanged, among all or among those of a node.
  SpaceKey context{std::string(key_of(&Plan::context_parallel_algorithm)),
                   {JsonValue{}, text_value("all_to_all")}};
  if (mesh.context > 2) context.values.push_back(text_value("a2a+p2p"));
  if (mesh.context > 1 && is_open(space, context.key)) extra.push_back(&context);
  std::vector<std::size_t> at(extra.size(), 0);
  JsonValue plan = space.plan;
  while (true) {
    for (std::size_t i = 0; i < extra.size(); ++i) {
      place_of(plan, extra[i]->key) = extra[i]->values[at[i]];
    }
    if (!sends_nothing_twice(space, plan)) visit(plan);
    std::size_t i = extra.size();
    while (i > 0 && ++at[i - 1] == extra[i - 1]->values.size()) at[--i] = 0;
    if (i == 0) return;
  }
}

}  // namespace

std::vector<PlanFamily> families_of(const Space& space, const MeshSize& mesh,
                                    std::optional<Error>& refused) {
  const std::int64_t gpus = gpus_of(space);
  const std::int64_t replicas = gpus / (std::int64_t{mesh.tensor} * mesh.pipeline);
  std::vector<JsonValue> stages;
  for (std::int64_t z = 0; z <= 3; ++z) stages.push_back(integer_value(z));
  stages = values_of(space, &Plan::zero_stage, std::move(stages));
  if (replicas == 1 && is_open(space, &Plan::zero_stage)) stages = {integer_value(0)};
  std::vector<JsonValue> sequence =
      values_of(space, &Plan::sequence_parallel, {flag_value(false), flag_value(true)});
  if (mesh.tensor == 1 && is_open(space, &Plan::sequence_parallel)) sequence = {flag_value(false)};
  const std::vector<ScheduleChoice> schedules = schedule_choices(space, mesh.pipeline);

  const bool as_framework = space.frameworks.size() == 1 && said_of_pairs(space).empty();

  std::vector<PlanFamily> found;
  std::int32_t kind = -1;
  each_extra(space, mesh, [&](JsonValue plan) {
    member_of(plan, &Plan::tensor_parallel) = integer_value(mesh.tensor);
    member_of(plan, &Plan::pipeline_parallel) = integer_value(mesh.pipeline);
    member_of(plan, &Plan::context_parallel) = integer_value(mesh.context);
    member_of(plan, &Plan::data_parallel) =
        integer_value(gpus / (std::int64_t{mesh.tensor} * mesh.pipeline * mesh.context));
    member_of(plan, &Plan::micro_batch) = {};
    if (!has_parts(space)) member_of(plan, &Plan::recompute) = {};
    for (const JsonValue& parallel : sequence) {
      member_of(plan, &Plan::sequence_parallel) = parallel;
      std::array<std::int32_t, 2> kinds{-1, -1};  // whole parameters, units of shards
      for (const JsonValue& stage : stages) {
        member_of(plan, &Plan::zero_stage) = stage;
        for (const ScheduleChoice& choice : schedules) {
          member_of(plan, &Plan::schedule) = choice.name;
          member_of(plan, &Plan::virtual_stages) = choice.chunks;
          if (as_framework) {
            const ScheduleInfo* info = find_schedule(choice.name.text);
            const bool pairs = info != nullptr && info->pairing == Pairing::Always;
            place_of(plan, path_of(&Plan::overlap_pair)) =
                pairs ? text_value(name_of(pairs_of(space).front())) : JsonValue{};
          }
          JsonReport report(space.base.path);
          std::vector<std::string> warnings;
          const PlanContext context{.model = &space.base.model,
                                    .gpus = static_cast<std::int32_t>(gpus),
                                    .gpus_per_node = space.base.cluster.gpus_per_node,
                                    .runtime = space.runtime,
                                    .runtimes = space.runtimes,
                                    .routings = space.routings};
          Plan resolved = resolve_plan(plan, context, report, warnings);
          resolved.router_balance = space.base.plan.router_balance;
          if (!report.ok()) {
            if (!refused) refused = report.error();
            continue;
          }
          if (!is_kept(space, resolved)) {
            if (!refused) {
              refused = Error{space.base.path + ": plan: " + space.frameworks.front().title +
                              " can launch none of the plans that the scenario leaves open"};
            }
            continue;
          }
          std::int32_t& own = kinds[resolved.gathers_units() ? 1 : 0];
          if (own < 0) own = ++kind;
          found.push_back({std::move(resolved), own});
        }
      }
    }
  });
  return found;
}

std::vector<std::string> framework_runtimes(const Space& space) {
  std::vector<std::string> names;
  for (const RuntimeTraits& runtime : space.runtimes) {
    if (!runtime.performer().plans_arena) names.push_back(runtime.name);
  }
  return names;
}

std::vector<std::int32_t> micro_batches_of(const Space& space, const Plan& family) {
  std::vector<std::int32_t> possible = micro_batch_candidates(family);
  if (is_open(space, &Plan::micro_batch)) {
    std::vector<JsonValue> usual;
    for (const std::int32_t b : possible) usual.push_back(integer_value(b));
    possible.clear();
    for (const JsonValue& b : values_of(space, &Plan::micro_batch, std::move(usual))) {
      possible.push_back(static_cast<std::int32_t>(b.integer));
    }
    return possible;
  }
  std::vector<std::int32_t> asked;
  for (const JsonValue& value : values_of(space, &Plan::micro_batch, {})) {
    if (value.is(JsonKind::String)) return possible;  // "auto"
    const auto b = static_cast<std::int32_t>(value.integer);
    if (std::ranges::find(possible, b) != possible.end()) asked.push_back(b);
  }
  return asked;
}

std::vector<Recompute> recomputes_of(const Space& space, const Plan& family) {
  if (has_parts(space)) return {family.recompute};
  std::vector<JsonValue> usual{text_value("none"), text_value("selective"), text_value("full")};
  if (is_fused(family.attention_kernel)) usual.erase(usual.begin() + 1);
  std::vector<Recompute> found;
  Plan plan = family;
  for (const JsonValue& value : values_of(space, &Plan::recompute, std::move(usual))) {
    plan.recompute = recompute_of(value, family);
    const bool fits = !value.is(JsonKind::Array) || unfit_parts(space.base.model, plan).empty();
    if (!unfit_word(space.base.model, plan.recompute).empty()) continue;
    if (fits) found.push_back(plan.recompute);
  }
  return found;
}

Result<Plan> plan_of(const Plan& family, std::int32_t micro_batch, const Recompute& recompute) {
  Result<Plan> chosen = choose_micro_batch(family, micro_batch);
  if (!chosen) return chosen;
  Plan plan = std::move(chosen).value();
  plan.recompute = recompute;
  return plan;
}

}  // namespace rehearse::sim
