// SPDX-License-Identifier: Apache-2.0
#include "sim/accuracy/moe_layer.h"

#include <array>
#include <cmath>
#include <optional>

#include "schedules/base/files.h"
#include "sim/cluster/cluster.h"

namespace rehearse::sim {
namespace {

// What a source calls a dispatcher.
struct DispatcherWord {
  std::string_view word;
  Dispatcher dispatcher;
  bool pads_in_place;  // its permutation pads rows for products in 8 bit
};
constexpr std::array kDispatcherWords{
    DispatcherWord{"all_to_all", Dispatcher::AllToAll, false},
    DispatcherWord{"alltoall", Dispatcher::AllToAll, false},
    DispatcherWord{"all_gather", Dispatcher::AllGather, false},
    DispatcherWord{"allgather", Dispatcher::AllGather, false},
    DispatcherWord{"deduplicated", Dispatcher::Deduplicated, false},
    DispatcherWord{"flex, DeepEP", Dispatcher::Deduplicated, false},
    // deepseek-ai/DeepEP csrc/hybrid_ep/extension/permute.cu: pad_multiple
    DispatcherWord{"flex, HybridEP", Dispatcher::Deduplicated, true},
};
constexpr std::string_view kRandomLogits = "forced balance (random logits)";

class Reader {
 public:
  Reader(const JsonValue& value, JsonReport& report) : value_(value), report_(report) {}

  MoeLayerCase read() {
    MoeLayerCase entry;
    ExpertLayer& layer = entry.layer;
    layer.tokens = integer("tokens_per_rank", 0);
    layer.hidden = integer("hidden_size", 0);
    layer.width = integer("moe_intermediate_size", 0);
    layer.shared_width = integer("shared_width", 0);
    layer.block_fp8 = text("precision") == "fp8";
    layer.accumulates = text("gradient") != "bf16, not accumulated";
    entry.expert_parallel = static_cast<std::int32_t>(integer("expert_parallel", 1));
    entry.gpus = static_cast<std::int32_t>(integer("gpus", entry.expert_parallel));
    routing(layer.routing);
    load(layer.load);
    dispatcher(layer);
    only_built();
    tokens(layer.tokens);
    divides(entry.expert_parallel, layer.routing.experts, "expert_parallel", "experts");
    divides(entry.expert_parallel, entry.gpus, "expert_parallel", "gpus");
    cluster(entry.cluster);
    return entry;
  }

 private:
  std::int64_t integer(std::string_view key, std::int64_t otherwise) const {
    const JsonValue* value = value_.given(key);
    return value == nullptr ? otherwise : value->integer;
  }
  std::string_view text(std::string_view key) const {
    const JsonValue* value = value_.given(key);
    return value == nullptr ? std::string_view() : value->text;
  }
  void fail(std::string_view key, const std::string& what) {
    const JsonMember* member = value_.find(key);
    report_.fail(member == nullptr ? value_.line : member->line, "moe_layer." + std::string(key),
                 what);
  }
  void divides(std::int64_t part, std::int64_t whole, std::string_view key, std::string_view of) {
    if (whole % part == 0) return;
    fail(key, std::to_string(part) + " does not divide " + std::string(of) + " " +
                  std::to_string(whole));
  }

  void routing(Routing& routing) {
    routing.experts = static_cast<std::int32_t>(integer("experts", 1));
    routing.per_token = static_cast<std::int32_t>(integer("experts_per_token", 1));
    if (const JsonValue* groups = value_.given("groups")) {
      if (groups->items.size() != 2) return fail("groups", "needs [groups, kept]");
      routing.groups = static_cast<std::int32_t>(groups->items[0].integer);
      routing.kept_groups = static_cast<std::int32_t>(groups->items[1].integer);
    }
    divides(routing.groups, routing.experts, "groups", "experts");
    if (routing.kept_groups > routing.groups) {
      return fail("groups", "keeps more groups than there are");
    }
    const std::int32_t open = routing.experts / routing.groups * routing.kept_groups;
    if (routing.per_token > open) {
      fail("experts_per_token", std::to_string(routing.per_token) + " of " + std::to_string(open) +
                                    " experts that a token may choose");
    }
  }

