// SPDX-License-Identifier: Apache-2.0
#include "schedules/body/framework/framework_nodes.h"

#include <cmath>

#include "schedules/body/framework/framework_pieces.h"

namespace rehearse {

Node& FrameworkNodes::add(Kernel kernel, std::string_view name, std::int64_t bytes, NodePhase phase,
                          std::int32_t launches) {
  constexpr std::size_t kUsual = 128;  // of a layer
  if (nodes_.empty()) nodes_.reserve(kUsual);
  return nodes_.emplace_back(Node{.kernel = kernel,
                                  .phase = phase,
                                  .part = part_,
                                  .bytes = bytes,
                                  .launches = launches,
                                  .name = name});
}

// torchao casts both operands of each product with a scale of the moment: the largest value is
// found first (2 B read), then they are cast (2 B read, 1 written). `Reused`: what no
// norm has cast yet is cast with its transposed copy (2 + 1 + 1), the output gradient once for both
// products, and the saved 8-bit input is transposed for the weight gradient (1 + 1). `Unwritten`:
// activations write 8 bit too, and nothing is transposed. Weights are cast for the first
// micro-batch alone. (Transformer Engine's two: read from memory, unverified.)
//
// `EachRow`: torchao's rowwise recipe (pytorch/ao@e4e681b torchao/float8/config.py,
// float8_linear.py, float8_ops.py). A product wants scales along what it sums over, so each operand
// of a linear layer is cast twice, the second time down its columns, which the compiler's kernels
// read badly; and the backward's two products run with one scale and are scaled by a kernel behind
// them. Measured, in bytes at the rate of an elementwise kernel: 33 an input, 10 an output gradient
// and 22 a weight (pytorch/ao@fdddb2c fp8-rowwise-perf.png: 144 layers of at least 4,096 tokens on
// H100s at 500 W, mean residual 5.8 %; how they fall on the three products is a split by hand).
std::int64_t FrameworkNodes::cast_bytes(GemmRole role, std::int64_t m, std::int64_t n,
                                        std::int64_t k, WrittenBy input) const {
  const Fp8Casts casts = plan.runtime.fp8_casts;
  const bool each = casts == Fp8Casts::EachProduct || casts == Fp8Casts::EachRow;
  if (is_block_scaled(plan.precision.compute)) {
    // Row-wise and column-wise copies, each read from 16 bit: no kernel before the product writes
    // blocks. MXFP8: 1 + 1/32 bytes a value and copy, NVFP4: 1/2 + 1/16. torchao makes either copy
    // by a kernel of its own (pytorch/ao@e4e681b torchao/prototype/mx_formats/mx_linear.py).
    const bool four_bit = plan.precision.compute == ComputeType::Nvfp4;
    const double copies = (each ? 4 : 2) + 2 * (four_bit ? 0.5625 : 1.03125);
    const double weights = static_cast<double>(k * n) / std::max(1, plan.microbatches());
    const double moved = role == GemmRole::Forward         ? static_cast<double>(m * k) + weights
                         : role == GemmRole::InputGradient ? static_cast<double>(m * k)
                                                           : 0;
    return std::llround(copies * moved);
  }
  if (casts == Fp8Casts::EachRow) {
    return role == GemmRole::Forward         ? 3 * m * k + 5 * k * n
           : role == GemmRole::InputGradient ? 5 * m * k + 13 * k * n + 4 * m * n
                                             : 26 * m * k + 5 * k * n + 4 * m * n;
  }
  if (each) return 5 * (m * k + k * n);
  const bool unwritten = casts == Fp8Casts::Unwritten;
  const bool written = input == WrittenBy::Norm || (unwritten && input == WrittenBy::Activation);
  switch (role) {
    case GemmRole::Forward:
      return (written ? 0 : 4 * m * k) + 4 * k * n / std::max(1, plan.microbatches());
    case GemmRole::InputGradient:
      return 4 * m * k;
    case GemmRole::WeightGradient:
      return unwritten ? 0 : 2 * m * k;
    case GemmRole::None:
      break;
  }
  return 0;
}

Node& FrameworkNodes::gemm(Kernel kernel, std::string_view name, std::int64_t m, std::int64_t n,
                           std::int64_t k, NodePhase phase, std::int64_t batch, bool layer,
                           WrittenBy input) {
  const bool fp8 = layer && is_quantized(plan.precision.compute);
  const GemmRole role = traits_of(kernel).role;
  if (fp8) {
    add(Kernel::Elementwise, "cast operands to fp8", batch * cast_bytes(role, m, n, k, input),
        phase, 2);
  }
  // A fused weight gradient reads and writes the sum of the micro-batches in its own type.
  const bool adds =
      role == GemmRole::WeightGradient && !plan.gathers_units() && plan.accumulates_in_product();
  const std::int64_t written = adds ? 2 * plan.precision.gradients : s.element;
  Node& node = add(kernel, name, batch * (s.element * (m * k + k * n) + written * m * n), phase, 2);
  node.fp8 = fp8;
  node.m = m;
  node.n = n;
  node.k = k;
  node.batch = batch;
  node.flops = 2.0 * static_cast<double>(batch) * static_cast<double>(m) * static_cast<double>(n) *
               static_cast<double>(k);
  return node;
}

void FrameworkNodes::accumulate(std::int64_t elements) {
  if (plan.accumulates_in_product()) return;
  add(Kernel::Elementwise, "accumulate gradient", (2 + 2 * plan.precision.gradients) * elements,
      NodePhase::Weight);
}

// Eager RMS norm: float, pow, mean, rsqrt, mul, type_as, mul; its backward is autograd's of each.
void FrameworkNodes::norm_of(std::string_view name, std::int64_t elements, NodePhase phase) {
  if (eager(&EagerKernels::norm)) {
    add(Kernel::Elementwise, name, 26 * elements, phase, 8);
  } else {
    add(Kernel::Norm, name, 4 * elements, phase);
  }
}
void FrameworkNodes::norm_of_backward(std::string_view name, std::int64_t elements,
                                      std::int32_t launches) {
  if (eager(&EagerKernels::norm)) {
    add(Kernel::Elementwise, name, 56 * elements, NodePhase::Main, 14);
  } else {
    add(Kernel::NormBackward, name, 8 * elements, NodePhase::Main, launches);
  }
}
void FrameworkNodes::norm(std::string_view name, NodePhase phase) {
  norm_of(name, local_elements(), phase);
}
void FrameworkNodes::norm_backward(std::string_view name, std::int32_t launches) {
  norm_of_backward(name, local_elements(), launches);
}

// Eager SwiGLU: SiLU (2 + 2 B), then its product with the gate (2 + 2 + 2).
Node& FrameworkNodes::activation(std::int64_t elements, NodePhase phase) {
  const bool gated = model.mlp == MlpKind::Gated;
  if (gated && eager(&EagerKernels::activation)) {
    return add(Kernel::Elementwise, "silu, mul", 10 * elements, phase, 2);
  }
  return add(gated ? Kernel::Swiglu : Kernel::Gelu, gated ? "swiglu" : "gelu",
             (gated ? 6 : 4) * elements, phase, 2);
}
Node& FrameworkNodes::activation_backward(std::int64_t elements) {
  const bool gated = model.mlp == MlpKind::Gated;
  if (gated && eager(&EagerKernels::activation)) {
    return add(Kernel::Elementwise, "silu, mul backward", 18 * elements, NodePhase::Main, 3);
  }
  return add(gated ? Kernel::SwigluBackward : Kernel::GeluBackward,
             gated ? "swiglu backward" : "gelu backward", (gated ? 10 : 6) * elements,
             NodePhase::Main, 2);
}

void FrameworkNodes::collective(Kernel kernel, std::string_view name, std::int64_t bytes,
                                Hiding hiding, NodePhase phase, std::int32_t launches) {
  if (s.tensor == 1) return;
  Node& node = add(kernel, name, bytes, phase, launches);
  if (plan.runtime.synchronous_launch) return;
  node.overlapped = hiding == Hiding::Plain && plan.overlap_tensor_parallel != TensorOverlap::Off;
}

// [B] of an array (tokens, hidden), in 8 bit where the products and this collective's bytes are.
std::int64_t FrameworkNodes::tensor_bytes(bool eight_bit) const {
  return eight_bit && is_quantized(plan.precision.compute) ? array_bytes() / s.element
                                                           : array_bytes();
}

// A collective joins and cuts along the first dimension, and the sequence is the second: the array
// is put in order behind a gather and before a reduce-scatter. Of those that travel in pieces
// framework_pieces.cc takes it off.
void FrameworkNodes::copy_sequence(std::int64_t bytes, NodePhase phase) {
  if (s.tensor == 1 || !plan.runtime.sequence_copies) return;
  add(Kernel::Elementwise, "copy parts of the sequence", 2 * bytes, phase).orders_sequence = true;
}

// The forward's partial sums alone (the exposed ones) may travel in 8 bit.
void FrameworkNodes::reduce_output(Hiding hiding, NodePhase phase, std::int32_t launches) {
  if (s.gather) {
    const bool eight_bit = hiding == Hiding::Exposed &&
                           plan.runtime.fp8_communication == Fp8Communication::GatherScatter;
    copy_sequence(tensor_bytes(eight_bit), phase);
    collective(Kernel::ReduceScatter, "reduce_scatter tp", tensor_bytes(eight_bit), hiding, phase,
               launches);
  } else {
    collective(Kernel::AllReduce, "all_reduce tp", array_bytes(), hiding, phase, launches);
  }
}

void FrameworkNodes::gather_input(Hiding hiding, NodePhase phase, std::int32_t launches) {
  if (!s.gather) return;
  // What is scaled by rows is gathered before it is cast.
  const bool eight_bit =
      plan.runtime.fp8_communication != Fp8Communication::None && !scaled_by_rows(plan);
  collective(Kernel::AllGather, "all_gather tp", tensor_bytes(eight_bit), hiding, phase, launches);
  copy_sequence(tensor_bytes(eight_bit), phase);
}

void FrameworkNodes::gather_again(std::int32_t launches) {
  if (plan.runtime.sequence_gather == SequenceGather::Kept) return;
  gather_input(Hiding::Plain, NodePhase::Weight, launches);
}

}  // namespace rehearse
