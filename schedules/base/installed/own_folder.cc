// SPDX-License-Identifier: Apache-2.0
#include "schedules/base/installed/own_folder.h"

#include <dlfcn.h>
#include <link.h>

#include <filesystem>

namespace rehearse {

std::string own_folder() {
  namespace fs = std::filesystem;
  Dl_info about{};
  link_map* map = nullptr;
  const bool known = dladdr1(reinterpret_cast<void*>(&own_folder), &about,
                             reinterpret_cast<void**>(&map), RTLD_DL_LINKMAP) != 0;
  // The loader's list calls the program itself "".
  const bool shared = known && map != nullptr && map->l_name[0] != '\0';
  std::error_code none;
  const fs::path self =
      shared ? fs::canonical(map->l_name, none) : fs::read_symlink("/proc/self/exe", none);
  return self.parent_path().string();
}

}  // namespace rehearse
