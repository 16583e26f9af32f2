// SPDX-License-Identifier: Apache-2.0
// Checkpoints: what one layout writes every other reads, bit for bit, and runs go on from it.
#include <barrier>
#include <filesystem>
#include <thread>

#include "tests/exec/checkpoint/checkpoint_case.h"

namespace rehearse::exec {
namespace {
namespace fs = std::filesystem;

using Layouts = CheckpointTest;
using Resume = CheckpointTest;

const Keys kLayouts[] = {
    {},
    {"tensor_parallel=2"},
    {"tensor_parallel=4"},
    {"tensor_parallel=2", "sequence_parallel=true"},
    {"pipeline_parallel=2", "schedule=1f1b"},
    {"pipeline_parallel=4", "schedule=zb_v"},
    {"pipeline_parallel=2", "schedule=interleaved_1f1b", "virtual_stages=2"},
    {"pipeline_parallel=2", "schedule=chimera"},
    {"pipeline_parallel=2", "schedule=dualpipe", "data_parallel=2", "zero_stage=1"},
    {"data_parallel=2"},
    {"data_parallel=2", "data_parallel_algorithm=parameter_server"},
    {"data_parallel=4", "zero_stage=1", "bucket_bytes=65536",
     "overlap={\"gradient_reduce\":true,\"parameter_gather\":true}"},
    {"data_parallel=2", "zero_stage=2"},
    {"data_parallel=4", "zero_stage=3"},
    {"pipeline_parallel=2", "data_parallel=2", "schedule=1f1b", "zero_stage=3"},
    {"tensor_parallel=2", "data_parallel=2", "zero_stage=2", "pad_vocabulary_to=16"},
    {"pipeline_parallel=2", "tensor_parallel=2", "data_parallel=2", "schedule=1f1b",
     "zero_stage=1"},
    {"context_parallel=2", "data_parallel=2", "zero_stage=1"},
    {"data_parallel=4", "zero_stage=1", "shard_group=2"},
    {"context_parallel=2", "data_parallel=2", "zero_stage=3", "shard_group=2"},
    {"data_parallel=2", "zero_stage=3", "offload=parameters"},
    {"tensor_parallel_2d=[2,2]", "micro_batch=2"},
    {"tensor_parallel_2d=[4,2]", "micro_batch=4", "pad_vocabulary_to=3"},
    {"tensor_parallel_2d=[1,2]", "data_parallel=2", "zero_stage=2"},
};
constexpr std::size_t kNumLayouts = std::size(kLayouts);

// --- any layout reads what any other wrote ---

// Each layout (of the families after the first a third) writes after a step; another one, seven or
// more further in the list, reads.
// Parameters and both moments are bitwise the same, and what it then writes are the same files.
TEST_F(Layouts, ReadWhatOthersWroteBitForBit) {
  for (const Family family : {Family::Gpt2, Family::Gpt2Untied, Family::Llama, Family::Qwen2}) {
    for (std::size_t i = 0; i < kNumLayouts; ++i) {
      const Keys &a = kLayouts[i],
                 &b = kLayouts[(i + 7 + static_cast<std::size_t>(family)) % kNumLayouts];
      if (family != Family::Gpt2 && i % 3 != static_cast<std::size_t>(family) % 3) continue;
      Training from(family, a), to(family, b);
      from.train_to(1);
      from.save(folder_, 1);
      to.load(folder_);
      const auto wrote = everything(from), read = everything(to);
      EXPECT_EQ(wrote, read) << "layout " << i;
      EXPECT_NE(wrote.begin()->second,
                everything(Training(family, {})).begin()->second);  // it has learnt
      to.save(at("again"), 1);
      for (const char* name : {"model.safetensors", "optimizer.safetensors"}) {
        EXPECT_TRUE(bytes_of(at("step-000001/") + name) ==
                    bytes_of(at("again/step-000001/") + name))
            << i;
      }
      if (testing::Test::HasFailure()) return;
    }
  }
}

// Two processes with half of the ranks each write the same files as one. Nobody communicates: both
// read one checkpoint first.
class Half : public Communicator {
 public:
  explicit Half(std::int32_t number) : number_(number) {}
  std::string_view name() const override { return "half"; }
  std::int32_t process() const override { return number_; }
  std::int32_t processes() const override { return 2; }
  void collective(const Exchange&, Done done) override { done(Error{"not here"}); }
  void send(Lane, std::int32_t, std::uint64_t, std::span<const std::byte>, Done done) override {
    done(Error{"not here"});
  }
  void receive(Lane, std::int32_t, std::uint64_t, std::span<std::byte>, Done done) override {
    done(Error{"not here"});
  }

