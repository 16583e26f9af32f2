// SPDX-License-Identifier: Apache-2.0
// What a piece of work on the double touches: where an array begins, and how long it is. An array
// counts as read where its pointer is to const, else as written.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <type_traits>
#include <vector>

#include "exec/backend/shapes.h"
#include "tests/cuda_double/extents.h"

namespace rehearse::cuda_double {

struct Access {
  const char* at = nullptr;
  std::size_t bytes = 1;
  bool writes = false;
};

struct Touched {
  std::string_view by;  // static: the kernel's name
  std::vector<Access> all;

  explicit Touched(std::string_view name) : by(name) {}
  // Those of a kernel's arguments that are arrays, and how long each is.
  template <class... Arguments>
  static Touched arguments(std::string_view name, const Extents& extents,
                           const Arguments&... arguments) {
    Touched made(name);
    const std::int64_t* next = extents.data();
    (made.take(arguments, next), ...);
    if (next != extents.data() + extents.size()) std::abort();  // another number of arrays
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
  void take(const Argument& argument, const std::int64_t*& bytes) {
    if constexpr (std::is_pointer_v<Argument>) {
      add(argument, *bytes++, !std::is_const_v<std::remove_pointer_t<Argument>>);
    }
  }
  void take(const exec::SumNorm& n, const std::int64_t*& bytes) {
    for (const void* array : {n.x, n.y, n.bias, n.weight, n.norm_bias}) reads(array, *bytes++);
    for (void* array : {n.sum, n.out, static_cast<void*>(n.statistics)}) writes(array, *bytes++);
  }
};

}  // namespace rehearse::cuda_double
