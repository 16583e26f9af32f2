// SPDX-License-Identifier: Apache-2.0
// Reads files of measured cases.
#include <array>
#include <cmath>
#include <filesystem>

#include "schedules/base/json_keys.h"
#include "schedules/base/json_reader.h"
#include "schedules/scenario/keys/scenario_keys.h"
#include "sim/accuracy/case_words.h"
#include "sim/accuracy/validation.h"

namespace rehearse::sim {
namespace {

constexpr KeySpec kTimeKeys[] = {
    {.name = "F", .types = kNumber, .min = 0, .required = true, .about = "Forward"},
    {.name = "I", .types = kNumber, .min = 0, .about = "Gradient of the input"},
    {.name = "W", .types = kNumber, .min = 0, .about = "Gradient of the weights"},
    {.name = "comm", .types = kNumber, .min = 0, .about = "One transfer"},
    {.name = "FB", .types = kNumber, .min = 0, .about = "An overlapped pair"},
};
constexpr KeyTable kTimes{.title = "times", .keys = kTimeKeys};

constexpr KeySpec kScheduleKeys[] = {
    {.name = "name", .types = kString, .required = true, .about = "A schedule's name"},
    {.name = "stages",
     .types = kInteger,
     .min = 1,
     .max = 65536,
     .required = true,
     .about = "Pipeline positions"},
    {.name = "microbatches",
     .types = kInteger,
     .min = 1,
     .max = 1048576,
     .required = true,
     .about = "Per step"},
    {.name = "chunks", .types = kInteger, .min = 1, .max = 1024, .about = "Per position"},
    {.name = "group_size", .types = kInteger, .min = 1, .max = 1048576, .about = "N, interleaved"},
    {.name = "extra_warmup", .types = kInteger, .min = 0, .max = 1048576, .about = "Interleaved"},
    {.name = "slices", .types = kInteger, .min = 1, .max = 65536, .about = "seq_1f1b"},
    {.name = "memory_limit",
     .types = kNumber,
     .min = 0,
     .above_min = true,
     .about = "Times 1F1B's peak activations"},
    {.name = "times", .types = kObject, .members = &kTimes, .about = "Of one position"},
};
constexpr KeyTable kSchedule{.title = "schedule", .keys = kScheduleKeys};

constexpr KeySpec kPrecisionKeys[] = {
    {.name = "parameters",
     .types = kInteger,
     .min = 0,
     .max = 64,
     .required = true,
     .about = "Bytes per parameter"},
    {.name = "gradients",
     .types = kInteger,
     .min = 0,
     .max = 64,
     .required = true,
     .about = "Bytes per parameter"},
    {.name = "optimizer",
     .types = kInteger,
     .min = 0,
     .max = 64,
     .required = true,
     .about = "Bytes per parameter"},
    {.name = "compute", .types = kString, .about = "Type of the matrix products"},
};
constexpr KeyTable kPrecision{.title = "precision", .keys = kPrecisionKeys};

constexpr KeySpec kStatesKeys[] = {
    {.name = "parameters",
     .types = kInteger,
     .min = 1,
     .max = 1e15,
     .required = true,
     .about = "Of the whole model"},
    {.name = "data_parallel",
     .types = kInteger,
     .min = 1,
     .max = 16777216,
     .required = true,
     .about = "Ranks"},
    {.name = "zero_stage",
     .types = kInteger,
     .min = 0,
     .max = 3,
     .required = true,
     .about = "ZeRO"},
    {.name = "precision",
     .types = kObject,
     .members = &kPrecision,
     .required = true,
     .about = "Bytes per parameter"},
};
constexpr KeyTable kStates{.title = "states", .keys = kStatesKeys};

constexpr KeySpec kStageKeys[] = {
    {.name = "scenario", .types = kObject, .required = true, .about = "A scenario"},
    {.name = "position",
     .types = kInteger,
     .min = 0,
     .max = 65535,
     .required = true,
     .about = "Of the pipeline"},
};
constexpr KeyTable kStage{.title = "stage", .keys = kStageKeys};

const KeySpec kCaseKeys[] = {
    {.name = "id", .types = kString, .required = true, .about = "Name of the case"},
    {.name = "source", .types = kString, .about = "Where it was published"},
    {.name = "group", .types = kString, .about = "The same for plans that compete"},
    {.name = "scenario", .types = kObject, .about = "A scenario"},
    {.name = "layer", .types = kObject, .about = "A scenario of which one layer is timed"},
    {.name = "stage", .types = kObject, .members = &kStage, .about = "A stage to time"},
    {.name = "moe_layer",
     .types = kObject,
     .members = &moe_layer_key_table(),
     .about = "A layer of experts to time"},
    {.name = "schedule", .types = kObject, .members = &kSchedule, .about = "An order to time"},
    {.name = "states", .types = kObject, .members = &kStates, .about = "Model states"},
    {.name = "measured", .types = kObject, .required = true, .about = "What was measured"},
    {.name = "reported", .types = kObject, .about = "What the source printed; not scored"},
    {.name = "tolerance", .types = kObject, .about = "Absolute, per key of measured"},
    {.name = "kind", .types = kString, .about = "formula: a paper's formula, not a measurement"},
    {.name = "measure", .types = kString, .about = "Which ratio bubble_ratio is"},
    {.name = "uncertain", .types = kArray, .about = "What the source does not say"},
    {.name = "note", .types = kString, .about = "Remarks"},
};
const KeyTable kCase{.title = "case", .keys = kCaseKeys, .open = true};

constexpr KeySpec kFileKeys[] = {
    {.name = "source", .types = kString, .about = "Where the cases come from"},
    {.name = "about", .types = kString, .about = "What they are"},
    {.name = "noise_floor", .types = kString, .about = "How far equal runs lie apart"},
    {.name = "cases", .types = kArray, .required = true, .about = "The cases"},
};
constexpr KeyTable kFile{.title = "measured cases", .keys = kFileKeys, .open = true};

double number_or(const JsonValue& object, std::string_view key, double otherwise) {
  const JsonValue* value = object.given(key);
  return value == nullptr ? otherwise : value->number;
}
template <class T>
T integer_or(const JsonValue& object, std::string_view key, T otherwise) {
  const JsonValue* value = object.given(key);
  return value == nullptr ? otherwise : static_cast<T>(value->integer);
}
std::string text_or_empty(const JsonValue& object, std::string_view key) {
  const JsonValue* value = object.given(key);
  return value == nullptr ? std::string() : value->text;
}

ScheduleCase schedule_case(const JsonValue& value) {
  ScheduleCase read{.name = text_or_empty(value, "name")};
  read.shape.positions = integer_or(value, "stages", 1);
  read.shape.microbatches = integer_or(value, "microbatches", 1);
  read.shape.chunks = integer_or(value, "chunks", 0);
  read.shape.group_size = integer_or(value, "group_size", 0);
  read.shape.extra_warmup = integer_or(value, "extra_warmup", 0);
  read.shape.slices = integer_or(value, "slices", 0);
  read.shape.memory_limit = number_or(value, "memory_limit", 0);
  if (const JsonValue* times = value.given("times")) {
    read.times = {.forward = number_or(*times, "F", 1),
                  .input_gradient = number_or(*times, "I", 1),
                  .weight_gradient = number_or(*times, "W", 1),
                  .transfer = number_or(*times, "comm", 0),
                  .pair = number_or(*times, "FB", -1)};
  }
  return read;
}

StatesCase states_case(const JsonValue& value) {
  StatesCase read{.parameters = integer_or<std::int64_t>(value, "parameters", 0),
                  .data_parallel = integer_or(value, "data_parallel", 1),
                  .zero_stage = integer_or(value, "zero_stage", 0)};
  const JsonValue& precision = *value.given("precision");
  read.precision.name = "custom";
  read.precision.parameters = integer_or(precision, "parameters", 0);
  read.precision.gradients = integer_or(precision, "gradients", 0);
  read.precision.optimizer = integer_or(precision, "optimizer", 0);
  return read;
}

// Plans compete where source, model, cluster, GPUs, global batch and sequence are the same.
std::string group_of(const Scenario& scenario, const std::string& source) {
  const Transformer& model = scenario.model;
  const Plan& plan = scenario.plan;
  std::string text = source + " " + std::filesystem::path(scenario.cluster.path).stem().string();
  for (const std::int64_t size :
       {std::int64_t{model.layers}, std::int64_t{model.hidden}, std::int64_t{scenario.gpus},
        std::int64_t{plan.global_batch}, std::int64_t{plan.sequence_length}}) {
    text += " " + std::to_string(size);
  }
  return text;
}

class CaseReader {
 public:
  CaseReader(const std::string& path, const ScenarioOptions& options)
      : report_(path), options_(options) {}

