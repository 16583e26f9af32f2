// SPDX-License-Identifier: Apache-2.0
// In place of page.cc where the build found no compiler for WebAssembly, or no zlib.
#include "viz/page/page.h"

namespace rehearse::viz {

Result<std::string> page(std::span<const Trace>, const PageOptions&) {
  return Error{
      "this build has no page: install clang-19, lld-19, wasi-libc, libc++-19-dev-wasm32, "
      "libc++abi-19-dev-wasm32, libclang-rt-19-dev-wasm32 and zlib1g-dev, and build again"};
}

}  // namespace rehearse::viz
