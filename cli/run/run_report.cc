// SPDX-License-Identifier: Apache-2.0
#include "cli/run/run_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "cli/run/exchange_report.h"
#include "cli/run/straggler_report.h"
#include "cli/trace/step_trace.h"
#include "exec/run/machine_memory.h"
#include "schedules/base/counted.h"
#include "schedules/base/json_document.h"
#include "schedules/ranks/unfold.h"
#include "schedules/scenario/layout.h"
#include "sim/report/order_taken.h"
#include "sim/report/rank_words.h"
#include "sim/report/report.h"
#include "sim/report/zero_order.h"
#include "viz/analysis/analysis.h"

namespace rehearse::cli {
namespace {

using exec::bytes_text, exec::Measurement;

// [B] of a rank of the row on drives.
std::int64_t nvme_bytes(const Measurement& m, std::size_t row) {
  const std::vector<Bytes>& drives = m.schedule->nvme_bytes;
  return drives.empty() ? 0 : drives[row].value;
}

viz::Summary summary_of(const Trace& trace) {
  const viz::TraceIndex index(trace);
  return viz::summarize(index, trace.begin.value, trace.end.value, 0, trace.num_rows());
}

// "this machine's CPU (avx2, 4 processes of 1 thread)", "an NVIDIA H100 (CUDA 13.0, ...)".
std::string machine_text(const Measurement& m) {
  if (m.backend == "cuda") return m.device;
  return fmt::format("this machine's CPU ({}, {}{})", m.device,
                     m.processes > 1 ? fmt::format("{} processes of ", m.processes) : std::string(),
                     counted(m.workers, "thread"));
}

// What makes times and bubbles those of this machine instead of the schedule's.
std::string sharing_text(const Measurement& m) {
  const int computing = std::min(m.cores, m.workers * m.processes);
  return fmt::format("{} ranks take turns on {}", m.scenario->plan.gpus(),
                     counted(computing, m.cores <= m.workers * m.processes ? "core" : "thread"));
}

std::string sharing_note(const Measurement& m) {
  return sharing_text(m) +
         ": a rank that waits for one is idle, so step time and bubbles are this "
         "machine's and not those of as many devices";
}

// Layers with experts.
std::vector<std::int32_t> expert_layers(const Transformer& model) {
  std::vector<std::int32_t> layers;
  for (std::int32_t layer = 0; layer < model.layers; ++layer) {
    if (model.has_experts(layer)) layers.push_back(layer);
  }
  return layers;
}

void add_expert_rows(const Measurement& m, Trace& trace) {
  const Experts& experts = m.scenario->model.experts;
  std::vector<std::int32_t> layers = expert_layers(m.scenario->model), steps;
  if (layers.empty()) return;
  std::vector<std::int64_t> rows;
  for (const exec::StepReport& step : m.steps) {
    steps.push_back(static_cast<std::int32_t>(step.step));
    for (const std::int32_t layer : layers) {
      const auto first = step.expert_rows.begin() + layer * experts.count;
      rows.insert(rows.end(), first, first + experts.count);
    }
  }
  trace.expert_shape = std::vector<std::int32_t>{static_cast<std::int32_t>(experts.count),
                                                 m.scenario->plan.expert_parallel};
  trace.expert_layers = std::move(layers);
  trace.expert_steps = std::move(steps);
  trace.expert_rows = std::move(rows);
}

// About the last step. With all experts on every rank no rank waits: the experts are what is
// uneven.
std::string imbalance_text(const Measurement& m) {
  const Transformer& model = m.scenario->model;
  const std::int64_t experts = model.experts.count, ranks = m.scenario->plan.expert_parallel;
  const bool spread = ranks > 1;
  const std::vector<std::int32_t> layers = expert_layers(model);
  if (layers.empty()) return {};
  double sum = 0, most = 0;
  std::int32_t worst = 0;
  for (const std::int32_t layer : layers) {
    const auto rows =
        std::span(m.steps.back().expert_rows)
            .subspan(static_cast<std::size_t>(layer * experts), static_cast<std::size_t>(experts));
    const double factor = busiest_over_mean(rows, spread ? ranks : experts);
    sum += factor;
    if (factor > most) worst = layer;
    most = std::max(most, factor);
  }
  return fmt::format(
      "experts: in the last step the busiest {} had {:.2f} times the mean's tokens, mean of {}; "
      "the most, {:.2f}, in layer {}\n",
      spread ? fmt::format("of {} ranks", ranks) : fmt::format("of {} experts", experts),
      sum / static_cast<double>(layers.size()), counted(std::ssize(layers), "layer"), most, worst);
}

}  // namespace

Trace measured_trace(const Measurement& m) {
  std::string caption = "measured on " + machine_text(m);
  if (m.ranks_per_core() > 1) caption += "; " + sharing_text(m);
  Trace trace = step_trace(*m.scenario, *m.schedule, m.start, m.end, std::move(caption));
  trace.resident_bytes =
      std::vector<std::int64_t>{m.resident ? m.resident->total() : 0, m.peak_measured()};
  add_expert_rows(m, trace);
  return trace;
}

std::string measurement_json(const Measurement& m, const Trace& trace, const PriceOps& order_by) {
  const Scenario& scenario = *m.scenario;
  const Plan& plan = scenario.plan;
  const double step = m.step_seconds();
  const auto ranks = static_cast<double>(plan.gpus());
  const auto tokens = static_cast<double>(plan.global_batch * plan.sequence_length);
  const double model =
      step_flops(Layout(scenario.model, plan), FlopsConvention::Megatron) / (ranks * step) * 1e-12;
  Json json = {{"schema", "rehearse.measurement/1"},
               {"name", scenario.name},
               {"device", m.backend == "cuda" ? m.device : "cpu"},
               {"backend", m.backend},
               {"instruction_set", m.backend == "cpu" ? Json(m.device) : Json(nullptr)},
               {"processes", m.processes},
               {"threads", m.workers},
               {"cores", m.backend == "cpu" ? Json(m.cores) : Json(nullptr)},
               {"ranks_per_core", m.ranks_per_core()},
               {"gpus", plan.gpus()},
               {"parameters", total_parameters(scenario.model)},
               {"microbatches", plan.microbatches()},
               {"steps", m.steps.size()},
               {"first_step", m.steps.front().step},
               {"step_time_s", step},
               {"tokens_per_s", tokens / step},
               {"tokens_per_s_per_gpu", tokens / step / ranks},
               {"model_tflops_per_gpu", model},
               {"hardware_tflops_per_gpu", plan.recompute.any() ? Json(nullptr) : Json(model)},
               {"mfu", nullptr},
               {"hfu", nullptr},
               {"flops_convention", "megatron"}};
  const viz::Summary sum = summary_of(trace);
  json["bubble_ratio"] = sum.bubble_ratio();
  json["bubble_overhead"] = static_cast<double>(sum.idle()) / static_cast<double>(sum.busy());
  json["idle_ns"] = sum.idle();
  Json seconds = Json::object(), nanoseconds = Json::object();
  for (std::size_t c = 0; c < kNumIdleCauses; ++c) {
    if (!reports_cause(c, sum.causes[c] != 0)) continue;
    const std::string name(kIdleCauseNames[c]);
    seconds[name] = static_cast<double>(sum.causes[c]) * 1e-9 / ranks;
    nanoseconds[name] = sum.causes[c];
  }
  json["bubble_causes_s"] = std::move(seconds);
  json["bubble_causes_ns"] = std::move(nanoseconds);
  json["stragglers"] = stragglers_json(trace);
  json["peak_planned_bytes"] = m.peak_planned();
  json["peak_measured_bytes"] = m.peak_measured() > 0 ? Json(m.peak_measured()) : Json(nullptr);
  Json rows = Json::array();
  std::int64_t arena = 0;
  std::vector<std::vector<std::int32_t>> ranks_of(m.counted.size());
  const std::vector<RankClass> row_of_rank = rows_of_ranks(plan, *m.schedule);
  for (std::size_t rank = 0; rank < row_of_rank.size(); ++rank)
    ranks_of[row_of_rank[rank].index()].push_back(static_cast<std::int32_t>(rank));
  for (std::size_t r = 0; r < m.counted.size(); ++r) {
    arena = std::max(arena, m.schedule->arena_bytes[r].value);
    rows.push_back({{"ranks", ranks_of[r]},
                    {"peak_allocated_bytes", m.counted[r]},
                    {"peak_planned_bytes", m.schedule->live_peak_bytes[r].value},
                    {"peak_reserved_bytes", m.schedule->arena_bytes[r].value},
                    {"host_bytes", m.schedule->host_bytes[r].value},
                    {"nvme_bytes", nvme_bytes(m, r)}});
  }
  json["memory"] = {{"runtime", "rehearse"},        {"fits", true},
                    {"capacity_bytes", nullptr},    {"peak_allocated_bytes", m.peak_counted()},
                    {"peak_reserved_bytes", arena}, {"peak_device_bytes", arena},
                    {"ranks", std::move(rows)}};
  const std::string note = sim::zero_order_note(scenario.model, plan, *m.schedule, order_by);
  json["memory"]["note"] = note.empty() ? Json(nullptr) : Json(note);
  if (m.resident) {
    json["memory"]["arenas_bytes"] = m.resident->arenas;
    Json outside = Json::object();
    for (const ResidentPlan::Item& item : m.resident->outside) outside[item.key] = item.bytes;
    json["memory"]["outside_arenas"] = std::move(outside);
    json["memory"]["planned_resident_bytes"] = m.resident->total();
  }
  Json processes = Json::array();
  for (const exec::ProcessMemory& one : m.memory) {
    processes.push_back(
        {{"peak_bytes", one.peak}, {"files_bytes", one.files}, {"shared_bytes", one.shared}});
  }
  json["memory"]["processes"] = std::move(processes);
  if (m.gpu) {  // by cudaMemGetInfo, by the executor's own count, NCCL's, graphs, the rest: the
                // context
    const exec::GraphFacts& graphs = m.gpu->graphs;
    json["memory"]["gpu"] = {
        {"taken_bytes", m.gpu->memory_bytes - m.gpu->free_bytes},
        {"held_bytes", m.gpu->memory_bytes - m.gpu->free_bytes - m.gpu->context_bytes -
                           m.gpu->communicators_bytes - graphs.bytes},
        {"communicators_bytes", m.gpu->communicators_bytes},
        {"context_bytes", m.gpu->context_bytes},
        {"graphs",
         {{"count", graphs.count},
          {"nodes", graphs.nodes},
          {"bytes", graphs.bytes},
          {"instantiate_s", static_cast<double>(graphs.nanoseconds) / 1e9}}}};
  }
  Json losses = Json::array(), norms = Json::array(), times = Json::array(), rates = Json::array();
  Json scales = Json::array();
  std::int64_t skipped = 0;
  for (const exec::StepReport& one : m.steps) {
    losses.push_back(one.loss);
    norms.push_back(one.grad_norm);
    if (one.loss_scale > 0) scales.push_back(one.loss_scale);
    skipped += one.skipped ? 1 : 0;
    times.push_back(one.seconds);
    rates.push_back(one.learning_rate);
  }
  json["losses"] = std::move(losses);
  json["grad_norms"] = std::move(norms);
  json["learning_rates"] = std::move(rates);
  if (!scales.empty()) {
    json["loss_scales"] = std::move(scales);
    json["skipped_steps"] = skipped;
  }
  json["step_times_s"] = std::move(times);
  Json notes = Json::array();
  if (m.ranks_per_core() > 1) notes.push_back(sharing_note(m));
  for (const auto* lines :
       {&m.scenario->warnings, &m.scenario->run_notes, &m.scenario->model_notes}) {
    for (const std::string& line : *lines) notes.push_back(line);
  }
  json["notes"] = std::move(notes);
  if (!m.steps.back().expert_rows.empty()) {
    json["expert_imbalance"] =
        exec::expert_imbalance({scenario.model, plan}, m.steps.back().expert_rows);
  }
  json["collectives"] = collectives_json(m.collectives);
  if (!m.exchanges.empty()) json["exchanges"] = exchanges_json(m.exchanges);
  json["schedule_hash"] = content_hash(*m.schedule);
  if (!plan.order.empty()) json["order"] = sim::order_json(plan, {});
  json["plan"] = Json::parse(plan_json(plan, 0));
  return json.dump(2) + "\n";
}

namespace {

// What a run in fp16 adds: its scale at the end, and the steps that had no update.
std::string loss_scale_text(const Measurement& m) {
  if (m.steps.back().loss_scale == 0) return {};
  std::string steps;
  std::int64_t count = 0;
  for (const exec::StepReport& step : m.steps) {
    if (!step.skipped) continue;
    if (++count <= 10) steps += (steps.empty() ? "" : ", ") + std::to_string(step.step + 1);
  }
  std::string text = fmt::format("loss scale {:g}", m.steps.back().next_scale.scale);
  if (count > 0)
    text += fmt::format("; gradients overflowed in {} ({}{}), which changed nothing",
                        counted(count, "step"), steps, count > 10 ? ", ..." : "");
  return text + '\n';
}

}  // namespace

std::string measurement_text(const Measurement& m, const Trace& trace, const PriceOps& order_by) {
  const Scenario& scenario = *m.scenario;
  const Plan& plan = scenario.plan;
  std::string text = fmt::format("{}\n", scenario.name.empty() ? scenario.path : scenario.name);
  text += fmt::format("  {} parameters on {} of {}, {}\n  {}\n",
                      with_commas(static_cast<double>(total_parameters(scenario.model))),
                      counted(plan.gpus(), "rank"), machine_text(m), plan.precision.name,
                      sim::step_line(plan));
  text += sim::order_line(plan, {}) + '\n';
  text += fmt::format("{:>6} {:>10} {:>10} {:>10} {:>12} {:>10}\n", "step", "loss", "grad norm",
                      "lr", "time", "tokens/s");
  const std::size_t last = m.steps.size() - 1, every = std::max<std::size_t>(1, (last + 9) / 10);
  for (std::size_t i = 0; i <= last; ++i) {
    if (i % every != 0 && i != last) continue;
    const exec::StepReport& s = m.steps[i];
    text += fmt::format("{:>6} {:>10.5f} {:>10.4f} {:>10.2e} {:>9.1f} ms {:>10.0f}\n", s.step + 1,
                        s.loss, s.grad_norm, s.learning_rate, s.seconds * 1e3, s.tokens_per_s);
  }
  text += loss_scale_text(m);
  const double step = m.step_seconds();
  text +=
      fmt::format("\nstep time {:.1f} ms ({:.0f} tokens/s), mean of {}; bubble {:.1f} %\n",
                  step * 1e3, static_cast<double>(plan.global_batch * plan.sequence_length) / step,
                  m.steps.size() > 1 ? "the steps after the first" : "one step",
                  100 * summary_of(trace).bubble_ratio());
  text += straggler_text(trace);
  text += imbalance_text(m);
  if (m.ranks_per_core() > 1) text += "note: " + sharing_note(m) + "\n";
  const bool host =
      std::ranges::any_of(m.schedule->host_bytes, [](Bytes bytes) { return bytes.value > 0; });
  const bool drives = !m.schedule->nvme_bytes.empty();
  const sim::RankWords names = sim::rank_words(*m.schedule, plan, m.counted.size());
  text += fmt::format("memory per rank\n  {:<10} {:>12} {:>12}{}{}\n", names.title, "planned",
                      "arena", host ? fmt::format(" {:>12}", "host") : "",
                      drives ? fmt::format(" {:>12}", "drives") : "");
  for (std::size_t r = 0; r < m.counted.size(); ++r) {
    text +=
        fmt::format("  {:<10} {:>12} {:>12}{}{}\n", names.words[r],
                    bytes_text(m.schedule->live_peak_bytes[r].value),
                    bytes_text(m.schedule->arena_bytes[r].value),
                    host ? fmt::format(" {:>12}", bytes_text(m.schedule->host_bytes[r].value)) : "",
                    drives ? fmt::format(" {:>12}", bytes_text(nvme_bytes(m, r))) : "");
  }
  const std::string note = sim::zero_order_note(scenario.model, plan, *m.schedule, order_by);
  if (!note.empty()) text += "  " + note + '\n';
  text += exchanges_text(m.exchanges);
  if (m.resident) text += resident_text(*m.resident, m.peak_measured());
  return text;
}

std::string metrics_line(const Layout& layout, const exec::StepReport& step,
                         std::int64_t peak_bytes) {
  Json line = {{"step", step.step},
               {"loss", step.loss},
               {"grad_norm", step.grad_norm},
               {"lr", step.learning_rate},
               {"step_time_s", step.seconds},
               {"tokens_per_s", step.tokens_per_s},
               {"peak_allocated_bytes", peak_bytes}};
  if (step.loss_scale > 0) {
    line["loss_scale"] = step.loss_scale;
    line["skipped"] = step.skipped;
  }
  if (step.expert_rows.empty()) return line.dump() + "\n";
  const auto by_layer = [&](const std::vector<std::int64_t>& counts) {
    Json layers = Json::array();
    for (std::int64_t layer = 0; layer < layout.model.layers; ++layer) {
      const auto first = counts.begin() + layer * layout.model.experts.count;
      layers.push_back(std::vector<std::int64_t>(first, first + layout.model.experts.count));
    }
    return layers;
  };
  line["expert_rows"] = by_layer(step.expert_rows);
  if (!step.expert_dropped.empty()) line["expert_dropped"] = by_layer(step.expert_dropped);
  line["expert_imbalance"] = exec::expert_imbalance(layout, step.expert_rows);
  return line.dump() + "\n";
}

std::string progress_line(const exec::StepReport& step, std::int64_t steps,
                          std::int64_t peak_bytes) {
  return fmt::format(
      "step {}/{}  loss {:.4f}  norm {:.3f}  lr {:.1e}  {:.0f} ms  {:.0f} tokens/s  {}",
      step.step + 1, steps, step.loss, step.grad_norm, step.learning_rate, step.seconds * 1e3,
      step.tokens_per_s, bytes_text(peak_bytes));
}

}  // namespace rehearse::cli