  // A malformed case is skipped, with what could be read of `measured`.
  ValidationCase read(const JsonValue& value, std::size_t index) {
    ValidationCase entry{.id = "cases[" + std::to_string(index) + "]", .line = value.line};
    const JsonValue* id = value.is(JsonKind::Object) ? value.given("id") : nullptr;
    if (id == nullptr || !id->is(JsonKind::String)) {
      report_.fail(value.line, entry.id + ".id", "every case needs a text `id`");
    } else {
      entry.id = id->text;
      check_keys(value, kCase, "", report_);
    }
    if (report_.ok()) what(value, entry);
    if (report_.ok()) {
      measured(value, entry);
    } else if (const JsonValue* seen =
                   value.is(JsonKind::Object) ? value.given("measured") : nullptr;
               seen != nullptr && seen->is(JsonKind::Object)) {
      const Error first = report_.error();
      report_ = JsonReport(report_.path());
      measured(value, entry);
      entry.skipped = first.message;
    }
    if (entry.skipped.empty() && !report_.ok()) entry.skipped = report_.error().message;
    if (entry.skipped.empty() && error_.has_value()) entry.skipped = error_->message;
    return entry;
  }

 private:
  // Exactly one of scenario, layer, stage, moe_layer, schedule, states.
  void what(const JsonValue& value, ValidationCase& entry) {
    const std::array<std::string_view, 6> forms{"scenario",  "layer",    "stage",
                                                "moe_layer", "schedule", "states"};
    const JsonMember* form = nullptr;
    for (const std::string_view name : forms) {
      if (value.given(name) == nullptr) continue;
      if (form != nullptr) {
        report_.fail(value.find(name)->line, std::string(name),
                     "stands beside `" + form->key + "`");
        return;
      }
      form = value.find(name);
    }
    if (form == nullptr) {
      report_.fail(value.line, "scenario",
                   "missing (or `layer`, `stage`, `moe_layer`, `schedule`, `states`)");
    } else if (form->key == "moe_layer") {
      entry.kind = CaseKind::MoeLayer;
      entry.moe_layer = read_moe_layer(form->value, report_);
    } else if (form->key == "schedule") {
      entry.kind = CaseKind::Schedule;
      entry.schedule = schedule_case(form->value);
    } else if (form->key == "states") {
      entry.kind = CaseKind::States;
      entry.states = states_case(form->value);
    } else if (form->key == "stage") {
      entry.kind = CaseKind::Stage;
      stage(form->value, entry);
    } else {
      entry.kind = form->key == "layer"                        ? CaseKind::Layer
                   : text_or_empty(value, "kind") == "formula" ? CaseKind::Formula
                                                               : CaseKind::Step;
      scenario(form->value, entry);
      if (entry.scenario) take_case_words(value, entry.scenario->plan);
    }
    entry.measure = text_or_empty(value, "measure");
    if (entry.scenario) {
      entry.group = text_or_empty(value, "group");
      if (entry.group.empty()) {
        const JsonValue* source = value.given("source");
        entry.group =
            group_of(*entry.scenario, source != nullptr
                                          ? source->text
                                          : std::filesystem::path(report_.path()).stem().string());
      }
    }
  }

