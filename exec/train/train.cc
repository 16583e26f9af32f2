// SPDX-License-Identifier: Apache-2.0
#include "exec/train/train.h"

#include <algorithm>
#include <chrono>
#include <future>
#include <string>
#include <utility>

#include "exec/cpu/optimizer.h"
#include "schedules/passes/lower.h"
#include "schedules/passes/planned/plan_order.h"
#include "schedules/scenario/plan_size.h"

namespace rehearse::exec {

Result<Schedule> lower_for_run(const Transformer& model, Plan& plan, const PriceOps& order_by) {
  if (const Result<> size = check_lowered_size(model, plan); !size) return size.error();
  const Result<Schedule> order = order_of(model, plan);
  if (!order) return order.error();
  return lower(order.value(), {model, plan}, {.price = order_by});
}

std::int64_t arena_bytes(const Schedule& schedule) {
  std::int64_t sum = 0;
  for (std::size_t row = 0; row < schedule.arena_bytes.size(); ++row) {
    sum += schedule.rows[row].multiplicity *
           (schedule.arena_bytes[row] + schedule.host_bytes[row]).value;
  }
  return sum;
}

namespace {

using Clock = std::chrono::steady_clock;

double seconds_between(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

void put(Batch batch, Interpreter& process) {
  for (std::size_t r = 0; r < batch.inputs.size(); ++r) {
    process.inputs(static_cast<std::int32_t>(r)) = std::move(batch.inputs[r]);
    process.targets(static_cast<std::int32_t>(r)) = std::move(batch.targets[r]);
  }
}

}  // namespace

Batch make_batch(const Interpreter& process, const Plan& plan, const Data& data,
                 std::int64_t first) {
  const std::int64_t sequence = plan.sequence_length, samples = plan.micro_batch;
  const std::int32_t ring = plan.context_parallel, slices = plan.sequence_slices;
  const std::int64_t rows = sequence / ring / slices;     // of a sample in a slice of a rank
  const std::int64_t chunk = ring > 1 ? rows / 2 : rows;  // that follow one another
  const auto tokens = static_cast<std::size_t>(plan.microbatches() * slices * samples * rows);
  std::vector<std::int32_t> inputs(static_cast<std::size_t>(sequence)), targets = inputs;
  Batch batch;
  batch.inputs.resize(static_cast<std::size_t>(plan.replicas()));
  batch.targets.resize(batch.inputs.size());
  const auto deal = [&](std::int32_t replica, std::int64_t number, std::int64_t to) {
    if (!process.holds_replica(replica)) return;
    const auto r = static_cast<std::size_t>(replica);
    batch.inputs[r].resize(tokens);
    batch.targets[r].resize(tokens);
    std::copy_n(inputs.begin() + number * chunk, chunk, batch.inputs[r].begin() + to);
    std::copy_n(targets.begin() + number * chunk, chunk, batch.targets[r].begin() + to);
  };
  for (std::int32_t replica = 0; replica < plan.data_parallel; ++replica) {
    bool here = false;
    for (std::int32_t context = 0; context < ring; ++context) {
      here = here || process.holds_replica(replica * ring + context);
    }
    for (std::int64_t j = 0; here && j < plan.microbatches(); ++j) {
      const std::int64_t begin = first + (j * plan.data_parallel + replica) * samples;
      for (std::int64_t i = 0; i < samples; ++i) {
        data.sample(begin + i, sequence, inputs.data(), targets.data());
        for (std::int64_t slice = 0; slice < slices; ++slice) {
          const std::int64_t to = ((j * slices + slice) * samples + i) * rows;
          if (ring == 1) deal(replica, slice, to);
          const std::int64_t before = slice * 2 * ring;  // chunks of earlier slices
          for (std::int32_t context = 0; ring > 1 && context < ring; ++context) {
            deal(replica * ring + context, before + context, to);
            deal(replica * ring + context, before + 2 * ring - 1 - context, to + chunk);
          }
        }
      }
    }
  }
  return batch;
}

void load_batch(Interpreter& process, const Plan& plan, const Data& data, std::int64_t first) {
  put(make_batch(process, plan, data, first), process);
}

double expert_imbalance(const Layout& layout, std::span<const std::int64_t> expert_rows) {
  const std::int64_t experts = layout.model.experts.count, here = layout.shape.experts.per_rank;
  double sum = 0;
  std::int64_t layers = 0;
  for (std::int64_t layer = 0; layer < layout.model.layers; ++layer) {
    if (!layout.model.has_experts(layer)) continue;
    const auto rows = expert_rows.subspan(static_cast<std::size_t>(layer * experts),
                                          static_cast<std::size_t>(experts));
    sum += busiest_over_mean(rows, experts / here);
    ++layers;
  }
  return layers == 0 ? 1 : sum / static_cast<double>(layers);
}

Result<std::vector<StepReport>> train(
    Interpreter& process, const Plan& plan, const TrainOptions& options, const Data& data,
    const std::function<Result<AfterStep>(const StepReport&)>& after_step, const TrainFrom& from) {
  const auto tokens = static_cast<double>(plan.global_batch * plan.sequence_length);
  // The CPU's cores are the step's: there a batch is made when it is asked for.
  const std::launch when =
      process.local().device.asynchronous() ? std::launch::async : std::launch::deferred;
  const auto batch_of = [&](std::int64_t step) {
    return std::async(when, [&, step] {
      return make_batch(process, plan, data, from.samples + (step - from.step) * plan.global_batch);
    });
  };
  std::vector<StepReport> reports;
  Clock::time_point before = Clock::now();
  AfterStep after;
  LossScale scale = begin_loss_scale(plan, options, from.scale);
  std::future<Batch> next;
  if (from.step < options.steps) next = batch_of(from.step);
  for (std::int64_t step = from.step; after.go_on && step < options.steps; ++step) {
    put(next.get(), process);
    if (step + 1 < options.steps) next = batch_of(step + 1);
    const double rate = learning_rate(options, step - scale.skipped);
    const double scaled_by = scale.scale;
    const Result<StepResult> ran = process.run({.step = step,
                                                .skipped = scale.skipped,
                                                .learning_rate = rate,
                                                .loss_scale = scaled_by,
                                                .train = options});
    if (!ran) return ran.error();
    const StepResult& result = ran.value();
    update_loss_scale(options, result.skipped, scale);
    if (result.skipped && options.loss_scale == 0 && scaled_by <= 1) {
      return Error{.message = "diverged at step " + std::to_string(step + 1) +
                              ": gradients overflow fp16 at a loss scale of 1",
                   .infeasible = true};
    }
    const Clock::time_point now = Clock::now();
    const double seconds = seconds_between(std::exchange(before, now), now) - after.aside_s;
    reports.push_back({.step = step,
                       .loss = result.loss,
                       .grad_norm = result.grad_norm,
                       .learning_rate = rate,
                       .loss_scale = scaled_by,
                       .skipped = result.skipped,
                       .next_scale = scale,
                       .seconds = seconds,
                       .tokens_per_s = tokens / seconds,
                       .expert_rows = result.expert_rows,
                       .expert_dropped = result.expert_dropped});
    if (!after_step) continue;
    const Result<AfterStep> said = after_step(reports.back());
    if (!said) return said.error();
    after = said.value();
  }
  return reports;
}

}  // namespace rehearse::exec
