// SPDX-License-Identifier: Apache-2.0
#include "sim/search/space/framework.h"

#include <algorithm>

#include "schedules/base/files.h"
#include "schedules/base/json_keys.h"
#include "schedules/base/json_reader.h"
#include "schedules/order/registry.h"
#include "schedules/scenario/plan_names.h"

namespace rehearse::sim {
namespace {

constexpr KeySpec text(std::string_view name) {
  return {.name = name, .types = kString, .required = true};
}
constexpr KeySpec list(std::string_view name, unsigned items) {
  return {.name = name, .types = kArray, .item_types = items, .required = true};
}
constexpr KeySpec flag(std::string_view name) {
  return {.name = name, .types = kBool, .required = true};
}
constexpr KeySpec ways(std::string_view name) {
  return {.name = name,
          .types = kArray,
          .choices = kContextParallelNames,
          .item_types = kString,
          .required = true};
}
constexpr KeySpec kFrameworkKeys[] = {
    text("name"),
    text("title"),
    text("source"),
    list("runtimes", kString),
    list("vendors", kString),
    list("schedules", kString),
    list("zero_stages", kInteger),
    list("pipeline_zero_stages", kInteger),
    flag("tensor_parallel"),
    ways("context_parallel"),
    {.name = "pairs", .types = kString, .choices = kPairOverlapNames}};
constexpr KeyTable kFramework{.title = "framework", .keys = kFrameworkKeys};
constexpr KeySpec kFileKeys[] = {
    text("schema"),
    {.name = "about", .types = kString},
    {.name = "frameworks", .types = kArray, .items = &kFramework, .required = true}};
constexpr KeyTable kFile{.title = "frameworks", .keys = kFileKeys};

std::vector<std::int32_t> integers(const JsonValue& value) {
  std::vector<std::int32_t> found;
  for (const JsonValue& item : value.items)
    found.push_back(static_cast<std::int32_t>(item.integer));
  return found;
}

}  // namespace

bool Framework::runs(const std::string& schedule) const {
  return std::ranges::find(schedules, schedule) != schedules.end();
}

bool Framework::pairs_so(const std::string& schedule, PairOverlap overlap) const {
  const ScheduleInfo* info = find_schedule(schedule);
  return info == nullptr || info->pairing != Pairing::Always || overlap >= pairs;
}

bool Framework::launches(const Plan& plan) const {
  const std::vector<std::int32_t>& stages =
      plan.pipeline_parallel > 1 ? pipeline_zero_stages : zero_stages;
  return (plan.pipeline_parallel == 1 ||
          (runs(plan.schedule) && pairs_so(plan.schedule, plan.overlap_pair))) &&
         std::ranges::find(stages, plan.zero_stage) != stages.end() &&
         (plan.tensor_parallel == 1 || tensor_parallel) &&
         (plan.context_parallel == 1 ||
          std::ranges::find(context_parallel, plan.context_parallel_algorithm) !=
              context_parallel.end());
}

Result<std::vector<Framework>> shipped_frameworks() {
  const std::string path = shipped_directory() + "/frameworks/released.json";
  const Result<JsonValue> read = read_json(path);
  if (!read) return read.error();
  JsonReport report(path);
  check_keys(read.value(), kFile, "", report);
  if (!report.ok()) return report.error();
  std::vector<Framework> found;
  for (const JsonValue& item : read.value().given("frameworks")->items) {
    Framework framework{.name = item.given("name")->text,
                        .title = item.given("title")->text,
                        .zero_stages = integers(*item.given("zero_stages")),
                        .pipeline_zero_stages = integers(*item.given("pipeline_zero_stages")),
                        .tensor_parallel = item.given("tensor_parallel")->boolean};
    for (const JsonValue& way : item.given("context_parallel")->items) {
      framework.context_parallel.push_back(static_cast<ContextParallelAlgorithm>(
          std::ranges::find(kContextParallelNames, way.text) - kContextParallelNames.begin()));
    }
    if (const JsonValue* pairs = item.given("pairs")) {
      framework.pairs = static_cast<PairOverlap>(std::ranges::find(kPairOverlapNames, pairs->text) -
                                                 kPairOverlapNames.begin());
    }
    for (const JsonValue& name : item.given("runtimes")->items) {
      framework.runtimes.push_back(name.text);
    }
    for (const JsonValue& name : item.given("vendors")->items) {
      framework.vendors.push_back(name.text);
    }
    for (const JsonValue& name : item.given("schedules")->items) {
      if (find_schedule(name.text) == nullptr) {
        report.fail(name.line, "frameworks.schedules", "no such schedule: " + name.text);
        return report.error();
      }
      framework.schedules.push_back(name.text);
    }
    found.push_back(std::move(framework));
  }
  return found;
}

std::string launched_elsewhere(const std::vector<Framework>& frameworks, const Plan& plan) {
  bool known = false;
  std::string names;
  for (const Framework& framework : frameworks) {
    const bool own =
        std::ranges::find(framework.runtimes, plan.runtime.name) != framework.runtimes.end();
    known |= own;
    if (!framework.launches(plan)) continue;
    if (own) return {};
    names += (names.empty() ? "" : ", ") + framework.name;
  }
  if (!known) return {};
  return names.empty() ? "no released framework" : names;
}

std::string runs_not_on(const std::vector<Framework>& frameworks, const std::string& name,
                        const Gpu& gpu) {
  if (gpu.vendor.empty()) return {};
  for (const Framework& framework : frameworks) {
    if (framework.name != name &&
        std::ranges::find(framework.runtimes, name) == framework.runtimes.end())
      continue;
    if (std::ranges::find(framework.vendors, gpu.vendor) != framework.vendors.end()) return {};
    return framework.title + " runs on no GPU of " + gpu.vendor;
  }
  return {};
}

}  // namespace rehearse::sim
