// SPDX-License-Identifier: Apache-2.0
// Files of checkpoints: they are Hugging Face's, they appear whole or not at all, and what is
// broken is named.
#include <filesystem>

#include "exec/weights/hugging_face.h"
#include "tests/exec/checkpoint/checkpoint_case.h"

namespace rehearse::exec {
namespace {
namespace fs = std::filesystem;

using Names = CheckpointTest;
using Writing = CheckpointTest;
using Broken = CheckpointTest;

// --- names and layouts of Hugging Face ---

std::map<std::string, std::string> shapes(const std::string& path) {
  std::map<std::string, std::string> found;
  const auto file = SafetensorsFile::open(path);
  EXPECT_TRUE(file) << file.error().message;
  for (const TensorInfo& tensor : file.value().tensors())
    found[tensor.name] = shape_text(tensor.shape);
  return found;
}

// h = 32, 3h = 96, 4h = 128, V = 61, 16 positions. transformers' GPT2Model: its state_dict()'s
// names and shapes; Conv1D's weight is (in, out).
TEST_F(Names, OfGpt2AreHuggingFaces) {
  Training run(Family::Gpt2, {});
  run.save(folder_, 0);
  const auto found = shapes(at("step-000000/model.safetensors"));
  EXPECT_EQ(found.size(), 2 + 8 * 12 + 2U);
  const std::map<std::string, std::string> expected{{"wte.weight", "[61, 32]"},
                                                    {"wpe.weight", "[16, 32]"},
                                                    {"h.3.ln_1.weight", "[32]"},
                                                    {"h.3.ln_1.bias", "[32]"},
                                                    {"h.3.attn.c_attn.weight", "[32, 96]"},
                                                    {"h.3.attn.c_attn.bias", "[96]"},
                                                    {"h.3.attn.c_proj.weight", "[32, 32]"},
                                                    {"h.3.attn.c_proj.bias", "[32]"},
                                                    {"h.3.ln_2.weight", "[32]"},
                                                    {"h.3.ln_2.bias", "[32]"},
                                                    {"h.3.mlp.c_fc.weight", "[32, 128]"},
                                                    {"h.3.mlp.c_fc.bias", "[128]"},
                                                    {"h.3.mlp.c_proj.weight", "[128, 32]"},
                                                    {"h.3.mlp.c_proj.bias", "[32]"},
                                                    {"ln_f.weight", "[32]"},
                                                    {"ln_f.bias", "[32]"}};
  for (const auto& [name, shape] : expected) EXPECT_EQ(found.at(name), shape) << name;
  // Ours (out, in) lies there (in, out).
  const std::vector<float> ours = run.process->parameter("h.3.attn.c_attn.weight");
  const auto file = SafetensorsFile::open(at("step-000000/model.safetensors"));
  std::vector<float> theirs(32 * 96);
  file.value().read(*file.value().find("h.3.attn.c_attn.weight"), 0, 32 * 96, theirs.data(), 1);
  for (std::size_t out = 0; out < 96; ++out) {
    for (std::size_t in = 0; in < 32; ++in) {
      ASSERT_EQ(ours[out * 32 + in], theirs[in * 96 + out]) << out << ' ' << in;
    }
  }
  EXPECT_EQ(file.value().metadata().at("format"), "pt");
  // With a head of its own the base model stands under its name, as in GPT2LMHeadModel's files.
  Training untied(Family::Gpt2Untied, {});
  untied.save(folder_, 1);
  const auto head = shapes(at("step-000001/model.safetensors"));
  EXPECT_EQ(head.at("lm_head.weight"), "[61, 32]");
  EXPECT_EQ(head.at("transformer.h.3.attn.c_attn.weight"), "[32, 96]");
}

// h = 32, 4 heads and 2 key/value heads of 8, f = 48.
TEST_F(Names, OfLlamaAndQwen2KeepProjectionsApart) {
  Training run(Family::Llama, {});
  run.save(folder_, 0);
  const auto found = shapes(at("step-000000/model.safetensors"));
  EXPECT_EQ(found.size(), 1 + 8 * 9 + 2U);
  const std::map<std::string, std::string> expected{
      {"model.embed_tokens.weight", "[61, 32]"},
      {"model.layers.3.input_layernorm.weight", "[32]"},
      {"model.layers.3.self_attn.q_proj.weight", "[32, 32]"},
      {"model.layers.3.self_attn.k_proj.weight", "[16, 32]"},
      {"model.layers.3.self_attn.v_proj.weight", "[16, 32]"},
      {"model.layers.3.self_attn.o_proj.weight", "[32, 32]"},
      {"model.layers.3.post_attention_layernorm.weight", "[32]"},
      {"model.layers.3.mlp.gate_proj.weight", "[48, 32]"},
      {"model.layers.3.mlp.up_proj.weight", "[48, 32]"},
      {"model.layers.3.mlp.down_proj.weight", "[32, 48]"},
      {"model.norm.weight", "[32]"},
      {"lm_head.weight", "[61, 32]"}};
  for (const auto& [name, shape] : expected) EXPECT_EQ(found.at(name), shape) << name;
  const std::vector<float> qkv = run.process->parameter("model.layers.3.self_attn.qkv_proj.weight");
  const auto file = SafetensorsFile::open(at("step-000000/model.safetensors"));
  std::vector<float> v(16 * 32);
  file.value().read(*file.value().find("model.layers.3.self_attn.v_proj.weight"), 0, 16 * 32,
                    v.data(), 1);
  EXPECT_TRUE(std::equal(v.begin(), v.end(), qkv.begin() + 48 * 32));
  Training qwen(Family::Qwen2, {});
  qwen.save(folder_, 1);
  const auto biased = shapes(at("step-000001/model.safetensors"));
  EXPECT_EQ(biased.at("model.layers.3.self_attn.k_proj.bias"), "[16]");
  EXPECT_EQ(biased.size(), found.size() + 8 * 3);
}

// Weights of others: with or without the model's name before each, with masks and a tied head.
TEST_F(Names, MayHaveThePrefixAndBuffers) {
  Training from(Family::Gpt2, {});
  from.save(folder_, 0);
  const auto file = SafetensorsFile::open(at("step-000000/model.safetensors"));
  std::vector<TensorInfo> tensors;
  for (const TensorInfo& tensor : file.value().tensors()) {
    tensors.push_back({.name = "transformer." + tensor.name, .shape = tensor.shape});
  }
  const std::size_t known = tensors.size();
  tensors.push_back({.name = "transformer.h.0.attn.bias", .shape = {1, 1, 16, 16}});
  tensors.push_back({.name = "lm_head.weight", .shape = {61, 32}});
  auto made = SafetensorsWriter::create(at("theirs.safetensors"), tensors, {});
  ASSERT_TRUE(made);
  SafetensorsWriter writer = std::move(made).value();
  for (std::size_t i = 0; i < known; ++i) {
    std::vector<float> values(static_cast<std::size_t>(tensors[i].elements()));
    file.value().read(file.value().tensors()[i], 0, tensors[i].elements(), values.data(), 1);
    writer.write(i, 0, tensors[i].elements(), values.data(), 1);
  }
  ASSERT_TRUE(writer.finish());
  Training run(Family::Gpt2, {"tensor_parallel=2"});
  run.train_to(1);  // so that there are moments to clear
  const TrainFrom begin = run.load(at("theirs.safetensors"));
  EXPECT_EQ(begin.step, 0);
  EXPECT_EQ(everything(run), everything(Training(Family::Gpt2, {})));
}

// Every local element in one run, at the file's element that the definition gives.
TEST_F(Names, RunsReachEveryElementOnce) {
  std::uint64_t random = 1;
  for (const Family family : {Family::Gpt2, Family::Llama, Family::Qwen2}) {
    for (const std::int32_t t : {1, 2}) {
      const Scenario scenario =
          layout_scenario(family, {"tensor_parallel=" + std::to_string(t), "pad_vocabulary_to=8"})
              .value();
      Plan plan = scenario.plan;
      const Schedule schedule = lower_for_run(scenario.model, plan).value();
      for (const TensorPlace& place : place_tensors({scenario.model, plan}, schedule)) {
        const auto tensors = file_tensors({scenario.model, plan}, place);
        const std::int64_t columns = place.part.in;
        for (std::int32_t coordinate = 0; coordinate < t; ++coordinate) {
          // The whole part, or a random piece of it.
          random = random * 6364136223846793005ULL + 1442695040888963407ULL;
          const auto size = static_cast<std::uint64_t>(place.what.elements);
          const auto first = static_cast<std::int64_t>(random % 3 == 0 ? 0 : (random >> 20) % size);
          const std::int64_t last = std::min(
              place.what.elements, first + 1 + static_cast<std::int64_t>((random >> 40) % size));
          std::vector<int> seen(static_cast<std::size_t>(place.what.elements), 0);
          for_each_run({scenario.model, plan}, place, tensors, coordinate, first, last,
                       [&](const FileRun& run) {
                         for (std::int64_t i = 0; i < run.count; ++i) {
                           const std::int64_t local = run.local + i * run.stride;
                           ASSERT_TRUE(local >= first && local < last);
                           ++seen[static_cast<std::size_t>(local)];
                           const FileTensor& tensor = tensors[run.tensor];
                           const std::int64_t whole =
                               whole_element({scenario.model, plan}, place, coordinate, local);
                           const std::int64_t row = whole / columns - tensor.row_begin,
                                              col = whole % columns;
                           ASSERT_TRUE(row >= 0 && row < tensor.rows) << tensor.name;
                           EXPECT_EQ(run.element + i, tensor.transposed ? col * tensor.rows + row
                                                                        : row * columns + col)
                               << tensor.name;
                         }
                       });
          for (std::int64_t i = first; i < last; ++i) {
            const bool padding = whole_element({scenario.model, plan}, place, coordinate, i) < 0;
            ASSERT_EQ(seen[static_cast<std::size_t>(i)], padding ? 0 : 1) << place.name << ' ' << i;
          }
        }
      }
    }
  }
}

// --- writing ---

TEST_F(Writing, ReplacesAndCleansUp) {
  Training run(Family::Gpt2, {});
  run.save(folder_, 1);
  run.train_to(1);
  fs::create_directories(at("step-000001.tmp/x"));  // what a killed run left
  fs::create_directories(at("step-000001.old"));
  run.save(folder_, 1);
  run.save(folder_, 2);
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder_))
    names.push_back(entry.path().filename());
  std::ranges::sort(names);
  EXPECT_EQ(names, (std::vector<std::string>{"latest", "step-000001", "step-000002"}));
  EXPECT_EQ(bytes_of(at("latest")), "step-000002\n");
  Training back(Family::Gpt2, {});
  EXPECT_EQ(back.load(at("step-000001")).step, 1);
  EXPECT_EQ(everything(back), everything(run));
}

