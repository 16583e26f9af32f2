// SPDX-License-Identifier: Apache-2.0
#include "schedules/base/files.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>

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
  // Installed: PREFIX/bin/rehearse beside PREFIX/share/rehearse/scenarios.
  std::error_code problem;
  const fs::path self = fs::read_symlink("/proc/self/exe", problem);
  if (!problem) {
    const fs::path installed = self.parent_path().parent_path() / "share/rehearse/scenarios";
    if (fs::is_directory(installed, problem)) return installed.string();
  }
  return REHEARSE_SOURCE_SCENARIOS;
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
