// SPDX-License-Identifier: Apache-2.0
#include "schedules/frameworks/framework_file.h"

#include <algorithm>
#include <array>
#include <set>

#include "schedules/base/files.h"
#include "schedules/base/json_keys.h"

namespace rehearse {
namespace {

constexpr std::array<std::string_view, 4> kUses{"used", "no_effect", "not_modelled", "refused"};
constexpr std::array<std::string_view, 5> kTakes{"yes", "integer", "number", "text", "list"};
constexpr std::string_view kAssumed = "assumed";
constexpr unsigned kAnything = kBool | kInteger | kNumber | kString | kArray;

constexpr KeySpec text(std::string_view name, bool required = false) {
  return {.name = name, .types = kString, .required = required};
}
constexpr KeySpec texts(std::string_view name) {
  return {.name = name, .types = kArray, .item_types = kString};
}
constexpr KeySpec words(std::string_view name, std::span<const std::string_view> choices) {
  return {.name = name, .types = kString, .choices = choices};
}

constexpr KeySpec kAnyKeys[] = {text("source")};
constexpr KeyTable kAny{.title = "any", .keys = kAnyKeys, .open = true};

constexpr KeySpec kFlagKeys[] = {text("flag", true),
                                 texts("also"),
                                 words("takes", kTakes),
                                 {.name = "default", .types = kAnything},
                                 words("use", kUses),
                                 text("key"),
                                 text("sets"),
                                 {.name = "words", .types = kObject, .members = &kAny},
                                 {.name = "value", .types = kAnything},
                                 text("emit"),
                                 text("group"),
                                 text("unsaid"),
                                 text("alone"),
                                 text("note"),
                                 text("source", true)};
constexpr KeyTable kFlag{.title = "flag", .keys = kFlagKeys};

constexpr KeySpec kFamilyKeys[] = {
    texts("flags"), words("use", kUses), text("note"), {.name = "whole", .types = kBool}};
constexpr KeyTable kFamily{.title = "family", .keys = kFamilyKeys};

constexpr KeySpec kStepKeys[] = {text("let"),         text("set"),   text("refuse"), text("warn"),
                                 text("say"),         text("to"),    text("when"),   text("flag"),
                                 words("use", kUses), text("source")};
constexpr KeyTable kStep{.title = "step", .keys = kStepKeys};

constexpr KeySpec kModelKeys[] = {
    {.name = "flags", .types = kObject, .members = &kAny, .required = true},
    {.name = "model", .types = kObject | kString, .required = true},
    text("source")};
constexpr KeyTable kModel{.title = "model", .keys = kModelKeys};

constexpr KeySpec kEmittedKeys[] = {text("name", true), text("shape", true), texts("groups"),
                                    texts("lines")};
constexpr KeyTable kEmitted{.title = "file", .keys = kEmittedKeys};

constexpr KeySpec kFileKeys[] = {
    text("schema", true),
    text("name", true),
    text("title", true),
    text("about"),
    text("source", true),
    {.name = "sources", .types = kObject, .members = &kAny},
    texts("runtimes"),
    {.name = "signs", .types = kArray, .item_types = kArray},
    text("flags_in"),
    texts("files_in"),
    texts("programs"),
    texts("modules"),
    text("stages_in"),
    {.name = "last_words", .types = kBool},
    text("base"),
    texts("base_flags"),
    {.name = "flags", .types = kArray, .items = &kFlag, .required = true},
    {.name = "families", .types = kArray, .items = &kFamily},
    {.name = "tables", .types = kObject, .members = &kAny},
    {.name = "models", .types = kArray, .items = &kModel},
    {.name = "import", .types = kArray, .items = &kStep, .required = true},
    {.name = "emit", .types = kArray, .items = &kStep},
    {.name = "environment", .types = kArray, .items = &kStep},
    {.name = "files", .types = kArray, .items = &kEmitted},
};
constexpr KeyTable kFile{.title = "framework", .keys = kFileKeys};

std::string text_of(const JsonValue& object, std::string_view key) {
  const JsonValue* value = object.given(key);
  return value == nullptr ? std::string() : value->text;
}
Json json_of(const JsonValue* value) {
  return value == nullptr ? Json() : Json(*value);
}
std::vector<std::string> list_of(const JsonValue& object, std::string_view key) {
  std::vector<std::string> found;
  if (const JsonValue* list = object.given(key)) {
    for (const JsonValue& item : list->items) found.push_back(item.text);
  }
  return found;
}
template <class Enum>
Enum enum_of(const JsonValue& object, std::string_view key, std::span<const std::string_view> names,
             Enum otherwise) {
  const JsonValue* value = object.given(key);
  if (value == nullptr) return otherwise;
  const auto found = std::ranges::find(names, value->text);
  return found == names.end() ? otherwise : static_cast<Enum>(found - names.begin());
}

// Reads the parts of one file; the first error stays in the report.
class FrameworkReader {
 public:
  FrameworkReader(const JsonValue& document, JsonReport& report)
      : document_(document), report_(report) {}

