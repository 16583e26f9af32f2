// SPDX-License-Identifier: Apache-2.0
// The nodes of a layer kind as its file lists them (schedules/model/kinds/layer_kind.h): products
// with their collectives over tp, kernels, exchanges over cp.
#include <algorithm>
#include <array>
#include <cmath>

#include "schedules/body/framework/framework_nodes.h"
#include "schedules/body/kind_plan.h"
#include "schedules/body/sizes.h"

namespace rehearse {
namespace {

using K = Kernel;
using P = NodePhase;

class KindNodes {
 public:
  KindNodes(FrameworkNodes& nodes, const BoundKind& bound, const std::vector<double>& slots,
            P phase, bool backward)
      : b_(nodes), bound_(bound), slots_(slots), phase_(phase), backward_(backward) {}

  // Kernels run so often, of every layer in the mean.
  double times = 1;

  void add(const std::vector<KindNode>& nodes) {
    for (const KindNode& node : nodes) add(node);
  }
  // Made nodes have the node's name, and so must not outlive its file.
  void add(const KindNode& node) {
    if (node.when.given() && number(node.when) == 0) return;
    switch (node.op) {
      case KindNode::Op::Product:
        product(node);
        break;
      case KindNode::Op::ProductGradients:
        gradients(node);
        break;
      case KindNode::Op::Kernel:
        kernel(node);
        break;
      case KindNode::Op::Exchange:
        exchange(node);
        break;
      case KindNode::Op::Attention:
        attention(node);
        break;
    }
  }

 private:
  double number(const Expression& expression) const {
    return expression.given() ? expression.number(slots_) : 0;
  }
  std::int64_t whole(const Expression& expression) const {
    return std::llround(number(expression));
  }

  // Rows and columns of the product on this rank, of those that run with it too; rows 0: another's
  // product has it.
  struct Sizes {
    std::int64_t rows = 0, columns = 0;
  };
  Sizes sizes(std::int32_t tensor) const {
    const std::vector<KindTensor>& tensors = bound_.kind->tensors;
    const KindTensor& of = tensors[static_cast<std::size_t>(tensor)];
    Sizes sizes = alone(of);
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      if (tensors[i].fused_with == tensor && alone(tensors[i]).rows > 0) {
        return {};  // it runs with the one that names it
      }
    }
    for (std::int32_t with = of.fused_with; with >= 0;
         with = tensors[static_cast<std::size_t>(with)].fused_with) {
      sizes.rows += alone(tensors[static_cast<std::size_t>(with)]).rows;
    }
    return sizes;
  }
  Sizes alone(const KindTensor& tensor) const {
    if (tensor.when.given() && number(tensor.when) == 0) return {};
    ModelPart part{.cut = tensor.cut, .out = whole(tensor.shape.front())};
    part.blocks = {part.out};
    for (std::size_t i = 0; i < tensor.blocks.size(); ++i) part.blocks[i] = whole(tensor.blocks[i]);
    for (std::size_t i = 1; i < tensor.shape.size(); ++i) part.in *= whole(tensor.shape[i]);
    const std::int64_t t = b_.s.tensor;
    return {part.cut == Cut::Rows ? rows_of_rank(part, t) : part.out,
            part.cut == Cut::Columns ? part.in / t : part.in};
  }

  std::int64_t tokens(const KindNode& node) const { return node.local ? b_.s.local : b_.s.tokens; }

  void product(const KindNode& node) {
    using C = KindNode::Collective;
    const Sizes size = sizes(node.tensor);
    if (size.rows == 0) return;
    if (node.collective == C::GatherSequence) b_.gather_input(Hiding::Exposed, phase_);
    const bool from_norm = node.collective == C::GatherSequence;
    b_.gemm(K::Linear, node.name, tokens(node), size.rows, size.columns, phase_, 1, true,
            from_norm ? WrittenBy::Norm : WrittenBy::Other);
    if (node.collective == C::ScatterSequence || node.collective == C::Reduce) {
      b_.reduce_output(Hiding::Exposed, phase_);
    }
  }

  // As column_parallel_backward and row_parallel_backward (framework_layer.cc) have it.
  void gradients(const KindNode& node) {
    const Sizes size = sizes(node.tensor);
    if (size.rows == 0) return;
    const Cut cut = bound_.kind->tensors[static_cast<std::size_t>(node.tensor)].cut;
    const std::int64_t n = tokens(node);
    if (cut == Cut::Rows) b_.gather_again(5);
    if (cut == Cut::Columns) b_.gather_input(Hiding::Exposed, P::Main, 5);
    if (!node.detached) {
      b_.gemm(K::LinearInput, node.name, n, size.columns, size.rows);
      if (cut == Cut::Rows) b_.reduce_output(Hiding::Plain, P::Main, 5);
    }
    b_.gemm(K::LinearWeight, node.name, size.columns, size.rows, n, P::Weight);
    b_.accumulate(size.columns * size.rows);
  }

