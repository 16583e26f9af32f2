// SPDX-License-Identifier: Apache-2.0
#include "schedules/base/files.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "schedules/base/installed/own_folder.h"
#include "schedules/base/json_reader.h"

namespace rehearse {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kScenarios = "scenarios/";

bool is_file(const fs::path& path) {
  std::error_code ignored;
  const fs::file_status status = fs::status(path, ignored);
  return fs::exists(status) && !fs::is_directory(status);
}

}  // namespace

std::string shipped_directory() {
  if (const char* chosen = std::getenv("REHEARSE_SCENARIOS"); chosen != nullptr && *chosen != 0) {
    return chosen;
  }
  // Installed and built alike: PREFIX/bin, PREFIX/lib or PREFIX/lib/ARCH beside PREFIX/share; or
  // the folder of a Python package, which holds both.
  const fs::path own = own_folder();
  for (const char* where :
       {"../share/rehearse/scenarios", "../../share/rehearse/scenarios", "scenarios"}) {
    std::error_code none;
    const fs::path found = fs::canonical(own / where, none);
    if (!none && !own.empty()) return found.string();
  }
  return (own / "../share/rehearse/scenarios").lexically_normal().string();
}

std::optional<std::string> find_file(std::string_view name, std::string_view from,
                                     std::string_view folder) {
  const fs::path wanted(name);
  if (name.empty() || name.size() > 4096 || name.find('\0') != std::string_view::npos) return {};
  if (wanted.is_absolute()) {
    if (is_file(wanted)) return wanted.string();
    return {};
  }
  const fs::path beside = (fs::path(from).parent_path() / wanted).lexically_normal();
  if (is_file(beside)) return beside.string();
  const fs::path shipped = shipped_directory();
  if (is_file(shipped / wanted)) return (shipped / wanted).lexically_normal().string();
  const fs::path by_id = shipped / folder / (std::string(name) + ".json");
  if (!folder.empty() && is_file(by_id)) return by_id.lexically_normal().string();
  return {};
}

std::string scenario_file(const std::string& name) {
  std::error_code ignored;
  if (name.empty() || name.size() > 4096 || fs::exists(name, ignored)) return name;
  const fs::path shipped = shipped_directory();
  const std::string inside = name.starts_with(kScenarios) ? name.substr(kScenarios.size()) : name;
  for (const std::string& wanted : {inside, inside + ".json"}) {
    const fs::path path = (shipped / wanted).lexically_normal();
    if (!fs::path(wanted).is_absolute() && is_file(path)) return path.string();
  }
  return name;
}

std::vector<std::string> shipped_names(std::string_view folder) {
  std::error_code failed;
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(fs::path(shipped_directory()) / folder, failed)) {
    if (entry.path().extension() == ".json") names.push_back(entry.path().stem().string());
  }
  std::ranges::sort(names);
  return names;
}

std::string nearest_scenario(const std::string& name) {
  const std::vector<std::string> names = shipped_names("");
  const std::vector<std::string_view> known(names.begin(), names.end());
  const std::string word = fs::path(name).stem().string().substr(0, 64);
  const std::string best(nearest(word, known));
  return 3 * edit_distance(word, best) <= static_cast<std::int32_t>(word.size()) ? best : "";
}

std::string stem_of(std::string_view path) {
  return fs::path(path).stem().string();
}

}  // namespace rehearse
