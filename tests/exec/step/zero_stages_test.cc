// SPDX-License-Identifier: Apache-2.0
// What the executor holds with each stage of ZeRO: by default keys more of it needs no more memory,
// and where a model is too small for that, a note says why.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <random>

#include "exec/cpu/cpu_backend.h"
#include "exec/step/interpreter.h"
#include "exec/step/offload_file.h"
#include "exec/step/rank_state.h"
#include "exec/train/train.h"
#include "schedules/model/config/hf_config.h"
#include "schedules/model/layer_mix.h"
#include "schedules/scenario/scenario.h"
#include "sim/memory/arena_memory.h"
#include "sim/report/zero_order.h"

namespace rehearse::exec {
namespace {

int pick(std::mt19937& random, std::initializer_list<int> choices) {
  return *(choices.begin() + std::uniform_int_distribution<std::ptrdiff_t>(
                                 0, static_cast<std::ptrdiff_t>(choices.size()) - 1)(random));
}

struct Held {
  std::int64_t peak = 0;       // counted over the addresses of ops, fullest row [B]
  std::int64_t gradients = 0;  // most of them at any op [B]
  std::string note;
};

// What lies on drives is found again after its pages were forgotten, no file is left to be seen,
// and no room is an error in one line before anything is written.
TEST(OffloadFile, KeepsWhatIsReleasedAndRefusesWhatHasNoRoom) {
  namespace fs = std::filesystem;
  const fs::path folder = fs::temp_directory_path() / "rehearse_offload_file_test";
  fs::create_directories(folder);
  constexpr std::int64_t kBytes = (1 << 20) + 100;
  {
    Result<OffloadFile> made = OffloadFile::open(folder.string(), kBytes);
    ASSERT_TRUE(made) << made.error().message;
    OffloadFile file = std::move(made).value();
    EXPECT_EQ(file.data()[kBytes - 1], std::byte{0});
    for (std::int64_t i = 0; i < kBytes; ++i) file.data()[i] = static_cast<std::byte>(i % 251);
    file.release(file.data() + 5000, 10000);
    file.release(file.data(), kBytes);
    const std::byte elsewhere{};
    file.release(&elsewhere, 1);
    EXPECT_TRUE(file.failure());
    for (std::int64_t i = 0; i < kBytes; ++i) {
      ASSERT_EQ(file.data()[i], static_cast<std::byte>(i % 251)) << i;
    }
    EXPECT_TRUE(fs::is_empty(folder));
  }
  const Result<OffloadFile> full = OffloadFile::open(folder.string(), std::int64_t{1} << 60);
  ASSERT_FALSE(full);
  EXPECT_TRUE(full.error().machine);
  EXPECT_EQ(full.error().message,
            "plan.offload_to: nvme: " + folder.string() +
                ": No space left on device (1152921504606846976 bytes for a rank; --offload-dir)");
  const Result<OffloadFile> nowhere = OffloadFile::open((folder / "no").string(), 1);
  ASSERT_FALSE(nowhere);
  EXPECT_FALSE(nowhere.error().machine);
  EXPECT_NE(nowhere.error().message.find("No such file or directory"), std::string::npos);
  fs::remove_all(folder);
}

std::string model_of(bool llama, int hidden, int heads, int layers, int vocabulary, bool tied) {
  std::string text = std::string(R"({"model_type": ")") + (llama ? "llama" : "gpt2");
  text += "\", \"hidden_size\": " + std::to_string(hidden);
  text += ", \"num_attention_heads\": " + std::to_string(heads);
  text += ", \"num_hidden_layers\": " + std::to_string(layers);
  text += ", \"vocab_size\": " + std::to_string(vocabulary);
  text += ", \"max_position_embeddings\": 512, \"tie_word_embeddings\": ";
  text += tied ? "true" : "false";
  if (!llama) return text + R"(, "resid_pdrop": 0})";
  return text + ", \"intermediate_size\": " + std::to_string(3 * hidden) +
         ", \"num_key_value_heads\": " + std::to_string(heads / 2) + "}";
}

// The descriptor of this process's file without a name in `folder`, or -1.
int unnamed_file_in(const std::filesystem::path& folder) {
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code ignored;
    const std::string to = std::filesystem::read_symlink(entry.path(), ignored).string();
    if (to.starts_with(folder.string())) return std::stoi(entry.path().filename().string());
  }
  return -1;
}

// Drives that no longer take what is written: told at the end of the step, not by a signal when it
// is read again. A pipe in the file's place stands for them: it has no pages to write.
TEST(OffloadFile, TellsWhatItsDrivesDidNotTake) {
  namespace fs = std::filesystem;
  const fs::path folder = fs::temp_directory_path() / "rehearse_offload_failure_test";
  fs::create_directories(folder);
  Result<OffloadFile> made = OffloadFile::open(folder.string(), 1 << 16);
  ASSERT_TRUE(made) << made.error().message;
  OffloadFile file = std::move(made).value();
  const int descriptor = unnamed_file_in(folder);
  ASSERT_GE(descriptor, 0);
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  ASSERT_EQ(dup2(ends[0], descriptor), descriptor);
  file.release(file.data(), 100);
  const Result<> failed = file.failure();
  ASSERT_FALSE(failed);
  EXPECT_TRUE(failed.error().machine);
  EXPECT_TRUE(failed.error().message.starts_with("plan.offload_to: nvme: the drives did not take"))
      << failed.error().message;
  close(ends[0]);
  close(ends[1]);
  fs::remove_all(folder);
}

// And a step ends with it.
TEST(OffloadFile, EndsTheStepWhoseDrivesFail) {
  namespace fs = std::filesystem;
  const fs::path folder = fs::temp_directory_path() / "rehearse_offload_step_test";
  fs::create_directories(folder);
  const Result<Scenario> scenario =
      parse_scenario("{\"model\": " + model_of(false, 64, 4, 2, 256, true) +
                         R"(, "plan": {"precision": "fp32", "global_batch": 1, "micro_batch": 1,
              "sequence_length": 16, "offload": "optimizer", "offload_to": "nvme"}})",
                     "drives", 0, {.runtime = "rehearse", .needs_cluster = false});
  ASSERT_TRUE(scenario) << scenario.error().message;
  Plan plan = scenario.value().plan;
  const Result<Schedule> schedule = lower_for_run(scenario.value().model, plan);
  ASSERT_TRUE(schedule);
  const Backend backend = make_cpu_backend();
  const auto run = Interpreter::create({scenario.value().model, plan}, schedule.value(), backend,
                                       {.drives = folder.string()});
  ASSERT_TRUE(run) << run.error().message;
  run.value()->initialise([](const std::string&, std::int64_t) { return 0.01; });
  StepOptions options{.train = scenario.value().train};
  ASSERT_TRUE(run.value()->run(options));
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  ASSERT_GE(dup2(ends[0], unnamed_file_in(folder)), 0);
  options.step = 1;
  const Result<StepResult> failed = run.value()->run(options);
  ASSERT_FALSE(failed);
  EXPECT_NE(failed.error().message.find("the drives did not take"), std::string::npos);
  close(ends[0]);
  close(ends[1]);
  fs::remove_all(folder);
}

