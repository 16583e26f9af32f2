// SPDX-License-Identifier: Apache-2.0
// How fast a search is: plans decided and estimated per second and core, schedules simulated per
// second and core, and the whole default spaces of GPT-3 175B on 4,096 A100s and of DeepSeek-V3 on
// 2,048 H800s.
//
//   build/release/bin/search_bench      (from the project's root; CPU seconds of one thread)
#include <malloc.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <thread>

#include "schedules/order/registry.h"
#include "schedules/passes/lower.h"
#include "schedules/passes/planned/plan_order.h"
#include "sim/engine/event_engine.h"
#include "sim/engine/program.h"
#include "sim/engine/sweep.h"
#include "sim/memory/memory_live.h"
#include "sim/memory/peak_lower_bound.h"
#include "sim/predict/predict.h"
#include "sim/search/estimate/search_estimate.h"
#include "sim/search/search.h"

namespace {

using namespace rehearse;
using namespace rehearse::sim;

// This process's time, so that a busy machine does not count.
double cpu_seconds() {
  return static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
}

constexpr const char* kSpace = R"({
  "name": "GPT-3 175B on 4,096 A100s", "model": "gpt3-175b", "cluster": "dgx-a100-80gb",
  "gpus": 4096, "plan": {"global_batch": 1536, "sequence_length": 2048, "flash_attention": false,
  "overlap": {"gradient_reduce": true, "parameter_gather": true}}})";

constexpr const char* kExperts = R"({
  "name": "DeepSeek-V3 on 2,048 H800s", "model": "deepseek-v3", "cluster": "deepseek-h800",
  "gpus": 2048, "plan": {"global_batch": 15360, "sequence_length": 4096,
  "precision": {"parameters": 2, "gradients": 4, "optimizer": 8, "compute": "fp8"}}})";

void estimates(const Space& space, const Cluster& cluster) {
  const SearchSetup setup = search_setup(space, cluster).value();
  for (const bool warm : {false, true}) {
    static PipelineTimes times;
    std::int64_t plans = 0, possible = 0;
    const double begin = cpu_seconds();
    for (const MeshSize& mesh : meshes(space)) {
      const MeshCandidates found = estimate_mesh(setup, mesh, times, 48);
      plans += found.plans;
      possible += static_cast<std::int64_t>(found.fitting.size());
    }
    const double spent = cpu_seconds() - begin;
    std::printf(
        "memory decision and time estimate%s: %lld plans (%lld possible) in %.2f CPU s: "
        "%.0f plans/s and core\n",
        warm ? ", orders known" : "", static_cast<long long>(plans),
        static_cast<long long>(possible), spent, static_cast<double>(plans) / spent);
  }
}

// The rate of `work` over at least half a CPU second.
template <class Work>
void rate(const char* what, const Work& work) {
  std::int64_t times = 0;
  const double begin = cpu_seconds();
  double spent = 0;
  while (spent < 0.5) {
    work();
    ++times;
    spent = cpu_seconds() - begin;
  }
  std::printf("%s: %.0f /s and core\n", what, static_cast<double>(times) / spent);
}

// A schedule from nothing: its order, lowered, priced, compiled, run, and what is alive on every
// position while it does. Nothing is kept from one to the next but what the hardware's files say.
struct Whole {
  const Transformer& model;
  const Plan& plan;
  const Cluster& cluster;
  const HardwareTables& tables;