 private:
  std::int32_t number_;
};

// What both processes say, met at a barrier.
class Meeting {
 public:
  Together together(std::size_t process) {
    return {.first = process == 0, .agree = [this, process](const Result<>& own) {
              said_[process] = own;
              barrier_.arrive_and_wait();
              Result<> both = said_[0] ? said_[1] : said_[0];
              barrier_.arrive_and_wait();
              return both;
            }};
  }

 private:
  Result<> said_[2];
  std::barrier<> barrier_{2};
};

TEST_F(Layouts, AreWrittenByTwoProcessesAsByOne) {
  for (const Keys& layout :
       {Keys{"tensor_parallel=2"}, Keys{"pipeline_parallel=2", "schedule=1f1b"},
        Keys{"data_parallel=4", "zero_stage=3"},
        Keys{"data_parallel=4", "zero_stage=3", "shard_group=2"},
        Keys{"tensor_parallel_2d=[2,2]", "micro_batch=2"},
        Keys{"tensor_parallel=2", "data_parallel=2", "zero_stage=1"}}) {
    Training whole(Family::Gpt2, layout);
    whole.train_to(1);
    whole.save(at("one"), 1, 100'000);
    Half zero(0), one(1);
    Training a(Family::Gpt2, layout, &zero), b(Family::Gpt2, layout, &one);
    a.load(at("one"));
    b.load(at("one"));
    Meeting meeting;
    Result<> saved[2];
    const auto save = [&](std::size_t i) {
      Training& run = i == 0 ? a : b;
      saved[i] =
          save_checkpoint(at("two"), run.state(1), *run.process, meeting.together(i), 100'000);
    };
    fs::create_directory(at("two"));
    std::thread other([&] { save(1); });
    save(0);
    other.join();
    for (const Result<>& each : saved) ASSERT_TRUE(each) << each.error().message;
    int files = 0;
    for (const auto& entry : fs::directory_iterator(at("one/step-000001"))) {
      const std::string name = entry.path().filename();
      EXPECT_TRUE(bytes_of(entry.path()) == bytes_of(at("two/step-000001/") + name)) << name;
      ++files;
    }
    EXPECT_GT(files, 6);  // several shards of each, two indices and the state
    EXPECT_EQ(bytes_of(at("two/latest")), "step-000001\n");
  }
}

// --- going on ---

TEST_F(Resume, IsBitExactInTheSameLayout) {
  for (const std::size_t i : {0U, 3U, 6U, 7U, 10U, 11U, 14U, 16U}) {
    const Family family = i % 2 == 0 ? Family::Gpt2 : Family::Llama;
    Training whole(family, kLayouts[i]), first(family, kLayouts[i]), second(family, kLayouts[i]);
    const std::vector<double> losses = whole.train_to(4);
    first.train_to(2);
    first.save(folder_, 2);
    const TrainFrom from = second.load(folder_);
    EXPECT_EQ(from.step, 2);
    const std::vector<double> rest = second.train_to(4, from);
    EXPECT_EQ(rest, std::vector<double>(losses.begin() + 2, losses.end())) << "layout " << i;
    EXPECT_EQ(everything(whole), everything(second)) << "layout " << i;
  }
}

TEST_F(Resume, GoesOnInAnyLayout) {
  for (const Family family : {Family::Gpt2, Family::Llama}) {
    Training whole(family, {});
    const std::vector<double> losses = whole.train_to(4);
    Training first(family,
                   {"pipeline_parallel=2", "data_parallel=2", "schedule=1f1b", "zero_stage=1"});
    first.train_to(2);
    first.save(folder_, 2);
    for (std::size_t i = 0; i < kNumLayouts; ++i) {
      Training second(family, kLayouts[i]);
      const std::vector<double> rest = second.train_to(4, second.load(folder_));
      ASSERT_EQ(rest.size(), 2U);
      EXPECT_NEAR(rest[0] / losses[2], 1, 1e-5) << "layout " << i;
      EXPECT_NEAR(rest[1] / losses[3], 1, 1e-5) << "layout " << i;
    }
    // That the moments matter: from the weights alone the fourth loss is another.
    Training fresh(family, {});
    fresh.load(at("step-000002/model.safetensors"));
    const std::vector<double> other = fresh.train_to(4, {.step = 2, .samples = 16});
    EXPECT_NEAR(other[0] / losses[2], 1, 1e-5);
    EXPECT_GT(std::fabs(other[1] / losses[3] - 1), 1e-5);
  }
}

}  // namespace
}  // namespace rehearse::exec