// As `rehearse run` lowers it, counted as it counts.
Held held(const std::string& model, const std::string& plan, int zero_stage) {
  const std::string text = "{\"model\": " + model + ", \"plan\": {" + plan +
                           ", \"zero_stage\": " + std::to_string(zero_stage) + "}}";
  const Result<Scenario> scenario =
      parse_scenario(text, "zero", 0, {.runtime = "rehearse", .needs_cluster = false});
  EXPECT_TRUE(scenario) << scenario.error().message << '\n' << text;
  Held out;
  if (!scenario) return out;
  Plan run = scenario.value().plan;
  const Result<Schedule> schedule = lower_for_run(scenario.value().model, run);
  EXPECT_TRUE(schedule) << text;
  const Result<std::vector<std::int64_t>> counted = count_arenas(schedule.value());
  EXPECT_TRUE(counted) << text;
  out.peak = *std::ranges::max_element(counted.value());
  for (RankClass row{0}; row.value < schedule.value().num_rows(); ++row.value) {
    for (const auto& parts : sim::alive_bytes(schedule.value(), row)) {
      out.gradients = std::max(out.gradients, parts[1]);
    }
  }
  out.note = sim::zero_order_note(scenario.value().model, run, schedule.value(), {});
  return out;
}

// A model of at least eight equal layers and a plan with at least two replicas; small: any table.
struct Drawn {
  std::string model, plan;
};
Drawn draw(std::mt19937& random, bool small) {
  const int hidden = small ? 64 : pick(random, {64, 128, 256, 512}),
            heads = pick(random, {2, 4, 8});
  const int layers = pick(random, {8, 8, 9, 12, 16, 24});
  const int vocabulary = small ? pick(random, {5000, 20000, 50000}) : pick(random, {61, 256, 300});
  const bool llama = pick(random, {0, 1}) == 1, tied = pick(random, {0, 1}) == 1;
  const int replicas = pick(random, {2, 2, 3, 4, 8}), micro = pick(random, {1, 2, 4});
  const int batch = replicas * micro * pick(random, {1, 2, 4, 8});
  const char* recompute[] = {"none", "selective", "full"};
  std::string plan = "\"precision\": \"fp32\", \"data_parallel\": " + std::to_string(replicas);
  plan += ", \"tensor_parallel\": " + std::to_string(pick(random, {1, 1, 2}));
  plan += ", \"micro_batch\": " + std::to_string(micro);
  plan += ", \"global_batch\": " + std::to_string(batch);
  plan += ", \"sequence_length\": " + std::to_string(pick(random, {16, 32, 128, 512}));
  plan += std::string(", \"recompute\": \"") + recompute[pick(random, {0, 1, 2})] + '"';
  return {model_of(llama, hidden, heads, layers, vocabulary, tied), plan};
}

