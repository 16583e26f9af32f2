// SPDX-License-Identifier: Apache-2.0
// The page: a module (schedules/base/installed/module.h), so that who asks for none need not build
// the viewer's core a second time.
#pragma once

#include "viz/page/page.h"

namespace rehearse::viz {

struct PageModule {
  static constexpr const char* kName = "page";
  static constexpr const char* kMissing =
      "no page here: build the target modules where clang-19, lld-19, wasi-libc, "
      "libc++-19-dev-wasm32, libc++abi-19-dev-wasm32, libclang-rt-19-dev-wasm32 and zlib1g-dev are";
  static constexpr int kVersion = 2;
  int version = 0;
  decltype(&page) make = nullptr;
};

}  // namespace rehearse::viz