  void kernel(const KindNode& node) {
    constexpr std::array kKernels{K::Elementwise, K::Norm, K::Scan, K::Convolution};
    const auto bytes = static_cast<std::int64_t>(std::llround(times * number(node.bytes)));
    Node& made = b_.add(kKernels[static_cast<std::size_t>(node.kernel_class)], node.name, bytes,
                        phase_, node.kernels);
    made.run_by = static_cast<float>(times);
    if (made.kernel != K::Scan) return;
    made.flops = number(node.flops);
    made.serial = whole(node.serial);
    made.rate = node.rate;
  }

  void attention(const KindNode& node) {
    Node& made = b_.add(backward_ ? K::AttentionBackward : K::Attention, node.name,
                        whole(node.bytes), phase_, node.kernels);
    made.flops = number(node.flops);
    made.parallel = std::max<std::int64_t>(1, whole(node.tiles));
  }

  void exchange(const KindNode& node) {
    const Kernel kernel = node.gathers ? K::AllGather : K::AllToAll;
    for (std::int32_t call = 0; call < node.kernels; ++call) {
      b_.add(kernel, node.name, whole(node.bytes) / node.kernels, phase_).axis = Axis::Context;
    }
  }

  FrameworkNodes& b_;
  const BoundKind& bound_;
  const std::vector<double>& slots_;
  P phase_;
  bool backward_;
};

}  // namespace

void kinds_forward(FrameworkNodes& nodes, const std::vector<BoundKind>& kinds, NodePhase phase) {
  for (const BoundKind& kind : kinds) {
    const std::vector<double> slots = slots_of(kind, nodes.kind_numbers);
    KindNodes(nodes, kind, slots, phase, /*backward=*/false).add(kind.kind->forward);
  }
}

void kinds_backward(FrameworkNodes& nodes, const std::vector<BoundKind>& kinds) {
  for (const BoundKind& kind : kinds) {
    const std::vector<double> slots = slots_of(kind, nodes.kind_numbers);
    KindNodes(nodes, kind, slots, P::Main, /*backward=*/true).add(kind.kind->backward);
  }
}

void delta_norm_again(FrameworkNodes& nodes) {
  for (const BoundKind& mixer : mixers_of(nodes.model)) {
    if (std::ranges::find(mixer.kind->saved, KindAgain::DeltaNormOut, &KindRow::dropped_by) ==
        mixer.kind->saved.end())
      continue;
    const std::vector<double> slots = slots_of(mixer, nodes.kind_numbers);
    KindNodes again(nodes, mixer, slots, P::Recompute, /*backward=*/false);
    bool behind = false;  // the norm, and the exchange back
    for (const KindNode& node : mixer.kind->forward) {
      behind |= node.op == KindNode::Op::Kernel && node.kernel_class == KindNode::Class::Norm;
      if (behind && node.op != KindNode::Op::Product) again.add(node);
    }
  }
}

void latent_up_again(FrameworkNodes& nodes) {
  for (const BoundKind& mixer : mixers_of(nodes.model)) {
    const std::vector<double> slots = slots_of(mixer, nodes.kind_numbers);
    KindNodes again(nodes, mixer, slots, P::Recompute, /*backward=*/false);
    for (const KindNode& node : mixer.kind->forward) {
      if (node.again == KindAgain::LatentUp) again.add(node);
    }
  }
}

// The last mix of the last layer of a block of layers is not run again: the next block keeps its
// streams. Where a chunk is one block, that is one mix of twice its layers, and is not taken off.
void streams_again(FrameworkNodes& nodes) {
  const auto makes = [](const KindNode& node) { return node.again == KindAgain::ResidualStreams; };
  const std::vector<BoundKind>& mixers = mixers_of(nodes.model);
  std::size_t last = 0;
  for (std::size_t i = 0; i < mixers.size(); ++i) {
    if (std::ranges::any_of(mixers[i].kind->forward, makes)) last = i;
  }
  const double layers = nodes.plan.recompute_stream_layers;
  for (std::size_t i = 0; i <= last && i < mixers.size(); ++i) {
    const std::vector<double> slots = slots_of(mixers[i], nodes.kind_numbers);
    KindNodes again(nodes, mixers[i], slots, P::Recompute, /*backward=*/false);
    const std::vector<KindNode>& forward = mixers[i].kind->forward;
    for (const KindNode& node : forward) {
      if (!makes(node)) continue;
      const bool mixes = i == last && layers > 0 &&
                         std::find_if(&node + 1, forward.data() + forward.size(), makes) ==
                             forward.data() + forward.size();
      again.times = mixes ? (layers - 1) / layers : 1;
      if (again.times > 0) again.add(node);
    }
  }
}

}  // namespace rehearse