// The four stages, from DDP on; every stage that breaks the order says so, and no other does.
int broken(const std::string& model, const std::string& plan) {
  int count = 0;
  std::array<Held, 4> by_stage;
  for (int stage = 0; stage < 4; ++stage) {
    const auto at = static_cast<std::size_t>(stage);
    by_stage[at] = held(model, plan, stage);
    bool more = false;
    for (std::size_t less = 0; less < at; ++less) {
      more |= by_stage[at].peak > by_stage[less].peak;
    }
    count += more ? 1 : 0;
    EXPECT_EQ(!by_stage[at].note.empty(), more) << by_stage[at].note << '\n' << model << plan;
  }
  return count;
}

TEST(ZeroStages, NeedNoMoreMemoryTheMoreTheyShard) {
  std::mt19937 random(20240903);
  const int trials = std::getenv("REHEARSE_TEST_LONG") != nullptr ? 2000 : 100;
  for (int trial = 0; trial < trials; ++trial) {
    const Drawn drawn = draw(random, false);
    EXPECT_EQ(broken(drawn.model, drawn.plan), 0) << drawn.model << '\n' << drawn.plan;
  }
}

// The shipped models that a machine runs, and the others by their plans: counting needs no memory.
TEST(ZeroStages, NeedNoMoreMemoryTheMoreTheyShardForEveryShippedModel) {
  int models = 0;
  for (const auto& file : std::filesystem::directory_iterator("scenarios/models")) {
    if (file.path().extension() != ".json") continue;
    const Result<Transformer> read = read_transformer(file.path().string());
    ASSERT_TRUE(read) << read.error().message;
    if (!beyond_plain_layers(read.value()).empty()) continue;  // priced alone
    const std::string model = "\"" + file.path().string() + "\"";
    const Result<Scenario> runs = parse_scenario(
        "{\"model\": " + model + R"(, "plan": {"precision": "fp32", "sequence_length": 128}})",
        "shipped", 0, {.runtime = "rehearse", .needs_cluster = false});
    ASSERT_TRUE(runs) << runs.error().message;
    if (runs.value().model.experts.count > 0) continue;  // not performed yet
    ++models;
    for (const char* plan : {R"("data_parallel": 2, "micro_batch": 1, "global_batch": 2)",
                             R"("data_parallel": 8, "micro_batch": 2, "global_batch": 64)"}) {
      const std::string keys =
          std::string(plan) + R"(, "precision": "fp32", "sequence_length": 128)";
      // tiny-gpt has four layers: one that is gathered ahead and one that is reduced are half of
      // it.
      const bool small = runs.value().model.layers < 8;
      const int count = broken(model, keys);
      if (!small) {
        EXPECT_EQ(count, 0) << model << keys;
      }
    }
  }
  EXPECT_GE(models, 20);
}

