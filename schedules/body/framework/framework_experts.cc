// SPDX-License-Identifier: Apache-2.0
// The kernels of an expert layer behind its second norm: router, dispatch, experts, combine, shared
// experts.
//
// Source: NVIDIA/Megatron-LM@d98e8a64 megatron/core/transformer/moe/{router, token_dispatcher,
// experts, shared_experts}.py. Per rank and micro-batch: n tokens that it brings (the shard of
// sequence parallelism), each to k of E experts; R = n k q rows that its E/e experts compute on
// average, q ranks sharing an expert's matrices. Bytes per value B of the compute type, 4 of
// scores. What the router decides is data: all counts are those of even routing, `routed` nodes
// have more on the busiest rank. What the host launches is data: RuntimeTraits::expert_launches.
#include "schedules/body/framework/framework_nodes.h"
#include "schedules/model/parts.h"

namespace rehearse {
namespace {

using K = Kernel;
using P = NodePhase;

class ExpertNodes {
 public:
  explicit ExpertNodes(FrameworkNodes& nodes)
      : b_(nodes), x_(nodes.s.experts), experts_(nodes.model.experts) {}

  // Up to the activation.
  void front(P phase) {
    const std::int64_t n = x_.tokens, e = experts_.count, k = experts_.per_token;
    b_.begin(GraphPart::Router);
    of_the_router(K::Linear, "gemm router", n, e, hidden(), phase);
    b_.add(K::Route, "scores, top-k, counts", n * (9 * e + 8 * k) + 4 * e, phase, of_router());
    b_.begin(GraphPart::Preprocess);
    latent(K::Linear, "gemm latent down", x_.tokens, row(), hidden(), phase);
    arrange(phase);
    shared_front(phase);
    sort_rows(phase, eight_bit());
    grouped(K::GroupedLinear, "grouped gemm fc1", rows_each(), up(), row(), phase,
            eight_bit() ? WrittenBy::Norm : WrittenBy::Other);
    activation(phase);
  }
  void activation(P phase) {
    Node& node = b_.activation(x_.rows * x_.width, phase);
    node.launches = of(&ExpertLaunches::activation);
    routed(node);
  }
  void shared(P phase) {
    shared_front(phase);
    shared_back(phase);
  }

  void back(P phase) {
    grouped(K::GroupedLinear, "grouped gemm fc2", rows_each(), row(), x_.width, phase);
    sort_rows(phase);
    return_rows(K::Combine, "combine; all_to_all ep", phase);
    shared_back(phase);
    if (copies_at_home()) {
      permute("unpermute: sums of copies", spread(), phase, of(&ExpertLaunches::sums));
    }
    latent(K::Linear, "gemm latent up", x_.tokens, hidden(), row(), phase);
    if (experts_.shared_ffn_hidden > 0) {
      b_.add(K::Elementwise, "add shared experts", 3 * element() * x_.tokens * hidden(), phase);
    }
  }

  void backward() {
    backward_ = true;
    shared_backward();
    latent(K::LinearInput, "gemm d_latent up input", x_.tokens, row(), hidden(), P::Main);
    latent(K::LinearWeight, "gemm d_latent up weight", row(), hidden(), x_.tokens, P::Weight);
    if (copies_at_home()) {
      permute("copies of output gradients", spread(), P::Main, of(&ExpertLaunches::sums));
    }
    bring_gradients();
    sort_rows(P::Main);
    grouped(K::GroupedLinearInput, "grouped gemm d_fc2 input", rows_each(), x_.width, row());
    weight_gradient("grouped gemm d_fc2 weight", x_.width, row());
    Node& activation = b_.activation_backward(x_.rows * x_.width);
    activation.launches = of(&ExpertLaunches::activation);
    routed(activation);
    grouped(K::GroupedLinearInput, "grouped gemm d_fc1 input", rows_each(), row(), up());
    weight_gradient("grouped gemm d_fc1 weight", row(), up());
    sort_rows(P::Main);
    return_rows(K::Combine, "dispatch backward; all_to_all ep", P::Main);
    probabilities(P::Main);
    b_.begin(GraphPart::Preprocess);
    if (copies_at_home()) {
      permute("sums of input gradients", spread(), P::Main, of_permutation());
    }
    latent(K::LinearInput, "gemm d_latent down input", x_.tokens, hidden(), row(), P::Main);
    latent(K::LinearWeight, "gemm d_latent down weight", hidden(), row(), x_.tokens, P::Weight);
    b_.begin(GraphPart::Router);
    router_backward();
  }

