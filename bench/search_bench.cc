// How fast a search is: plans decided and estimated per second and core, schedules simulated per
// second and core, and the whole default space of GPT-3 175B on 4,096 A100s.
//
//   build/release/bin/search_bench      (from the project's root; CPU seconds of one thread)
#include <malloc.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <thread>

#include "schedules/passes/lower.h"
#include "schedules/registry.h"
#include "sim/predict.h"
#include "sim/program.h"
#include "sim/search.h"
#include "sim/search_estimate.h"
#include "sim/sweep.h"

namespace {

using namespace rehearse;
using namespace rehearse::sim;

// Of this process, so that a busy machine does not count.
double cpu_seconds() {
  return static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
}

constexpr const char* kSpace = R"({
  "name": "GPT-3 175B on 4,096 A100s", "model": "gpt3-175b", "cluster": "dgx-a100-80gb",
  "gpus": 4096, "plan": {"global_batch": 1536, "sequence_length": 2048, "flash_attention": false,
  "overlap": {"gradient_reduce": true, "parameter_gather": true}}})";

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

void schedules_at_8_64(const Space& space, const Cluster& cluster) {
  for (const char* name : {"1f1b", "interleaved_1f1b", "zb_h1"}) {
    Scenario scenario = space.base;
    ScenarioOptions options;
    const std::string text = std::string(R"({"model": "gpt3-175b", "cluster": "dgx-a100-80gb",
        "gpus": 64, "plan": {"tensor_parallel": 8, "pipeline_parallel": 8, "micro_batch": 1,
        "global_batch": 64, "sequence_parallel": true, "recompute": "full", "schedule": ")") +
                             name + "\"}}";
    scenario = parse_scenario(text, "bench", 1, options).value();
    const Plan& plan = scenario.plan;
    const Prediction made = predict(scenario, cluster).value();
    const std::string label = std::string(name) + " p=8 m=64";
    rate((label + ", predict() whole").c_str(), [&] { (void)predict(scenario, cluster); });
    rate((label + ", memory replay").c_str(), [&] {
      (void)predict_memory(scenario.model, plan, cluster, order_of(scenario.model, plan).value());
    });
    const Program program = compile(made.schedule);
    NodeTimes times = bind(program, made.pricing.table);
    std::vector<Nanoseconds> start(times.time.size()), end(times.time.size());
    rate((label + ", costs rebound and swept").c_str(), [&] {
      rebind(program, made.pricing.table, times);
      (void)sweep(program, times, start, end);
    });
    rate((label + ", order generated, lowered, compiled and swept").c_str(), [&] {
      const Schedule order = order_of(scenario.model, plan).value();
      const Schedule lowered = lower(order, scenario.model, plan, {.plan_arena = false}).value();
      const Program fresh = compile(lowered);
      (void)sweep(fresh, made.pricing.table);
    });
  }
}

void whole_space(const Space& space, const Cluster& cluster) {
  const double begin = cpu_seconds();
  const auto wall = std::chrono::steady_clock::now();
  const SearchResult found = search(space, cluster, {.threads = 2}).value();
  std::printf(
      "whole default space with reasons, 2 threads: %.1f s (%.1f CPU s), %lld plans, "
      "%lld simulated, best %.3f s\n",
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
  return 0;
}
