// SPDX-License-Identifier: Apache-2.0
// What the scheduler takes: steps of a small model on a backend whose products are pauses of known
// length and whose other kernels do nothing. What a step takes beyond its pauses is the scheduler.
#include <algorithm>
#include <memory>

#include "exec/backend/null_backend.h"
#include "exec/calibrate/calibrate_parts.h"
#include "exec/step/interpreter.h"
#include "exec/train/train.h"

namespace rehearse::exec {
namespace {

// Long enough that a waiting thread is asleep, as it is in a step of a real model.
constexpr double kPause = 100e-6;

class PausingKernels final : public NullKernels {
 public:
  explicit PausingKernels(double pause) : NullKernels(nullptr), pause_(pause) {}
#define KERNEL(name, parameters, arguments)
#define PRODUCT(name, parameters, arguments)    \
  void name(Lane, SPREAD parameters) override { \
    pause(SPREAD arguments);                    \
  }
#include "exec/backend/kernel_rows.inc"

 private:
  template <class... Arguments>
  void pause(const Arguments&...) const {
    for (const double end = now_s() + pause_; now_s() < end;) {
    }
  }
  double pause_;
};

class FiniteDevice final : public NullDevice {
 public:
  FiniteDevice() : NullDevice(false, nullptr) {}
  void offload(Lane, void* host, const void*, std::int64_t bytes) override {  // norms, loss
    std::fill_n(static_cast<std::byte*>(host), bytes, std::byte{0});
  }
};

struct Step {
  double seconds = 0;               // first quartile: what else runs on the machine only delays
  double pauses = 0;                // number, of one rank
  double ops = 0, collectives = 0;  // of one rank
};

// Counts of a rank of row 0.
void count(const Scenario& scenario, const Schedule& schedule, Step& step) {
  for (std::int32_t i = schedule.row_begin[0]; i < schedule.row_begin[1]; ++i) {
    const Op& op = schedule.ops[static_cast<std::size_t>(i)];
    ++step.ops;
    if (traits(op.kind).op_class == OpClass::Collective) ++step.collectives;
    if (!is_compute(op.kind)) continue;
    const auto& segments = schedule.segments[op.stage.index()];
    const std::size_t end =
        op.segment_end < 0 ? segments.size() : static_cast<std::size_t>(op.segment_end);
    for (auto g = static_cast<std::size_t>(op.segment_begin); g < end; ++g) {
      const Body body = make_body(
          {scenario.model, scenario.plan},
          {.segment = segments[g].kind,
           .direction = op.kind == OpKind::Forward ? Direction::Forward : Direction::Backward});
      for (const Node& node : body.nodes) {
        if (node.kind() == NodeKind::Gemm) ++step.pauses;
        if (node.kind() == NodeKind::AllReduce || node.kind() == NodeKind::AllGather ||
            node.kind() == NodeKind::ReduceScatter) {
          ++step.collectives;
        }
      }
    }
  }
}

std::optional<Step> step_of(const std::vector<std::string>& plan_keys, double pause, int workers,
                            int steps) {
  ScenarioOptions options{.runtime = std::string(kExecutorRuntime), .needs_cluster = false};
  for (const std::string& key : plan_keys) options.overrides.push_back("plan." + key);
  const Result<Scenario> scenario = parse_scenario(
      R"({"name": "scheduler", "model": {"model_type": "gpt2", "num_hidden_layers": 4, "hidden_size": 32,
          "num_attention_heads": 4, "vocab_size": 64, "max_position_embeddings": 16, "resid_pdrop": 0},
          "plan": {"micro_batch": 1, "sequence_length": 16, "precision": "fp32"}})",
      "calibrate", 0, options);
  if (!scenario) return std::nullopt;
  Plan plan = scenario.value().plan;
  const Result<Schedule> schedule = lower_for_run(scenario.value().model, plan);
  if (!schedule) return std::nullopt;
  Backend backend{std::make_unique<FiniteDevice>(), std::make_unique<PausingKernels>(pause)};
  const auto made = Interpreter::create({scenario.value().model, plan}, schedule.value(), backend,
                                        {.workers = workers});
  if (!made) return std::nullopt;
  std::vector<double> seconds;
  for (int i = 0; i < steps; ++i) {
    const Result<StepResult> ran = made.value()->run({.step = i, .train = scenario.value().train});
    if (!ran) return std::nullopt;
    seconds.push_back(static_cast<double>(ran.value().wall_ns) * 1e-9);
  }
  std::ranges::sort(seconds);
  Step step{.seconds = seconds[seconds.size() / 4]};
  count(scenario.value(), schedule.value(), step);
  return step;
}

}  // namespace

void measure_scheduler(Calibration& c) {
  c.progress("scheduler", 0);
  const int steps = c.sizes.scheduler_steps;
  const int workers = std::min(2, c.tables.cores);
  MachineTables& t = c.tables;
  // One rank, no pauses: ops follow each other at once.
  const auto alone = step_of({"global_batch=16"}, 0, 1, steps);
  if (alone) t.op_us = alone->seconds / alone->ops * 1e6;
  // Two ranks of a tensor-parallel group, side by side, or in turn on one core.
  const auto tensor = step_of({"global_batch=4", "tensor_parallel=2"}, kPause, workers, steps);
  if (tensor) {
    const double pauses = tensor->pauses * kPause * (workers == 1 ? 2 : 1);
    const double more = (tensor->seconds - pauses) * 1e6 - t.op_us * tensor->ops;
    t.meeting_us = std::max(0.0, more / tensor->collectives);
  }
  // Two stages and one micro-batch: F0, F1, B1, B0 one after another, two hand-overs between ranks,
  // and the vector of norms that all ranks add up.
  const auto first =
      step_of({"global_batch=1", "pipeline_parallel=2", "schedule=gpipe"}, kPause, workers, steps);
  const auto whole = step_of({"global_batch=1"}, kPause, 1, steps);
  if (first && whole) {
    constexpr double kTransfers = 4;  // SEND and RECV of an activation and of a gradient
    const double more = (first->seconds - whole->seconds) * 1e6 -
                        t.meeting_us * first->collectives - t.op_us * kTransfers;
    t.handover_us = std::max(0.0, more / 2);
  }
}

}  // namespace rehearse::exec
