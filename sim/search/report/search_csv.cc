// SPDX-License-Identifier: Apache-2.0
// A search's plans as rows of a table.
#include <fmt/format.h>

#include <optional>

#include "schedules/scenario/memory/offload.h"
#include "schedules/scenario/memory/recompute_parts.h"
#include "schedules/scenario/plan_names.h"
#include "sim/search/report/found_parts.h"
#include "sim/search/report/search_report.h"

namespace rehearse::sim {
namespace {

std::string csv_field(const std::string& text) {
  if (text.find_first_of(",\"\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + "\"";
}

// The fields of a whole training, each with a comma before it; the best plan alone has them.
std::string bought_fields(const SearchCase& one, bool first) {
  using Value = std::optional<double>;
  const bool known = first && one.late.has_value();
  const auto field = [](const Value& value) { return value ? fmt::format(",{}", *value) : ","; };
  const auto share = [&](double GoodputSpread::*of) {
    return field(known && one.spread ? Value((*one.spread).*of) : std::nullopt);
  };
  const TrainingEnergy energy = known ? *one.energy : TrainingEnergy{};
  return field(known && one.goodput ? Value(one.goodput->share) : std::nullopt) +
         share(&GoodputSpread::p10) + share(&GoodputSpread::p50) + share(&GoodputSpread::p90) +
         field(known ? Value(one.late->seconds) : std::nullopt) + "," + (known ? one.done_by : "") +
         field(known ? one.late->usd : std::nullopt) +
         field(known ? Value(energy.gpu_kwh) : std::nullopt) + field(energy.host_kwh) +
         field(known ? Value(energy.network_kwh) : std::nullopt) + field(energy.facility_kwh) +
         field(energy.co2_t) +
         (!known      ? ","
          : one.meets ? ",yes"
                      : ",no");
}

}  // namespace

std::string search_csv(const SearchReport& report) {
  std::string text =
      "cluster,gpus,rank,step_time_s,tokens_per_s,mfu,bubble_ratio,peak_device_bytes,"
      "headroom_bytes,usd_per_step,energy_j,tensor_parallel,pipeline_parallel,context_parallel,"
      "data_parallel,schedule,virtual_stages,micro_batch,recompute,zero_stage,sequence_parallel,"
      "precision,offload,time_to_train_s,cost_usd,situation,idle_most_for,helps_most,"
      "step_time_then_s,goodput,goodput_p10,goodput_p50,goodput_p90,time_to_train_late_s,done_by,"
      "cost_late_usd,gpus_kwh,host_kwh,network_kwh,facility_kwh,co2_t,meets,above_bound\n";
  for (const SearchCase& one : report.cases) {
    std::int32_t rank = 0;
    for (const FoundPlan& f : one.result.best) {
      const Plan& p = f.plan;
      ++rank;
      const bool first = rank == 1 && one.train.has_value();
      const std::optional<StepPart> idle = longest_idle(f);
      const auto& changes = one.result.sensitivities;
      const Sensitivity* helps = rank == 1 && !changes.empty() ? &changes.front() : nullptr;
      text += fmt::format(
          "{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{}{}"
          ",{}"
          "\n",
          csv_field(one.cluster), one.gpus, rank, f.step_s, f.tokens_per_s,
          f.mfu ? fmt::format("{}", *f.mfu) : "", f.bubble_ratio, f.peak_device,
          f.capacity - f.peak_device, f.usd_per_step ? fmt::format("{}", *f.usd_per_step) : "",
          f.energy_j, p.tensor_parallel, p.pipeline_parallel, p.context_parallel, p.data_parallel,
          p.schedule, p.virtual_stages, p.micro_batch, recompute_text(p), p.zero_stage,
          p.sequence_parallel, p.precision.name, offload_text(p.offload),
          first ? fmt::format("{}", one.train->seconds) : "",
          first && one.train->usd ? fmt::format("{}", *one.train->usd) : "",
          rank == 1 && one.result.situation ? name_of(one.result.situation->situation) : "",
          idle ? idle->name : "", helps ? helps->what : "",
          helps ? fmt::format("{}", helps->step_s) : "", bought_fields(one, rank == 1),
          f.above_bound ? fmt::format("{}", *f.above_bound) : "");
    }
  }
  return text;
}

}  // namespace rehearse::sim
