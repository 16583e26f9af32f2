// SPDX-License-Identifier: Apache-2.0
#include "schedules/runtime/runtime_file.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <mutex>

#include "schedules/base/files.h"
#include "schedules/runtime/expert_launch_keys.h"
#include "schedules/runtime/trait_rows.h"

namespace rehearse {
namespace {

constexpr std::size_t kMostBases = 8;

constexpr auto kTraitKeys = [] {
  std::array<KeySpec, kTraitRows.size()> keys;
  for (std::size_t i = 0; i < keys.size(); ++i) keys[i] = kTraitRows[i].key;
  return keys;
}();
constexpr KeyTable kTraitTable{.title = "traits", .keys = kTraitKeys};

// --- Memory (sim/memory/memory_profile.h; docs/memory.md explains letters and conditions)

constexpr double kMaxBytes = 1LL << 50;
constexpr double kNoStage = 9;  // beyond every ZeRO stage

constexpr KeySpec text(std::string_view name, std::string_view about) {
  return {.name = name, .types = kString, .about = about};
}
constexpr KeySpec word(std::string_view name, std::span<const std::string_view> choices,
                       std::string_view about) {
  return {.name = name, .types = kString, .choices = choices, .about = about};
}
constexpr KeySpec object(std::string_view name, const KeyTable& members, std::string_view about) {
  return {.name = name, .types = kObject, .members = &members, .about = about};
}
constexpr KeySpec list(std::string_view name, const KeyTable& items, std::string_view about) {
  return {.name = name,
          .types = kArray,
          .items = &items,
          .item_types = kObject,
          .required = true,
          .about = about};
}
constexpr KeySpec state(std::string_view name, unsigned types, double max, std::string_view about) {
  KeySpec key{.name = name, .types = types, .required = true, .sourced = true, .about = about};
  if (types != kBool) {
    key.min = 0;
    key.max = max;
  }
  return key;
}
constexpr std::array kStateKeys{
    state("contiguous_gradients", kBool, 0, "one buffer for all gradients, alive all the time"),
    state("contiguous_parameters_from_zero_stage", kInteger, kNoStage,
          "from it on parameters are one buffer"),
    state("gather_units_from_zero_stage", kInteger, kNoStage,
          "from it on parameters are gathered unit by unit, in time and memory"),
    state("fp32_gradients_at_step", kBool, 0,
          "16-bit gradients are copied to fp32 for the optimizer"),
    state("moments_at_first_step", kBool, 0, "moments are allocated by the first step"),
    state("default_dropout", kNumber, 1,
          "of models with LayerNorm, where neither model nor plan says"),
    KeySpec{.name = "reduction_buckets",
            .types = kBool,
            .sourced = true,
            .about = "where gradients are no one buffer, replicas sum copies of all of them, which "
                     "stay; left out: they do not"},
    KeySpec{.name = "flattened_on_host",
            .types = kBool,
            .sourced = true,
            .about = "parameters become one buffer in host memory, and come back as it; left out: "
                     "both are on the device for a moment"},
    KeySpec{.name = "gathered_elements",
            .types = kInteger,
            .min = 1,
            .max = kMaxBytes,
            .sourced = true,
            .about = "units are gathered tensor by tensor, the next one while fewer elements are "
                     "there; left out: a whole unit at once"},
    KeySpec{.name = "optimizer_list_if",
            .types = kString,
            .sourced = true,
            .about = "where it holds the update makes a list of 4-byte copies; left out: never"},
};
constexpr KeyTable kStates{.title = "states", .keys = kStateKeys};

constexpr std::array kStepKeys{
    state("from_compute_capability", kInteger, 1000, "of the GPU; the first row has 0"),
    state("bytes", kInteger, kMaxBytes, "from there on"),
};
constexpr KeyTable kStep{.title = "step", .keys = kStepKeys};
constexpr KeySpec by_capability(std::string_view name, std::string_view about) {
  KeySpec key = state(name, kInteger | kArray, kMaxBytes, about);
  key.items = &kStep;
  key.item_types = kObject;
  return key;
}
constexpr std::array kWorkspaceKeys{
    text("name", "for people"),
    by_capability("bytes", "one value, or a list by the GPU's compute capability"),
    text("if", "conditions that must hold; ! negates"),
    text("source", "for people"),
};
constexpr KeyTable kWorkspace{.title = "workspace", .keys = kWorkspaceKeys};
constexpr std::array kConstantKeys{
    list("workspaces", kWorkspace, "of libraries, inside the allocator, kept for good"),
    by_capability("context_bytes", "CUDA context, outside of the allocator"),
    state("communicator_bytes", kInteger, kMaxBytes, "of one communicator, outside of it"),
    state("transfer_buffers", kInteger, 1000, "hand-over tensors in flight during a step"),
    state("stale_transfers_per_chunk", kInteger, 1000,
          "hand-over tensors kept from one step to the next"),
    KeySpec{.name = "remap_us_per_gb",
            .types = kInteger,
            .min = 0,
            .max = 1e6,
            .sourced = true,
            .about = "where a step has to empty the allocator's cache: per 1e9 bytes that it gives "
                     "back and maps anew; left out: nothing"},
};
constexpr KeyTable kConstants{.title = "constants", .keys = kConstantKeys};

constexpr std::array<std::string_view, 5> kKeep{"always", "drop", "saved", "cheap", "streams"};
constexpr std::array<std::string_view, 2> kRecompute{"all", "drop"};
constexpr std::array<std::string_view, 1> kPhases{"W"}, kMixer{"rows"};
constexpr std::array kRowKeys{
    text("+", "allocates this tensor"),
    text("-", "frees this tensor"),
    text("size", "sum of products of letters and numbers"),
    word("keep", kKeep, "for the backward"),
    text("if", "conditions that must hold; ! negates"),
    word("phase", kPhases, "freed by W where the backward is split"),
    word("recompute", kRecompute,
         "here a backward makes again what was dropped, or all of the forward"),
    word("mixer", kMixer, "here stand the rows of a layer kind in attention's place, or beside it"),
};
constexpr KeyTable kRow{.title = "row", .keys = kRowKeys};
constexpr std::array kSegmentKeys{
    list("forward", kRow, "allocations and frees in their order"),
    list("backward", kRow, "allocations and frees in their order"),
};
constexpr KeyTable kSegment{.title = "segment", .keys = kSegmentKeys};

constexpr std::array<std::string_view, 1> kVersions{"runtime/1"};
constexpr std::array kFileKeys{
    text("$schema", "for editors"),
    word("schema", kVersions, "version of this format"),
    text("id", "for people: the file's name counts"),
    text("title", "how reports call it"),
    text("about", "for people"),
    KeySpec{.name = "sources", .types = kArray, .item_types = kString, .about = "for people"},
    text("base", "a shipped profile, or a file: has what is left out here"),
    object("traits", kTraitTable, "what the framework does"),
    object("expert_launches", kExpertLaunchesTable,
           "launches of a layer with experts by feature, beside those of its products"),
    object("states", kStates, "how parameters, gradients and optimizer states lie in memory"),
    object("constants", kConstants, "bytes that do not depend on the model"),
    object("embedding", kSegment, "tensors of the first segment"),
    object("layer", kSegment, "tensors of a layer"),
    object("head", kSegment, "tensors of the last segment, with the loss"),
    object("prediction", kSegment,
           "tensors of what stands before the layer of a prediction layer: embedding, projection"),
};
constexpr KeyTable kFile{.title = "Runtime: what a framework does and holds of its own",
                         .keys = kFileKeys};

// The same for who reads the traits alone.
constexpr auto kOuterKeys = [] {
  auto keys = kFileKeys;
  for (KeySpec& key : keys) {
    if (key.name != "traits" && key.name != "expert_launches") key.members = nullptr;
  }
  return keys;
}();
constexpr KeyTable kOuter{.title = kFile.title, .keys = kOuterKeys};

bool is_path(const std::string& name) {
  return name.ends_with(".json");
}

Result<std::shared_ptr<const JsonValue>> without_sources(const std::string& path) {
  Result<JsonValue> read = read_json(path);
  if (!read) return read.error();
  const auto document = std::make_shared<JsonValue>(std::move(read).value());
  drop_sources(*document);
  return std::shared_ptr<const JsonValue>(document);
}

// Traits, memory and notes each ask for the profile of a scenario.
Result<std::shared_ptr<const JsonValue>> shipped(const std::string& path) {
  static std::mutex mutex;
  static std::map<std::string, std::shared_ptr<const JsonValue>> read;
  const std::scoped_lock lock(mutex);
  std::shared_ptr<const JsonValue>& document = read[path];
  if (document == nullptr) {
    Result<std::shared_ptr<const JsonValue>> fresh = without_sources(path);
    if (!fresh) return fresh;
    document = std::move(fresh).value();
  }
  return document;
}

Result<RuntimeFile> read_file(const std::string& name, const std::string& from,
                              const KeyTable& table) {
  RuntimeFile file;
  if (is_path(name)) {
    auto found = find_file(name, from, "");
    if (!found) found = find_file(name, "", "");
    if (!found) return Error{"no such file: " + json_excerpt(name)};
    file.path = *found;
  } else {
    file.path = shipped_directory() + "/runtimes/" + name + ".json";
    std::error_code ignored;
    if (!std::filesystem::exists(file.path, ignored)) {
      const std::vector<std::string> shipped = shipped_names("runtimes");
      const std::vector<std::string_view> known(shipped.begin(), shipped.end());
      return Error{json_excerpt(name) + " is no runtime" + what_is_known(name, known) +
                   "; a file of one's own ends with .json"};
    }
  }
  Result<std::shared_ptr<const JsonValue>> document =
      is_path(name) ? without_sources(file.path) : shipped(file.path);
  if (!document) return document.error();
  file.document = std::move(document).value();
  JsonReport report(file.path);
  check_keys(*file.document, table, "", report);
  if (!report.ok()) return report.error();
  return file;
}

// A key of `states`, which the order of collectives follows too. What else stands there is checked
// by who reads it (sim/memory/memory_profile.h).
const JsonValue* gather_units_from(const JsonValue& document) {
  const JsonValue* states = document.given("states");
  if (states == nullptr || !states->is(JsonKind::Object)) return nullptr;
  const JsonValue* from = states->given("gather_units_from_zero_stage");
  return from != nullptr && from->is(JsonKind::Integer) ? from : nullptr;
}

}  // namespace

const KeyTable& runtime_key_table() {
  return kFile;
}

Result<std::vector<RuntimeFile>> read_runtime_files(const std::string& name,
                                                    const std::string& from,
                                                    const KeyTable& table) {
  std::vector<RuntimeFile> files;
  std::string next = name, beside = from;
  while (true) {
    Result<RuntimeFile> file = read_file(next, beside, table);
    if (!file && files.empty()) return file.error();
    const JsonValue* base = files.empty() ? nullptr : files.back().document->given("base");
    if (!file || files.size() > kMostBases) {
      return json_error(beside, base->line, "base",
                        file ? "more than 8 files are based on one another" : file.error().message);
    }
    files.push_back(std::move(file).value());
    base = files.back().document->given("base");
    if (base == nullptr) return files;
    next = base->text;
    beside = files.back().path;
  }
}

Result<RuntimeTraits> read_runtime(const std::string& name, const std::string& from) {
  const Result<std::vector<RuntimeFile>> files = read_runtime_files(name, from, kOuter);
  if (!files) return files.error();
  RuntimeTraits traits;
  for (auto file = files.value().rbegin(); file != files.value().rend(); ++file) {
    if (const JsonValue* title = file->document->given("title")) traits.title = title->text;
    if (const JsonValue* stage = gather_units_from(*file->document)) {
      traits.gather_units_from = static_cast<std::int32_t>(stage->integer);
    }
    if (const JsonValue* launches = file->document->given("expert_launches")) {
      take_expert_launches(*launches, traits.expert_launches);
    }
    const JsonValue* given = file->document->given("traits");
    for (const TraitRow& row : kTraitRows) {
      const JsonValue* value = given == nullptr ? nullptr : given->given(row.key.name);
      if (value != nullptr) take_trait(*value, row, traits);
    }
  }
  traits.name = name;
  if (is_path(name)) {
    traits.name = std::filesystem::absolute(files.value().front().path).lexically_normal().string();
  }
  return traits;
}

}  // namespace rehearse