  Framework read() {
    Framework made{.name = text_of(document_, "name"),
                   .title = text_of(document_, "title"),
                   .path = report_.path(),
                   .flags_in = text_of(document_, "flags_in"),
                   .last_words = document_.given("last_words") != nullptr,
                   .files_in = list_of(document_, "files_in"),
                   .programs = list_of(document_, "programs"),
                   .modules = list_of(document_, "modules"),
                   .stages_in = text_of(document_, "stages_in"),
                   .runtimes = list_of(document_, "runtimes")};
    for (const JsonValue& row : items("signs")) {
      std::vector<std::string>& sign = made.signs.emplace_back();
      for (const JsonValue& key : row.items) sign.push_back(key.text);
    }
    for (const JsonValue& row : items("flags")) made.flags.push_back(flag(row));
    for (const JsonValue& row : items("families")) {
      for (const std::string& pattern : list_of(row, "flags")) {
        made.families.push_back({pattern, enum_of(row, "use", kUses, FlagUse::NoEffect),
                                 text_of(row, "note"), row.given("whole") != nullptr});
      }
    }
    if (const JsonValue* tables = document_.given("tables")) {
      for (const JsonMember& table : tables->members) {
        std::vector<std::pair<std::string, Json>> rows;
        for (const JsonMember& row : table.value.members)
          rows.emplace_back(row.key, Json(row.value));
        made.tables.emplace_back(table.key, std::move(rows));
      }
    }
    for (const JsonValue& row : items("models")) {
      NamedModel model{.config = to_json_text(*row.given("model"))};
      for (const JsonMember& one : row.given("flags")->members) {
        model.flags.emplace_back(formula_name(one.key), one.value.text);
      }
      made.models.push_back(std::move(model));
    }
    made.import_steps = steps("import");
    made.emit_steps = steps("emit");
    made.environment = steps("environment");
    for (const JsonValue& row : items("files")) {
      EmittedFile file{.name = text_of(row, "name"),
                       .shape = text_of(row, "shape"),
                       .groups = list_of(row, "groups"),
                       .lines = {}};
      for (const std::string& line : list_of(row, "lines")) {
        Result<Sentence> read = Sentence::parse(line);
        if (!read)
          fail(row, "lines", read.error().message);
        else
          file.lines.push_back(std::move(read).value());
      }
      made.files.push_back(std::move(file));
    }
    return made;
  }

 private:
  std::span<const JsonValue> items(std::string_view key) const {
    const JsonValue* list = document_.given(key);
    return list == nullptr ? std::span<const JsonValue>{} : std::span(list->items);
  }
  void fail(const JsonValue& where, std::string_view key, const std::string& what) {
    report_.fail(where.line, std::string(key), what);
  }
  std::optional<Formula> formula(const JsonValue& row, std::string_view key) {
    const JsonValue* value = row.given(key);
    if (value == nullptr) return {};
    Result<Formula> read = Formula::parse(value->text);
    if (read) return std::move(read).value();
    fail(*value, key, read.error().message);
    return {};
  }

  // Where a row was read: the file whose name in `sources` it has, or nowhere.
  std::string source_of(const JsonValue& row) {
    const std::string name = text_of(row, "source");
    if (name == kAssumed) return name;
    const JsonValue* sources = document_.given("sources");
    const JsonMember* file = sources == nullptr ? nullptr : sources->find(name);
    if (file != nullptr) return file->value.text;
    fail(row, "source",
         json_excerpt(name) + " is neither " + std::string(kAssumed) + " nor a name of sources");
    return {};
  }

