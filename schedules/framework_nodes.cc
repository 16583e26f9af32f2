#include "schedules/framework_nodes.h"

namespace rehearse {

Node& FrameworkNodes::add(NodeKind kind, std::string_view name, std::int64_t bytes, NodePhase phase,
                          std::int32_t launches) {
  return nodes_.emplace_back(
      Node{.kind = kind, .phase = phase, .bytes = bytes, .launches = launches, .name = name});
}

Node& FrameworkNodes::gemm(std::string_view name, GemmRole role, std::int64_t m, std::int64_t n,
                           std::int64_t k, NodePhase phase, std::int64_t batch, bool layer) {
  const bool fp8 = layer && plan.precision.compute == ComputeType::Fp8;
  if (fp8) {  // 16-bit operands are read, 8-bit ones written, amax is kept: 3 B per element
    add(NodeKind::Elementwise, "cast operands to fp8", 3 * batch * (m * k + k * n), phase, 2);
  }
  Node& node = add(NodeKind::Gemm, name, s.element * batch * (m * k + k * n + m * n), phase, 2);
  node.role = role;
  node.fp8 = fp8;
  node.m = m;
  node.n = n;
  node.k = k;
  node.batch = batch;
  node.flops = 2.0 * static_cast<double>(batch) * static_cast<double>(m) * static_cast<double>(n) *
               static_cast<double>(k);
  return node;
}

void FrameworkNodes::collective(NodeKind kind, std::string_view name, std::int64_t bytes,
                                Hiding hiding, NodePhase phase, std::int32_t launches) {
  if (s.tensor == 1) return;
  Node& node = add(kind, name, bytes, phase, launches);
  node.chunked = plan.overlap_tensor_parallel == TensorOverlap::Chunked;
  node.overlapped = node.chunked || (hiding == Hiding::Plain &&
                                     plan.overlap_tensor_parallel == TensorOverlap::Plain);
}

void FrameworkNodes::reduce_output(Hiding hiding, NodePhase phase, std::int32_t launches) {
  if (s.gather) {
    collective(NodeKind::ReduceScatter, "reduce_scatter tp", array_bytes(), hiding, phase,
               launches);
  } else {
    collective(NodeKind::AllReduce, "all_reduce tp", array_bytes(), hiding, phase, launches);
  }
}

void FrameworkNodes::gather_input(Hiding hiding, NodePhase phase, std::int32_t launches) {
  if (!s.gather) return;
  collective(NodeKind::AllGather, "all_gather tp", array_bytes(), hiding, phase, launches);
}

}  // namespace rehearse