// Tables that weigh more than the layers: gathered and reduced whole, they cost what shards save.
TEST(ZeroStages, SayWhyWhereASmallModelNeedsMore) {
  std::mt19937 random(20240904);
  int count = 0;
  for (int trial = 0; trial < 60; ++trial) {
    const Drawn drawn = draw(random, true);
    count += broken(drawn.model, drawn.plan);
  }
  EXPECT_GT(count, 10);
  const std::string model = model_of(false, 64, 4, 8, 20000, true);
  const Held three = held(model, R"("precision": "fp32", "data_parallel": 2, "global_batch": 8,
      "micro_batch": 1, "sequence_length": 32)",
                          3);
  EXPECT_TRUE(three.note.starts_with("ZeRO-3 needs ")) << three.note;
  EXPECT_NE(three.note.find("gathered or reduced whole"), std::string::npos) << three.note;
}

// One replica has nothing to share: what ZeRO-2 reduces lies beside where it goes to. Where weights
// are most of what is alive, that shows.
TEST(ZeroStages, SayWhyWhereOneReplicaNeedsMore) {
  EXPECT_GT(broken(R"({"model_type": "mixtral", "hidden_size": 4096, "intermediate_size": 16384,
                       "num_hidden_layers": 4, "num_attention_heads": 32,
                       "num_key_value_heads": 32, "vocab_size": 8192, "num_local_experts": 4,
                       "num_experts_per_tok": 2, "max_position_embeddings": 8192})",
                   R"("precision": "fp32", "data_parallel": 1, "tensor_parallel": 4,
                      "sequence_parallel": true, "expert_parallel": 2, "expert_capacity": "drop",
                      "expert_routing": "balanced", "global_batch": 2, "micro_batch": 1,
                      "sequence_length": 2048)"),
            0);
}

// 34 M parameters on 4 replicas: a quarter of the gradients, one layer's whole and its part. It was
// 305 to 339 MB where ZeRO-1 has 136.
TEST(ZeroStages, ZeroTwoShardsGradientsWhileMicroBatchesAccumulate) {
  const std::string model = model_of(false, 512, 8, 10, 4000, true);
  const std::int64_t layer = 4 * (12 * 512 * 512 + 13 * 512), table = 4 * 4000 * 512;
  const std::int64_t all = 10 * layer + table + 4 * (512 * 512 + 2 * 512);
  for (const char* overlap : {"", R"(, "overlap": {"gradient_reduce": true})"}) {
    const std::string plan = std::string(R"("precision": "fp32", "data_parallel": 4,
        "global_batch": 32, "micro_batch": 1, "sequence_length": 64)") +
                             overlap;
    const std::int64_t one = held(model, plan, 1).gradients, two = held(model, plan, 2).gradients;
    EXPECT_GE(one, all);
    EXPECT_LT(one, all + all / 50);
    // The table's gradient is whole from the head to the embedding; overlapped, a second layer's is
    // reduced meanwhile, with its part.
    const std::int64_t whole = *overlap == '\0' ? layer : 2 * layer;
    const std::int64_t padding = 12 * 4 * 64 * 4;  // of each bucket less than 64 elements a rank
    EXPECT_LT(two, all / 4 + table + whole + layer / 2 + padding) << overlap;
  }
}

// A gradient's buffer is whole only from the backward that begins it to its reduction: no later
// backward sees it.
TEST(ZeroStages, ZeroTwoFreesABucketBehindItsReduction) {
  const Result<Scenario> scenario =
      parse_scenario("{\"model\": " + model_of(true, 64, 4, 8, 256, false) +
                         R"(, "plan": {"precision": "fp32", "data_parallel": 2, "global_batch": 8,
              "micro_batch": 1, "sequence_length": 32, "zero_stage": 2}})",
                     "zero", 0, {.runtime = "rehearse", .needs_cluster = false});
  ASSERT_TRUE(scenario) << scenario.error().message;
  Plan plan = scenario.value().plan;
  const Result<Schedule> lowered = lower_for_run(scenario.value().model, plan);
  ASSERT_TRUE(lowered);
  const Schedule& s = lowered.value();
  int whole = 0;
  for (const Value& value : s.values) {
    if (value.kind != ValueKind::Gradient || value.shard) continue;
    ++whole;
    EXPECT_EQ(s.ops[value.last_use.index()].kind, OpKind::ReduceScatter);
    for (std::int32_t op = value.last_use.value + 1; op <= value.hold_until.value; ++op) {
      EXPECT_FALSE(is_compute(s.ops[static_cast<std::size_t>(op)].kind)) << op;
    }
  }
  EXPECT_EQ(whole, 4 * 9);  // micro-batches times layers (the head with the last) and embedding
}

}  // namespace
}  // namespace rehearse::exec
