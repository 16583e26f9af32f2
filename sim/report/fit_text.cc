// SPDX-License-Identifier: Apache-2.0
#include "sim/report/fit_text.h"

#include <algorithm>
#include <array>

#include "schedules/base/counted.h"
#include "schedules/base/json_reader.h"
#include "sim/report/rank_words.h"
#include "sim/report/report_units.h"

namespace rehearse::sim {
namespace {

using report::bytes, report::seconds;

// One line of flags; what is a string in JSON goes without its quotes.
std::string flags(const NearestPlan& nearest) {
  std::string text;
  for (const PlanChange& change : nearest.changes) {
    std::string value = change.to;
    std::erase(value, '"');
    text += fmt::format("{}--set plan.{}={}", text.empty() ? "" : " ", change.key, value);
  }
  return text;
}

std::string nearest_text(const NearestPlan& nearest, std::int64_t capacity) {
  if (nearest.changes.empty()) return "  No other plan of this scenario is legal.\n";
  const std::string host =
      nearest.host > 0 ? fmt::format(" and {} of host memory", bytes(nearest.host)) : "";
  if (!nearest.fits) {
    return fmt::format("  No plan that was tried fits; the least memory found is {}{}:\n    {}\n",
                       bytes(nearest.peak_device), host, flags(nearest));
  }
  return fmt::format("  The nearest plan that fits needs {}{}{} and takes {} a step:\n    {}\n",
                     bytes(nearest.peak_device),
                     near_capacity(nearest.peak_device, capacity) ? " (too near to be sure)" : "",
                     host, seconds(nearest.step_s), flags(nearest));
}

// The fullest of the rows that have their peak before step 0; end: there is none.
std::vector<RankMemory>::const_iterator fullest_at_building(const MemoryReport& memory) {
  auto worst = memory.ranks.end();
  for (auto rank = memory.ranks.begin(); rank != memory.ranks.end(); ++rank) {
    if (!rank->at_building) continue;
    if (worst == memory.ranks.end() || rank->peak_allocated > worst->peak_allocated) worst = rank;
  }
  return worst;
}

}  // namespace

std::string fit_words(const MemoryReport& memory) {
  constexpr std::array<std::string_view, 3> kWords{"fits", "fits, tight", "DOES NOT FIT"};
  const std::string words(kWords[static_cast<std::size_t>(memory.verdict())]);
  if (!memory.near_capacity()) return words;
  const double share = 100 * static_cast<double>(memory.peak_device) /
                       static_cast<double>(std::max<std::int64_t>(memory.capacity, 1));
  return words + fmt::format(", at {:.1f} % of it: too near to be sure", share);
}

std::string misfit_text(const Prediction& p) {
  const MemoryReport& m = p.memory;
  if (m.fits || m.ranks.empty()) return {};
  const auto worst = std::ranges::max_element(m.ranks, {}, &RankMemory::peak_device);
  const auto row = static_cast<std::size_t>(worst - m.ranks.begin());
  const RankWords names = rank_words(p.schedule, p.plan, m.ranks.size());
  const bool drives = m.nvme_capacity && m.nvme > *m.nvme_capacity;
  const bool device = worst->peak_device > m.capacity || (!m.host_capacity && !drives);
  std::string text =
      device ? fmt::format("DOES NOT FIT: {} {} {} of a device that has {}.\n", names.of(row),
                           names.title == "ranks" ? "need" : "needs", bytes(worst->peak_device),
                           bytes(m.capacity))
             : fmt::format("DOES NOT FIT: a rank needs {} {} and has {}.\n",
                           bytes(drives ? m.nvme : m.host),
                           drives ? "on NVMe drives" : "of host memory",
                           bytes((drives ? m.nvme_capacity : m.host_capacity).value_or(0)));
  if (m.instead) text += nearest_text(*m.instead, m.capacity);
  return text +
         "  Such a step cannot be made; the times below are what it would take. "
         "rehearse search\n  lists plans that fit.\n\n";
}

std::string day_words(const DayLoad& load) {
  std::string text;
  if (load.rows > 1) {
    text = fmt::format("the busiest rank has {:.2f} times the mean rows", load.rows);
  }
  if (load.sample > 0) {
    text += fmt::format("{}a sample has {} tokens", text.empty() ? "" : " and ",
                        with_commas(static_cast<double>(load.sample)));
  }
  return text;
}

namespace {

std::string holds_text(const std::vector<Remedy>& holds) {
  if (holds.empty()) return "";
  std::string text = "  It holds with ";
  for (const Remedy& remedy : holds) {
    std::string flag = fmt::format("plan.{}={}", remedy.key, remedy.to);
    if (remedy.to.find('"') != std::string::npos) flag = '\'' + flag + '\'';
    text += fmt::format("{}--set {} ({})", &remedy == holds.data() ? "" : ", or\n    with ", flag,
                        bytes(remedy.peak_device));
  }
  return text + "\n";
}

std::string breaks_text(const MemoryReport& m) {
  switch (m.bad_day.cause) {
    case BadDayCause::None:
      return {};
    case BadDayCause::BusiestRank:
    case BadDayCause::LongestSample:
      return fmt::format("TIGHT: it fits at even load, and breaks on the day when {}: {} of {}\n",
                         day_words(m.load), bytes(m.bad_day.peak_device), bytes(m.capacity));
    case BadDayCause::AllocatorMargin:
      return fmt::format(
          "TIGHT: {} of {}; it breaks on the day when holes between the allocator's blocks, or "
          "what "
          "else\n  runs on the card, take {:.0f} % of it\n",
          bytes(m.bad_day.peak_device), bytes(m.capacity), 100 * kNearCapacity);
  }
  return {};
}

}  // namespace

std::string tight_text(const Prediction& p) {
  if (p.memory.verdict() != Verdict::Tight) return {};
  return breaks_text(p.memory) + holds_text(p.memory.holds) + "\n";
}

std::string bad_day_json(const MemoryReport& memory) {
  if (memory.verdict() != Verdict::Tight) return "null";
  std::string holds;
  for (const Remedy& remedy : memory.holds) {
    holds += fmt::format("{}{{\"key\": \"plan.{}\", \"to\": {}, \"peak_device_bytes\": {}}}",
                         holds.empty() ? "" : ", ", remedy.key, remedy.to, remedy.peak_device);
  }
  return fmt::format(
      "{{\"cause\": \"{}\", \"peak_device_bytes\": {}, \"even_peak_device_bytes\": {}, "
      "\"rows_over_mean\": {}, \"sample_tokens\": {}, \"holds\": [{}]}}",
      name_of(memory.bad_day.cause), memory.bad_day.peak_device, memory.even_peak_device,
      json_number(memory.load.rows),
      memory.load.sample > 0 ? std::to_string(memory.load.sample) : "null", holds);
}

std::string peak_words(const Prediction& p, std::size_t row) {
  return p.memory.ranks[row].at_building ? "before step 0" : p.memory_ops[row];
}

std::string building_note(const Prediction& p) {
  const auto worst = fullest_at_building(p.memory);
  if (worst == p.memory.ranks.end()) return {};
  const RankWords names = rank_words(p.schedule, p.plan, p.memory.ranks.size());
  return fmt::format(
      "the peak of {}, {}, is before step 0: while the model is built its parameters are copied "
      "into "
      "a flat buffer and exist twice; a step needs {}",
      names.of(static_cast<std::size_t>(worst - p.memory.ranks.begin())),
      bytes(worst->peak_allocated), bytes(worst->peak_in_steps));
}

std::string retries_note(const Prediction& p) {
  std::int32_t most = 0;
  std::int64_t remapped = 0;
  for (const RankMemory& rank : p.memory.ranks) {
    most = std::max(most, rank.retries);
    remapped = std::max(remapped, rank.remapped_bytes());
  }
  if (most == 0) return {};
  if (remapped == 0) {
    return fmt::format(
        "memory fits only with an emptied cache: in the first steps the allocator gives its cached "
        "blocks back {}, later ones need it no more",
        counted(most, "time"));
  }
  return fmt::format(
      "memory fits only with an emptied cache: in every step the allocator gives {} back and maps "
      "as much anew, {} of the step; gathers that are then late are not counted",
      bytes(remapped), seconds(p.remap_s));
}

std::string instead_json(const MemoryReport& memory) {
  if (!memory.instead) return "null";
  const NearestPlan& nearest = *memory.instead;
  std::string changes;
  for (const PlanChange& change : nearest.changes) {
    changes += fmt::format("{}{{\"key\": \"plan.{}\", \"from\": {}, \"to\": {}}}",
                           changes.empty() ? "" : ", ", change.key, change.from, change.to);
  }
  return fmt::format(
      "{{\"fits\": {}, \"changes\": [{}], \"peak_device_bytes\": {}, \"host_bytes\": {}, "
      "\"step_time_s\": {}, \"tried\": {}}}",
      nearest.fits, changes, nearest.peak_device, nearest.host,
      nearest.fits ? fmt::format("{}", nearest.step_s) : "null", nearest.tried);
}

}  // namespace rehearse::sim
