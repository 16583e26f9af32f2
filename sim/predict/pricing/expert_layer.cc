// SPDX-License-Identifier: Apache-2.0
#include "sim/predict/pricing/expert_layer.h"

#include <algorithm>
#include <cmath>

#include "sim/cost/overlap.h"

namespace rehearse::sim {
namespace {

class Composer {
 public:
  Composer(const ExpertLayer& layer, const ComputeCosts& costs, const GroupShape& group,
           const Network& network)
      : layer_(layer), costs_(costs), group_(group), network_(network) {
    ranks_ = std::max(1, group.ranks);
    local_ = layer.routing.experts / ranks_;
    tokens_ = static_cast<double>(layer.tokens);
    made_.rows = tokens_ * layer.routing.per_token * load();
  }

  ExpertLayerCost compose() {
    shape_ = {.tokens = layer_.tokens,
              .hidden = layer_.hidden,
              .routing = layer_.routing,
              .load = load()};
    out_ = &made_.forward;
    forward();
    out_ = &made_.backward;
    backward();
    return std::move(made_);
  }

 private:
  // --- What is common -----------------------------------------------------------

  double load() const {
    return busiest_over_mean(layer_.load, layer_.routing, tokens_ * ranks_, ranks_);
  }
  double rows() const { return made_.rows; }
  std::int64_t rows_per_expert() const { return std::llround(rows() / local_); }
  std::int64_t fc1_columns() const { return (layer_.gated ? 2 : 1) * layer_.width; }

  void compute(std::string_view name, const NodeCost& cost) {
    if (cost.ns > 0) out_->push_back({name, cost.ns, false, cost.level});
  }
  void communicate(std::string_view name, Nanoseconds time, CostLevel level) {
    if (time.value > 0) out_->push_back({name, static_cast<double>(time.value), true, level});
  }

  NodeCost product(std::int64_t m, std::int64_t n, std::int64_t k, GemmRole role) const {
    return grouped_product_cost(costs_, {.experts = local_,
                                         .m = m,
                                         .n = n,
                                         .k = k,
                                         .role = role,
                                         .block_fp8 = layer_.block_fp8,
                                         .accumulates = layer_.accumulates});
  }
  NodeCost quantised(double values) const {
    return layer_.block_fp8 ? quantisation_cost(costs_, values) : NodeCost{};
  }

  // --- Tokens on their way ------------------------------------------------------

  // To the experts: a forward's dispatch, a backward's gradients of what combine brought home.
  void to_experts(std::string_view name, bool forward) {
    const bool gathers = layer_.dispatcher == Dispatcher::AllGather;
    if (layer_.dispatcher == Dispatcher::AllToAll) {
      compute("permute by rank", permutation_cost(costs_, tokens_, rows_sent(), layer_.hidden));
    }
    DispatchShape shape = shape_;
    if (forward && layer_.fp8_dispatch) shape.bytes_per_value = kBlockFp8Bytes;
    const DispatchCost cost = dispatch_cost(layer_.dispatcher, shape, group_, network_);
    to_experts_ns_ = static_cast<double>(cost.cost.time.value);
    if (forward) made_.dispatch = cost;
    communicate(name, cost.cost.time, cost.cost.level);
    weights_travel();
    if (layer_.dispatcher == Dispatcher::AllToAll) {
      if (local_ > 1) sort_by_expert();
    } else {
      const double arrived = gathers ? tokens_ * ranks_ : copies();
      compute("permute by expert", permutation_cost(costs_, arrived, rows(), layer_.hidden));
    }
    pad();
  }

  // Home from the experts: a forward's combine, a backward's gradients of what dispatch brought.
  void from_experts(std::string_view name, bool forward) {
    pad();
    const bool gathers = layer_.dispatcher == Dispatcher::AllGather;
    if (layer_.dispatcher == Dispatcher::AllToAll) {
      if (local_ > 1) sort_by_expert();
    } else {
      const double leaving = gathers ? tokens_ * ranks_ : copies();
      compute("sum by token", permutation_cost(costs_, rows(), leaving, layer_.hidden));
    }
    const DispatchCost cost = gathers ? gathered_combine_cost(shape_, group_, network_)
                                      : dispatch_cost(layer_.dispatcher, shape_, group_, network_);
    home_ns_ = static_cast<double>(cost.cost.time.value);
    if (forward) made_.combine = cost;
    communicate(name, cost.cost.time, cost.cost.level);
    if (layer_.dispatcher == Dispatcher::AllToAll) {
      compute("sum by token", permutation_cost(costs_, rows_sent(), tokens_, layer_.hidden));
    }
  }

  double rows_sent() const { return tokens_ * layer_.routing.per_token; }
  // Tokens that a deduplicated dispatch brings to the busiest rank: one copy for all its experts.
  double copies() const { return tokens_ * expected_parts(layer_.routing, ranks_) * load(); }

