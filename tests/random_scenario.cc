// SPDX-License-Identifier: Apache-2.0
#include "tests/random_scenario.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <optional>

#include "schedules/base/files.h"
#include "schedules/order/registry.h"
#include "schedules/scenario/plan_size.h"
#include "tests/random_models.h"

namespace rehearse::sim {
namespace {

std::string text_of(std::int64_t value) {
  return std::to_string(value);
}

struct Draw {
  Chance& chance;
  const DrawLimits& limits;
  ScenarioText& to;
  const Transformer& model;
  const Cluster& cluster;
  std::int64_t t = 1, p = 1, c = 1, d = 1;

  bool experts() const { return model.experts.count > 0; }
  bool own() const { return said("runtime") == "\"rehearse\""; }
  std::int64_t replicas() const { return c * d; }
  std::string said(const std::string& key) const {
    const auto found = to.plan.find(key);
    return found == to.plan.end() ? std::string() : found->second;
  }
  const ScheduleInfo& schedule() const {
    const std::string name = said("schedule");
    const bool named = name.size() > 2;
    return *find_schedule(named    ? std::string_view(name).substr(1, name.size() - 2)
                          : p == 1 ? "none"
                                   : "1f1b");
  }
  std::int64_t chunks() const {
    const ChunkRule rule = schedule().chunks;
    if (rule == ChunkRule::V) return 2 * p;
    return rule == ChunkRule::Many ? p * to.number("virtual_stages", p > 1 ? 2 : 1) : p;
  }
  std::string quoted(std::initializer_list<const char*> words) {
    return json_quoted(chance.of<const char*>(words));
  }
  std::string flag() { return json_bool(chance.percent(50)); }
  std::string number(std::initializer_list<std::int64_t> values) {
    return text_of(chance.of<std::int64_t>(values));
  }
};

std::string schedule_of(Draw& d) {
  if (d.p == 1) return d.chance.percent(10) ? "\"gpipe\"" : "";
  if (d.limits.open && d.chance.percent(4)) return d.quoted({"auto", "zb_1p", "zb_2p"});
  return d.quoted({"1f1b",
                   "1f1b",
                   "gpipe",
                   "naive",
                   "interleaved_1f1b",
                   "interleaved_1f1b",
                   "looped_bfs",
                   "eager_1f1b",
                   "zb_h1",
                   "zb_h2",
                   "zb_v",
                   "v_half",
                   "v_min",
                   "1f1b_v",
                   "dualpipe",
                   "dualpipev",
                   "chimera",
                   "interleaved_zb1p",
                   "seq_1f1b",
                   "seq_zb_h1"});
}

// A layer of one chunk moved to another; prediction layers before the last chunk, sometimes.
std::string stage_layers_of(Draw& d) {
  const std::int64_t chunks = d.chunks();
  if (chunks < 2 || d.model.layers < chunks) return "";
  std::vector<std::int64_t> layers(static_cast<std::size_t>(chunks), d.model.layers / chunks);
  layers[0] += d.model.layers % chunks - 1;
  layers[static_cast<std::size_t>(1 + d.chance.below(chunks - 1))] += 1;
  std::string list, layout = "E";
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const std::string number = text_of(layers[i]);
    list += (i == 0 ? "[" : ", ") + number;
    layout += (i == 0 ? "" : "|") + (layers[i] == 0 ? "" : "t*" + number);
    if (d.model.prediction_layers > 0 && i + 2 == layers.size()) {
      layout += "m*" + text_of(d.model.prediction_layers);
    }
  }
  const bool placed = d.model.prediction_layers > 0 && !d.own() && d.chance.percent(70);
  return placed ? json_quoted(layout + "L") : list + "]";
}

std::string recompute_of(Draw& d) {
  if (d.chance.percent(60) || d.own()) return d.quoted({"none", "selective", "full"});
  if (d.experts() && d.chance.percent(50)) {
    return d.chance.of<const char*>({R"(["experts"])", R"(["expert_activation", "norm"])",
                                     R"(["shared_experts"])", R"(["attention_core", "experts"])"});
  }
  return d.chance.of<const char*>({R"(["attention_core"])", R"(["norm"])", R"(["mlp"])",
                                   R"(["mlp_activation", "norm"])", R"(["latent_up"])",
                                   R"(["attention_core", "mlp"])"});
}

std::string precision_of(Draw& d) {
  const bool sent = d.said("expert_dispatch") == "\"deduplicated\"";
  if (d.chance.percent(sent ? 20 : 50)) return "";
  if (d.chance.percent(15)) {
    return d.chance.of<const char*>({R"({"parameters": 4, "gradients": 4, "optimizer": 8})",
                                     R"({"gradients": 2, "compute": "bf16"})",
                                     R"({"parameters": 2, "optimizer": 8, "compute": "fp16"})"});
  }
  const Gpu& gpu = d.cluster.gpu;
  if (gpu.peaks.fp8 && d.chance.percent(sent ? 80 : 30)) {
    const bool blocks = gpu.architecture == "blackwell" && !d.own();
    return blocks ? d.quoted({"fp8", "mxfp8"}) : "\"fp8\"";
  }
  return d.quoted({"bf16", "fp16", "fp32"});
}

std::string rank_order_of(Draw& d) {
  return d.quoted({"tp-ep-dp-cp-pp", "tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp", "cp-tp-ep-dp-pp",
                   "pp-tp-cp-ep-dp", "tp-pp-cp-ep-dp"});
}

std::string capacity_of(Draw& d) {
  return d.chance.of<const char*>({"1.25", "2", R"({"drop": 1.1})", R"("drop")"});
}

// A key of a plan: how often, in a hundred, it is said where it may be, and its value; "" where it
// means nothing. In the order in which they are drawn.
struct KeyDraw {
  std::string_view key;
  std::int32_t percent;
  std::string (*value)(Draw&);
};
constexpr std::array kKeys{
    // Sizes, which are chosen before all others (sizes_of).
    KeyDraw{"tensor_parallel", 100, [](Draw& d) { return d.t > 1 ? text_of(d.t) : ""; }},
    KeyDraw{"pipeline_parallel", 100, [](Draw& d) { return d.p > 1 ? text_of(d.p) : ""; }},
    KeyDraw{"context_parallel", 100, [](Draw& d) { return d.c > 1 ? text_of(d.c) : ""; }},
    KeyDraw{"data_parallel", 100, [](Draw& d) { return text_of(d.d); }},
    KeyDraw{"runtime", 60,
            [](Draw& d) {
              if (d.limits.own_executor && d.chance.percent(30)) return json_quoted("rehearse");
              return d.quoted({"megatron", "fsdp", "torchtitan", "generic", "aa_scaling", "llmc",
                               "megatron_2021", "megatron_2023", "megatron_deepspeed",
                               "megatron_deepspeed_2024", "fsdp_torch1"});
            }},
    KeyDraw{"zero_stage", 70,
            [](Draw& d) {
              return d.number({0, 1, 1, 2, 3});
            }},
    KeyDraw{"schedule", 90, schedule_of},
    KeyDraw{"virtual_stages", 60,
            [](Draw& d) {
              if (d.p == 1 || d.schedule().chunks != ChunkRule::Many) return std::string();
              return d.number({2, 3, 4});
            }},
    KeyDraw{"micro_batch", 100,
            [](Draw& d) {
              if (d.limits.open && d.chance.percent(15)) {
                return d.chance.percent(40) ? json_quoted("auto") : std::string();
              }
              return d.number({1, 1, 2, 4});
            }},
    KeyDraw{"global_batch", 97,
            [](Draw& d) {
              std::int64_t m = d.chance.of<std::int64_t>({1, 2, 4, 8, 16, 32});
              m = std::min<std::int64_t>(m, d.limits.most_microbatches);
              return text_of(m * d.d * d.to.number("micro_batch", 1));
            }},
    KeyDraw{"sequence_length", 100,
            [](Draw& d) {
              return d.number({256, 512, 1024, 2048, 4096});
            }},
    KeyDraw{"sequence_slices", 50,
            [](Draw& d) {
              return d.schedule().sliced ? d.number({2, 4, 8}) : "";
            }},
    KeyDraw{
        "microbatch_group_size", 25,
        [](Draw& d) { return d.schedule().grouped ? text_of(d.p + d.chance.below(d.p + 1)) : ""; }},
    KeyDraw{"extra_warmup", 25,
            [](Draw& d) {
              return d.schedule().extra_warmup ? d.number({1, 2}) : "";
            }},
    KeyDraw{"memory_limit", 50,
            [](Draw& d) { return d.schedule().planned ? std::string("1.5") : ""; }},
    KeyDraw{"stage_layers", 15, stage_layers_of},
    KeyDraw{"tensor_parallel_2d", 80,
            [](Draw& d) {
              const bool may = d.own() && d.t >= 4 && d.c == 1 && !d.experts() &&
                               !d.model.latent.used() && d.model.kv_heads % (d.t / 2) == 0 &&
                               d.to.number("micro_batch", 1) % 2 == 0 &&
                               d.to.number("sequence_slices", 1) == 1;
              return may ? "[2, " + text_of(d.t / 2) + "]" : "";
            }},
    KeyDraw{"sequence_parallel", 80,
            [](Draw& d) -> std::string {
              if (d.t == 1 || d.to.has("tensor_parallel_2d")) return "";
              return json_bool(d.experts() || d.chance.percent(60));
            }},
    KeyDraw{"shard_group", 25,
            [](Draw& d) {  // not beside replicas that differ, which is refused
              const bool part = d.to.variation.empty() && d.to.number("zero_stage", 0) > 0 &&
                                d.replicas() % 2 == 0;
              return part ? text_of(d.replicas() / 2) : "";
            }},
    KeyDraw{"data_parallel_algorithm", 30,
            [](Draw& d) {  // of replicas of one GPU
              const bool may = d.to.variation.empty() && d.to.number("zero_stage", 0) == 0 &&
                               d.t * d.p * d.c == 1 && d.model.prediction_layers == 0 &&
                               !(d.own() && d.experts());
              return may ? json_quoted("parameter_server") : "";
            }},
    // Keys of models with experts.
    KeyDraw{"expert_parallel", 70,
            [](Draw& d) {
              return d.experts() ? d.number({1, 2, 2, 4, 8}) : "";
            }},
    KeyDraw{"expert_dispatch", 50,
            [](Draw& d) {
              return d.experts() ? d.quoted({"all_to_all", "all_gather", "deduplicated"}) : "";
            }},
    KeyDraw{"expert_tensor_parallel", 100,
            [](Draw& d) -> std::string {  // deduplicated tokens go to whole experts
              if (!d.experts()) return "";
              if (d.said("expert_dispatch") == "\"deduplicated\"" && d.t > 1) return "1";
              return d.chance.percent(30) ? d.number({1, 2}) : "";
            }},
    KeyDraw{"expert_routing", 50,
            [](Draw& d) {
              if (!d.experts()) return std::string();
              return d.chance.percent(30) ? "1.3" : d.quoted({"balanced", "uniform"});
            }},
    KeyDraw{"expert_capacity", 25, [](Draw& d) { return d.experts() ? capacity_of(d) : ""; }},
    KeyDraw{"expert_slots", 40,
            [](Draw& d) {
              return d.own() && d.to.number("expert_parallel", 1) > 1 ? json_bool(true) : "";
            }},
    KeyDraw{"overlap.expert_parallel", 60,
            [](Draw& d) {
              if (d.to.number("expert_parallel", 1) == 1) return std::string();
              const bool pairs = d.schedule().pairing != Pairing::Never && d.p > 1;
              if (pairs && d.chance.percent(70)) return json_quoted("pair");
              return d.model.experts.shared_ffn_hidden > 0 ? json_quoted("shared") : "";
            }},
    KeyDraw{"overlap.pair", 60,
            [](Draw& d) {
              if (d.schedule().pairing != Pairing::Always || d.p == 1) return std::string();
              return d.said("overlap.expert_parallel") == "\"pair\""
                         ? d.quoted({"full", "experts"})
                         : d.quoted({"full", "experts", "none"});
            }},
    KeyDraw{"precision", 100, precision_of},
    KeyDraw{"fp8_dispatch", 90,
            [](Draw& d) {
              const bool sent = d.to.number("expert_parallel", 1) > 1 &&
                                d.said("expert_dispatch") == "\"deduplicated\"";
              const bool quantized = d.said("precision").find("fp8") != std::string::npos;
              return sent && quantized && !d.own() ? json_bool(true) : "";
            }},
    KeyDraw{"recompute", 60, recompute_of},
    KeyDraw{"recompute_in_advance", 50,
            [](Draw& d) {
              const std::string again = d.said("recompute");
              const bool may = d.p > 1 && !again.empty() && again != "\"none\"";
              return may ? json_bool(true) : "";
            }},
    KeyDraw{"optimizer", 20,
            [](Draw& d) {
              return d.own() ? "" : d.quoted({"adamw_8bit", "muon", "lion"});
            }},
    KeyDraw{"document_length", 12,
            [](Draw& d) {
              return d.chance.percent(30) ? R"({"mean": 200, "maximum": 4096})"
                                          : d.number({128, 300, 1000});
            }},
    KeyDraw{"attention_kernel", 12,
            [](Draw& d) {
              return d.quoted({"eager", "unfused", "flash1", "flash2", "flash3"});
            }},
    KeyDraw{"flash_attention", 10,
            [](Draw& d) { return d.to.has("attention_kernel") ? "" : d.flag(); }},
    KeyDraw{"dropout", 12, [](Draw& d) { return std::string(d.chance.percent(30) ? "0" : "0.1"); }},
    KeyDraw{"pad_vocabulary_to", 8,
            [](Draw& d) {
              return d.number({1, 64, 256});
            }},
    KeyDraw{"offload", 12,
            [](Draw& d) {
              if (d.chance.percent(25)) return std::string(R"(["optimizer", "activations"])");
              if (d.to.number("zero_stage", 0) == 3 && d.chance.percent(60)) {
                return std::string(d.chance.percent(50) ? R"("parameters")"
                                                        : R"(["optimizer", "parameters"])");
              }
              return d.quoted({"optimizer", "activations"});
            }},
    KeyDraw{"offload_activations", 70,
            [](Draw& d) {
              if (d.said("offload") != "\"activations\"") return std::string();
              return d.said("recompute") == "\"full\"" ? d.quoted({"all", "checkpoints", "chosen"})
                                                       : d.quoted({"all", "chosen"});
            }},
    KeyDraw{"rank_order", 12, rank_order_of},
    KeyDraw{"bucket_bytes", 15,
            [](Draw& d) {
              return d.number({1 << 20, 25 << 20, 400 << 20});
            }},
    KeyDraw{"prefetch", 40,
            [](Draw& d) {
              return d.to.number("zero_stage", 0) == 3 ? d.number({0, 2}) : "";
            }},
    KeyDraw{"overlap.gradient_reduce", 40,
            [](Draw& d) { return d.replicas() > 1 ? d.flag() : ""; }},
    KeyDraw{"overlap.parameter_gather", 30,
            [](Draw& d) { return d.to.number("zero_stage", 0) > 0 ? d.flag() : ""; }},
    KeyDraw{"overlap.tensor_parallel", 15, [](Draw& d) { return d.t > 1 ? d.flag() : ""; }},
    KeyDraw{"overlap.tensor_parallel_chunks", 90,
            [](Draw& d) {
              return d.said("overlap.tensor_parallel") == "true" ? d.number({2, 8}) : "";
            }},
    KeyDraw{"overlap.pipeline", 15, [](Draw& d) { return d.p > 1 && !d.own() ? d.flag() : ""; }},
    // A runtime's traits, as a plan may say them.
    KeyDraw{"gradient_accumulation", 4,
            [](Draw& d) {
              return d.own() ? "" : d.quoted({"separate", "fused", "fused_fp32"});
            }},
    KeyDraw{"cross_entropy", 4,
            [](Draw& d) {
              return d.own() ? "" : d.quoted({"eager", "native", "fused", "gathered"});
            }},
    KeyDraw{"eager_kernels", 4,
            [](Draw& d) {
              if (d.own()) return std::string();
              return std::string(d.chance.of<const char*>(
                  {"[]", R"(["norm"])", R"(["rope", "activation"])", R"(["router", "permute"])"}));
            }},
    KeyDraw{"gated_mlp", 4,
            [](Draw& d) {
              return d.own() ? "" : d.quoted({"fused", "split"});
            }},
    KeyDraw{"grouped_experts", 15, [](Draw& d) { return d.own() || !d.experts() ? "" : d.flag(); }},
    KeyDraw{"checkpoint_early_stop", 4, [](Draw& d) { return d.own() ? "" : d.flag(); }},
    KeyDraw{"deterministic", 4, [](Draw& d) { return d.own() ? "" : d.flag(); }},
    KeyDraw{"synchronous_launch", 4, [](Draw& d) { return d.own() ? "" : d.flag(); }},
    KeyDraw{"compiled", 4, [](Draw& d) { return d.own() ? "" : d.flag(); }},
    KeyDraw{"cuda_graphs", 4,
            [](Draw& d) {
              if (d.own()) return std::string();
              return std::string(d.chance.of<const char*>(
                  {"true", "false", R"(["attention", "router", "preprocess"])", R"(["mlp"])"}));
            }},
    KeyDraw{"sequence_gather", 5,
            [](Draw& d) {
              return d.own() ? "" : d.quoted({"repeated", "kept"});
            }},
    KeyDraw{"gradient_reduction", 5,
            [](Draw& d) {
              return d.own() ? "" : d.quoted({"reduce_scatter", "all_reduce_fp32", "all_reduce"});
            }},
    KeyDraw{"gradient_communication", 5,
            [](Draw& d) {
              return d.own() ? "" : d.quoted({"stored", "bf16", "fp32"});
            }},
    KeyDraw{"parameter_update", 8,
            [](Draw& d) {
              return d.own() ? "" : d.quoted({"all_gather", "broadcast"});
            }},
    KeyDraw{"fp8_communication", 8,
            [](Draw& d) {
              return d.own() ? "" : d.quoted({"none", "gather", "gather_scatter"});
            }},
    KeyDraw{"context_parallel_balance", 10,
            [](Draw& d) { return d.own() || d.c == 1 ? "" : d.flag(); }},
    KeyDraw{"transfer_scatter_gather", 8,
            [](Draw& d) { return d.own() || d.p == 1 ? "" : d.flag(); }},
    // Behind all others, so that these are drawn as they were without them.
    KeyDraw{"secondary_shard_group", 40,
            [](Draw& d) {
              const bool part = d.to.variation.empty() && d.to.number("zero_stage", 0) == 3 &&
                                !d.to.has("shard_group") && d.replicas() % 2 == 0;
              return part ? text_of(d.chance.percent(50) ? 2 : d.replicas() / 2) : "";
            }},
    KeyDraw{"quantized_gather", 30,
            [](Draw& d) {
              const bool gathers = d.to.number("zero_stage", 0) == 3 && d.replicas() > 1;
              return gathers ? d.number({8, 8, 16}) : "";
            }},
    KeyDraw{"context_parallel_algorithm", 70,
            [](Draw& d) {
              if (d.c == 1) return std::string();
              const std::int64_t kv = std::max<std::int64_t>(d.model.kv_heads / d.t, 1);
              const auto exchange = [&](std::int64_t ranks) {
                return d.model.heads % (d.t * ranks) == 0 && (kv % ranks == 0 || ranks % kv == 0);
              };
              if (d.c % 2 == 0 && d.c > 2 && exchange(2) && d.chance.percent(30)) {
                return d.quoted({"a2a+p2p"});
              }
              return exchange(d.c) ? d.quoted({"ring", "all_gather", "all_to_all"})
                                   : d.quoted({"ring", "all_gather"});
            }},
    KeyDraw{"recompute_layers", 30,
            [](Draw& d) {
              return d.said("recompute").empty() ? "" : d.number({1, 1, 2, 3});
            }},
    KeyDraw{"loss_chunks", 15,
            [](Draw& d) {
              return d.number({2, 4, 8});
            }},
    KeyDraw{"chimera_scaling", 70,
            [](Draw& d) -> std::string {
              if (d.schedule().name != "chimera") return "";
              // backward_halving is this order of half micro-batches.
              return json_quoted("forward_doubling");
            }},
    KeyDraw{"fp8_casts", 8,
            [](Draw& d) {
              return d.own() ? "" : d.quoted({"reused", "each_product", "unwritten", "each_row"});
            }},
    KeyDraw{"optimizer_bytes", 5,
            [](Draw& d) {
              return d.own() ? "" : d.number({26, 30, 80});
            }},
};

// Sizes whose product is within the limit.
void sizes_of(Draw& d) {
  do {
    d.t = d.chance.of<std::int64_t>({1, 1, 2, 4, 8});
    d.p = d.chance.of<std::int64_t>({1, 1, 2, 3, 4, 8});
    d.c = d.chance.of<std::int64_t>({1, 1, 1, 1, 2, 4});
    d.d = d.chance.of<std::int64_t>({1, 2, 4, 8, 16});
  } while (d.t * d.p * d.c * d.d > d.limits.most_gpus);
}

const std::map<std::string, Cluster>& clusters() {
  static const std::map<std::string, Cluster> kClusters = [] {
    std::map<std::string, Cluster> read;
    for (const std::string& name : shipped_names("clusters")) {
      const Result<Scenario> scenario =
          parse_scenario(R"({"model": "gpt2-124m", "cluster": ")" + name + R"(", "gpus": 1})",
                         "random.json", 1, {});
      if (!scenario) continue;
      Result<Cluster> cluster = read_cluster(scenario.value().cluster);
      if (cluster) read[name] = std::move(cluster).value();
    }
    return read;
  }();
  return kClusters;
}

ScenarioText drawn(Chance& chance, const DrawLimits& limits) {
  ScenarioText to;
  const auto cluster =
      std::next(clusters().begin(), chance.below(static_cast<std::int64_t>(clusters().size())));
  to.cluster = json_quoted(cluster->first);
  to.model =
      limits.shipped_models && chance.percent(45) ? shipped_model(chance) : made_up_model(chance);
  Draw draw{chance, limits, to, known_model(to.model), cluster->second};
  sizes_of(draw);
  if (chance.percent(6)) {
    to.variation =
        chance.of<const char*>({R"({"slow": [{"ranks": "0", "speed": 0.9}]})",
                                R"({"speed_sigma": 0.02})", R"({"jitter_sigma": 0.01})"});
  }
  for (const KeyDraw& key : kKeys) {
    if (!chance.percent(key.percent)) continue;
    std::string value = key.value(draw);
    if (!value.empty()) to.plan[std::string(key.key)] = std::move(value);
  }
  return to;
}

// Left open, the micro-batch is chosen behind the reader, which then cannot refuse all of them.
bool has_micro_batch(const Plan& plan) {
  return !plan.micro_batch_auto ||
         std::ranges::any_of(micro_batch_candidates(plan), [&](std::int32_t samples) {
           return static_cast<bool>(choose_micro_batch(plan, samples));
         });
}

}  // namespace