  void stage(const JsonValue& value, ValidationCase& entry) {
    scenario(*value.given("scenario"), entry);
    const JsonValue* position = value.given("position");
    if (entry.scenario && position->integer >= entry.scenario->plan.pipeline_parallel) {
      report_.fail(position->line, "stage.position",
                   "position " + std::to_string(position->integer) + " of " +
                       std::to_string(entry.scenario->plan.pipeline_parallel) + " does not exist");
    }
    entry.position = static_cast<std::int32_t>(position->integer);
  }

  void scenario(const JsonValue& value, ValidationCase& entry) {
    Result<Scenario> read =
        parse_scenario(to_json_text(value), report_.path(), value.line, options_);
    if (read) {
      entry.scenario = std::move(read).value();
    } else if (read.error().unsupported) {
      entry.skipped = read.error().message;
    } else {
      error_ = read.error();
    }
  }

  void figure(const JsonMember& member, const JsonValue* tolerance, std::vector<Figure>& out) {
    if (!member.value.is(JsonKind::Null) && !member.value.is_number()) {
      report_.fail(member.line, "measured." + member.key, "must be a number");
      return;
    }
    Figure figure{.key = member.key};
    if (member.value.is_number()) figure.measured = member.value.number;
    const JsonValue* bound = tolerance == nullptr ? nullptr : tolerance->given(member.key);
    if (bound != nullptr) {
      if (!bound->is_number() || bound->number < 0) {
        report_.fail(bound->line, "tolerance." + member.key, "must be a number of at least 0");
        return;
      }
      figure.tolerance = bound->number;
    }
    out.push_back(std::move(figure));
  }

