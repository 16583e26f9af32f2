// SPDX-License-Identifier: Apache-2.0
// What happens before what, by vector clocks (Fidge 1988, Mattern 1989): a component for each
// stream, which counts what was issued there. An event carries the clock of where it was recorded,
// a wait takes it over, and so does whatever the host issues behind what it has waited for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tests/cuda_double/touched.h"

namespace rehearse::cuda_double {

using Clock = std::vector<std::uint64_t>;  // by stream; what is not there is 0
void join(Clock& into, const Clock& other);

// A stream as the check knows it.
class Timeline {
 public:
  Timeline();
  // A piece of work is issued, and held against all that touched the same memory.
  void issue(const Touched& touched);
  Clock record();  // an event here
  void wait(const Clock& event);

 private:
  void advance();
  std::size_t number_;
  Clock clock_;
};

// The thread that issues has waited for it.
void host_waited(const Clock& event);
// The memory changes hands: what touched any of it no longer counts. Said when it is given back,
// and when it is handed out: meanwhile it may have been somebody's who is not of the double, a
// vector of a test's for one, and work may have touched it there.
void forget(const void* block, std::size_t bytes);

}  // namespace rehearse::cuda_double
