#include "exec/cuda/graphs.h"

namespace rehearse::exec::cuda {

Graphs::~Graphs() {
  for (const auto& [key, graph] : made_) cudaGraphExecDestroy(graph);
}

int Graphs::replay(std::int32_t rank, OpId op, cudaStream_t stream, bool* launched) {
  *launched = false;
  if (!on_ || steps_ < 2) return cudaSuccess;
  const Key key{rank, op.value};
  if (const auto found = made_.find(key); found != made_.end()) {
    *launched = true;
    return cudaGraphLaunch(found->second, stream);
  }
  capturing_ = key;
  return cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
}

int Graphs::end(std::int32_t rank, OpId op, cudaStream_t stream) {
  const Key key{rank, op.value};
  if (capturing_ != key) return cudaSuccess;
  capturing_ = {-1, -1};
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t made = nullptr;
  cudaError_t error = cudaStreamEndCapture(stream, &graph);
  if (error == cudaSuccess) error = cudaGraphInstantiate(&made, graph, 0);
  if (graph != nullptr) cudaGraphDestroy(graph);
  if (error != cudaSuccess) return error;
  made_[key] = made;
  return cudaGraphLaunch(made, stream);
}

}  // namespace rehearse::exec::cuda
