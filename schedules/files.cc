#include "schedules/files.h"

#include <cstdlib>
#include <filesystem>

#include "schedules/scenario.h"

namespace rehearse {
namespace fs = std::filesystem;
namespace {

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

std::string stem_of(std::string_view path) {
  return fs::path(path).stem().string();
}

}  // namespace rehearse
