// SPDX-License-Identifier: Apache-2.0
#include "exec/cuda/graphs.h"

#include <algorithm>
#include <chrono>

namespace rehearse::exec::cuda {
namespace {

std::string said(const char* call, cudaError_t error) {
  return std::string(call) + ": " + cudaGetErrorString(error);
}

std::int64_t free_bytes() {
  std::size_t free = 0, total = 0;
  return cudaMemGetInfo(&free, &total) == cudaSuccess ? static_cast<std::int64_t>(free) : 0;
}

}  // namespace

// Twice in a run the driver is asked how much memory is free: around the step that makes graphs.
void Graphs::begin_step() {
  ++steps_;
  if (!on_) return;
  if (steps_ == 2) free_before_ = free_bytes();
  if (steps_ == 3 && facts_.count > 0) measure();
}

void Graphs::measure() {
  facts_.bytes = std::max<std::int64_t>(0, free_before_ - free_bytes());
}

Graphs::~Graphs() {
  for (const auto& [key, graph] : made_) {
    if (graph != nullptr) cudaGraphExecDestroy(graph);
  }
}

void Graphs::forget() {
  if (steps_ == 2 && facts_.count > 0) measure();  // before they are gone
  std::erase_if(made_, [](const auto& made) {
    if (made.second != nullptr) cudaGraphExecDestroy(made.second);
    return made.second != nullptr;
  });
  facts_.count = 0;
  facts_.nodes = 0;
}

bool Graphs::give_up(const Key& key, std::string why) {
  cudaGraphExec_t& graph = made_[key];
  if (graph != nullptr) cudaGraphExecDestroy(graph);
  graph = nullptr;
  failure_ = std::move(why);
  cudaGetLastError();  // clears it: the next launch asks for its own
  return false;
}

bool Graphs::launch(std::int32_t rank, OpId op, cudaStream_t stream) {
  if (!on_ || steps_ < 2) return false;
  const Key key{rank, op.value};
  if (const auto found = made_.find(key); found != made_.end()) {
    if (found->second == nullptr) return false;
    const cudaError_t error = cudaGraphLaunch(found->second, stream);
    return error == cudaSuccess || give_up(key, said("cudaGraphLaunch", error));
  }
  const cudaError_t error = cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
  if (error != cudaSuccess) return give_up(key, said("cudaStreamBeginCapture", error));
  capturing_ = key;
  return false;
}

bool Graphs::end_capture(cudaStream_t stream, const std::string& error) {
  const Key key = std::exchange(capturing_, {-1, -1});
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t made = nullptr;
  const char* call = "cudaStreamEndCapture";
  cudaError_t status = cudaStreamEndCapture(stream, &graph);
  if (status == cudaSuccess && error.empty()) {
    call = "cudaGraphInstantiate";
    const auto begin = std::chrono::steady_clock::now();
    status = cudaGraphInstantiate(&made, graph, 0);
    const std::chrono::nanoseconds took = std::chrono::steady_clock::now() - begin;
    std::size_t nodes = 0;
    if (status == cudaSuccess && cudaGraphGetNodes(graph, nullptr, &nodes) == cudaSuccess) {
      ++facts_.count;
      facts_.nodes += static_cast<std::int64_t>(nodes);
      facts_.nanoseconds += took.count();
    }
  }
  if (graph != nullptr) cudaGraphDestroy(graph);
  if (!error.empty()) return give_up(key, error);
  if (status != cudaSuccess) return give_up(key, said(call, status));
  made_[key] = made;
  status = cudaGraphLaunch(made, stream);
  return status == cudaSuccess || give_up(key, said("cudaGraphLaunch", status));
}

}  // namespace rehearse::exec::cuda