 private:
  // What the host launches in this direction.
  std::int32_t of(LaunchCount ExpertLaunches::*feature) const {
    const LaunchCount& count = b_.plan.runtime.expert_launches.*feature;
    return backward_ ? count.backward : count.forward;
  }
  // The same of what has kernels of its own where it does not run op by op.
  std::int32_t of(LaunchCount ExpertLaunches::*feature, LaunchCount ExpertLaunches::*fused,
                  bool EagerKernels::*operation) const {
    return of(b_.eager(operation) ? feature : fused);
  }
  std::int32_t of_router() const {
    return of(&ExpertLaunches::router, &ExpertLaunches::router_fused, &EagerKernels::router);
  }
  std::int32_t of_permutation() const {
    return of(&ExpertLaunches::permute, &ExpertLaunches::permute_fused, &EagerKernels::permute);
  }
  std::int32_t of_sorting() const {
    return of(&ExpertLaunches::sort, &ExpertLaunches::sort_fused, &EagerKernels::permute);
  }

  std::int64_t element() const { return b_.s.element; }
  std::int64_t hidden() const { return b_.s.hidden; }
  std::int64_t row() const { return x_.row; }  // columns of what travels
  std::int64_t up() const { return matrices_up(b_.model) * x_.width; }
  std::int64_t rows_each() const { return (x_.rows + x_.per_rank - 1) / x_.per_rank; }
  // Whether a token is copied, and its copies are summed, on the rank that brings it.
  bool copies_at_home() const { return !x_.gathers_tokens && !x_.sends_once; }
  // Tokens read and their copies written, or the other way: (1 + k) n h B.
  std::int64_t spread() const { return element() * row() * (x_.tokens + x_.copies); }
  std::int64_t rows_bytes() const { return element() * row() * x_.rows; }

  static void routed(Node& node) { node.routed = true; }

  void product(Kernel kernel, std::string_view name, std::int64_t m, std::int64_t n, std::int64_t k,
               P phase, bool layer = false) {
    b_.gemm(kernel, name, m, n, k, phase, 1, layer);
  }
  // Latent experts: whole on every rank, of the tokens that it brings.
  void latent(Kernel kernel, std::string_view name, std::int64_t m, std::int64_t n, std::int64_t k,
              P phase) {
    if (experts_.latent == 0) return;
    product(kernel, name, m, n, k, phase, true);
    if (traits_of(kernel).role == GemmRole::WeightGradient) b_.accumulate(m * n);
  }
  void grouped(Kernel kernel, std::string_view name, std::int64_t m, std::int64_t n, std::int64_t k,
               P phase = P::Main, WrittenBy input = WrittenBy::Other) {
    if (b_.plan.runtime.grouped_experts) {
      const std::int32_t calls =
          of(&ExpertLaunches::calls) * (is_quantized(b_.plan.precision.compute) ? 2 : 1);
      Node& node = b_.gemm(kernel, name, m, n, k, phase, x_.per_rank, true, input);
      node.expert_calls = calls * static_cast<std::int32_t>(x_.per_rank);
      routed(node);
      return;
    }
    name.remove_prefix(std::string_view("grouped ").size());
    for (std::int64_t i = 0; i < x_.per_rank; ++i) {
      routed(b_.gemm(of_one(kernel), name, m, n, k, phase, 1, true, input));
    }
  }
  static Kernel of_one(Kernel grouped) {
    return grouped == K::GroupedLinear        ? K::Linear
           : grouped == K::GroupedLinearInput ? K::LinearInput
                                              : K::LinearWeight;
  }
  void weight_gradient(std::string_view name, std::int64_t in, std::int64_t out) {
    grouped(K::GroupedLinearWeight, name, in, out, rows_each(), P::Weight);
    b_.accumulate(x_.per_rank * in * out);
  }
  Node& permute(std::string_view name, std::int64_t bytes, P phase, std::int32_t launches) {
    return b_.add(K::Permute, name, bytes, phase, launches);
  }
  Node& collective(Kernel kernel, Axis axis, std::string_view name, std::int64_t bytes, P phase) {
    Node& node = b_.add(kernel, name, bytes, phase, of(&ExpertLaunches::exchange));
    node.axis = axis;
    return node;
  }