  FlagRow flag(const JsonValue& row) {
    FlagRow made{.flag = text_of(row, "flag"),
                 .also = list_of(row, "also"),
                 .takes = enum_of(row, "takes", kTakes, Takes::Text),
                 .standard = json_of(row.given("default")),
                 .use = enum_of(row, "use", kUses, FlagUse::Used),
                 .key = text_of(row, "key"),
                 .note = text_of(row, "note"),
                 .unsaid = text_of(row, "unsaid"),
                 .alone = text_of(row, "alone"),
                 .value = json_of(row.given("value")),
                 .emit = formula(row, "emit"),
                 .group = text_of(row, "group"),
                 .source = source_of(row)};
    made.name = formula_name(made.flag);
    if (const JsonValue* sets = row.given("sets")) {
      made.sets = true;
      made.key = sets->text;
    }
    if (made.takes == Takes::Yes && made.value.is_null()) made.value = Json(true);
    if (const JsonValue* list = row.given("words")) {
      for (const JsonMember& word : list->members) {
        made.words.emplace_back(word.key, Json(word.value));
      }
    }
    if (!seen_.insert(made.flag).second) fail(row, "flags", made.flag + " stands there twice");
    return made;
  }

  std::vector<Step> steps(std::string_view key) {
    static constexpr std::array<std::string_view, 5> kKinds{"let", "set", "refuse", "warn", "say"};
    std::vector<Step> made;
    for (const JsonValue& row : items(key)) {
      Step step;
      std::size_t kinds = 0;
      for (std::size_t i = 0; i < kKinds.size(); ++i) {
        const JsonValue* value = row.given(kKinds[i]);
        if (value == nullptr) continue;
        ++kinds;
        step.kind = static_cast<Step::Kind>(i);
        if (step.kind == Step::Kind::Let || step.kind == Step::Kind::Set) {
          step.name = value->text;
          continue;
        }
        Result<Sentence> read = Sentence::parse(value->text);
        if (!read)
          fail(*value, kKinds[i], read.error().message);
        else
          step.text = std::move(read).value();
        step.name = text_of(row, "flag");
      }
      if (kinds != 1) fail(row, key, "a step is one of let, set, refuse, warn, say");
      step.to = formula(row, "to");
      step.when = formula(row, "when");
      step.use = enum_of(row, "use", kUses, FlagUse::Used);
      made.push_back(std::move(step));
    }
    return made;
  }

