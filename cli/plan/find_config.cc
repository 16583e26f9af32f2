// SPDX-License-Identifier: Apache-2.0
#include "cli/plan/find_config.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <optional>

#include "schedules/base/files.h"
#include "schedules/base/json_reader.h"
#include "schedules/base/shipped.h"

namespace rehearse::cli {
namespace fs = std::filesystem;
namespace {

constexpr const char* kConfig = "config.json";

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

fs::path hub_cache() {
  if (const std::string cache = environment("HF_HUB_CACHE"); !cache.empty()) return cache;
  if (const std::string home = environment("HF_HOME"); !home.empty()) return fs::path(home) / "hub";
  return fs::path(environment("HOME")) / ".cache/huggingface/hub";
}

// models--ORGANISATION--NAME/snapshots/COMMIT/config.json, as huggingface_hub lays it out.
std::optional<std::string> in_hub_cache(const std::string& name) {
  const std::size_t slash = name.find('/');
  if (slash == std::string::npos || name.find('/', slash + 1) != std::string::npos) return {};
  const fs::path snapshots = hub_cache() /
                             ("models--" + name.substr(0, slash) + "--" + name.substr(slash + 1)) /
                             "snapshots";
  std::error_code failed;
  std::optional<std::pair<fs::file_time_type, std::string>> newest;
  for (const auto& entry : fs::directory_iterator(snapshots, failed)) {
    const fs::path config = entry.path() / kConfig;
    if (!fs::exists(config, failed)) continue;
    const std::pair found{fs::last_write_time(entry.path(), failed), config.string()};
    if (!newest || found > *newest) newest = found;
  }
  return newest ? std::optional(newest->second) : std::nullopt;
}

// A file of another kind, in one line; empty: it may be a model.
std::string other_kind(const std::string& path) {
  const Result<JsonValue> read = read_json(path);
  if (!read || !read.value().is(JsonKind::Object)) return {};  // the model's reader says why
  const auto has = [&](std::string_view key) { return read.value().find(key) != nullptr; };
  if (has("model_type")) return {};
  if (has("plan") || has("model")) {
    return path + ": is a scenario, not a model: rehearse simulate " + path;
  }
  if (has("gpus_per_node")) return path + ": is a cluster, not a model: --on takes it";
  return {};
}

}  // namespace

Result<FoundConfig> find_config(const std::string& name) {
  std::error_code failed;
  if (fs::is_directory(name, failed)) {
    const fs::path inside = fs::path(name) / kConfig;
    if (fs::exists(inside, failed)) return FoundConfig{inside.string(), ""};
    return Error{name + ": holds no config.json"};
  }
  if (fs::exists(name, failed)) {
    if (const std::string other = other_kind(name); !other.empty()) return Error{other};
    return FoundConfig{name, ""};
  }
  if (const auto cached = in_hub_cache(name)) return FoundConfig{*cached, "from the hub's cache"};
  const std::string own = name.substr(name.find_last_of('/') + 1);  // without its organisation
  if (const auto shipped = find_file(own, "", "models")) return FoundConfig{*shipped, ""};
  if (const auto id = meant_id(own, "models")) {
    return FoundConfig{find_file(*id, "", "models").value_or(*id), name + " is taken as " + *id};
  }
  return Error{name + ": " + no_such_file(name, "models")};
}

}  // namespace rehearse::cli