// One process fails in the middle: all of them say so, and the last checkpoint stays.
TEST_F(Writing, LeavesTheLastCheckpointWhereOneFails) {
  Training run(Family::Gpt2, {});
  run.save(folder_, 1);
  for (int phase = 1; phase <= 2; ++phase) {
    int calls = 0;
    const Together together{.first = true, .agree = [&](const Result<>& own) {
                              return ++calls == phase ? Result<>(Error{"process 1: no space"})
                                                      : own;
                            }};
    const Result<> saved = save_checkpoint(folder_, run.state(2), *run.process, together);
    ASSERT_FALSE(saved);
    EXPECT_EQ(saved.error().message, "process 1: no space");
    EXPECT_FALSE(fs::exists(at("step-000002.tmp")));
    EXPECT_EQ(run.load(folder_).step, 1);
  }
}

TEST_F(Writing, SaysWhereItCannot) {
  put(at("file"), "x");
  const Result<> below = prepare_checkpoints(at("file/checkpoints"));
  ASSERT_FALSE(below);
  EXPECT_NE(below.error().message.find("cannot write"), std::string::npos) << below.error().message;
  EXPECT_FALSE(prepare_checkpoints(at("file")));
  EXPECT_TRUE(prepare_checkpoints(at("a/b/c")));
  EXPECT_TRUE(fs::is_empty(at("a/b/c")));
  Training run(Family::Gpt2, {});
  EXPECT_FALSE(save_checkpoint(at("none"), run.state(1), *run.process, {}));
}