  // Tokens to the ranks of their experts.
  void arrange(P phase) {
    if (x_.gathers_tokens) {
      b_.begin(GraphPart::None);
      const std::int64_t all = x_.block * x_.tokens;
      collective(K::AllGather, Axis::ExpertBlock, "tokens; all_gather ep", all * row() * element(),
                 phase);
      collective(K::AllGather, Axis::ExpertBlock, "map and weights; all_gather ep",
                 5 * all * experts_.count, phase);
      routed(permute("rows of own experts", 2 * rows_bytes(), phase, of_permutation()));
      return;
    }
    if (!x_.sends_once) {  // what sends a token once counts for itself
      b_.add(K::Elementwise, "counts of tokens, to the host", 0, phase,
             of(&ExpertLaunches::counts));
    }
    if (x_.block > 1) {
      collective(K::AllGather, Axis::ExpertBlock, "counts; all_gather ep",
                 8 * experts_.count * x_.block, phase)
          .launches = 0;  // one of the counts
    }
    if (copies_at_home()) permute("permute: copies of tokens", spread(), phase, of_permutation());
    b_.begin(GraphPart::None);
    if (eight_bit()) {  // read in 16 bit, written in 8
      b_.add(K::Elementwise, "cast tokens to fp8", 3 * x_.tokens * row(), phase);
    }
    if (Node* sent = send(K::Dispatch, "dispatch; all_to_all ep", phase, eight_bit())) {
      sent->drains = host_reads_counts();
    }
    gather_rows(element(), phase);
    probabilities(phase);
  }
  // The reverse of return_rows.
  void bring_gradients() {
    if (x_.gathers_tokens) {
      collective(K::AllGather, Axis::ExpertBlock, "output gradients; all_gather ep",
                 4 * x_.block * x_.tokens * row(), P::Main);
      routed(permute("rows of own experts", 2 * rows_bytes(), P::Main, of(&ExpertLaunches::sums)));
      return;
    }
    send(K::Dispatch, "combine backward; all_to_all ep", P::Main);
    gather_rows(4, P::Main);
  }
  void gather_rows(std::int64_t bytes_per_value, P phase) {
    if (!x_.gathers_rows()) return;
    routed(collective(K::AllGather, Axis::ExpertTensor, "rows; all_gather etp",
                      bytes_per_value * row() * x_.rows, phase));
  }
  // Back to the ranks that brought the tokens; partial sums of q ranks in the type of the weights.
  void return_rows(Kernel kernel, std::string_view name, P phase) {
    if (x_.gathers_tokens) {
      routed(permute("rows to all tokens", rows_bytes() + 4 * x_.block * x_.tokens * row(), phase,
                     of(&ExpertLaunches::sums)));
      collective(K::ReduceScatter, Axis::ExpertBlock, "tokens; reduce_scatter ep",
                 4 * x_.block * x_.tokens * row(), phase);
      return;
    }
    if (x_.gathers_rows()) {
      routed(collective(K::ReduceScatter, Axis::ExpertTensor, "rows; reduce_scatter etp",
                        4 * row() * x_.rows, phase));
    }
    send(kernel, name, phase);
  }
  // Whether a forward's tokens travel in 8 bit, a 4-byte scale for 128 values beside them
  // (DeepSeek-V3, arXiv 2412.19437, section 3.3.3); what comes home has 16.
  bool eight_bit() const { return b_.plan.fp8_dispatch && b_.plan.expert_parallel > 1; }
  std::int64_t in_eight_bit(std::int64_t values) const { return values + values / 128 * 4; }
  // How much goes to which rank is read on the host, unless room for a fixed number of rows does.
  bool host_reads_counts() const {
    const Plan& plan = b_.plan;
    return !plan.expert_slots && plan.expert_capacity == 0 && plan.expert_drop == 0;
  }
  // n k rows of h values.
  Node* send(Kernel kernel, std::string_view name, P phase, bool eight_bit = false) {
    if (b_.plan.expert_parallel == 1) return nullptr;
    const std::int64_t values = row() * x_.copies;
    Node& node = collective(kernel, Axis::Expert, name,
                            eight_bit ? in_eight_bit(values) : element() * values, phase);
    node.routed = true;
    if (x_.sends_once) node.launches = of(&ExpertLaunches::deduplicated);
    node.overlapped = b_.plan.overlap_expert_parallel == ExpertOverlap::Shared &&
                      !b_.plan.runtime.synchronous_launch;
    return &node;
  }
  // One fp32 weight per copy, or its gradient.
  void probabilities(P phase) {
    if (x_.gathers_tokens) return;
    if (b_.plan.expert_parallel > 1) {
      Node& node =
          collective(K::AllToAll, Axis::Expert, "weights; all_to_all ep", 4 * x_.copies, phase);
      if (x_.sends_once) node.launches = 0;  // they travel with the tokens
      routed(node);
    }
  }
  // From (source rank, expert) to (expert, source rank) and back; once of what came deduplicated,
  // which is also expanded to its copies.
  void sort_rows(P phase, bool eight_bit = false) {
    if (x_.block == 1 || x_.gathers_tokens) return;
    if (x_.per_rank > 1 || x_.sends_once) {
      const std::int64_t bytes = eight_bit ? in_eight_bit(row() * x_.rows) : rows_bytes();
      routed(permute("rows by expert", 2 * bytes, phase, of_sorting()));
    }
  }

