// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "schedules/base/counted.h"
#include "schedules/passes/planned/plan_order.h"
#include "schedules/scenario/plan_line.h"
#include "schedules/scenario/plan_names.h"
#include "schedules/trace/cause_words.h"
#include "sim/report/communication_text.h"
#include "sim/report/fit_text.h"
#include "sim/report/order_taken.h"
#include "sim/report/rank_words.h"
#include "sim/report/report.h"
#include "sim/report/report_notes.h"
#include "sim/report/report_units.h"

namespace rehearse::sim {
namespace {

using report::bytes, report::seconds;

// What a share of the time rests on, after CostLevel.
constexpr std::array<std::string_view, kNumCostLevels> kLevelWords{
    "is measured", "is interpolated between measurements", "follows from formulas",
    "follows from datasheets and assumed rates"};

constexpr std::size_t kMostSources = 3;  // that are named

// Which part of the time rests on which measured table.
std::string tables_text(const Prediction& p) {
  std::string text;
  for (const auto& [file, share] : p.tables) {
    if (share < 0.005) continue;
    text += fmt::format("{}{:.0f} % {}", text.empty() ? "\nmeasured tables: " : ", ", 100 * share,
                        file);
  }
  return text;
}

std::string joules(double j) {
  if (j >= 1e9) return fmt::format("{:.1f} GJ", j * 1e-9);
  if (j >= 1e6) return fmt::format("{:.1f} MJ", j * 1e-6);
  if (j >= 1e3) return fmt::format("{:.1f} kJ", j * 1e-3);
  return fmt::format("{:.1f} J", j);
}

// How many bytes a parameter has, and why: what the sums of the literature (2 + 2 + 12 in fp16) are
// held against.
std::string bytes_of_parameter(const Prediction& p) {
  const Plan& plan = p.plan;
  const Precision& bytes = plan.precision;
  const std::int32_t gradient = gradient_bytes(plan);
  const bool own_master = bytes.parameters == 4 && bytes.optimizer == 8;
  std::string text = fmt::format(
      "  per parameter: {} bytes + {} of gradient{} + {} of optimizer", bytes.parameters, gradient,
      bytes.parameters < 4 && gradient == 4 ? " (summed in fp32)" : "", bytes.optimizer);
  if (plan.optimizer != Plan{}.optimizer) {
    text += " as AdamW; " + std::string(name_of(plan.optimizer)) + " has less";
  } else if (own_master) {
    text += plan.holds_shards() ? " (moments; the fp32 shard is the master copy)" : " (moments)";
  } else if (bytes.optimizer == 12) {
    text += " (fp32 copy 4, moments 8)";
  }
  text += '\n';
  if (p.memory.gradient_copy > 0) {
    text +=
        fmt::format("    and {} while it updates: gradients copied to fp32, counted as optimizer\n",
                    p.memory.gradient_copy);
  }
  if (plan.zero_stage > 0 && plan.shards() > 1) {
    constexpr std::array<std::string_view, 3> kDivided{"the optimizer's",
                                                       "gradient's and optimizer's", "all of them"};
    text += fmt::format("    ZeRO-{} divides {} by {}\n", plan.zero_stage,
                        kDivided[static_cast<std::size_t>(plan.zero_stage - 1)], plan.shards());
  }
  return text;
}

// What the fullest rank of a model whose layers differ keeps for whose backward.
std::string kind_lines(const MemoryReport& m, const RankWords& names) {
  const auto fullest = std::ranges::max_element(m.ranks, {}, &RankMemory::peak_allocated);
  if (fullest == m.ranks.end() || fullest->kinds.empty()) return "";
  std::string text =
      fmt::format("  {:<22} {:>6} {:>13} {:>12}\n",
                  fmt::format("by kind, {} {}", names.title,
                              names.words[static_cast<std::size_t>(fullest - m.ranks.begin())]),
                  "layers", "parameters", "activations");
  for (const KindMemory& kind : fullest->kinds) {
    text += fmt::format("    {:<20} {:>6} {:>11.1f} M {:>12}\n", kind.kind,
                        kind.layers > 0 ? std::to_string(kind.layers) : "",
                        1e-6 * static_cast<double>(kind.parameters), bytes(kind.activations));
  }
  return text;
}

std::string memory_lines(const Prediction& p) {
  const MemoryReport& m = p.memory;
  std::string text = fmt::format("\nmemory per rank ({}; capacity {}; {})\n", p.plan.runtime.title,
                                 bytes(m.capacity), fit_words(m));
  const RankWords names = rank_words(p.schedule, p.plan, m.ranks.size());
  text += fmt::format("  {:<10} {:>10} {:>10} {:>10}   {:<14} {}\n", names.title, "allocated",
                      "reserved", "device", "peak at", "what fills it");
  for (std::size_t r = 0; r < m.ranks.size(); ++r) {
    const RankMemory& rank = m.ranks[r];
    const std::pair<const char*, std::int64_t> parts[] = {
        {"parameters", rank.parts.parameters}, {"gradients", rank.parts.gradients},
        {"optimizer", rank.parts.optimizer},   {"activations", rank.parts.activations},
        {"buffers", rank.parts.buffers},       {"workspace", rank.parts.workspace}};
    std::string filled;
    for (const auto& [name, size] : parts) {
      const double share = static_cast<double>(size) /
                           static_cast<double>(std::max<std::int64_t>(rank.peak_allocated, 1));
      if (share >= 0.005)
        filled += fmt::format("{}{} {:.0f} %", filled.empty() ? "" : ", ", name, 100 * share);
    }
    if (rank.parts.experts > 0)
      filled += fmt::format("; states of experts {}", bytes(rank.parts.experts));
    text += fmt::format("  {:<10} {:>10} {:>10} {:>10}   {:<14} {}\n", names.words[r],
                        bytes(rank.peak_allocated), bytes(rank.peak_reserved),
                        bytes(rank.peak_device), peak_words(p, r), filled);
  }
  text += kind_lines(m, names);
  text += bytes_of_parameter(p);
  const auto away = [&](std::string_view where, std::int64_t most,
                        const std::optional<std::int64_t>& capacity) {
    if (most == 0) return;
    text += fmt::format("  {}: up to {} per rank", where, bytes(most));
    if (capacity) {
      text += fmt::format("{} the {} that its node has for each",
                          most > *capacity ? ", MORE THAN" : " of", bytes(*capacity));
    }
    text += '\n';
  };
  away("in host memory", m.host, m.host_capacity);
  away("on NVMe drives", m.nvme, m.nvme_capacity);
  if (!m.note.empty()) text += "  " + m.note + '\n';
  return text;
}

std::string listed(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

// Low and high, and whose measured steps say so.
std::string band_lines(const Prediction& p) {
  std::string text =
      fmt::format("  9 in 10 between {:>10} and {} ({:+.0f} %, {:+.0f} %)\n", seconds(p.low_s()),
                  seconds(p.high_s()), 100 * (p.band.low - 1), 100 * (p.band.high - 1));
  std::vector<std::string> sources;
  for (const NearCases& near : p.band.nearest) sources.push_back(near.source);
  if (sources.size() > kMostSources) sources.resize(kMostSources);
  if (!sources.empty()) text += "  as measured steps near to it: " + listed(sources) + "\n";
  if (!p.band.unseen.empty()) {
    text += "  wider: no measured step of this kind (" + listed(p.band.unseen) + ")\n";
  }
  if (!p.band.defaulted.empty()) {
    text += "  wider: the plan does not say " + listed(p.band.defaulted) + "\n";
  }
  return text;
}

}  // namespace

std::int32_t gradient_bytes(const Plan& plan) {
  return plan.runtime.performer().sums_in_fp32 ? 4 : plan.precision.gradients;
}

std::string step_line(const Plan& plan) {
  return fmt::format("{}; {} of {} x {} tokens", plan_line(plan),
                     counted(plan.microbatches(), "micro-batch"), plan.micro_batch,
                     plan.sequence_length);
}

std::string report_text(const Prediction& p, const Scenario& scenario, const Cluster& cluster) {
  const Plan& plan = p.plan;
  const double model = p.tflops(p.model_flops);
  const double ranks = static_cast<double>(p.bubbles.ranks);
  std::string text = fmt::format("{}\n", scenario.name.empty() ? scenario.path : scenario.name);
  text += fmt::format("  {} parameters on {} x {} ({})\n",
                      with_commas(static_cast<double>(p.parameters)), p.gpus, cluster.gpu.name,
                      cluster.name.empty() ? cluster.id : cluster.name);
  text += "  " + step_line(plan) + "\n";
  text += order_line(p.plan, p.choice, above_bound(p.plan, p.order)) + "\n";
  text += misfit_text(p) + tight_text(p);
  text += fmt::format("step time       {:>12}   ({} tokens/s, {} per GPU)\n", seconds(p.step_s),
                      with_commas(p.tokens_per_s), with_commas(p.tokens_per_s / p.gpus));
  text += band_lines(p);
  text += fmt::format("model FLOPs     {:>12}   per GPU", fmt::format("{:.1f} TFLOP/s", model));
  if (p.peak_flops) {
    text += fmt::format(": MFU {:.1f} %", 100 * *p.mfu());
    if (p.recomputed_flops > 0) text += fmt::format(", HFU {:.1f} %", 100 * *p.hfu());
    text +=
        fmt::format(" of {:.4g} in {}", *p.peak_flops * 1e-12, name_of(p.plan.precision.compute));
    if (p.flops_convention == FlopsConvention::MegatronCausal) {
      text += "; half of attention's square is counted, which is what it computes";
    }
  }
  text += fmt::format("\nbubble          {:>12}   of the compute streams' time is idle\n",
                      fmt::format("{:.1f} %", 100 * p.bubble_ratio()));
  for (std::size_t c = 0; c < kNumIdleCauses; ++c) {
    if (p.bubbles.causes[c] == 0) continue;
    const double s = static_cast<double>(p.bubbles.causes[c]) * 1e-9 / ranks;
    text += fmt::format("  {:<14}{:>12}   {:>5.1f} %\n", cause_word(c, p.gpus), seconds(s),
                        100 * s / p.step_s);
  }
  if (cluster.workers > 0 && p.gpus > cluster.workers) {
    text += fmt::format(
        "  {} ranks take turns on {}: idle times are this machine's, not those of as many "
        "devices\n",
        p.gpus, counted(cluster.workers, "core"));
  }
  text += memory_lines(p);
  if (p.resident) text += '\n' + resident_text(*p.resident);
  text += communication_text(p, cluster);
  std::string rests;
  for (std::size_t l = 0; l < kNumCostLevels; ++l) {
    if (p.confidence[l] < 0.005) continue;
    rests += fmt::format("{}{:.0f} % {}", rests.empty() ? "" : ", ", 100 * p.confidence[l],
                         kLevelWords[l]);
  }
  text += "\n" + (rests.empty() ? "nothing takes time" : "of the time " + rests);
  text += fmt::format("; energy {} per step", joules(p.energy_j));
  if (p.usd_per_gpu_hour) {
    const double usd = p.gpus * p.step_s / 3600 * *p.usd_per_gpu_hour;
    text += fmt::format("; {:.2f} USD per step, {:.0f} per 10^9 tokens", usd,
                        usd * 1e9 / static_cast<double>(plan.global_batch * plan.sequence_length));
  }
  text += tables_text(p);
  if (p.scatter > kDoubtfulScatter) {
    text += fmt::format(
        "\ndoubtful: equal measurements of this machine lay {:.0f} % apart; calibrate it again "
        "when "
        "it is quiet",
        100 * p.scatter);
  }
  for (const std::string& note : notes_of(p, scenario, cluster)) text += "\nnote: " + note;
  text += fmt::format("\n{} of {} simulated in {}", counted(p.schedule.num_ops(), "op"),
                      counted(p.schedule.num_rows(), "rank class"), seconds(p.wall_s));
  if (p.left_out.times > 0) {
    text += fmt::format("; {} that repeat them left out", counted(p.left_out.ops(), "op"));
  }
  if (p.instead_wall_s > 0) {
    text += fmt::format(", plans that fit looked for in {}", seconds(p.instead_wall_s));
  }
  text += '\n';
  return text;
}

}  // namespace rehearse::sim
