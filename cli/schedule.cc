// SPDX-License-Identifier: Apache-2.0
// rehearse schedule: an order by name or from a scenario; proved, timed, drawn.
#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <numeric>
#include <tuple>

#include "cli/commands.h"
#include "cli/words.h"
#include "schedules/base/json_document.h"
#include "schedules/formats/csv.h"
#include "schedules/formats/schedule_file.h"
#include "schedules/ir/text.h"
#include "schedules/ir/where.h"
#include "schedules/order/order_bound.h"
#include "schedules/order/registry.h"
#include "schedules/proof/validate.h"
#include "schedules/scenario/plan_shape.h"
#include "schedules/scenario/plan_size.h"
#include "schedules/scenario/scenario.h"
#include "schedules/timing/durations.h"
#include "schedules/transfers/evaluation.h"
#include "viz/picture/charts/chart.h"
#include "viz/picture/formats/svg.h"

namespace rehearse::cli {
namespace {

struct ScheduleOptions {
  std::string scenario, name, times, transfers, format = "chart", level = "compute";
  std::vector<std::string> overrides;
  ScheduleShape shape{.positions = 0, .microbatches = 0};
  bool limited = false;                // --memory-limit was given
  std::string shape_flag, order_flag;  // first flag given of all that shape an order; of those that
                                       // a file's order cannot even be held against
  std::int32_t width = 0;
};

// What is asked for, wherever it came from.
struct Request {
  std::string name;
  ScheduleShape shape;
  Ticks ticks;
};

// "group_size: ..." of the registry as the flag it came from: "--group-size: ...".
std::string as_flag(std::string message) {
  const std::size_t colon = message.find(':');
  for (std::size_t i = 0; i < std::min(colon, message.size()); ++i) {
    if (message[i] == '_') message[i] = '-';
  }
  return "--" + message;
}

Error flagged(const Error& error) {
  Error said = error;
  said.message = as_flag(error.message);
  return said;
}

// The compute order of any file: how one takes it out of a lowered one.
Result<Schedule> order_of_file(const std::string& path) {
  Result<ScheduleFile> file = read_schedule_file(path);
  if (!file) return file.error();
  Schedule order = compute_order_of(file.value().schedule);
  if (const OpId beyond{first_beyond_order(file.value().schedule)}; beyond) {
    print_error(path + ": its compute order is shown, without " +
                where(file.value().schedule, beyond) +
                " and the like; rehearse check proves it as it stands");
  }
  return order;
}

// Ticks that every number of chunks in question divides.
Result<Ticks> ticks_for(const Durations& durations, const ScheduleShape& shape) {
  const std::int64_t parts =
      std::lcm<std::int64_t>(2, std::max(1, shape.chunks)) * std::max(1, shape.slices);
  return to_ticks(durations, parts, shape.positions, shape.microbatches);
}

// The request and the order of flags alone: `--schedule NAME --stages P --microbatches M`.
Result<Schedule> order_of_flags(const ScheduleOptions& options, const Durations& durations,
                                Request& request) {
  if (options.name.empty()) return Error{"schedule: give a SCENARIO, or --schedule NAME"};
  if (options.name.starts_with("file:")) {
    Result<Schedule> order = order_of_file(options.name.substr(5));
    if (!order) return order.error();
    request.shape = {.positions = order.value().placement.positions,
                     .microbatches = order.value().microbatches,
                     .chunks = visited_chunks(order.value()),
                     .slices = order.value().slices};
    for (const auto& [flag, asked, has] :
         {std::tuple{"--stages", options.shape.positions, request.shape.positions},
          {"--microbatches", options.shape.microbatches, request.shape.microbatches},
          {"--chunks", options.shape.chunks, request.shape.chunks}}) {
      if (asked == 0 || asked == has) continue;
      return Error{
          fmt::format("{}: {} is not what {} has, {}", flag, asked, options.name.substr(5), has)};
    }
    const Result<Ticks> ticks = ticks_for(durations, request.shape);
    if (!ticks) return flagged(ticks.error());
    request.ticks = ticks.value();
    return order;
  }
  const ScheduleInfo* info = find_schedule(options.name);
  if (info == nullptr) return flagged(generate(options.name, options.shape).error());
  if (options.shape.positions == 0) return Error{"--stages: is required with --schedule"};
  if (options.shape.microbatches == 0) return Error{"--microbatches: is required with --schedule"};
  const Result<ScheduleShape> shape = resolve_shape(*info, options.shape);
  if (!shape) return flagged(shape.error());
  if (const Result<> size = check_order_size(*info, shape.value()); !size)
    return flagged(size.error());
  const Result<Ticks> ticks = ticks_for(durations, shape.value());
  if (!ticks) return flagged(ticks.error());
  request = {.name = std::string(info->name), .shape = shape.value(), .ticks = ticks.value()};
  request.shape.times = request.ticks.times;
  const Result<Schedule> made = generate(info->name, request.shape);
  return made ? made : Result<Schedule>(flagged(made.error()));
}

// The order of a scenario's plan. The durations are those of --times: no cluster is asked.
Result<Schedule> order_of_scenario(const ScheduleOptions& options, const Durations& durations,
                                   Request& request) {
  const Result<Scenario> read =
      read_scenario(options.scenario,
                    {.overrides = options.overrides, .needs_model = false, .needs_cluster = false});
  if (!read) return read.error();
  for (const std::string& warning : read.value().warnings) print_error(warning);
  const Plan& plan = read.value().plan;
  const auto in_file = [&](const Error& error) {
    Error said = error;
    said.message = options.scenario + ": plan." + error.message;
    return said;
  };
  if (plan.schedule.starts_with("file:")) {
    const Result<ScheduleFile> file = read_schedule_file(plan.schedule.substr(5));
    if (!file) return in_file({"schedule: " + file.error().message});
    if (const Result<> alone = order_alone(file.value().schedule, plan.schedule.substr(5)); !alone)
      return in_file({"schedule: " + alone.error().message});
    ScheduleOptions own = options;
    own.name = plan.schedule;
    return order_of_flags(own, durations, request);
  }
  const Result<ScheduleShape> shape = shape_of(plan);
  if (!shape) return in_file(shape.error());
  const ScheduleInfo& info = *find_schedule(plan.schedule);
  if (const Result<> size = check_order_size(info, shape.value()); !size) {
    return in_file(size.error());
  }
  const Result<Ticks> ticks = ticks_for(durations, shape.value());
  if (!ticks) return in_file(ticks.error());
  request = {.name = plan.schedule, .shape = shape.value(), .ticks = ticks.value()};
  request.shape.times = request.ticks.times;
  const Result<Schedule> made = generate(plan.schedule, request.shape);
  return made ? made : Result<Schedule>(in_file(made.error()));
}

Json number(double value) {
  if (value == std::floor(value) && std::abs(value) < 0x1p53) {
    return static_cast<std::int64_t>(value);
  }
  return value;
}

Json numbers(const std::vector<double>& values) {
  Json list = Json::array();
  for (const double value : values) list.push_back(number(value));
  return list;
}

struct Report {
  const Schedule& order;
  const Schedule& shown;  // the order, or the same with transfers
  const Evaluation& evaluation;
  double per_unit;
  OrderBound bound;  // of planned schedules; least 0: none

