// SPDX-License-Identifier: Apache-2.0
// Tiny models of every dialect through the real command in four layouts, against what transformers
// makes of the same file in float64 (tests/data/configs/README.md): equal, or refused as the list
// here says.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "exec/train/data.h"
#include "schedules/base/random.h"

namespace rehearse {
namespace {

using Json = nlohmann::ordered_json;

std::uint64_t fnv1a(const std::string& text) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  return hash;
}

// The formula of the README.
std::vector<float> weights(const std::string& name, const std::vector<std::int64_t>& shape,
                           double norm_base) {
  std::int64_t count = 1;
  for (const std::int64_t size : shape) count *= size;
  double base = 0, spread = 1.0 / std::sqrt(static_cast<double>(shape.back()));
  if (shape.size() == 1) {
    const bool norm =
        name.find("norm") != std::string::npos || name.find("ln_") != std::string::npos;
    base = norm && name.ends_with("weight") ? norm_base : 0;
    spread = 0.2;
  }
  std::vector<float> values;
  for (std::int64_t i = 0; i < count; ++i) {
    const double u =
        static_cast<double>(split_mix(fnv1a(name), static_cast<std::uint64_t>(i)) >> 40) /
        16777216.0;
    values.push_back(static_cast<float>(base + (2 * u - 1) * spread));
  }
  return values;
}

void write_safetensors(const Json& golden, const std::string& path) {
  Json header = Json::object();
  std::vector<float> all;
  for (const auto& [name, shape] : golden["tensors"].items()) {
    const std::vector<float> values =
        weights(name, shape.get<std::vector<std::int64_t>>(), golden["norm_base"]);
    const std::size_t begin = all.size() * 4;
    all.insert(all.end(), values.begin(), values.end());
    header[name] = {{"dtype", "F32"}, {"shape", shape}, {"data_offsets", {begin, all.size() * 4}}};
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const std::uint64_t length = text.size();
  std::ofstream out(path, std::ios::binary);
  out.write(reinterpret_cast<const char*>(&length), 8);
  out.write(text.data(), static_cast<std::streamsize>(text.size()));
  out.write(reinterpret_cast<const char*>(all.data()),
            static_cast<std::streamsize>(4 * all.size()));
}

std::string text_of(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

// Shape and bytes of a safetensors file's tensors, by the names of the model without its head:
// files of gpt2 and bloom are published with and without "transformer.".
std::map<std::string, std::pair<Json, std::string>> tensors_of(const std::filesystem::path& path) {
  const std::string file = text_of(path);
  std::uint64_t length = 0;
  std::memcpy(&length, file.data(), 8);
  std::map<std::string, std::pair<Json, std::string>> tensors;
  const Json header = Json::parse(file.substr(8, length));
  for (const auto& [name, info] : header.items()) {
    if (name == "__metadata__") continue;
    const std::size_t begin = info["data_offsets"][0], end = info["data_offsets"][1];
    const std::string_view prefix = "transformer.";
    const std::string known = name.starts_with(prefix) ? name.substr(prefix.size()) : name;
    tensors[known] = {info["shape"], file.substr(8 + length + begin, end - begin)};
  }
  return tensors;
}

// A layout is what it changes of the plan that made the goldens.
struct GoldenLayout {
  std::string name;
  int gpus = 1;
  Json plan = Json::object();
};
std::vector<GoldenLayout> layouts() {
  return {
      {"one rank"},
      {"pipeline of 3", 3, {{"pipeline_parallel", 3}, {"schedule", "1f1b"}, {"micro_batch", 1}}},
      {"tp 2", 2, {{"tensor_parallel", 2}}},
      {"FSDP", 2, {{"data_parallel", 2}, {"zero_stage", 3}}}};
}

// A router's loss is of a micro-batch, whose size is the goldens' everywhere. The room that ranks
// of experts have holds every token.
std::vector<GoldenLayout> expert_layouts() {
  std::vector<GoldenLayout> all = layouts();
  all.push_back(
      {"ep 2", 2, {{"data_parallel", 2}, {"expert_parallel", 2}, {"expert_capacity", 4}}});
  all.push_back({"ep 2 over tp 2",
                 2,
                 {{"tensor_parallel", 2}, {"expert_parallel", 2}, {"expert_capacity", 4}}});
  for (GoldenLayout& one : all) {
    one.plan.erase("micro_batch");
    if (one.plan.contains("tensor_parallel")) one.plan["sequence_parallel"] = true;
  }
  return all;
}

// What meets in a layer of experts only where several axes and modes do: copies that travel and
// tokens that are gathered, matrices that ranks share, what is computed again, split backwards.
std::vector<GoldenLayout> mixed_expert_layouts() {
  const Json room = {{"expert_capacity", 4}}, sequence = {{"sequence_parallel", true}},
             one = {{"micro_batch", 1}}, full = {{"recompute", "full"}},
             gather = {{"expert_dispatch", "all_gather"}};
  const auto layout = [&](const char* name, int gpus, const Json& plan,
                          const std::vector<Json>& more) {
    GoldenLayout made{name, gpus, plan};
    for (const Json& part : more) made.plan.update(part);
    return made;
  };
  const Json tp = {{"tensor_parallel", 2}}, ep = {{"data_parallel", 2}, {"expert_parallel", 2}};
  const Json pipeline = {{"pipeline_parallel", 3}, {"schedule", "zb_h1"}};
  return {
      layout("full recomputation", 1, one, {full}),
      layout("tp 2, the same tokens on both", 2, tp, {full}),
      layout("tp 2, gathered", 2, tp, {sequence, gather, room}),
      layout("tp 2, whole experts", 2, tp, {sequence, {{"expert_tensor_parallel", 1}}, room}),
      layout("ep 2, gathered, recomputed", 2, ep, {gather, full, room}),
      layout("ep 2, zero bubbles, recomputed", 6, ep, {pipeline, one, full, room}),
      layout("ep 2 of 4, ZeRO-3", 4, ep, {{{"data_parallel", 4}}, {{"zero_stage", 3}}, one, room})};
}

// Ranks that share an expert's matrices and not the tokens, which they gather; over tp, and where
// every expert lies on several such groups.
std::vector<GoldenLayout> cut_expert_layouts() {
  const auto layout = [](const char* name, int gpus, Json plan) {
    plan.update({{"expert_capacity", 4}, {"expert_tensor_parallel", 2}});
    return GoldenLayout{name, gpus, std::move(plan)};
  };
  return {
      layout("etp 2", 2, {{"data_parallel", 2}}),
      layout("etp 2, all tokens to all", 2,
             {{"data_parallel", 2}, {"expert_dispatch", "all_gather"}, {"recompute", "full"}}),
      layout("etp 2, ep 2", 4, {{"data_parallel", 4}, {"expert_parallel", 2}, {"micro_batch", 1}}),
      layout("etp 2 of tp 2, ep 2", 4,
             {{"data_parallel", 2},
              {"tensor_parallel", 2},
              {"sequence_parallel", true},
              {"expert_parallel", 2}}),
      layout("etp 2 over a pipeline, ZeRO-3", 12,
             {{"data_parallel", 4},
              {"pipeline_parallel", 3},
              {"schedule", "zb_h1"},
              {"micro_batch", 1},
              {"zero_stage", 3}})};
}

// Whatever cuts the tokens of a sequence, or joins several.
std::vector<GoldenLayout> sequence_layouts() {
  const Json two = {{"tensor_parallel", 2}, {"sequence_parallel", true}};
  const auto layout = [](const char* name, int gpus, const Json& plan, const Json& more) {
    GoldenLayout made{name, gpus, plan};
    made.plan.update(more);
    return made;
  };
  return {layout("one sequence", 1, {{"micro_batch", 1}}, Json::object()),
          layout("four sequences, recomputed", 1, {{"micro_batch", 4}}, {{"recompute", "full"}}),
          layout("half a sequence each", 2, two, {{"micro_batch", 1}}),
          layout("cp 2", 2, {{"context_parallel", 2}}, Json::object()),
          layout("tp 2, cp 2", 4, two, {{"context_parallel", 2}}),
          layout("slices", 3, {{"pipeline_parallel", 3}, {"schedule", "seq_1f1b"}},
                 {{"sequence_slices", 2}, {"micro_batch", 1}}),
          layout("slices of two sequences, cut over tp and ep", 6,
                 {{"pipeline_parallel", 3}, {"schedule", "seq_zb_h1"}, {"sequence_slices", 2}},
                 {{"tensor_parallel", 2},
                  {"sequence_parallel", true},
                  {"expert_parallel", 2},
                  {"expert_capacity", 4}})};
}

// More tensor ranks than the goldens' two key heads: ranks share them.
std::vector<GoldenLayout> layouts_that_share_key_heads() {
  const Json tp = {{"tensor_parallel", 4}};
  std::vector<GoldenLayout> all = {{"tp 4", 4, tp}, {"tp 4, sequence parallel", 4, tp}};
  all.back().plan["sequence_parallel"] = true;
  return all;
}

// What `run` refuses today, and a word of its line. The list is exact: a case that is refused
// without standing here is a failure, and so is one that stands here and is performed.
struct Refused {
  std::string_view cases;  // a name, or the beginning of names before a star
  std::string_view word;
  std::string_view layout{};  // "": all
};
constexpr Refused kRefused[] = {
    {"mixtral_router_loss", "model.output_router_logits"},
    {"qwen3_moe_router_loss", "model.output_router_logits"},
    {"olmoe_router_loss", "model.output_router_logits"},
    {"qwen2_moe_norm_topk", "model.output_router_logits"},
    {"gpt_oss_router_loss", "model.output_router_logits"},
    {"qwen3_5_delta", "layers of kind gated_delta_net; runtime rehearse has attention, MLP"},
};

const Refused* refused(std::string_view name, std::string_view layout) {
  for (const Refused& one : kRefused) {
    const bool named = one.cases.ends_with('*')
                           ? name.starts_with(one.cases.substr(0, one.cases.size() - 1))
                           : name == one.cases;
    if (named && (one.layout.empty() || one.layout == layout)) return &one;
  }
  return nullptr;
}

class ConfigGolden : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "configs.XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  // Exit status; stdout and stderr are in files of the folder.
  int command(const std::string& arguments) const {
    const std::string line = std::string(REHEARSE_COMMAND) + " " + arguments + " >" +
                             (folder_ / "out").string() + " 2>" + (folder_ / "err").string();
    const int status = std::system(line.c_str());
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  std::string said() const { return text_of(folder_ / "err"); }

  void write_scenario(const Json& made_by, const Json& one, const GoldenLayout& layout) const {
    Json plan = made_by["plan"];
    plan.update(layout.plan);
    Json train = made_by["train"];
    train.update(one.value("train", Json::object()));
    std::ofstream(folder_ / "s.json") << Json{{"model", one["config"]},
                                              {"cluster", "dgx-a100-80gb"},
                                              {"gpus", layout.gpus},
                                              {"plan", plan},
                                              {"train", train}};
  }

  // REQUIRES: the weights are written.
  void expect_golden(const Json& made_by, const Json& one, const GoldenLayout& layout) {
    write_scenario(made_by, one, layout);
    const int exit =
        command("run " + (folder_ / "s.json").string() + " --device cpu --threads 1 --json" +
                " --resume " + (folder_ / "w.safetensors").string());
    if (const Refused* why = refused(one["name"].get<std::string>(), layout.name)) {
      EXPECT_EQ(exit, 2) << "performed now: take it off the list";
      EXPECT_NE(said().find(why->word), std::string::npos) << said();
      EXPECT_EQ(std::ranges::count(said(), '\n'), 1) << said();
      std::printf("SKIPPED %s, %s: %s", one["name"].get<std::string>().c_str(), layout.name.c_str(),
                  said().c_str());
      return;
    }
    ASSERT_EQ(exit, 0) << said();
    const Json report = Json::parse(text_of(folder_ / "out"));
    ASSERT_EQ(report["losses"].size(), one["losses"].size());
    for (std::size_t step = 0; step < one["losses"].size(); ++step) {
      const double loss =
          std::abs(report["losses"][step].get<double>() - one["losses"][step].get<double>());
      const double norm =
          std::abs(report["grad_norms"][step].get<double>() / one["norms"][step].get<double>() - 1);
      EXPECT_LE(loss, 2e-6) << "step " << step;
      EXPECT_LE(norm, 1e-4) << "step " << step;
      worst_loss_ = std::max(worst_loss_, loss);
      worst_norm_ = std::max(worst_norm_, norm);
    }
    ++equal_;
  }

  // Checks the cases that are named, or all.
  void expect_goldens(const std::string& file, const std::vector<GoldenLayout>& in,
                      const std::vector<std::string>& named = {}) {
    const Json golden = Json::parse(text_of("tests/data/configs/" + file));
    for (const Json& one : golden["cases"]) {
      const bool wanted = std::ranges::find(named, one["name"].get<std::string>()) != named.end();
      if (!named.empty() && !wanted) continue;
      write_safetensors(one, (folder_ / "w.safetensors").string());
      for (const GoldenLayout& layout : in) {
        SCOPED_TRACE(one["name"].get<std::string>() + ", " + layout.name);
        expect_golden(golden["made_by"], one, layout);
      }
    }
    std::printf("%s: %d equal (losses within %.1e, norms within %.1e)\n", file.c_str(), equal_,
                worst_loss_, worst_norm_);
  }

  std::filesystem::path folder_;
  int equal_ = 0;
  double worst_loss_ = 0, worst_norm_ = 0;
};

TEST_F(ConfigGolden, EveryDenseCaseIsEqualToTransformersOrRefusedByName) {
  expect_goldens("goldens.json", layouts());
  EXPECT_GE(equal_, 480);
}

TEST_F(ConfigGolden, EveryCaseWithExpertsIsEqualToTransformersOrRefusedByName) {
  expect_goldens("expert_goldens.json", expert_layouts());
}

TEST_F(ConfigGolden, EveryFormOfExpertsIsEqualInMixedLayouts) {
  const std::vector<std::string> named{"gpt_oss_clamped", "llama4_temperature",
                                       "gpt2_experts_shared"};
  expect_goldens("expert_goldens.json", mixed_expert_layouts(), named);
  EXPECT_EQ(equal_, 21);
}

// A bias of the second product is added once, by one of the ranks that share it, and its gradient
// is that of one.
TEST_F(ConfigGolden, BiasesOfCutExpertsAreAddedOnce) {
  expect_goldens("expert_goldens.json", cut_expert_layouts(),
                 {"gpt_oss_clamped", "gpt_oss_window"});
  EXPECT_EQ(equal_, 10);
}

// What heads give is gated before it is exchanged or cut, recomputed or not; key heads shared.
TEST_F(ConfigGolden, AGateOfHeadsIsEqualInEveryLayout) {
  std::vector<GoldenLayout> in = layouts_that_share_key_heads();
  const auto layout = [&](const char* name, int gpus, const Json& plan) {
    in.push_back({name, gpus, plan});
  };
  layout("cp 2", 2, {{"context_parallel", 2}});
  layout("cp 2, gathered", 2,
         {{"context_parallel", 2}, {"context_parallel_algorithm", "all_gather"}});
  layout("cp 2, heads exchanged", 2,
         {{"context_parallel", 2}, {"context_parallel_algorithm", "all_to_all"}});
  layout("the core again", 1, {{"recompute", "selective"}});
  layout(
      "everything again, split", 3,
      {{"pipeline_parallel", 3}, {"schedule", "zb_h1"}, {"recompute", "full"}, {"micro_batch", 1}});
  layout("slices", 3,
         {{"pipeline_parallel", 3},
          {"schedule", "seq_1f1b"},
          {"sequence_slices", 2},
          {"micro_batch", 1}});
  expect_goldens("goldens.json", in, {"qwen3_5_gate", "qwen3_5_gate_wide"});
  expect_goldens("expert_goldens.json", in, {"qwen3_next_gate", "qwen3_next_gate_dense_first"});
  EXPECT_EQ(equal_, 32);
}

// A loss of each sequence is the same wherever its tokens lie, and in whatever micro-batch.
TEST_F(ConfigGolden, LossesOfSequencesDoNotDependOnTheLayout) {
  expect_goldens("expert_goldens.json", sequence_layouts(),
                 {"deepseek_v2_sequence_loss", "deepseek_v3_sequence_loss"});
  EXPECT_EQ(equal_, 14);
}

TEST_F(ConfigGolden, ANormOverAllHeadsIsEqualWhereRanksShareKeyHeads) {
  const std::vector<GoldenLayout> in = layouts_that_share_key_heads();
  expect_goldens("goldens.json", in, {"olmo2", "olmo2_tied", "olmo2_attention_bias"});
  expect_goldens("expert_goldens.json", in, {"olmoe", "olmoe_norm_topk", "olmoe_tied"});
  EXPECT_EQ(equal_, 12);
}

// Read, trained for a step that changes nothing, and written: the tensors that transformers has,
// bit for bit, in a layout that cuts them and in one that does not.
TEST_F(ConfigGolden, PublishedTensorsAreWrittenAsTheyWereRead) {
  int written = 0;
  for (const auto& [file, in] :
       {std::pair{"goldens.json", layouts()}, std::pair{"expert_goldens.json", expert_layouts()}}) {
    Json golden = Json::parse(text_of(std::string("tests/data/configs/") + file));
    golden["made_by"]["train"].update({{"steps", 1}, {"learning_rate", 0}});
    for (const Json& one : golden["cases"]) {
      write_safetensors(one, (folder_ / "w.safetensors").string());
      const std::string name = one["name"];
      std::vector<GoldenLayout> cut = in;
      if (name.starts_with("olmo")) cut.push_back(layouts_that_share_key_heads().front());
      for (const GoldenLayout& layout : cut) {
        if (layout.name == "pipeline of 3" || layout.name == "FSDP") continue;  // cut no tensor
        SCOPED_TRACE(name + ", " + layout.name);
        if (refused(name, layout.name) != nullptr) continue;
        write_scenario(golden["made_by"], one, layout);
        std::filesystem::remove_all(folder_ / "c");
        ASSERT_EQ(command("run " + (folder_ / "s.json").string() + " --device cpu --threads 1" +
                          " --resume " + (folder_ / "w.safetensors").string() + " --checkpoint " +
                          (folder_ / "c").string()),
                  0)
            << said();
        const auto read = tensors_of(folder_ / "w.safetensors");
        const auto made = tensors_of(folder_ / "c/step-000001/model.safetensors");
        ASSERT_EQ(made.size(), read.size());
        for (const auto& [tensor, whole] : read) {
          ASSERT_TRUE(made.contains(tensor)) << tensor;
          EXPECT_EQ(made.at(tensor).first, whole.first) << tensor;
          EXPECT_TRUE(made.at(tensor).second == whole.second) << tensor;
        }
        ++written;
      }
    }
  }
  EXPECT_GE(written, 70);
}

// A published file's prediction layer: said, and its tensors passed over.
TEST_F(ConfigGolden, PredictionLayersAreLeftOutAndSaid) {
  const Json golden = Json::parse(text_of("tests/data/configs/expert_goldens.json"));
  Json one = *std::ranges::find_if(golden["cases"], [](const Json& each) {
    return each["name"] == "deepseek_v3_sequence_loss";
  });
  for (const char* name : {"model.layers.3.enorm.weight", "model.layers.3.mlp.gate.weight"}) {
    one["tensors"][name] = {8};
  }
  write_safetensors(one, (folder_ / "w.safetensors").string());
  expect_golden(golden["made_by"], one, layouts().front());
  EXPECT_EQ(equal_, 1);
  EXPECT_NE(said().find("model.num_nextn_predict_layers 1: trained without prediction layers"),
            std::string::npos)
      << said();
  // The file's loss of routers is left out likewise: with it the case has another golden.
  one = *std::ranges::find_if(golden["cases"],
                              [](const Json& each) { return each["name"] == "deepseek_v3"; });
  one["config"].update({{"aux_loss_alpha", 0.3}, {"num_nextn_predict_layers", 1}});
  one["tensors"]["model.layers.3.enorm.weight"] = {8};
  write_safetensors(one, (folder_ / "w.safetensors").string());
  expect_golden(golden["made_by"], one, layouts().front());
  EXPECT_EQ(equal_, 2);
  EXPECT_NE(said().find("model.aux_loss_alpha 0.3: trained without"), std::string::npos) << said();
  one["tensors"]["model.layers.4.enorm.weight"] = {8};  // of a second one
  write_safetensors(one, (folder_ / "w.safetensors").string());
  write_scenario(golden["made_by"], one, layouts().front());
  EXPECT_EQ(command("run " + (folder_ / "s.json").string() + " --device cpu --threads 1 --resume " +
                    (folder_ / "w.safetensors").string()),
            2);
  EXPECT_NE(said().find("model.layers.4.enorm.weight: the model has no such tensor"),
            std::string::npos)
      << said();
}

// What `run` refuses of a model `--dry-run` refuses too, and `simulate` takes and says what it
// priced.
TEST_F(ConfigGolden, WhatRunRefusesDryRunRefusesAndSimulatePrices) {
  const std::string scenario = (folder_ / "s.json").string();
  for (const char* file : {"goldens.json", "expert_goldens.json"}) {
    const Json golden = Json::parse(text_of(std::string("tests/data/configs/") + file));
    for (const Json& one : golden["cases"]) {
      const Refused* why = refused(one["name"].get<std::string>(), "");
      if (why == nullptr || !why->word.starts_with("model.")) continue;
      SCOPED_TRACE(one["name"].get<std::string>());
      write_scenario(golden["made_by"], one, layouts().front());
      EXPECT_EQ(command("run " + scenario + " --dry-run --json"), 2);
      EXPECT_NE(said().find("to leave out: --set model.output_router_logits=false"),
                std::string::npos)
          << said();
      EXPECT_NE(said().find(why->word), std::string::npos);
      ASSERT_EQ(command("simulate " + scenario + " --json"), 0) << said();
      const Json report = Json::parse(text_of(folder_ / "out"));
      EXPECT_NE(report["notes"].dump().find(why->word), std::string::npos) << report["notes"];
    }
  }
}

}  // namespace
}  // namespace rehearse
