// SPDX-License-Identifier: Apache-2.0
// Inputs that would take this machine's memory or its patience: refused by one line before they do.
// No input is waited for, whichever reader gets it.
#include <sys/stat.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#ifdef REHEARSE_ZLIB
#include <zlib.h>
#endif

#include "exec/checkpoint/tensor_files.h"
#include "exec/train/data.h"
#include "schedules/base/json_reader.h"
#include "schedules/formats/schedule_file.h"
#include "schedules/formats/schedule_json.h"
#include "schedules/model/config/hf_config.h"
#include "schedules/model/config/model_keys.h"
#include "schedules/scenario/keys/key_specs.h"
#include "schedules/scenario/plan_size.h"
#include "schedules/scenario/scenario.h"
#include "sim/accuracy/validation.h"
#include "sim/cluster/calibration.h"
#include "sim/cluster/cluster.h"
#include "sim/predict/predict.h"
#include "viz/import/import.h"

namespace rehearse {
namespace {
namespace fs = std::filesystem;

class Bounds : public testing::Test {
 protected:
  Bounds() {
    char name[] = "/tmp/bounds_test.XXXXXX";
    folder_ = mkdtemp(name);
  }
  ~Bounds() override { fs::remove_all(folder_); }
  std::string folder_;
};

template <class T>
std::string said(const Result<T>& result) {
  return result ? "" : result.error().message;
}

// Every reader of files, by what it says of one.
const std::vector<std::pair<const char*, std::function<std::string(const std::string&)>>> kReaders{
    {"scenario", [](const std::string& p) { return said(read_scenario(p, {})); }},
    {"model", [](const std::string& p) { return said(read_transformer(p)); }},
    {"cluster", [](const std::string& p) { return said(sim::read_cluster({.path = p})); }},
    {"calibration", [](const std::string& p) { return said(sim::read_calibration(p)); }},
    {"validation", [](const std::string& p) { return said(sim::read_validation(p, {})); }},
    {"schedule", [](const std::string& p) { return said(read_schedule_file(p)); }},
    {"trace", [](const std::string& p) { return said(read_trace(p)); }},
    {"any trace", [](const std::string& p) { return said(viz::load_trace(p)); }},
    {"safetensors", [](const std::string& p) { return said(exec::TensorFiles::open(p)); }},
    {"data", [](const std::string& p) { return said(exec::Data::open(p, 256, 1)); }},
    {"text", [](const std::string& p) { return said(read_text_file(p, 1000)); }},
};

// A pipe that nobody writes to: opening it for reading would wait for ever, and swallow SIGTERM
// where signals are wishes.
TEST_F(Bounds, APipeIsNotWaitedFor) {
  for (const char* name : {"/input.json", "/model.safetensors", "/x.safetensors.index.json"}) {
    const std::string pipe = folder_ + name;
    ASSERT_EQ(mkfifo(pipe.c_str(), 0666), 0);
    for (const auto& [reader, read] : kReaders) {
      const std::string line = read(pipe);
      EXPECT_NE(line.find("not a"), std::string::npos) << reader << ": " << line;
      EXPECT_EQ(line.find('\n'), std::string::npos) << reader << ": " << line;
    }
  }
}

TEST_F(Bounds, FoldersAndWhatIsNotThereAreNamed) {
  for (const auto& [reader, read] : kReaders) {
    for (const std::string& path : {folder_, folder_ + "/none", folder_ + "/none/of/them"}) {
      const std::string line = read(path);
      EXPECT_TRUE(line.starts_with(path)) << reader << ": " << line;
      EXPECT_EQ(line.find('\n'), std::string::npos) << reader << ": " << line;
    }
  }
}

// 4,000,001 numbers in 8 MB of text: a value takes a hundred bytes as a document. The reader stops
// at the bound, so what follows it costs nothing.
TEST_F(Bounds, ADocumentHasSoManyValuesAtMost) {
  std::string text = "[";
  for (int i = 0; i < 4'000'000; ++i) text += "1,";
  const std::string more = text + "1]";
  EXPECT_EQ(said(parse_json(more, "x.json")), "x.json:1: a document of more than 4000000 values");
}

// But a schedule's file, which has a value per op, as many as a schedule may have.
TEST_F(Bounds, AScheduleFileHasAsManyOpsAsItsSchedule) {
  constexpr int kMicrobatches = 2'050'000;
  std::string text = R"({"microbatches": 2050000, "stage_to_rank": [0], "orders": [[)";
  for (int i = 0; i < kMicrobatches; ++i) {
    const std::string m = std::to_string(i);
    text += (i > 0 ? ",\"0F" : "\"0F") + m + "\",\"0B" + m + "\"";
  }
  const Result<ScheduleFile> read = parse_schedule_json(text + "]]}", "x.json");
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read.value().schedule.num_ops(), 2 * kMicrobatches);
}

// 2^28 ops, as the contract has it; beyond, one line, whatever memory there is.
TEST_F(Bounds, ALoweredScheduleHas2To28OpsAtMost) {
  const auto said_of = [](std::int64_t microbatches) {
    const Result<Scenario> read = read_scenario(
        "scenarios/pipeline-gpipe.json",
        {.overrides = {"plan.micro_batch=1", "plan.global_batch=" + std::to_string(microbatches)}});
    return read ? said(check_lowered_size(read.value().model, read.value().plan))
                : read.error().message;
  };
  EXPECT_EQ(said_of(16), "");
  // 8 compute ops and 12 transfers per micro-batch: 2^28 are 13,421,772 of them.
  EXPECT_EQ(said_of(13'421'000).find("that are simulated"), std::string::npos);
  EXPECT_EQ(said_of(13'430'000).find('\n'), std::string::npos);
  EXPECT_NE(said_of(13'430'000).find("2^28 ops"), std::string::npos) << said_of(13'430'000);
  // Each op may name many buckets: those are counted in 31 bits.
  const Result<Scenario> buckets =
      read_scenario("scenarios/dp-ddp.json",
                    {.overrides = {"plan.micro_batch=1", "plan.global_batch=80000000",
                                   "plan.bucket_bytes=1", "plan.overlap.gradient_reduce=true"}});
  ASSERT_TRUE(buckets) << buckets.error().message;
  const std::string line = said(check_lowered_size(buckets.value().model, buckets.value().plan));
  EXPECT_NE(line.find("million operands, more than the 1073.7 that are counted"), std::string::npos)
      << line;
}

// What a scenario with one key changed is answered: the prediction, its memory added up, or one
// line.
void expect_an_answer(const std::string& scenario, const std::vector<std::string>& overrides) {
  std::string what;
  for (const std::string& one : overrides) what += " " + one;
  const auto expect_line = [&](const std::string& line) {
    EXPECT_NE(line, "") << what;
    EXPECT_EQ(line.find('\n'), std::string::npos) << what << ": " << line;
  };
  const Result<Scenario> read = read_scenario(scenario, {.overrides = overrides});
  if (!read) return expect_line(read.error().message);
  const Result<sim::Cluster> cluster = sim::read_cluster(read.value().cluster);
  ASSERT_TRUE(cluster);
  const Result<sim::Prediction> made = sim::predict(read.value(), cluster.value());
  if (!made) return expect_line(made.error().message);
  const sim::MemoryReport& memory = made.value().memory;
  EXPECT_EQ(memory.fits, memory.even_peak_device <= memory.capacity) << what;  // at even load
  EXPECT_GE(memory.peak_device, memory.even_peak_device) << what;
  for (const sim::RankMemory& rank : memory.ranks) {
    EXPECT_EQ(rank.parts.allocated(), rank.peak_allocated) << what;
    EXPECT_GE(rank.peak_reserved, rank.peak_allocated) << what;
    for (const std::int64_t part :
         {rank.parts.parameters, rank.parts.gradients, rank.parts.optimizer, rank.parts.activations,
          rank.parts.buffers, rank.parts.workspace}) {
      EXPECT_GE(part, 0) << what;
    }
  }
}

// Every number that a plan or a model may say, at its largest: as the first key alone, with what
// makes room for it, and under an attention that keeps its scores.
TEST_F(Bounds, EveryKeyAtItsLargestIsAnsweredOrRefused) {
  std::vector<std::string> largest;
  const auto add = [&](const std::string& path, const KeyTable& table) {
    for (const KeySpec& key : table.keys) {
      if ((key.types & (kInteger | kNumber)) == 0 || std::isinf(key.max)) continue;
      largest.push_back(path + std::string(key.name) + "=" +
                        std::to_string(static_cast<std::int64_t>(key.max)));
    }
  };
  add("plan.", keys::kPlan);
  add("model.", model_key_table());
  ASSERT_GT(largest.size(), 60U);
  const std::string dense = "scenarios/3d-8-gpus.json", experts = "scenarios/mixtral-8x7b-64.json";
  for (const std::string& key : largest) {
    expect_an_answer(dense, {key});
    expect_an_answer(experts, {key});
    expect_an_answer(dense, {"plan.attention_kernel=eager", key});
    expect_an_answer(dense, {"model.intermediate_size=4194304", key});
    expect_an_answer(dense, {"plan.sequence_length=33554432", key});
  }
  for (const std::int64_t samples : {1024, 1 << 20, 1 << 24}) {
    const std::string batch = "plan.global_batch=" + std::to_string(2 * samples),
                      micro_batch = "plan.micro_batch=" + std::to_string(samples);
    for (const char* tokens : {"4096", "65536", "1048576", "67108864"}) {
      expect_an_answer(dense, {batch, micro_batch, std::string("plan.sequence_length=") + tokens});
    }
  }
}

// The bytes themselves: a sequence 8 times as long keeps 8 times as much in activations.
TEST_F(Bounds, MemoryOfLongSequencesGrowsWithThem) {
  const auto activations = [](std::int64_t tokens) {
    const Scenario scenario =
        read_scenario("scenarios/3d-8-gpus.json",
                      {.overrides = {"plan.sequence_length=" + std::to_string(tokens)}})
            .value();
    const sim::Prediction made =
        sim::predict(scenario, sim::read_cluster(scenario.cluster).value()).value();
    return static_cast<double>(made.memory.ranks.front().parts.activations);
  };
  EXPECT_NEAR(activations(1 << 25) / activations(1 << 22), 8, 0.01);
}

#ifdef REHEARSE_ZLIB
// 96 MiB of blanks in 93 kB: the format allows a thousandth. What a trace shrinks to is read.
TEST_F(Bounds, ATraceThatInflatesBeyondReasonIsRefused) {
  const std::string path = folder_ + "/bomb.json.gz";
  const std::string blanks(1 << 20, ' ');
  gzFile file = gzopen(path.c_str(), "wb1");
  for (int i = 0; i < 96; ++i) gzwrite(file, blanks.data(), 1 << 20);
  gzclose(file);
  EXPECT_LT(fs::file_size(path), 500'000U);
  const std::string line = said(viz::load_trace(path));
  EXPECT_NE(line.find("bytes inflate to more than"), std::string::npos) << line;
  EXPECT_NE(line.find("that is no trace"), std::string::npos) << line;
  EXPECT_EQ(said(viz::load_trace("tests/data/viz/kineto_sample.json.gz")), "");
}
#endif

// A sparse file as long as the disk takes: not read, since it would not fit.
TEST_F(Bounds, DataThatWouldNotFitIsNotRead) {
  const std::string path = folder_ + "/long.txt";
  std::ofstream(path) << "x";
  if (truncate(path.c_str(), off_t{1} << 42) != 0) GTEST_SKIP() << "no such long files here";
  EXPECT_NE(said(exec::Data::open(path, 256, 1)).find("larger than"), std::string::npos);
  EXPECT_NE(said(viz::load_trace(path)).find("larger than"), std::string::npos);
}

}  // namespace
}  // namespace rehearse
