// SPDX-License-Identifier: Apache-2.0
#include "exec/cuda/graphs.h"

namespace rehearse::exec::cuda {
namespace {

std::string said(const char* call, cudaError_t error) {
  return std::string(call) + ": " + cudaGetErrorString(error);
}

}  // namespace

Graphs::~Graphs() {
  for (const auto& [key, graph] : made_) {
    if (graph != nullptr) cudaGraphExecDestroy(graph);
  }
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
    status = cudaGraphInstantiate(&made, graph, 0);
  }
  if (graph != nullptr) cudaGraphDestroy(graph);
  if (!error.empty()) return give_up(key, error);
  if (status != cudaSuccess) return give_up(key, said(call, status));
  made_[key] = made;
  status = cudaGraphLaunch(made, stream);
  return status == cudaSuccess || give_up(key, said("cudaGraphLaunch", status));
}

}  // namespace rehearse::exec::cuda