  const JsonValue& document_;
  JsonReport& report_;
  std::set<std::string> seen_;
};

// Names that no file says: what a launch, a model or the step's size give.
bool is_common(std::string_view name) {
  static constexpr std::array<std::string_view, 7> kCommon{"gpus",          "nodes",   "d",   "m",
                                                           "gpus_per_node", "devices", "base"};
  static constexpr std::array<std::string_view, 5> kPrefixes{"plan.", "model.", "train.", "env.",
                                                             "set."};
  return std::ranges::find(kCommon, name) != kCommon.end() ||
         std::ranges::any_of(kPrefixes, [&](auto prefix) { return name.starts_with(prefix); });
}

void check_names(const Framework& framework, std::span<const Step> steps, JsonReport& report) {
  std::set<std::string> lets;
  for (const Step& step : steps) {
    std::vector<std::string> names = step.text.names();
    for (const auto* formula : {&step.to, &step.when}) {
      if (!*formula) continue;
      for (std::string& name : (*formula)->names()) names.push_back(std::move(name));
    }
    for (const std::string& name : names) {
      if (is_common(name) || lets.contains(name) || framework.find_by_name(name) != nullptr)
        continue;
      report.fail(0, "import", "a formula asks for " + name + ", which is no flag");
    }
    if (step.kind == Step::Kind::Let) lets.insert(step.name);
  }
}

}  // namespace

std::string_view name_of(FlagUse use) {
  return kUses[static_cast<std::size_t>(use)];
}

std::string formula_name(std::string_view flag) {
  while (flag.starts_with('-')) flag.remove_prefix(1);
  std::string name(flag);
  std::ranges::replace(name, '-', '_');
  return name;
}

bool FlagRow::is_spelled(std::string_view as) const {
  if (!flag.starts_with("--") && as.starts_with("--")) as.remove_prefix(2);
  return as == flag || std::ranges::find(also, as) != also.end();
}

bool Framework::names_models() const {
  return !models.empty() || std::ranges::any_of(import_steps, [](const Step& step) {
    return step.kind == Step::Kind::Set && step.name.starts_with("model.");
  });
}

const FlagRow* Framework::find(std::string_view flag) const {
  const std::string wanted = formula_name(flag);
  for (const FlagRow& row : flags) {
    if (row.absent) continue;
    if (row.name == wanted) return &row;
    for (const std::string& older : row.also) {
      if (formula_name(older) == wanted) return &row;
    }
  }
  const std::size_t dot = wanted.rfind('.');
  if (!last_words || dot == std::string::npos) return nullptr;
  const FlagFamily* of = family(flag);
  return of != nullptr && of->whole ? nullptr : find(wanted.substr(dot + 1));
}

const FlagRow* Framework::find_by_name(std::string_view wanted) const {
  const auto found = std::ranges::find(flags, wanted, &FlagRow::name);
  return found == flags.end() ? nullptr : &*found;
}

const FlagFamily* Framework::family(std::string_view flag) const {
  std::string last = "--" + std::string(flag.substr(flag.rfind('.') + 1));  // as an argument
  std::ranges::replace(last, '_', '-');
  const std::string of_document = formula_name(flag);  // that stands on a command line
  const auto found = std::ranges::find_if(families, [&](const FlagFamily& f) {
    return matches(f.pattern, flag) || matches(f.pattern, of_document) ||
           (last_words && matches(f.pattern, last));
  });
  return found == families.end() ? nullptr : &*found;
}

std::string Framework::nearest_flag(std::string_view flag) const {
  std::vector<std::string_view> known;
  for (const FlagRow& row : flags) {
    if (!row.absent) known.push_back(row.flag);
  }
  return std::string(nearest(flag.substr(0, 64), known));
}

Json Framework::lookup(const std::string& table, const std::string& text) const {
  for (const auto& [called, rows] : tables) {
    if (called != table) continue;
    for (const auto& [pattern, value] : rows) {
      if (matches(pattern, text)) return value;
    }
  }
  return Json();
}

namespace {

// What a framework has of the one that it is made of: rows that it has none of its own for,
// families, tables; the other's steps follow its own. `flags`: those of the other that it has;
// none: all.
void build_on(Framework& made, Framework base, const std::vector<std::string>& flags) {
  for (FlagRow& row : base.flags) {
    if (made.find_by_name(row.name) != nullptr) continue;
    row.absent = !flags.empty() && std::ranges::find(flags, row.flag) == flags.end();
    made.flags.push_back(std::move(row));
  }
  const auto append = [](auto& to, auto& from) {
    for (auto& one : from) to.push_back(std::move(one));
  };
  append(made.families, base.families);
  append(made.tables, base.tables);
  append(made.import_steps, base.import_steps);
  if (made.files.empty()) return;
  append(made.emit_steps, base.emit_steps);
}

}  // namespace

Result<Framework> parse_framework(const JsonValue& document, const std::string& path) {
  JsonReport report(path);
  check_keys(document, kFile, "", report);
  if (!report.ok()) return report.error();
  Framework made = FrameworkReader(document, report).read();
  if (const JsonValue* base = document.given("base"); base != nullptr && report.ok()) {
    if (base->text == made.name) report.fail(base->line, "base", "a framework is not its own base");
    Result<Framework> read =
        report.ok() ? read_framework(base->text) : Result<Framework>(report.error());
    if (!read) return read.error();
    for (const std::string& flag : list_of(document, "base_flags")) {
      if (read.value().find_by_name(formula_name(flag)) == nullptr) {
        report.fail(base->line, "base_flags", base->text + " has no " + flag);
      }
    }
    build_on(made, std::move(read).value(), list_of(document, "base_flags"));
  }
  check_names(made, made.import_steps, report);
  if (!report.ok()) return report.error();
  return made;
}

Result<Framework> read_framework(const std::string& name) {
  const std::string path = shipped_directory() + "/frameworks/" + name + ".json";
  const Result<JsonValue> read = read_json(path);
  if (!read) return read.error();
  return parse_framework(read.value(), path);
}

Result<Framework> framework_named(const std::string& name) {
  const std::vector<std::string> names = framework_names();
  if (std::ranges::find(names, name) != names.end()) return read_framework(name);
  const std::vector<std::string_view> known(names.begin(), names.end());
  return Error{json_excerpt(name) + ": no such framework" + what_is_known(name, known)};
}

std::vector<std::string> framework_names() {
  std::vector<std::string> names = shipped_names("frameworks");
  std::erase(names, "released");
  return names;
}

}  // namespace rehearse
