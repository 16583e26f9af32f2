// CUDA graphs of compute ops: an op that does the same in every step is captured in the second one
// (the first takes scratch and chooses algorithms) and from then on launched as a whole.
//
// Nothing that meets another stream is captured: what an op waits for, and the events around it,
// are issued outside.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <map>
#include <utility>

#include "schedules/units.h"

namespace rehearse::exec::cuda {

class Graphs {
 public:
  explicit Graphs(bool on) : on_(on) {}
  ~Graphs();
  Graphs(const Graphs&) = delete;
  Graphs& operator=(const Graphs&) = delete;

  void begin_step() { ++steps_; }
  // Launches the op's graph (*launched), or begins to capture it, or does nothing, in the first
  // step. Returns a cudaError_t.
  int replay(std::int32_t rank, OpId op, cudaStream_t stream, bool* launched);
  // The op has ended: what was captured becomes its graph and is launched.
  int end(std::int32_t rank, OpId op, cudaStream_t stream);

 private:
  using Key = std::pair<std::int32_t, std::int32_t>;  // rank, op
  bool on_;
  std::int64_t steps_ = 0;
  Key capturing_{-1, -1};
  std::map<Key, cudaGraphExec_t> made_;
};

}  // namespace rehearse::exec::cuda
