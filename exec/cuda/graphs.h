// SPDX-License-Identifier: Apache-2.0
// CUDA graphs of compute ops: an op that does the same in every step is captured in the second one
// (the first takes scratch and chooses algorithms) and from then on launched as a whole.
//
// Nothing that meets another stream is captured: what an op waits for, and the events around it,
// are issued outside. An op that cannot be captured is issued kernel by kernel in every step.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "exec/backend/gpu_facts.h"
#include "schedules/base/units.h"

namespace rehearse::exec::cuda {

class Graphs {
 public:
  explicit Graphs(bool on) : on_(on) {}
  ~Graphs();
  Graphs(const Graphs&) = delete;
  Graphs& operator=(const Graphs&) = delete;

  void begin_step();
  // Ops do something else from now on: those that have graphs are captured again.
  void forget();
  // True: the op's graph was launched. Else the caller issues the op, perhaps into a capture.
  bool launch(std::int32_t rank, OpId op, cudaStream_t stream);
  // Is the op's work being captured?
  bool captures(std::int32_t rank, OpId op) const { return capturing_ == Key(rank, op.value); }
  // Ends that capture and launches it. `error`: what a call inside it said; empty: nothing.
  // False: there is no graph and nothing was done; the op will not be captured again.
  bool end_capture(cudaStream_t stream, const std::string& error);
  // Why the last op that was given up has no graph.
  const std::string& failure() const { return failure_; }
  const GraphFacts& facts() const { return facts_; }

 private:
  using Key = std::pair<std::int32_t, std::int32_t>;  // rank, op
  bool give_up(const Key& key, std::string why);
  void measure();  // the memory that they take: once all are made

  bool on_;
  std::int64_t steps_ = 0;
  Key capturing_{-1, -1};
  std::map<Key, cudaGraphExec_t> made_;  // null: given up
  std::string failure_;
  GraphFacts facts_;
  std::int64_t free_before_ = 0;  // [B], when the second step began
};

}  // namespace rehearse::exec::cuda
