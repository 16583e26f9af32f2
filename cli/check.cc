// SPDX-License-Identifier: Apache-2.0
// rehearse check: proves a schedule, or says what is wrong with it.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>

#include "cli/commands.h"
#include "cli/open.h"
#include "schedules/base/bytes/standard_input.h"
#include "schedules/base/counted.h"
#include "schedules/base/files.h"
#include "schedules/base/json_reader.h"
#include "schedules/body/body_proof.h"
#include "schedules/formats/schedule_file.h"
#include "schedules/ir/placed_recompute.h"
#include "schedules/ir/text.h"
#include "schedules/ir/where.h"
#include "schedules/order/order_bound.h"
#include "schedules/passes/planned/plan_order.h"
#include "schedules/proof/validate.h"
#include "schedules/ranks/group_key.h"
#include "schedules/scenario/open_scenario.h"
#include "schedules/timing/metrics.h"
#include "schedules/transfers/add_transfers.h"
#include "sim/report/fit_text.h"

namespace rehearse::cli {
namespace {

constexpr std::int64_t kLargestFile = std::int64_t{256} << 20;
constexpr std::array<std::string_view, 4> kReasons{"order", "data", "partner", "group"};

struct CheckOptions {
  std::vector<std::string> files;
  std::string streams_name = "one", transfers_name = "time_sorted";
  StreamModel streams = StreamModel::One;
  TransferPolicy transfers = TransferPolicy::TimeSorted;
  std::int32_t stages = 0;
  bool json = false;
};

struct Checked {
  std::string path;
  Schedule schedule;  // what was proved
  bool lowered_here = false, of_file = false;
  Validation validation;
  std::vector<InsideSum> inside;  // collectives of bodies, of a scenario's
  // Of an order that can be bounded: by how much it takes longer than what none takes less than. A
  // file's, with F = I = W, in the memory that it needs; a planned one's, as it is reported.
  std::optional<double> above_bound;
  std::string note;  // about the file, for stderr
};

// In the memory that the order itself needs. None: also where it lists recomputation, which costs
// what no file says.
std::optional<double> above_bound_of(const Schedule& order) {
  const bool trains =
      std::ranges::any_of(order.ops, [](const Op& op) { return is_backward(op.kind); });
  if (!trains || PlacedRecompute(order).any()) return {};
  const std::int32_t chunks = visited_chunks(order);
  const Nanoseconds unit{chunks};
  ScheduleShape shape{.positions = order.num_rows(),
                      .microbatches = order.microbatches,
                      .times = {.forward = unit, .input_gradient = unit, .weight_gradient = unit}};
  const Result<ComputeTiming> timing = time_compute(order, divide(shape.times, chunks));
  if (!timing) return {};
  shape.memory_limit = measure(order, timing.value()).largest_weighted_peak() /
                       (chunks * std::min(shape.positions, shape.microbatches));
  const std::optional<OrderBound> bound = bound_of(order, shape);
  return bound ? std::optional(bound->above()) : std::nullopt;
}

// An order of compute ops, and the same with our transfers if it is sound itself.
Checked check_order(const Schedule& order, const CheckOptions& options) {
  Checked checked{.schedule = order, .validation = validate(order, {.streams = options.streams})};
  if (!checked.validation.sound() || order.level == Level::Full) return checked;
  // F = I = W = 1: the order of transfers is the same for all durations in that proportion.
  checked.schedule = add_transfers(order, unit_finish(order), options.transfers);
  checked.lowered_here = true;
  checked.validation =
      validate(checked.schedule, {.streams = options.streams, .compute_order = &order});
  return checked;
}

bool is_scenario(const JsonValue& document) {
  return document.find("model") != nullptr || document.find("plan") != nullptr ||
         document.find("cluster") != nullptr;
}

Result<Checked> check_scenario(const std::string& path, const CheckOptions& options) {
  const Result<Opened> opened = open(path, {});
  if (!opened) return opened.error();
  const auto& [scenario, cluster] = opened.value();
  Result<sim::Prediction> made = predict(path, scenario, cluster, {.timeline = false});
  if (!made) return made.error();
  sim::Prediction prediction = std::move(made).value();
  Checked checked{.schedule = std::move(prediction.schedule), .lowered_here = true};
  const std::vector<Bytes> capacity{cluster.capacity()};
  checked.validation = validate(
      checked.schedule,
      {.streams = options.streams, .compute_order = &prediction.order, .capacity = capacity});
  checked.above_bound = above_bound(prediction.plan, prediction.order);
  InsideProof inside = prove_inside(checked.schedule, {scenario.model, prediction.plan});
  checked.inside = std::move(inside.sums);
  if (!inside.fault.empty()) {
    checked.validation.violations.push_back({"V5", inside.op, "inside it: " + inside.fault});
  }
  // A framework's allocator needs more than what is alive.
  for (std::size_t r = 0; r < prediction.memory.ranks.size(); ++r) {
    const sim::RankMemory& rank = prediction.memory.ranks[r];
    if (rank.fits || !checked.validation.sound()) continue;
    const auto [needs, has] = size_texts(rank.peak_device, prediction.memory.capacity);
    checked.validation.violations.push_back({"V11",
                                             {},
                                             row_name(checked.schedule, rank.row) + " needs " +
                                                 needs + ", at " + sim::peak_words(prediction, r) +
                                                 ": it has " + has});
  }
  return checked;
}

Result<Checked> check_file(const std::string& named, const CheckOptions& options) {
  const bool piped = named == "-";
  const std::string path = piped ? "standard input" : scenario_file(named);  // its own file wins
  const Result<std::string> text = piped ? standard_input() : read_text_file(path, kLargestFile);
  if (!text) return text.error();
  const std::size_t first = text.value().find_first_not_of(" \t\r\n");
  Result<ScheduleFile> file = Error{};
  if (first != std::string::npos && text.value()[first] == '{') {
    const Result<JsonValue> document = parse_schedule_document(text.value(), path);
    if (!document) return document.error();
    if (is_scenario(document.value())) return check_scenario(piped ? named : path, options);
    if (const std::string kind = other_kind(document.value(), path); !kind.empty()) {
      return json_error(path, 0, "", kind);
    }
    file = schedule_from_json(document.value(), path);
  } else {
    file = parse_schedule_file(text.value(), path);
  }
  if (!file) return file.error();
  const Schedule& schedule = file.value().schedule;
  if (options.stages > 0 && schedule.num_rows() != options.stages) {
    return Error{path + ": has " + std::to_string(schedule.num_rows()) +
                 " ranks, --stages asks for " + std::to_string(options.stages)};
  }
  Checked checked = check_order(schedule, options);
  checked.of_file = true;
  if (checked.validation.sound()) checked.above_bound = above_bound_of(compute_order_of(schedule));
  checked.note = file.value().note;
  if (!file.value().hash_matches) {
    checked.note += (checked.note.empty() ? "" : "; ");
    checked.note += "its hash is " + content_hash(schedule) + ", not " +
                    file.value().declared_hash + ": it was edited since it was generated";
  }
  return checked;
}

// "4 ranks, 4 stages, 8 micro-batches, 112 ops".
std::string sizes(const Schedule& schedule) {
  return counted(schedule.num_rows(), schedule.rows.empty() ? "rank" : "rank class") + ", " +
         counted(schedule.placement.stages(), "stage") + ", " +
         counted(schedule.microbatches, "micro-batch") + ", " + counted(schedule.num_ops(), "op");
}

std::string_view word_of(OpKind kind) {
  return kind == OpKind::Send ? "SEND_RECV" : traits(kind).name;
}

// "inside ops, met in one order: tp ALL_REDUCE x24, 403 MB".
std::string inside_text(const std::vector<InsideSum>& sums) {
  std::string text;
  for (const InsideSum& sum : sums) {
    text += (text.empty() ? "  inside ops, met in one order: " : "; ") +
            std::string(traits(kind_along(sum.axis)).name) + " " + std::string(word_of(sum.kind)) +
            " x" + std::to_string(sum.count) + ", " + size_text(sum.bytes);
  }
  return text.empty() ? text : text + "\n";
}

std::string bound_text(const Checked& checked) {
  if (!checked.above_bound) return {};
  return fmt::format("  at most {:.1f} % longer than any order of its stages in its memory{}\n",
                     100 * *checked.above_bound, checked.of_file ? ", with F = I = W" : "");
}

std::string text_of(const Checked& checked, const CheckOptions& options) {
  const Validation& validation = checked.validation;
  std::string text = checked.path + ": ";
  if (validation.sound()) {
    text += "sound: " + sizes(checked.schedule) + "\n  proved:";
    for (std::size_t r = 0; r < kRules.size(); ++r) {
      if (!validation.applied[r]) continue;
      text += " " + std::string(kRules[r].name) + " " + std::string(kRules[r].title);
    }
    text += "\n  cannot hang with " + std::string(info(options.streams).what) + " (--streams " +
            std::string(info(options.streams).name) + ")";
    text += checked.lowered_here ? ", transfers are ours\n" : ", transfers as listed\n";
    return text + inside_text(checked.inside) + bound_text(checked);
  }
  text += "not sound: " + sizes(checked.schedule) + "\n";
  for (const Violation& violation : validation.violations) {
    std::string_view title;
    for (const RuleInfo& rule : kRules) {
      if (rule.name == violation.rule) title = rule.title;
    }
    text += "  " + std::string(violation.rule) + " " + std::string(title) + ": ";
    const std::vector<CycleStep>& cycle = validation.deadlock.cycle;
    if (violation.rule != "V6" || cycle.empty()) {
      text += violation.message + "\n";
      continue;
    }
    text += "it hangs with " + std::string(info(options.streams).what) + ": " +
            std::to_string(cycle.size()) + " ops wait in a circle\n";
    for (const std::string& line : explain(checked.schedule, validation.deadlock)) {
      text += "      " + line + "\n";
    }
  }
  if (validation.unreported > 0) {
    text += "  and " + std::to_string(validation.unreported) + " more\n";
  }
  return text;
}

std::string cycle_json(const Checked& checked) {
  std::string text = "[";
  for (const CycleStep& step : checked.validation.deadlock.cycle) {
    if (text.size() > 1) text += ", ";
    const Schedule& s = checked.schedule;
    text += "{\"rank\": " + std::to_string(s.row_of(step.op).value) +
            ", \"op\": " + json_quoted(to_text(s, step.op)) +
            ", \"waits_for\": " + json_quoted(to_text(s, step.other)) +
            ", \"on_rank\": " + std::to_string(s.row_of(step.other).value) + ", \"reason\": \"" +
            std::string(kReasons[static_cast<std::size_t>(step.reason)]) + "\"}";
  }
  return text + "]";
}

std::string json_of(const Checked& checked, const CheckOptions& options) {
  const Validation& validation = checked.validation;
  const Schedule& s = checked.schedule;
  const auto truth = [](bool value) { return value ? "true" : "false"; };
  std::string text = "{\"file\": " + json_quoted(checked.path) +
                     ", \"sound\": " + truth(validation.sound()) +
                     ", \"deadlock_free\": " + truth(validation.deadlock.complete) +
                     ", \"streams\": \"" + std::string(info(options.streams).name) +
                     "\", \"transfers\": \"" + (checked.lowered_here ? "ours" : "as listed") +
                     "\", \"ranks\": " + std::to_string(s.num_rows()) +
                     ", \"stages\": " + std::to_string(s.placement.stages()) +
                     ", \"microbatches\": " + std::to_string(s.microbatches) +
                     ", \"ops\": " + std::to_string(s.num_ops()) + ", \"hash\": \"" +
                     content_hash(s) + "\", \"violations\": [";
  for (const Violation& violation : validation.violations) {
    if (&violation != &validation.violations.front()) text += ", ";
    text += "{\"rule\": \"" + std::string(violation.rule) + "\", \"rank\": " +
            (violation.op ? std::to_string(s.row_of(violation.op).value) : "null") +
            ", \"op\": " + (violation.op ? json_quoted(to_text(s, violation.op)) : "null") +
            ", \"message\": " + json_quoted(violation.message) + "}";
  }
  text += "], \"inside\": [";
  for (const InsideSum& sum : checked.inside) {
    if (&sum != &checked.inside.front()) text += ", ";
    text += "{\"group\": \"" + std::string(traits(kind_along(sum.axis)).name) + "\", \"op\": \"" +
            std::string(word_of(sum.kind)) + "\", \"count\": " + std::to_string(sum.count) +
            ", \"bytes\": " + std::to_string(sum.bytes) + "}";
  }
  text += "]";
  if (checked.above_bound) text += fmt::format(", \"above_bound\": {}", *checked.above_bound);
  return text + ", \"unreported\": " + std::to_string(validation.unreported) +
         ", \"cycle\": " + cycle_json(checked) + "}";
}

int check(const CheckOptions& options) {
  int worst = kDone;
  bool all_sound = true;
  std::string text;
  for (const std::string& path : options.files) {
    Result<Checked> checked = check_file(path, options);
    if (!checked) {
      print_error(checked.error().message);
      worst = kBadInput;
      continue;
    }
    Checked result = std::move(checked).value();
    result.path = path;
    if (!result.note.empty()) print_error(path + ": " + result.note);
    if (!result.validation.sound()) {
      worst = std::max<int>(worst, kNo);
      all_sound = false;
    }
    if (!options.json) {
      text += text_of(result, options);
    } else {
      text += (text.empty() ? "" : ",\n  ") + json_of(result, options);
    }
  }
  if (options.json) {
    text = std::string("{\"sound\": ") + (all_sound && worst == kDone ? "true" : "false") +
           ", \"files\": [\n  " + text + "]}\n";
  }
  print_text(text);
  return worst;
}

}  // namespace

Command check_command() {
  const auto o = std::make_shared<CheckOptions>();
  Command command{"check", "prove a scenario's schedule, or somebody's own (CSV or JSON)"};
  command.options = {
      required({"FILE", &o->files, "schedule or scenario files; - is standard input"}),
      {"--streams", &o->streams_name, "how transfers share in-order queues",
       names_of(kStreamModels)},
      {"--transfers", &o->transfers_name, "order of our transfers, for compute orders",
       names_of(kTransferPolicies)},
      {"--stages", &o->stages, "pipeline positions that the file must have", Whole{1, 1 << 20}},
      {"--json", &o->json, "one JSON document on stdout"},
  };
  command.footer =
      "Exit code 0: sound, 1: not sound (the reason is on stdout), 2: unreadable.\n"
      "Example: rehearse schedule --schedule zb_h1 --stages 4 --microbatches 8 --format csv > "
      "order.csv; rehearse check order.csv --streams peer";
  command.perform = [o](const Given&) {
    o->streams = *find_stream_model(o->streams_name);
    o->transfers = *find_transfer_policy(o->transfers_name);
    return check(*o);
  };
  return command;
}

}  // namespace rehearse::cli
