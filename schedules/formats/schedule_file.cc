// SPDX-License-Identifier: Apache-2.0
#include "schedules/formats/schedule_file.h"

#include <algorithm>
#include <map>

#include "schedules/formats/csv.h"
#include "schedules/ir/payload.h"
#include "schedules/ir/text.h"
#include "schedules/ir/where.h"
#include "schedules/proof/validate.h"
#include "schedules/scenario/keys/plan_rows.h"
#include "schedules/scenario/stage_layers.h"

namespace rehearse {
namespace {

constexpr std::int64_t kLargestFile = std::int64_t{256} << 20;

bool same_work(const Op& a, const Op& b) {
  return a.kind == b.kind && a.stage == b.stage && a.microbatch == b.microbatch &&
         a.slice == b.slice;
}

}  // namespace

Result<ScheduleFile> parse_schedule_file(std::string_view text, const std::string& path) {
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) return json_error(path, 0, "", "the file is empty");
  if (text[first] == '{' || text[first] == '[') {
    // An array of lists may be meant as orders: the JSON reader says what is missing.
    const std::size_t second = text.find_first_not_of(" \t\r\n", first + 1);
    const bool group = text[first] == '[' && second != std::string_view::npos &&
                       text[second] >= '0' && text[second] <= '9';  // a CSV cell "[0SEND_F0 ...]"
    if (!group) return parse_schedule_json(text, path);
  }
  Result<Schedule> schedule = parse_csv(text, path);
  if (!schedule) return schedule.error();
  ScheduleFile file;
  file.schedule = std::move(schedule).value();
  return file;
}

Result<ScheduleFile> read_schedule_file(const std::string& path) {
  const Result<std::string> text = read_text_file(path, kLargestFile);
  if (!text) return text.error();
  return parse_schedule_file(text.value(), path);
}

std::int32_t first_beyond_order(const Schedule& schedule) {
  for (std::int32_t id = 0; id < schedule.num_ops(); ++id) {
    const Op& op = schedule.ops[static_cast<std::size_t>(id)];
    if (!is_compute(op.kind) && !schedule.is_on(op, GroupKind::Other)) return id;
  }
  return -1;
}

Result<> order_alone(const Schedule& schedule, const std::string& path) {
  const OpId beyond{first_beyond_order(schedule)};
  if (!beyond) return {};
  return Error{path + ": lists " + where(schedule, beyond) +
               ", but a plan performs the compute order of a file alone, with transfers and "
               "gathers of its own: write that order by \"rehearse schedule --schedule file:" +
               path + " --format csv > order.csv\" and name file:order.csv"};
}

Schedule compute_order_of(const Schedule& schedule) {
  Schedule order;
  order.name = schedule.name;
  order.microbatches = schedule.microbatches;
  order.slices = schedule.slices;
  order.placement = schedule.placement;
  order.children = schedule.children;
  std::map<MatchId, MatchId> matches;  // of exchanges: as the order counts them
  std::vector<GroupId> group_of(schedule.groups.size());
  for (std::size_t g = 0; g < schedule.groups.size(); ++g) {
    if (schedule.groups[g].kind != GroupKind::Other) continue;
    group_of[g] = {static_cast<std::int32_t>(order.groups.size())};
    order.groups.push_back(schedule.groups[g]);
  }
  const auto add_exchange = [&](OpId id) {
    Op op = schedule.ops[id.index()];
    const auto [at, fresh] = matches.try_emplace(op.match, MatchId{});
    if (fresh && op.match) {
      at->second = {static_cast<std::int32_t>(order.carried.size())};
      order.carried.push_back(payload_of(schedule, id));
    }
    op.match = at->second;
    op.group = group_of[op.group.index()];
    op.key = 0;
    order.ops.push_back(op);
  };
  for (RankClass row{0}; row.value < schedule.num_rows(); ++row.value) {
    const Op* part = nullptr;
    for (const Op& op : schedule.program(row)) {
      if (schedule.is_on(op, GroupKind::Other)) {
        add_exchange({static_cast<std::int32_t>(&op - schedule.ops.data())});
      }
      if (!is_compute(op.kind)) continue;
      if (part != nullptr && op.segment_end >= 0 && same_work(*part, op)) continue;
      part = op.segment_end >= 0 ? &op : nullptr;
      Op whole = op;
      whole.segment_begin = 0;
      whole.segment_end = -1;
      whole.key = 0;
      order.ops.push_back(whole);
    }
    order.end_row();
  }
  return order;
}

Result<Schedule> order_of_file(Plan& plan, std::int32_t model_layers) {
  const std::string path = plan.schedule.substr(plan.schedule.find(':') + 1);
  const Result<ScheduleFile> file = read_schedule_file(path);
  if (!file) return Error{"plan.schedule: " + file.error().message};
  if (const Result<> alone = order_alone(file.value().schedule, path); !alone) {
    return Error{"plan.schedule: " + alone.error().message};
  }
  Schedule order = compute_order_of(file.value().schedule);
  const auto misfit = [&](std::int32_t has, const char* what, std::string_view key,
                          std::int32_t wanted) {
    return Error{"plan.schedule: " + path + ": has " + std::to_string(has) + what + ", " +
                 std::string(key) + " is " + std::to_string(wanted)};
  };
  if (order.num_rows() != plan.pipeline_parallel) {
    return misfit(order.num_rows(), " ranks", key_of(&Plan::pipeline_parallel),
                  plan.pipeline_parallel);
  }
  if (order.microbatches != plan.microbatches()) {
    return misfit(order.microbatches, " micro-batches", "micro-batches per step",
                  plan.microbatches());
  }
  if (order.slices != plan.sequence_slices && order.slices > 1) {
    return misfit(order.slices, " slices", key_of(&Plan::sequence_slices), plan.sequence_slices);
  }
  const Validation proof = validate(order, {.most = 1});
  if (!proof.sound()) {
    return Error{"plan.schedule: " + path + ": " + proof.violations.front().message};
  }
  if (!order.groups.empty() && !plan.runtime.own_executor) {
    return Error{"plan.schedule: " + path + ": has collectives of groups of its own, which only " +
                 std::string(key_of(&Plan::runtime)) + " " + std::string(kExecutorRuntime) +
                 " performs"};
  }
  const auto again =
      std::ranges::find(order.ops, OpKind::Recompute, [](const Op& op) { return op.kind; });
  if (again != order.ops.end() && !plan.recompute.any()) {
    return Error{"plan.schedule: " + path + ": has recomputation as an op, " + to_text(*again) +
                 ", and " + std::string(key_of(&Plan::recompute)) + " is none"};
  }
  const std::int32_t stages = order.placement.stages();
  if (stages > model_layers + 2) {
    return misfit(stages, " stages", "the number of layers, embedding and head", model_layers + 2);
  }
  if (plan.stage_layers.empty()) plan.stage_layers = default_stage_layers(model_layers, stages);
  if (static_cast<std::int32_t>(plan.stage_layers.size()) != stages) {
    return misfit(stages, " stages", "the length of stage_layers",
                  static_cast<std::int32_t>(plan.stage_layers.size()));
  }
  return order;
}

}  // namespace rehearse
