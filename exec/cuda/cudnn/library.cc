// SPDX-License-Identifier: Apache-2.0
#include "exec/cuda/cudnn/library.h"

#include <dlfcn.h>

#include <type_traits>

namespace rehearse::exec::cuda::cudnn {
namespace {

// The headers' major version: another one's functions are others.
constexpr const char* kName = CUDNN_MAJOR == 9 ? "libcudnn.so.9" : "libcudnn.so.10";

struct Loaded {
  Library calls;
  std::string why;  // empty: all are there
};

Loaded load() {
  Loaded made;
  void* const opened = dlopen(kName, RTLD_NOW | RTLD_LOCAL);
  if (opened == nullptr) {
    const char* said = dlerror();
    made.why = said == nullptr ? std::string(kName) + " cannot be loaded" : said;
    return made;
  }
  const auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(opened, name));
    if (function == nullptr) made.why = std::string(kName) + " has no " + name;
  };
#define REHEARSE_ROW(name) find(made.calls.name, #name);
  REHEARSE_CUDNN_CALLS(REHEARSE_ROW)
#undef REHEARSE_ROW
  return made;
}

}  // namespace

const Library* library(std::string* why) {
  static const Loaded loaded = load();
  *why = loaded.why;
  return loaded.why.empty() ? &loaded.calls : nullptr;
}

}  // namespace rehearse::exec::cuda::cudnn
