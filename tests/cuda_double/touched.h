// SPDX-License-Identifier: Apache-2.0
// What a piece of work on the double touches: where an array begins, and how long it is, where that
// is known. An array counts as read where its pointer is to const, else as written.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>
#include <vector>

#include "exec/backend/shapes.h"

namespace rehearse::cuda_double {

struct Access {
  const char* at = nullptr;
  std::size_t bytes = 1;  // at least
  bool writes = false;
};

struct Touched {
  std::string_view by;  // static: the kernel's name
  std::vector<Access> all;

  explicit Touched(std::string_view name) : by(name) {}
  // Those of a kernel's arguments that are arrays.
  template <class... Arguments>
  static Touched arguments(std::string_view name, const Arguments&... arguments) {
    Touched made(name);
    (made.take(arguments), ...);
    return made;
  }
  Touched& reads(const void* at, std::int64_t bytes = 1) { return add(at, bytes, false); }
  Touched& writes(const void* at, std::int64_t bytes = 1) { return add(at, bytes, true); }

 private:
  Touched& add(const void* at, std::int64_t bytes, bool writes) {
    if (at != nullptr && bytes > 0) {
      all.push_back({static_cast<const char*>(at), static_cast<std::size_t>(bytes), writes});
    }
    return *this;
  }
  template <class Argument>
  void take(const Argument& argument) {
    if constexpr (std::is_pointer_v<Argument>) {
      add(argument, 1, !std::is_const_v<std::remove_pointer_t<Argument>>);
    }
  }
  void take(const exec::SumNorm& n) {
    reads(n.x).reads(n.y).reads(n.bias).reads(n.weight).reads(n.norm_bias);
    writes(n.sum).writes(n.out).writes(n.statistics);
  }
};

}  // namespace rehearse::cuda_double
