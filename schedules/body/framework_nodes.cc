// SPDX-License-Identifier: Apache-2.0
#include "schedules/body/framework_nodes.h"

namespace rehearse {

Node& FrameworkNodes::add(Kernel kernel, std::string_view name, std::int64_t bytes, NodePhase phase,
                          std::int32_t launches) {
  return nodes_.emplace_back(
      Node{.kernel = kernel, .phase = phase, .bytes = bytes, .launches = launches, .name = name});
}

// torchao casts both operands of each product: 2 B read, 1 written per element. Transformer Engine
// reuses: it casts what no norm has cast yet, with its transposed copy (2 + 1 + 1); the output
// gradient once for both products; the saved 8-bit input is transposed for the weight gradient
// (1 + 1); weights are cast for the first micro-batch alone. (Both unverified: read from memory.)
std::int64_t FrameworkNodes::cast_bytes(GemmRole role, std::int64_t m, std::int64_t n,
                                        std::int64_t k, bool fused) const {
  if (plan.runtime.fp8_casts == Fp8Casts::EachProduct) return 3 * (m * k + k * n);
  switch (role) {
    case GemmRole::Forward:
      return (fused ? 0 : 4 * m * k) + 4 * k * n / std::max(1, plan.microbatches());
    case GemmRole::InputGradient:
      return 4 * m * k;
    case GemmRole::WeightGradient:
      return 2 * m * k;
    case GemmRole::None:
      break;
  }
  return 0;
}

Node& FrameworkNodes::gemm(Kernel kernel, std::string_view name, std::int64_t m, std::int64_t n,
                           std::int64_t k, NodePhase phase, std::int64_t batch, bool layer,
                           bool fused) {
  const bool fp8 = layer && plan.precision.compute == ComputeType::Fp8;
  if (fp8) {
    add(Kernel::Elementwise, "cast operands to fp8",
        batch * cast_bytes(traits_of(kernel).role, m, n, k, fused), phase, 2);
  }
  Node& node = add(kernel, name, s.element * batch * (m * k + k * n + m * n), phase, 2);
  node.fp8 = fp8;
  node.m = m;
  node.n = n;
  node.k = k;
  node.batch = batch;
  node.flops = 2.0 * static_cast<double>(batch) * static_cast<double>(m) * static_cast<double>(n) *
               static_cast<double>(k);
  return node;
}

void FrameworkNodes::collective(Kernel kernel, std::string_view name, std::int64_t bytes,
                                Hiding hiding, NodePhase phase, std::int32_t launches) {
  if (s.tensor == 1) return;
  Node& node = add(kernel, name, bytes, phase, launches);
  node.chunked = plan.overlap_tensor_parallel == TensorOverlap::Chunked;
  node.overlapped = node.chunked || (hiding == Hiding::Plain &&
                                     plan.overlap_tensor_parallel == TensorOverlap::Default);
}

void FrameworkNodes::reduce_output(Hiding hiding, NodePhase phase, std::int32_t launches) {
  if (s.gather) {
    collective(Kernel::ReduceScatter, "reduce_scatter tp", array_bytes(), hiding, phase, launches);
  } else {
    collective(Kernel::AllReduce, "all_reduce tp", array_bytes(), hiding, phase, launches);
  }
}

void FrameworkNodes::gather_input(Hiding hiding, NodePhase phase, std::int32_t launches) {
  if (!s.gather) return;
  collective(Kernel::AllGather, "all_gather tp", array_bytes(), hiding, phase, launches);
}

}  // namespace rehearse