  void sort_by_expert() {
    compute("sort by expert", permutation_cost(costs_, rows(), rows(), layer_.hidden));
  }
  // Products in 8 bit want multiples of rows per expert: a copy with rows between, one back.
  void pad() {
    if (layer_.block_fp8 && !layer_.pads_in_place)
      compute("pad rows", permutation_cost(costs_, rows(), rows(), layer_.hidden));
  }
  // The router's weights of the rows, fp32, in a collective of their own; elsewhere they travel
  // with the tokens.
  void weights_travel() {
    if (layer_.dispatcher == Dispatcher::Deduplicated || group_.ranks <= 1) return;
    constexpr std::int64_t kFp32 = 4;
    const bool gathers = layer_.dispatcher == Dispatcher::AllGather;
    const std::int64_t each =
        kFp32 * layer_.tokens * (gathers ? layer_.routing.experts : layer_.routing.per_token);
    const CollectiveCost cost =
        collective_cost(gathers ? OpKind::AllGather : OpKind::AllToAll,
                        Bytes{gathers ? each * ranks_ : each}, group_, network_);
    communicate("router weights", cost.time, cost.level);
  }

  // --- Directions ---------------------------------------------------------------

  void forward() {
    const std::int64_t m = rows_per_expert();
    compute("router",
            router_cost(costs_, layer_.tokens, layer_.hidden, layer_.routing.experts, false));
    if (group_.ranks > 1) {
      communicate("layout", layout_time(layer_.dispatcher, network_), CostLevel::Formula);
      // The host waits for the counts, once; then it has to issue anew.
      compute("host wait", {.ns = costs_.scalars.issue_us * 1e3});
    }
    to_experts("dispatch", true);
    const double weights = static_cast<double>(local_) * static_cast<double>(layer_.hidden) *
                           static_cast<double>(fc1_columns() + layer_.width);
    compute("quantise weights", quantised(weights));
    compute("quantise rows", quantised(rows() * static_cast<double>(layer_.hidden)));
    compute("experts fc1", product(m, fc1_columns(), layer_.hidden, GemmRole::Forward));
    compute("activation",
            expert_activation_cost(costs_, rows(), layer_.width, layer_.gated, false));
    compute("quantise activation", quantised(rows() * static_cast<double>(layer_.width)));
    compute("experts fc2", product(m, layer_.hidden, layer_.width, GemmRole::Forward));
    from_experts("combine", true);
    shared(1);
  }

  void backward() {
    const std::int64_t m = rows_per_expert();
    to_experts("combine backward", false);
    compute("quantise gradient", quantised(rows() * static_cast<double>(layer_.hidden)));
    compute("experts fc2 input", product(m, layer_.width, layer_.hidden, GemmRole::InputGradient));
    compute("experts fc2 weight",
            product(layer_.hidden, layer_.width, m, GemmRole::WeightGradient));
    compute("activation backward",
            expert_activation_cost(costs_, rows(), layer_.width, layer_.gated, true));
    compute("quantise activation gradient", quantised(rows() * static_cast<double>(fc1_columns())));
    compute("experts fc1 input", product(m, layer_.hidden, fc1_columns(), GemmRole::InputGradient));
    compute("experts fc1 weight",
            product(fc1_columns(), layer_.hidden, m, GemmRole::WeightGradient));
    from_experts("dispatch backward", false);
    compute("router backward",
            router_cost(costs_, layer_.tokens, layer_.hidden, layer_.routing.experts, true));
    shared(2);
  }

  // A dense MLP of all tokens: `passes` times the forward's products. Beside the dispatch its first
  // product and activation hide, beside the combine its second; hiding costs compute its share
  // (Megatron-LM shared_experts.py).
  void shared(int passes) {
    if (layer_.shared_width <= 0) return;
    const auto dense = [&](std::int64_t n, std::int64_t k) {
      return passes *
             grouped_product_cost(
                 costs_, {.m = layer_.tokens, .n = n, .k = k, .block_fp8 = layer_.block_fp8})
                 .ns;
    };
    const std::int64_t f = layer_.shared_width;
    const double first = dense((layer_.gated ? 2 : 1) * f, layer_.hidden) +
                         expert_activation_cost(costs_, tokens_, f, layer_.gated, passes > 1).ns;
    const double second = dense(layer_.hidden, f);
    double ns = first + second;
    if (layer_.overlaps_shared) {
      const auto beside = [&](double compute_ns, double moves_ns) {
        return std::min(moves_ns, compute_ns) -
               hide(moves_ns, compute_ns, costs_.scalars.dispatch_slowdown).contention;
      };
      ns -= beside(first, to_experts_ns_) + beside(second, home_ns_);
    }
    compute("shared experts", {.ns = ns, .level = costs_.scalars.level});
  }

  const ExpertLayer& layer_;
  const ComputeCosts& costs_;
  const GroupShape& group_;
  const Network& network_;
  std::int32_t ranks_ = 1, local_ = 1;
  double tokens_ = 0;
  double to_experts_ns_ = 0, home_ns_ = 0;  // of the direction that is being made
  DispatchShape shape_;
  ExpertLayerCost made_;
  std::vector<LayerPart>* out_ = nullptr;
};

}  // namespace

ExpertLayerCost expert_layer_cost(const ExpertLayer& layer, const ComputeCosts& costs,
                                  const GroupShape& group, const Network& network) {
  return Composer(layer, costs, group, network).compose();
}

double total_ns(const std::vector<LayerPart>& parts) {
  double sum = 0;
  for (const LayerPart& part : parts) sum += part.ns;
  return sum;
}

}  // namespace rehearse::sim
