// SPDX-License-Identifier: Apache-2.0
// Checkpoints of a small run in any layout, and all that the run keeps: what their tests compare.
#pragma once

#include <unistd.h>

#include <filesystem>

#include "exec/checkpoint/checkpoint.h"
#include "tests/exec/step/layout_case.h"

namespace rehearse::exec {

using Keys = std::vector<std::string>;

// A scenario, lowered and allocated.
struct Training {
  Scenario scenario;
  Schedule schedule;
  Backend backend = make_cpu_backend();
  std::unique_ptr<Interpreter> process;

  Training(Family family, const Keys& layout, Communicator* communicator = nullptr) {
    Result<Scenario> read = layout_scenario(family, layout);
    EXPECT_TRUE(read) << read.error().message;
    scenario = std::move(read).value();
    Result<Schedule> lowered = lower_for_run(scenario.model, scenario.plan);
    EXPECT_TRUE(lowered) << lowered.error().message;
    schedule = std::move(lowered).value();
    auto made = Interpreter::create({scenario.model, scenario.plan}, schedule, backend,
                                    {.communicator = communicator});
    EXPECT_TRUE(made) << made.error().message;
    process = std::move(made).value();
    process->initialise(initial_values(scenario.model, scenario.train.seed));
  }
  // Losses of steps [from.step, steps).
  std::vector<double> train_to(std::int64_t steps, const TrainFrom& from = {}) {
    TrainOptions options = scenario.train;
    options.steps = steps;
    const Data data = Data::open("synthetic", scenario.model.vocabulary, options.seed).value();
    const auto reports = train(*process, scenario.plan, options, data, nullptr, from);
    EXPECT_TRUE(reports) << reports.error().message;
    std::vector<double> losses;
    for (const StepReport& step : reports.value()) losses.push_back(step.loss);
    return losses;
  }
  CheckpointState state(std::int64_t step) const {
    return {.step = step,
            .samples = 8 * step,
            .sequence_length = 16,
            .seed = 7,
            .data = "synthetic",
            .schedule_hash = content_hash(schedule),
            .plan = plan_json(scenario.plan, 0)};
  }
  void save(const std::string& folder, std::int64_t step, std::int64_t shard_bytes = kShardBytes) {
    ASSERT_TRUE(prepare_checkpoints(folder));
    const Result<> saved = save_checkpoint(folder, state(step), *process, {}, shard_bytes);
    ASSERT_TRUE(saved) << saved.error().message;
  }
  Result<Checkpoint> open(const std::string& path) const {
    return Checkpoint::open(path, {scenario.model, scenario.plan}, process->places());
  }
  TrainFrom load(const std::string& path) {
    const Result<Checkpoint> opened = open(path);
    EXPECT_TRUE(opened) << opened.error().message;
    if (!opened) return {};
    const Result<> loaded = opened.value().load(*process);
    EXPECT_TRUE(loaded) << loaded.error().message;
    return {.step = opened.value().state().step, .samples = opened.value().state().samples};
  }
};

// Every element that any rank keeps, by tensor: parameters, then both moments; of whole tensors, by
// whole_element() and so without the code that is tested. All copies must be equal.
inline std::map<std::string, std::vector<float>> everything(const Training& run) {
  std::map<std::string, std::vector<float>> all;
  const LocalRanks& local = run.process->local();
  for (const StoredBucket& stored : run.process->stored()) {
    const RankState& rank = *local.ranks[static_cast<std::size_t>(stored.rank)];
    const auto spread = [&](const std::string& kind, const float* values, std::int64_t begin,
                            std::int64_t end) {
      for (const TensorPlace& place : local.places) {
        if (place.bucket != stored.bucket) continue;
        std::vector<float>& whole = all[kind + place.name];
        whole.resize(static_cast<std::size_t>(place.part.elements()), NAN);
        for (std::int64_t i = 0; i < place.what.elements; ++i) {
          const std::int64_t element = place.offset + i;
          if (element < begin || element >= end) continue;
          const std::int64_t at = whole_element(local.layout, place, rank.at.tensor, i);
          if (at < 0) continue;
          float& to = whole[static_cast<std::size_t>(at)];
          if (!std::isnan(to)) {
            EXPECT_EQ(to, values[element - begin]) << kind << place.name << ' ' << at;
          }
          to = values[element - begin];
        }
      }
    };
    spread("", reinterpret_cast<const float*>(stored.parameter) + (stored.own_first - stored.first),
           stored.own_first, stored.own_last);
    if (stored.moments[0] == nullptr) continue;
    spread("m ", stored.moments[0], stored.own_first, stored.own_last);
    spread("v ", stored.moments[1], stored.own_first, stored.own_last);
  }
  for (const auto& [name, values] : all) {
    for (const float value : values) EXPECT_FALSE(std::isnan(value)) << name;
  }
  return all;
}

inline std::string bytes_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}
inline void put(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

// Makes a state.json one of version 0.1, which had neither sums nor a count.
inline void without_digests(const std::string& path) {
  std::string text = bytes_of(path);
  const std::size_t sums = text.find(",\n  \"crc32c\"");
  const std::size_t written = text.find("  \"written\"");
  ASSERT_TRUE(sums != std::string::npos && written < sums) << text;
  text = text.substr(0, sums) + "\n}\n";
  text.erase(written, text.find('\n', written) + 1 - written);
  put(path, text);
}

class CheckpointTest : public testing::Test {
 protected:
  CheckpointTest() {
    char name[] = "/tmp/checkpoint_test.XXXXXX";
    folder_ = mkdtemp(name);
  }
  ~CheckpointTest() override { std::filesystem::remove_all(folder_); }
  std::string at(const std::string& name) const { return folder_ + '/' + name; }
  std::string folder_;
};

}  // namespace rehearse::exec