  void measured(const JsonValue& value, ValidationCase& entry) {
    const JsonValue* tolerance = value.given("tolerance");
    for (const JsonMember& member : value.given("measured")->members) {
      if (member.key == "fits") {
        if (!member.value.is(JsonKind::Bool)) {
          report_.fail(member.line, "measured.fits", "must be true or false");
          return;
        }
        entry.measured_fits = member.value.boolean;
      } else if (member.key == "ranks") {
        ranks(member, tolerance, entry);
      } else {
        figure(member, tolerance, entry.figures);
      }
      if (!report_.ok()) return;
    }
  }

  void ranks(const JsonMember& member, const JsonValue* tolerance, ValidationCase& entry) {
    for (const JsonValue& item : member.value.items) {
      const JsonValue* rank = item.is(JsonKind::Object) ? item.given("rank") : nullptr;
      if (rank == nullptr || !rank->is(JsonKind::Integer) || rank->integer < 0) {
        report_.fail(item.line, "measured.ranks", "an entry needs a `rank` of at least 0");
        return;
      }
      if (entry.scenario && rank->integer >= entry.scenario->gpus) {
        report_.fail(rank->line, "measured.ranks",
                     "rank " + std::to_string(rank->integer) + " of " +
                         std::to_string(entry.scenario->gpus) + " does not exist");
        return;
      }
      RankFigures figures{.rank = static_cast<std::int32_t>(rank->integer)};
      for (const JsonMember& key : item.members) {
        if (key.key != "rank") figure(key, tolerance, figures.figures);
      }
      entry.ranks.push_back(std::move(figures));
    }
  }

  JsonReport report_;
  const ScenarioOptions& options_;
  std::optional<Error> error_;
};

}  // namespace

Result<ValidationFile> read_validation(const std::string& path, const ScenarioOptions& options) {
  const Result<JsonValue> root = read_json(path);
  if (!root) return root.error();
  JsonReport report(path);
  check_keys(root.value(), kFile, "", report);
  if (!report.ok()) return report.error();
  ValidationFile file{.path = path};
  const JsonValue* cases = root.value().given("cases");
  file.cases.reserve(cases->items.size());
  for (std::size_t i = 0; i < cases->items.size(); ++i) {
    file.cases.push_back(CaseReader(path, options).read(cases->items[i], i));
  }
  return file;
}

}  // namespace rehearse::sim
