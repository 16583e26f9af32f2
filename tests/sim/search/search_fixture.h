// SPDX-License-Identifier: Apache-2.0
// Small scenarios of which a whole space is simulated in a blink.
#pragma once

#include <string>

#include "schedules/scenario/scenario.h"
#include "sim/cluster/cluster.h"
#include "sim/search/search.h"

namespace rehearse::sim {

struct SmallModel {
  int layers = 4, hidden = 512, heads = 8, vocabulary = 1024, sequence = 512;
};

inline std::string model_text(const SmallModel& m) {
  return R"({"model_type": "gpt2", "n_layer": )" + std::to_string(m.layers) + R"(, "n_embd": )" +
         std::to_string(m.hidden) + R"(, "n_head": )" + std::to_string(m.heads) +
         R"(, "vocab_size": )" + std::to_string(m.vocabulary) + R"(, "n_positions": )" +
         std::to_string(m.sequence) + "}";
}

inline std::string scenario_of(const std::string& model, const std::string& cluster, int gpus,
                               const std::string& plan) {
  return R"({"model": )" + model + R"(, "cluster": ")" + cluster + R"(", "gpus": )" +
         std::to_string(gpus) + R"(, "plan": )" + plan + "}";
}

inline Space space_of(const std::string& scenario) {
  return parse_space(scenario, "tests/small.json", {}).value();
}
inline Cluster cluster_of(const Space& space) {
  return read_cluster(space.base.cluster).value();
}

inline Scenario with_plan(const Space& space, const Plan& plan) {
  Scenario scenario = space.base;
  scenario.plan = plan;
  scenario.gpus = plan.gpus();
  return scenario;
}

// Every plan of the space.
inline std::vector<Plan> all_plans(const Space& space) {
  std::vector<Plan> plans;
  std::optional<Error> refused;
  for (const MeshSize& mesh : meshes(space)) {
    for (const PlanFamily& family : families_of(space, mesh, refused)) {
      for (const std::int32_t b : micro_batches_of(space, family.plan)) {
        for (const Recompute mode : recomputes_of(space, family.plan)) {
          Result<Plan> plan = plan_of(family.plan, b, mode);
          if (plan) plans.push_back(std::move(plan).value());
        }
      }
    }
  }
  return plans;
}

}  // namespace rehearse::sim
