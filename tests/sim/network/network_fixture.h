// SPDX-License-Identifier: Apache-2.0
// A shipped cluster with its collective model, and plans of given sizes.
#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "sim/cluster/cluster.h"
#include "sim/network/collective_model.h"
#include "sim/network/topology.h"

namespace rehearse::sim {

struct Machine {
  Cluster cluster;
  CollectiveModel model;
};

// The shipped cluster `id`; a machine without GPUs fails the test that asked for it.
inline std::unique_ptr<Machine> machine(const std::string& id) {
  auto made = std::make_unique<Machine>();
  Result<Cluster> cluster = read_cluster({.path = "scenarios/clusters/" + id + ".json"});
  EXPECT_TRUE(cluster) << (cluster ? "" : cluster.error().message);
  if (cluster) made->cluster = std::move(cluster).value();
  const Result<CollectiveTables> tables =
      read_collective_tables("scenarios/kernels/collectives.json");
  EXPECT_TRUE(tables) << (tables ? "" : tables.error().message);
  if (tables) made->model = make_collective_model(tables.value(), made->cluster);
  return made;
}

struct Sizes {
  std::int32_t t = 1, p = 1, c = 1, d = 1;
};
inline const std::vector<Axis> kDefaultOrder{Axis::Tensor, Axis::Context, Axis::Expert, Axis::Data,
                                             Axis::Pipeline};
inline const std::vector<Axis> kDataOutside{Axis::Tensor, Axis::Context, Axis::Expert,
                                            Axis::Pipeline, Axis::Data};
inline const std::vector<Axis> kPipelineInside{Axis::Pipeline, Axis::Tensor, Axis::Context,
                                               Axis::Expert, Axis::Data};
inline Plan make_plan(Sizes sizes, const std::vector<Axis>& order = kDefaultOrder) {
  Plan plan;
  plan.tensor_parallel = sizes.t;
  plan.pipeline_parallel = sizes.p;
  plan.context_parallel = sizes.c;
  plan.data_parallel = sizes.d;
  plan.rank_order = order;
  return plan;
}

inline Network make_network(const Machine& machine, const Plan& plan) {
  return Network(machine.cluster, machine.model, plan, {});
}

// The outward use of the first link of a kind; a use with no resource where there is none.
inline LinkUse use_of(const std::vector<LinkUse>& links, LinkKind kind) {
  for (const LinkUse& use : links) {
    if (use.kind == kind) return use;
  }
  return {};
}

inline nlohmann::json read_data(const std::string& name) {
  std::ifstream in("tests/data/collectives/" + name);
  return nlohmann::json::parse(in, nullptr, false);
}

}  // namespace rehearse::sim