std::int64_t ScenarioText::number(const std::string& key, std::int64_t otherwise) const {
  const auto found = plan.find(key);
  if (found == plan.end() || found->second.starts_with('"')) return otherwise;
  return std::atoll(found->second.c_str());
}

std::string ScenarioText::text() const {
  std::string keys, overlap;
  constexpr std::string_view kOverlap = "overlap.";
  for (const auto& [key, value] : plan) {
    const bool inside = key.starts_with(kOverlap);
    std::string& list = inside ? overlap : keys;
    list += (list.empty() ? "\"" : ", \"") + (inside ? key.substr(kOverlap.size()) : key) +
            "\": " + value;
  }
  if (!overlap.empty()) keys += (keys.empty() ? "" : ", ") + ("\"overlap\": {" + overlap + '}');
  std::string rest = variation.empty() ? "" : ", \"variation\": " + variation;
  return "{\"model\": " + model + ", \"cluster\": " + cluster + ", \"plan\": {" + keys + '}' +
         rest + '}';
}

Result<Scenario> ScenarioText::read() const {
  return parse_scenario(text(), "random.json", 1, {.overrides = set});
}

RandomScenario random_scenario(std::uint64_t seed, const DrawLimits& limits) {
  Chance chance(seed * 0x9E3779B97F4A7C15u + 1);  // neighbours are nothing alike
  RandomScenario made;
  for (;; ++made.refused) {
    made.text = drawn(chance, limits);
    Result<Scenario> read = made.text.read();
    if (!read || !has_micro_batch(read.value().plan)) continue;
    made.scenario = std::move(read).value();
    made.cluster = clusters().at(made.text.cluster.substr(1, made.text.cluster.size() - 2));
    if (check_gpus(made.cluster, made.scenario.gpus)) return made;
  }
}

std::vector<std::string_view> drawn_keys() {
  std::vector<std::string_view> keys;
  for (const KeyDraw& key : kKeys) keys.push_back(key.key);
  return keys;
}

std::vector<std::string> telling_keys(const ScenarioText& text) {
  const Result<Scenario> all = text.read();
  std::vector<std::string> keys;
  for (const auto& [key, value] : text.plan) {
    ScenarioText less = text;
    less.plan.erase(key);
    const Result<Scenario> without = less.read();
    if (!without || !all || !(without.value().plan == all.value().plan)) keys.push_back(key);
  }
  return keys;
}

}  // namespace rehearse::sim