  double makespan() const {
    return static_cast<double>(evaluation.metrics.makespan.value) / per_unit;
  }
};

std::string to_json(const Report& report) {
  Json json;
  const Schedule& shown = report.shown;
  const ScheduleMetrics& metrics = report.evaluation.metrics;
  json["schedule"] = shown.name;
  json["stages"] = shown.placement.stages();
  json["microbatches"] = shown.microbatches;
  Json orders = Json::array();
  for (RankClass row{0}; row.value < shown.num_rows(); ++row.value) {
    Json ops = Json::array();
    for (std::size_t i = shown.first_op(row); i < shown.first_op({row.value + 1}); ++i) {
      ops.push_back(to_text(shown, OpId{static_cast<std::int32_t>(i)}));
    }
    orders.push_back(std::move(ops));
  }
  json["orders"] = std::move(orders);
  const bool timed = report.evaluation.deadlock_free;
  const bool spent = timed && metrics.makespan.value > 0;
  const auto known = [](bool is, double value) { return is ? Json(value) : Json(nullptr); };
  json["makespan"] = timed ? number(report.makespan()) : Json(nullptr);
  if (report.bound.least > 0) {
    json["makespan_bound"] = number(static_cast<double>(report.bound.least) / report.per_unit);
  }
  json["bubble_ratio"] = known(spent, metrics.bubble_ratio);
  json["bubble_overhead"] = known(spent, metrics.bubble_overhead);
  json["span_bubble_ratio"] = known(spent, metrics.span_bubble_ratio);
  json["peak_activations"] = numbers(metrics.peak_activations);
  json["peak_activations_weighted"] = numbers(metrics.peak_activations_weighted);
  json["deadlock_free"] = timed;
  json["hash"] = content_hash(shown);
  return json.dump() + "\n";
}

// The width of the terminal; a pipe gets 100 columns, whatever the window is.
std::int32_t line_columns(const ScheduleOptions& options) {
  if (options.width > 0) return options.width;
  if (!on_terminal(stdout)) return 100;
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  const char* columns = std::getenv("COLUMNS");
  const int width = columns != nullptr ? std::atoi(columns) : 0;
  return width > 0 ? width : 80;
}

std::string per_rank(const std::vector<double>& values) {
  std::string text;
  for (const double value : values) text += fmt::format(" {:g}", value);
  return text;
}

std::string to_chart(const Report& report, const ScheduleOptions& options) {
  const ScheduleMetrics& metrics = report.evaluation.metrics;
  std::string text = report.shown.name + '\n';
  if (!report.evaluation.deadlock_free) {
    for (const std::string& line : explain(report.evaluation.full, report.evaluation.proof)) {
      text += line + '\n';
    }
    return text;
  }
  text += viz::chart(report.order, report.evaluation.timing,
                     {.columns = line_columns(options), .color = takes_color()});
  if (visited_chunks(report.order) > 1) {
    text += "capital letters are a rank's first chunk, small ones its others\n";
  }
  text +=
      fmt::format("makespan {:g}; of it {:.4f} is bubble, which is {:.4f} of the time at work\n",
                  report.makespan(), metrics.bubble_ratio, metrics.bubble_overhead);
  if (report.bound.least > 0) {
    text += fmt::format(
        "no order of these stages in this memory takes less than {:g}: {:.1f} % from it\n",
        static_cast<double>(report.bound.least) / report.per_unit, 100 * report.bound.above());
  }
  text += fmt::format("from its first op to its last a rank idles {:.4f} of that span at most\n",
                      metrics.span_bubble_ratio);
  text += fmt::format("activations at most, per rank:{}\n", per_rank(metrics.peak_activations));
  if (metrics.peak_activations != metrics.peak_activations_weighted) {
    text += fmt::format("with I freeing half of one:   {}\n",
                        per_rank(metrics.peak_activations_weighted));
  }
  return text + fmt::format("free of deadlock; hash {}\n", content_hash(report.shown));
}

Result<std::string> formatted(const Report& report, const ScheduleOptions& options) {
  if (options.format == "json") return to_json(report);
  if (options.format == "csv") return to_csv(report.shown);
  if (options.format == "svg" && report.evaluation.deadlock_free) {
    const std::string title =
        fmt::format("{}: makespan {:g}, bubble {:.1f} %", report.shown.name, report.makespan(),
                    100 * report.evaluation.metrics.bubble_ratio);
    return viz::svg(viz::chart_scene(report.order, report.evaluation.timing, title,
                                     options.width > 0 ? options.width : 960));
  }
  return to_chart(report, options);
}

// Transfers that cost nothing and whose order nobody asked about do not time the schedule: they
// could only add the waiting behind one another that `--transfers` is there to show.
Result<Evaluation> evaluated(const Schedule& order, const Request& request,
                             const ScheduleOptions& options) {
  const ComputeTimes times =
      divide(request.ticks.times, visited_chunks(order), std::max(1, order.slices));
  const TransferPolicy policy = options.transfers.empty()
                                    ? TransferPolicy::TimeSorted
                                    : *find_transfer_policy(options.transfers);
  Result<Evaluation> made = evaluate(order, times, policy);
  if (!made || !options.transfers.empty() || times.transfer.value > 0) return made;
  Result<ComputeTiming> timing = time_compute(order, times);
  if (!timing) return timing.error();
  Evaluation evaluation = std::move(made).value();
  evaluation.timing = std::move(timing).value();
  evaluation.metrics = measure(order, evaluation.timing);
  return evaluation;
}

// The bound of a planned schedule that is asked for by name.
std::optional<OrderBound> planned_bound(const Schedule& order, const Request& request,
                                        const ScheduleOptions& options) {
  const ScheduleInfo* info = options.scenario.empty() ? find_schedule(options.name) : nullptr;
  if (info == nullptr || !info->planned) return {};
  Result<ScheduleShape> shape = resolve_shape(*info, options.shape);
  if (!shape) return {};
  ScheduleShape asked = std::move(shape).value();
  asked.times = request.ticks.times;
  return bound_of(order, asked);
}

int run(const ScheduleOptions& options) {
  const Result<Durations> durations = parse_durations(options.times);
  if (!durations) return fail(flagged(durations.error()));
  if (!options.scenario.empty() && !options.name.empty()) {
    return fail("schedule: give a SCENARIO or --schedule, not both (--set changes a scenario)");
  }
  if (options.limited && !(options.shape.memory_limit > 0 && options.shape.memory_limit <= 1e6)) {
    return fail("--memory-limit: it must be a number above 0, at most 1e6");
  }
  if (options.scenario.empty() && !options.overrides.empty()) {
    return fail("--set: changes a scenario, and there is none");
  }
  if (!options.shape_flag.empty() && !options.scenario.empty()) {
    return fail(options.shape_flag + ": belongs to --schedule NAME; a scenario's plan says it: " +
                "--set plan.KEY=VALUE changes that");
  }
  if (!options.order_flag.empty() && options.name.starts_with("file:")) {
    return fail(options.order_flag + ": belongs to --schedule NAME; a file lists its own order");
  }
  Request request;
  const Result<Schedule> made = options.scenario.empty()
                                    ? order_of_flags(options, durations.value(), request)
                                    : order_of_scenario(options, durations.value(), request);
  if (!made) return fail(made.error());
  const Schedule& order = made.value();
  const Validation validation = validate(order);
  if (!validation.sound()) {
    return fail(order.name + ": " + validation.violations.front().message, kNo);
  }
  const Result<Evaluation> evaluation = evaluated(order, request, options);
  if (!evaluation) {
    return fail(order.name + ": " + evaluation.error().message, kNo);
  }
  const Schedule& shown = options.level == "full" ? evaluation.value().full : order;
  const Report report{order, shown, evaluation.value(), request.ticks.per_unit,
                      planned_bound(order, request, options).value_or(OrderBound{})};
  const Result<std::string> text = formatted(report, options);
  if (!text) return fail(text.error());
  print_text(text.value());
  if (evaluation.value().deadlock_free) return kDone;
  if (options.format != "chart") {
    print_error(order.name +
                ": hangs: " + cycle_in_one_line(evaluation.value().full, evaluation.value().proof));
  }
  return kNo;
}

// Which flags were given of those that shape an order; a file's order can be held against its
// sizes.
void note_flags(const Given& given, ScheduleOptions& options) {
  const auto is_of = [](const std::string& flag, std::initializer_list<std::string_view> flags) {
    return std::ranges::find(flags, flag) != flags.end();
  };
  for (const std::string& flag : given) {
    const bool size = is_of(flag, {"--stages", "--microbatches", "--chunks"});
    const bool order =
        is_of(flag, {"--group-size", "--extra-warmup", "--slices", "--memory-limit"});
    if ((size || order) && options.shape_flag.empty()) options.shape_flag = flag;
    if (order && options.order_flag.empty()) options.order_flag = flag;
    if (flag == "--memory-limit") options.limited = true;
  }
}

}  // namespace

Command schedule_command() {
  const auto o = std::make_shared<ScheduleOptions>();
  const Whole count{1, 1 << 20};
  Command command{"schedule",
                  "generate a pipeline schedule, prove it, time it with given durations"};
  command.options = {
      {"SCENARIO", &o->scenario, "take the schedule of this scenario's plan"},
      {"--schedule", &o->name, "its name (docs/schedules.md), or file:PATH"},
      {"--stages", &o->shape.positions, "positions of the pipeline", count},
      {"--microbatches", &o->shape.microbatches, "micro-batches per step", count},
      {"--chunks", &o->shape.chunks, "virtual stages per position", count},
      {"--group-size", &o->shape.group_size, "micro-batches per group (interleaved)", count},
      {"--extra-warmup", &o->shape.extra_warmup,
       "forwards more before the first backward (interleaved_1f1b)", Whole{0, 1 << 20}},
      {"--slices", &o->shape.slices, "sequence slices per micro-batch (seq_1f1b, seq_zb_h1)",
       Whole{1, 127}},
      {"--memory-limit", &o->shape.memory_limit,
       "planned schedules: activations as a multiple of 1F1B's peak"},
      {"--times", &o->times, "durations of one position, all its chunks: F=1,I=1,W=1,comm=0,FB=2"},
      {"--transfers", &o->transfers, "order of the transfers", names_of(kTransferPolicies)},
      {"--format", &o->format, "chart, json, csv or svg", Choices{"chart", "json", "csv", "svg"}},
      {"--level", &o->level, "compute, or full: with the transfers", Choices{"compute", "full"}},
      {"--width", &o->width, "columns of the chart, pixels of the picture", Whole{20, 20000}},
      {"--set", &o->overrides, "KEY=VALUE of the scenario (repeatable)"},
  };
  command.footer =
      "Example: rehearse schedule --schedule zb_h1 --stages 4 --microbatches 8 --times "
      "F=2,I=3,W=1";
  command.perform = [o](const Given& given) {
    note_flags(given, *o);
    return run(*o);
  };
  return command;
}

}  // namespace rehearse::cli
