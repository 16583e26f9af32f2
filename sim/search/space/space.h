// SPDX-License-Identifier: Apache-2.0
// The space of a search: every legal way to lay a scenario's model out on its GPUs.
//
// A scenario's plan with lists (or ranges {"min", "max"}) instead of values, or with keys left out,
// is read once; every combination then goes through the same reader as a scenario's own plan
// (schedules/scenario/reader), so that nothing is searched that `simulate` would refuse.
// Combinations that are the same step under another name are made once. No costs here.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "schedules/base/json_reader.h"
#include "schedules/base/result.h"
#include "schedules/scenario/keys/plan_rows.h"
#include "schedules/scenario/scenario.h"
#include "sim/search/space/framework.h"

namespace rehearse::sim {

// The values that one key may take, in the order in which they are tried.
struct SpaceKey {
  std::string key;
  std::vector<JsonValue> values;
};

struct Space {
  Scenario base;                 // model, cluster source, name; its plan is not used
  JsonValue plan;                // what the scenario says as single values
  std::string model_json;        // the model as a scenario says it: an absolute path, or the object
  std::vector<SpaceKey> lists;   // keys with several values, in the order of the file
  std::vector<SpaceKey> ranges;  // keys with {"min", "max"}: the two bounds
  std::string runtime = RuntimeTraits{}.name;  // of plans that name none, whatever their zero_stage
  std::vector<RuntimeTraits> runtimes;         // of every plan, read once
  std::vector<MeasuredRouting> routings;       // files that expert_routing names, likewise
  // A plan that none of them can launch is left out; empty: every plan is tried.
  std::vector<Framework> frameworks;
  // Whether it gives the key a value, or a list of them.
  bool says(const PlanField& key) const;
  std::optional<std::int32_t> gpus;  // what the scenario says; none: one node, or the given sizes
};

// Errors: one line, "FILE:LINE: KEY.PATH: what is wrong".
Result<Space> read_space(const std::string& path, const ScenarioOptions& options);
Result<Space> parse_space(std::string_view text, const std::string& path,
                          const ScenarioOptions& options);

// Where the plan leaves its schedule open and a framework performs it: what none of these can
// launch is left out. Returns the names of the schedules that none of them runs.
std::vector<std::string> keep_released(Space& space, const std::vector<Framework>& frameworks);
// Searches what one framework can launch, priced by its profile where the plan names none. Errors:
// the profile's.
Result<> use_framework(Space& space, const Framework& framework);

// Tensor x pipeline x context parallel; data parallel is what remains.
struct MeshSize {
  std::int32_t tensor = 1, pipeline = 1, context = 1;
  bool operator==(const MeshSize&) const = default;
};

// The framework runtimes whose memory a plan of the space may have.
std::vector<std::string> framework_runtimes(const Space& space);

// Everything of a plan but micro-batch and recomputation, which are legal together with any of it.
struct PlanFamily {
  Plan plan;              // resolved, micro_batch_auto
  std::int32_t kind = 0;  // families of a mesh with equal kind have equal bodies: they differ in
                          // schedule, virtual stages and ZeRO stages alone, on one side of
                          // Plan::gathers_units
};

// The sizes of the mesh that the plan fixes to one value: "tensor_parallel 2, data_parallel 8";
// empty: none. What keeps a search from using other numbers of GPUs.
std::string fixed_sizes(const Space& space);

// Every mesh that multiplies to the GPUs, ascending. Empty: nothing fits their number.
std::vector<MeshSize> meshes(const Space& space);
// The legal families of one mesh. Deterministic. `refused` gets the first reader's error, which
// says why where nothing at all is legal.
std::vector<PlanFamily> families_of(const Space& space, const MeshSize& mesh,
                                    std::optional<Error>& refused);
// What a family may take of the two free keys.
std::vector<std::int32_t> micro_batches_of(const Space& space, const Plan& family);
// Selective recomputation with fused attention recomputes nothing: not tried unless asked for.
std::vector<Recompute> recomputes_of(const Space& space, const Plan& family);

// The plan of a candidate. Error: "KEY: what is wrong" (too few micro-batches for the schedule).
Result<Plan> plan_of(const Plan& family, std::int32_t micro_batch, const Recompute& recompute);

}  // namespace rehearse::sim