  std::int64_t run(bool events) const {
    Plan ordered = plan;
    const Schedule order = order_of(model, ordered).value();
    const Layout layout(model, ordered);
    BoundTables states(&tables.profile(plan), model, cluster.gpu.compute_capability.value_or(0));
    const FamilyBound family = states.family(plan);
    const LiveBytes live(tables.profile(plan), layout, cluster.gpu.compute_capability.value_or(0));
    std::int64_t bytes = 0;
    for (const LiveRow& row : live_rows(order)) {
      bytes = std::max(bytes, states.row_bound(family, plan, row.stages, live.most(row.program)));
    }
    const Schedule lowered =
        lower(order, layout, {.plan_arena = false, .lifetimes = false}).value();
    const Network network(cluster, tables.collectives, plan, lowered.rows);
    const ComputeModel compute =
        ComputeModel::create(cluster, layout, body_collectives(network, layout), tables.scalars)
            .value();
    const Pricing pricing = price(lowered, layout, compute, network);
    const Program program = compile(lowered);
    const Timeline timeline = events ? simulate(program, pricing.table, {}).value()
                                     : sweep(program, pricing.table).value();
    return bytes + timeline.finish.value;
  }
};

void schedules_at_8_64(const Space& space, const Cluster& cluster) {
  const HardwareTables tables = read_hardware_tables(cluster, {RuntimeTraits{}.name}).value();
  for (const char* name : {"1f1b", "interleaved_1f1b", "zb_h1"}) {
    Scenario scenario = space.base;
    const std::string text = std::string(R"({"model": "gpt3-175b", "cluster": "dgx-a100-80gb",
        "gpus": 64, "plan": {"tensor_parallel": 8, "pipeline_parallel": 8, "micro_batch": 1,
        "global_batch": 64, "sequence_parallel": true, "recompute": "full", "schedule": ")") +
                             name + "\"}}";
    scenario = parse_scenario(text, "bench", 1, {}).value();
    const Plan& plan = scenario.plan;
    const Prediction made = predict(scenario, cluster, {.tables = &tables}).value();
    std::printf("%s p=8 m=64 v=%d, %d ops:\n", name, plan.virtual_stages, made.schedule.num_ops());
    const Whole whole{scenario.model, plan, cluster, tables};
    rate("  from nothing, static sweep, live bytes", [&] { (void)whole.run(false); });
    rate("  from nothing, event engine, live bytes", [&] { (void)whole.run(true); });
    rate("  allocator replayed on every position", [&] {
      Plan ordered = plan;
      const Schedule order = order_of(scenario.model, ordered).value();
      (void)predict_memory(tables.profile(plan), {scenario.model, ordered}, cluster, order);
    });
    rate("  predict(), the allocator and reasons for every idle ns with it",
         [&] { (void)predict(scenario, cluster, {.tables = &tables}); });
    const Program program = compile(made.schedule);
    NodeTimes times = bind(program, made.pricing.table);
    std::vector<Nanoseconds> start(times.time.size()), end(times.time.size());
    rate("  order known, costs rebound, static sweep", [&] {
      rebind(program, made.pricing.table, times);
      (void)sweep(program, times, start, end);
    });
  }
}

void whole_space(const Space& space, const Cluster& cluster) {
  const double begin = cpu_seconds();
  const auto wall = std::chrono::steady_clock::now();
  const SearchResult found = search(space, cluster, {.threads = 2}).value();
  std::printf(
      "%s, whole default space with reasons, 2 threads: %.1f s (%.1f CPU s), %lld plans, "
      "%lld simulated, best %.3f s\n",
      space.base.name.c_str(),
      std::chrono::duration<double>(std::chrono::steady_clock::now() - wall).count(),
      cpu_seconds() - begin, static_cast<long long>(found.plans),
      static_cast<long long>(found.confirmed), found.best.front().step_s);
}

}  // namespace

int main() {
  mallopt(M_MMAP_THRESHOLD, 1 << 30);  // as the command does
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
  const Result<Space> space = parse_space(kSpace, "bench", {});
  if (!space) {
    std::printf("%s\n", space.error().message.c_str());
    return 1;
  }
  const Cluster cluster = read_cluster(space.value().base.cluster).value();
  estimates(space.value(), cluster);
  schedules_at_8_64(space.value(), cluster);
  whole_space(space.value(), cluster);
  const Space experts = parse_space(kExperts, "bench", {}).value();
  whole_space(experts, read_cluster(experts.base.cluster).value());
  return 0;
}