  // The shared experts are one dense MLP over tp, of the tokens of all its ranks.
  void shared_front(P phase) {
    if (x_.shared == 0) return;
    b_.gather_input(Hiding::Exposed, phase);
    product(K::Linear, "gemm shared fc1", b_.s.tokens, shared_up(), hidden(), phase, true);
    b_.activation(b_.s.tokens * x_.shared, phase);
  }
  void shared_back(P phase) {
    if (x_.shared == 0) return;
    product(K::Linear, "gemm shared fc2", b_.s.tokens, hidden(), x_.shared, phase, true);
    b_.reduce_output(Hiding::Exposed, phase);
  }
  void shared_backward() {
    if (x_.shared == 0) return;
    const std::int64_t n = b_.s.tokens;
    b_.gather_input(Hiding::Exposed, P::Main, 5);
    product(K::LinearInput, "gemm d_shared fc2 input", n, x_.shared, hidden(), P::Main, true);
    product(K::LinearWeight, "gemm d_shared fc2 weight", x_.shared, hidden(), n, P::Weight, true);
    b_.accumulate(x_.shared * hidden());
    b_.activation_backward(n * x_.shared);
    b_.gather_again(5);
    product(K::LinearInput, "gemm d_shared fc1 input", n, hidden(), shared_up(), P::Main, true);
    b_.reduce_output(Hiding::Plain, P::Main, 5);
    product(K::LinearWeight, "gemm d_shared fc1 weight", hidden(), shared_up(), n, P::Weight, true);
    b_.accumulate(hidden() * shared_up());
  }
  std::int64_t shared_up() const { return matrices_up(b_.model) * x_.shared; }

  // A router's products are launched with its scores.
  void of_the_router(Kernel kernel, std::string_view name, std::int64_t m, std::int64_t n,
                     std::int64_t k, P phase) {
    b_.gemm(kernel, name, m, n, k, phase, 1, false).launches = 0;
  }
  void router_backward() {
    const std::int64_t n = x_.tokens, e = experts_.count, k = experts_.per_token;
    b_.add(K::RouteBackward, "scores backward", n * (8 * e + 8 * k), P::Main, of_router());
    of_the_router(K::LinearInput, "gemm d_router input", n, hidden(), e, P::Main);
    of_the_router(K::LinearWeight, "gemm d_router weight", hidden(), e, n, P::Weight);
    b_.accumulate(hidden() * e);
  }

  FrameworkNodes& b_;
  const ExpertShape& x_;
  const Experts& experts_;
  bool backward_ = false;
};

}  // namespace

void experts_front(FrameworkNodes& nodes, NodePhase phase) {
  ExpertNodes(nodes).front(phase);
}
void experts_back(FrameworkNodes& nodes, NodePhase phase) {
  ExpertNodes(nodes).back(phase);
}
void experts_backward(FrameworkNodes& nodes) {
  ExpertNodes(nodes).backward();
}
void experts_activation(FrameworkNodes& nodes, NodePhase phase) {
  ExpertNodes(nodes).activation(phase);
}
void shared_experts(FrameworkNodes& nodes, NodePhase phase) {
  ExpertNodes(nodes).shared(phase);
}

}  // namespace rehearse
