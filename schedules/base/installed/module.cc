// SPDX-License-Identifier: Apache-2.0
#include "schedules/base/installed/module.h"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <vector>

#include "schedules/base/installed/own_folder.h"

namespace rehearse {
namespace fs = std::filesystem;

std::string module_path(std::string_view name) {
  std::vector<fs::path> folders;
  if (const char* chosen = std::getenv("REHEARSE_MODULES"); chosen != nullptr && *chosen != 0) {
    folders = {chosen};
  } else if (const fs::path own = own_folder(); !own.empty()) {
    folders = {own, own.parent_path() / "lib/rehearse", own / "rehearse"};
  }
  for (const fs::path& folder : folders) {
    const fs::path file = folder / ("rehearse_" + std::string(name) + ".so");
    std::error_code none;
    if (fs::is_regular_file(file, none)) return fs::absolute(file, none).string();
  }
  return {};
}

Result<const void*> module_table(std::string_view name, const char* missing) {
  const auto failed = [](std::string why) {
    return Error{.message = std::move(why), .machine = true};
  };
  const std::string path = module_path(name);
  if (path.empty()) return failed(missing);
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);  // the same one, if it is loaded
  if (library == nullptr) return failed(dlerror());
  using Entry = const void* (*)();
  const std::string symbol = "rehearse_" + std::string(name) + "_module";
  const auto entry = reinterpret_cast<Entry>(dlsym(library, symbol.c_str()));
  if (entry == nullptr) return failed(path + ": not a module of rehearse");
  return entry();
}

}  // namespace rehearse