  void load(ExpertLoad& load) {
    const JsonValue* routing = value_.given("routing");
    if (routing == nullptr) return;
    if (routing->is_number()) {
      load = {LoadBalance::Factor, routing->number};
      const std::int64_t ranks = integer("expert_parallel", 1);
      if (routing->number > static_cast<double>(ranks)) {
        fail("routing", "the busiest of " + std::to_string(ranks) +
                            " ranks has at most all rows: so many times the mean");
      }
    } else if (routing->text == "uniform" || routing->text == kRandomLogits) {
      load = {LoadBalance::Uniform};
    } else if (routing->text != "balanced") {
      fail("routing", "must be balanced, uniform, \"" + std::string(kRandomLogits) +
                          "\" or a number of at least 1");
    }
  }

  void dispatcher(ExpertLayer& layer) {
    const std::string_view word = text("dispatcher");
    std::array<std::string_view, kDispatcherWords.size()> known;
    for (std::size_t i = 0; i < known.size(); ++i) {
      known[i] = kDispatcherWords[i].word;
      if (word != known[i]) continue;
      layer.dispatcher = kDispatcherWords[i].dispatcher;
      layer.pads_in_place = kDispatcherWords[i].pads_in_place;
      return;
    }
    fail("dispatcher", "unknown dispatcher " + json_excerpt(word) + what_is_known(word, known));
  }

  void only_built() {
    for (const std::string_view key : {"expert_tensor_parallel", "tensor_parallel"}) {
      if (integer(key, 1) > 1) fail(key, "only 1 is built in this form");
    }
    for (const std::string_view key : {"fused_permute", "fused_router"}) {
      const JsonValue* value = value_.given(key);
      if (value != nullptr && !value->boolean) fail(key, "only true is built");
    }
  }

  void tokens(std::int64_t per_rank) {
    const std::int64_t samples = integer("micro_batch", 1);
    const std::int64_t all = samples * integer("sequence_length", per_rank / samples);
    if (all != per_rank) {
      fail("tokens_per_rank", std::to_string(per_rank) + " are not micro_batch x sequence_length " +
                                  std::to_string(all));
    }
  }

  void cluster(ClusterSource& source) {
    const std::string_view name = text("cluster");
    const std::optional<std::string> found = find_file(name, report_.path(), "clusters");
    if (!found) return fail("cluster", "no such file: " + json_excerpt(name));
    source.path = *found;
  }

  const JsonValue& value_;
  JsonReport& report_;
};

}  // namespace

MoeLayerCase read_moe_layer(const JsonValue& value, JsonReport& report) {
  return Reader(value, report).read();
}

Result<ExpertLayerCost> predict_moe_layer(const MoeLayerCase& entry) {
  const Result<Cluster> cluster = read_cluster(entry.cluster);
  if (!cluster) return cluster.error();
  const Result<CollectiveTables> tables = shipped_collective_tables();
  if (!tables) return tables.error();
  Result<KernelScalars> scalars = read_kernel_scalars(cluster.value());
  if (!scalars) return scalars.error();
  const ComputeCosts costs = burst_costs(cluster.value(), std::move(scalars).value());
  if (costs.peak_flops <= 0 || costs.memory_bytes_per_s <= 0) {
    return Error{cluster.value().path + ": gpu.peak_dense_tflops: no peak in 16 bit"};
  }
  if (const Result<> enough = check_gpus(cluster.value(), entry.gpus); !enough) {
    return enough.error();
  }
  const CollectiveModel collectives = make_collective_model(tables.value(), cluster.value());
  // A group of neighbouring ranks, as that of the context axis is; the others beside it.
  Plan plan;
  plan.context_parallel = entry.expert_parallel;
  plan.data_parallel = entry.gpus / entry.expert_parallel;
  plan.rank_order = {Axis::Tensor, Axis::Context, Axis::Expert, Axis::Data, Axis::Pipeline};
  const Network network(cluster.value(), collectives, plan, {});
  return expert_layer_cost(entry.layer, costs, network.group(RankClass{0}, Axis::Context), network);
}

}  // namespace rehearse::sim