// --- what is broken is named ---

TEST_F(Broken, CheckpointsSayWhatAndWhere) {
  Training run(Family::Gpt2, {});
  run.save(folder_, 3);
  const std::string step = at("step-000003/");
  without_digests(step + "state.json");  // so that what the header says is looked at
  const auto refused = [&](const std::string& path, const std::string& what) {
    const Result<Checkpoint> opened = run.open(path);
    ASSERT_FALSE(opened) << what;
    EXPECT_NE(opened.error().message.find(what), std::string::npos) << opened.error().message;
    EXPECT_EQ(opened.error().message.find('\n'), std::string::npos);
  };
  ASSERT_TRUE(run.open(folder_));
  for (const std::string name : {"model.safetensors", "optimizer.safetensors", "state.json"}) {
    const std::string whole = bytes_of(step + name);
    const auto with = [&](const std::string& bytes, const std::string& what) {
      put(step + name, bytes);
      refused(at("step-000003"), what);
      put(step + name, whole);
    };
    const auto changed = [&](std::string_view part, std::string_view by) {
      std::string bytes = whole;
      EXPECT_EQ(part.size(), by.size());
      const std::size_t found = bytes.find(part);
      EXPECT_NE(found, std::string::npos) << part;
      return bytes.replace(found, part.size(), by);
    };
    with(whole.substr(0, whole.size() / 2), step + name);
    if (name == "model.safetensors") {
      with(whole.substr(0, whole.size() - 1), "the file is cut short");
      with(changed("\"wte.weight\"", "\"wtf.weight\""),
           "wtf.weight: the model has no such tensor; the nearest is wte.weight");
      with(changed("[32,96]", "[96,32]"),
           "c_attn.weight: has shape [96, 32], the model's is [32, 96]");
      with(changed("\"F32\",\"shape\":[61,32]", "\"I32\",\"shape\":[61,32]"),
           "wte.weight: is I32, not F32");
    }
    if (name == "optimizer.safetensors") {
      with(changed("\"exp_avg.wte.weight\"", "\"exp_avg.wtf.weight\""),
           "the nearest is exp_avg.wte.weight");
    }
    if (name == "state.json") {
      with(changed("checkpoint/1", "checkpoint/9"),
           "schema: the checkpoint has version \"9\", this program reads version \"1\"");
      with(changed("rehearse.checkpoint/1", "rehearse.prediction/1"),
           "schema: not rehearse.checkpoint/1");
      with(changed("\"step\": 3", "\"step\": x"), "state.json:3: not JSON");
      with(changed("\"step\": 3", "\"stop\": 3"), "step: must be an integer");
      with(changed("\"hidden_size\": 32", "\"hidden_size\": 64"),
           "model.hidden_size: the checkpoint's model has 64, this run's 32");
    }
    fs::remove(step + name);
    if (name != "state.json") refused(folder_, name + ": is missing");
    put(step + name, whole);
  }
  // A file without one of the tensors.
  auto made = SafetensorsWriter::create(at("few.safetensors"),
                                        {{.name = "wte.weight", .shape = {61, 32}}}, {});
  ASSERT_TRUE(made);
  SafetensorsWriter writer = std::move(made).value();
  ASSERT_TRUE(writer.finish());
  refused(at("few.safetensors"), "few.safetensors: h.0.attn.c_attn.bias: is missing");
  // One in four bits, as gpt_oss is published.
  auto blocks = SafetensorsWriter::create(
      at("mxfp4.safetensors"), {{.name = "h.0.mlp.experts.gate_up_proj_blocks", .shape = {2}}}, {});
  ASSERT_TRUE(blocks);
  SafetensorsWriter quantised = std::move(blocks).value();
  ASSERT_TRUE(quantised.finish());
  refused(at("mxfp4.safetensors"), "gate_up_proj_blocks: is of a file in MXFP4");
  // Folders.
  fs::rename(step, at("other"));
  put(at("latest"), "step-000009\n");
  refused(folder_, "latest: names no checkpoint of this folder: \"step-000009\"");
  fs::create_directory(at("step-000009"));  // half written, or half copied
  refused(folder_, "step-000009/state.json: is missing: no whole checkpoint");
  fs::remove(at("step-000009"));
  fs::remove(at("latest"));
  refused(folder_, "holds no checkpoint");
  refused(at("none"), "no such file or folder");
  fs::rename(at("other"), step);
  // Other models.
  Training llama(Family::Llama, {});
  const Result<Checkpoint> other =
      Checkpoint::open(step, {llama.scenario.model, llama.scenario.plan}, llama.process->places());
  ASSERT_FALSE(other);
  EXPECT_NE(other.error().message.find(
                "model.model_type: the checkpoint's model has \"gpt2\", this run's \"llama\""),
            std::string::npos)
      << other.error().message;
}

}  // namespace
}  // namespace rehearse::exec
