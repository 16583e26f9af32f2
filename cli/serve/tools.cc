// SPDX-License-Identifier: Apache-2.0
#include "cli/serve/tools.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <type_traits>

#include "cli/commands.h"

namespace rehearse::cli {

const std::vector<Tool>& tools() {
  static const std::vector<Tool> all{
      {.name = "plan",
       .title = "Plan a training run",
       .about =
           "The shortest way to an answer: a model (a Hugging Face config.json, or the id of a "
           "shipped model), a number of GPUs and a cluster give the recommended layout, its "
           "step time with low_s and high_s, memory, what limits it and the flags that launch "
           "it. `assumed` says what was left out and taken. Where nothing fits, `ways` says "
           "what would.",
       .make = plan_command,
       .left_out = {"save", "adapter", "base"},
       .documents = {"config", "on"}},
      {.name = "simulate",
       .title = "Predict one training step",
       .about = "Time, memory of every rank, bubbles by cause and communication of one plan. "
                "`confidence` has the band (low_s, high_s), the validated measurements behind it "
                "and how much rests on measured, interpolated, formula and datasheet costs; "
                "`notes` say what was assumed; `memory.instead` names the nearest plan that fits.",
       .make = simulate_command,
       .left_out = {"trace", "csv", "svg"},
       .documents = {"scenario", "cluster"},
       .shows_schema = true},
      {.name = "search",
       .title = "Find the best plans",
       .about = "The best plans for a scenario's model on its cluster, ranked by predicted step "
                "time among those that fit. A key of the plan that is a list, or null by `set`, is "
                "searched. Takes from a second to minutes: fix what is known.",
       .make = search_command,
       .left_out = {"save", "svg", "csv", "threads"},
       .documents = {"scenario", "cluster"}},
      {.name = "check",
       .title = "Prove a schedule",
       .about =
           "Whether a scenario's pipeline schedule, or somebody's own (a file of CSV or JSON), "
           "is sound: deadlocks with their cycle, unmatched transfers, lifetimes.",
       .make = check_command,
       .documents = {"file"}},
      {.name = "explain",
       .title = "Why one step takes longer than another",
       .about = "Two scenarios, reports or traces: causes that add up to the difference in "
                "nanoseconds, keys that differ, memory, one sentence. `set` changes keys of b.",
       .make = explain_command,
       .left_out = {"svg"},
       .documents = {"a", "b"}},
      {.name = "list",
       .title = "What is shipped",
       .about = "Ids that the other tools take: models, clusters, scenarios, schedules, runtimes.",
       .make = list_command},
  };
  return all;
}

const Tool* find_tool(std::string_view name) {
  const auto found = std::ranges::find(tools(), name, &Tool::name);
  return found == tools().end() ? nullptr : &*found;
}

namespace {

bool has(const std::vector<std::string_view>& names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

// "--global-batch" -> "global_batch", "SCENARIO" -> "scenario".
std::string argument_name(const Option& option) {
  std::string name = option.name.substr(option.name.rfind(',') + 1);
  name.erase(0, name.find_first_not_of('-'));
  for (char& c : name) c = c == '-' ? '_' : static_cast<char>(std::tolower(c));
  return name;
}

// An argument of a tool.
struct Argument {
  std::string name;
  const Option* option;
  bool document = false;
  bool list = false;
  bool keys = false;  // an object of keys and their values: --set

  bool flag() const { return std::holds_alternative<bool*>(option->to); }
  // JSON Schema's word for one value.
  std::string_view type() const {
    return std::visit(
        [](auto* to) -> std::string_view {
          using To = std::remove_pointer_t<decltype(to)>;
          if constexpr (std::is_same_v<To, bool>) {
            return "boolean";
          } else if constexpr (std::is_same_v<To, std::string> ||
                               std::is_same_v<To, std::vector<std::string>>) {
            return "string";
          } else if constexpr (std::is_same_v<To, double> ||
                               std::is_same_v<To, std::vector<double>>) {
            return "number";
          } else {
            return "integer";
          }
        },
        option->to);
  }
};

std::vector<Argument> arguments_of(const Tool& tool, const Command& command) {
  std::vector<Argument> all;
  for (const Option& option : command.options) {
    const std::string name = argument_name(option);
    if (name == "json" || option.writes || has(tool.left_out, name)) continue;
    const bool list = std::holds_alternative<std::vector<std::string>*>(option.to) ||
                      std::holds_alternative<std::vector<std::int32_t>*>(option.to) ||
                      std::holds_alternative<std::vector<double>*>(option.to);
    all.push_back({.name = name,
                   .option = &option,
                   .document = has(tool.documents, name),
                   .list = list,
                   .keys = name == "set"});
  }
  return all;
}

void add_range(Json& schema, const Option& option) {
  if (const auto* words = std::get_if<Choices>(&option.takes)) schema["enum"] = Json(*words);
  if (const auto* whole = std::get_if<Whole>(&option.takes)) {
    schema["minimum"] = whole->least;
    schema["maximum"] = whole->most;
  }
  if (const auto* number = std::get_if<Number>(&option.takes)) {
    schema["minimum"] = number->least;
    schema["maximum"] = number->most;
  }
}

Json schema_of(const Tool& tool, const Argument& argument, const Json& scenario) {
  const Option& option = *argument.option;
  if (argument.keys) {
    return {{"type", "object"},
            {"description",
             "keys of the scenario to change, and their values: {\"plan.micro_batch\": 2}"}};
  }
  Json one{{"type", argument.type()}};
  add_range(one, option);
  if (argument.document) {
    const bool whole = tool.shows_schema && argument.name == "scenario";
    if (whole) {
      Json inside = scenario;
      inside.erase("$schema");
      one = Json{{"anyOf", Json::array({Json{{"type", "string"}}, inside})}};
    } else {
      one["type"] = Json::array({"string", "object"});
    }
  }
  Json schema = argument.list ? Json{{"type", "array"}, {"items", one}} : one;
  std::string about = option.help;
  if (argument.document) {
    about += "; a path, the id of a shipped one, or the document itself";
    if (argument.name == "scenario" && !tool.shows_schema) about += " (as simulate has it)";
  }
  schema["description"] = about;
  return schema;
}

// A value as JSON on one line, its beginning where it is long.
std::string shown(const JsonValue& value) {
  constexpr std::size_t kMost = 60;
  std::string text = to_json_text(value);
  std::ranges::replace(text, '\n', ' ');
  return text.size() <= kMost ? text : text.substr(0, kMost) + "...";
}

// Whether a value is what the argument takes, told in words.
Result<> check_value(const Argument& argument, const JsonValue& value) {
  const std::string_view type = argument.type();
  const bool right = type == "boolean"   ? value.is(JsonKind::Bool)
                     : type == "integer" ? value.is(JsonKind::Integer)
                     : type == "number"  ? value.is_number()
                     : argument.document ? value.is(JsonKind::String) || value.is(JsonKind::Object)
                                         : value.is(JsonKind::String);
  const auto* whole = std::get_if<Whole>(&argument.option->takes);
  const auto* number = std::get_if<Number>(&argument.option->takes);
  const double least = whole != nullptr    ? whole->least
                       : number != nullptr ? number->least
                                           : value.number;
  const double most = whole != nullptr    ? whole->most
                      : number != nullptr ? number->most
                                          : value.number;
  if (!right || (value.is_number() && (value.number < least || value.number > most))) {
    std::string wanted = type == "boolean"   ? "true or false"
                         : type == "integer" ? "a whole number"
                         : type == "number"  ? "a number"
                         : argument.document ? "a text or an object"
                                             : "a text";
    if (whole != nullptr || number != nullptr) {
      wanted += whole != nullptr ? fmt::format(" from {} to {}", whole->least, whole->most)
                                 : fmt::format(" from {:g} to {:g}", number->least, number->most);
    }
    return Error{fmt::format("{}: must be {}, not {}", argument.name, wanted, shown(value))};
  }
  if (!value.is(JsonKind::String)) return {};
  if (value.text.find('\0') != std::string::npos) {
    return Error{argument.name + ": holds a zero byte"};
  }
  if (argument.document && value.text == "-") {
    return Error{argument.name +
                 ": standard input carries messages here; give the document itself"};
  }
  if (const auto* words = std::get_if<Choices>(&argument.option->takes)) {
    const std::vector<std::string_view> known(words->begin(), words->end());
    if (std::ranges::find(known, value.text) == known.end()) {
      return Error{argument.name + ": there is no " + json_excerpt(value.text) +
                   what_is_known(value.text, known)};
    }
  }
  return {};
}

// Adds the words for one value of an argument.
void add_words(CommandLine& line, const Argument& argument, const JsonValue& value) {
  const bool positional = !argument.option->name.starts_with('-');
  const std::string flag =
      positional ? "" : argument.option->name.substr(argument.option->name.rfind(',') + 1) + "=";
  if (value.is(JsonKind::Object)) {
    line.documents.push_back({line.words.size(), argument.name, to_json_text(value)});
    line.words.push_back(flag);
  } else if (value.is(JsonKind::String)) {
    line.words.push_back(flag + value.text);
  } else {
    line.words.push_back(flag + to_json_text(value));
  }
}

Result<> add_argument(CommandLine& line, const Argument& argument, const JsonValue& value) {
  if (argument.keys) {
    if (!value.is(JsonKind::Object)) {
      return Error{argument.name +
                   ": must be an object of keys and values: " + "{\"plan.micro_batch\": 2}"};
    }
    for (const JsonMember& member : value.members) {
      if (member.key.find('\0') != std::string::npos || member.key.find('=') != std::string::npos) {
        return Error{argument.name + ": " + json_excerpt(member.key) + " is no key"};
      }
      // A text that is no JSON is that text on the command line, too.
      const bool plain =
          member.value.is(JsonKind::String) && !parse_json(member.value.text, member.key);
      line.words.push_back("--set=" + member.key + "=" +
                           (plain ? member.value.text : to_json_text(member.value)));
    }
    return {};
  }
  if (!argument.list) {
    const Result<> good = check_value(argument, value);
    if (!good) return good.error();
    if (!argument.flag()) {
      add_words(line, argument, value);
    } else if (value.boolean) {
      line.words.push_back(argument.option->name);
    }
    return {};
  }
  // One value stands for a list of one.
  const bool several = value.is(JsonKind::Array);
  if (several && value.items.empty()) return Error{argument.name + ": is an empty list"};
  for (const JsonValue& item : several ? value.items : std::vector<JsonValue>{value}) {
    const Result<> good = check_value(argument, item);
    if (!good) return good.error();
    add_words(line, argument, item);
  }
  return {};
}

}  // namespace

Json tool_json(const Tool& tool, const Json& scenario) {
  const Command command = tool.make();
  Json properties = Json::object(), wanted = Json::array();
  for (const Argument& argument : arguments_of(tool, command)) {
    properties[argument.name] = schema_of(tool, argument, scenario);
    if (argument.option->required) wanted.push_back(argument.name);
  }
  return {{"name", tool.name},
          {"title", tool.title},
          {"description", tool.about},
          {"inputSchema",
           {{"type", "object"},
            {"properties", properties},
            {"required", wanted},
            {"additionalProperties", false}}},
          {"annotations", {{"readOnlyHint", true}, {"openWorldHint", false}}}};
}

Result<CommandLine> command_line(const Tool& tool, const JsonValue& arguments) {
  const Command command = tool.make();
  const std::vector<Argument> known = arguments_of(tool, command);
  const auto wrong = [&tool](const std::string& what) {
    return Error{std::string(tool.name) + ": " + what};
  };
  for (const JsonMember& member : arguments.members) {
    if (std::ranges::find(known, member.key, &Argument::name) != known.end()) continue;
    std::vector<std::string_view> names;
    for (const Argument& argument : known) names.push_back(argument.name);
    return wrong("there is no argument " + json_excerpt(member.key) +
                 what_is_known(member.key, names));
  }
  CommandLine line{.words = {"rehearse", std::string(tool.name), "--json"}};
  for (const bool positional : {false, true}) {
    if (positional) line.words.emplace_back("--");  // what follows is no flag, whatever it is
    for (const Argument& argument : known) {
      if (argument.option->name.starts_with('-') == positional) continue;
      const JsonValue* value = arguments.given(argument.name);
      if (value == nullptr && argument.option->required) {
        return wrong(argument.name + " is missing: " + argument.option->help);
      }
      if (value == nullptr) continue;
      const Result<> added = add_argument(line, argument, *value);
      if (!added) return wrong(added.error().message);
    }
  }
  return line;
}

}  // namespace rehearse::cli
