// SPDX-License-Identifier: Apache-2.0
#include "exec/cuda/cuda_module.h"

#include <dlfcn.h>

#include <filesystem>

namespace rehearse::exec {
namespace {

std::filesystem::path module_path() {
  std::error_code none;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", none);
  return self.parent_path() / "libexec_cuda.so";
}

Result<const CudaModule*> load() {
  const std::filesystem::path path = module_path();
  if (!has_cuda_module()) {
    return Error{
        "this build has no CUDA backend (the CUDA toolkit was not there when it was built)"};
  }
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return Error{std::string("CUDA backend: ") + dlerror()};
  using Entry = const CudaModule* (*)();
  const auto entry = reinterpret_cast<Entry>(dlsym(library, "rehearse_cuda_module"));
  if (entry == nullptr) return Error{"CUDA backend: " + path.string() + " is not ours"};
  const CudaModule* module = entry();
  if (module->version != CudaModule::kVersion) {
    return Error{"CUDA backend: " + path.string() + " is of another version"};
  }
  return module;
}

}  // namespace

bool has_cuda_module() {
  std::error_code none;
  return std::filesystem::exists(module_path(), none);
}

bool has_cuda_driver() {
  std::error_code none;
  return std::filesystem::exists("/dev/nvidiactl", none);
}

Result<const CudaModule*> load_cuda_module() {
  static const Result<const CudaModule*> loaded = load();
  return loaded;
}

}  // namespace rehearse::exec
