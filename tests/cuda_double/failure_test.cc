// SPDX-License-Identifier: Apache-2.0
// A run over NCCL's double that fails: whoever is left names what it waits for within the timeout,
// and can be torn down.
#include <cstdio>
#include <cstdlib>

#include "tests/cuda_double/processes.h"

namespace rehearse::exec {
namespace {

constexpr double kTimeout = 4;

// What should end hangs: the test fails, instead of waiting for ever.
class Deadline {
 public:
  explicit Deadline(int seconds)
      : thread_([this, seconds] {
          std::unique_lock lock(mutex_);
          if (over_.wait_for(lock, std::chrono::seconds(seconds), [this] { return met_; })) return;
          std::fprintf(stderr, "it hangs: over %d s\n", seconds);
          std::_Exit(1);
        }) {}
  ~Deadline() {
    {
      const std::scoped_lock lock(mutex_);
      met_ = true;
    }
    over_.notify_all();
    thread_.join();
  }

 private:
  std::mutex mutex_;
  std::condition_variable over_;
  bool met_ = false;
  std::thread thread_;
};

void expect_said(const Outcome& outcome, const std::string& what) {
  EXPECT_NE(outcome.error.find(what), std::string::npos) << what << ": " << outcome.error;
}

// A send that never comes.
TEST(NcclFailure, NamesTheOpThatWaitsForADeadRank) {
  const Deadline deadline(60);
  Prepared p = prepare(Family::Gpt2, {"pipeline_parallel=2"});
  const auto outcomes = train_with_nccl(p, {.timeout_s = kTimeout, .dead = 0});
  EXPECT_EQ(outcomes[0].error, "");  // it left
  expect_said(outcomes[1], "rank 1 timed out in");
  expect_said(outcomes[1], "RECV_F0");
}

// Its stream never gets to its work: its partner's timeout names the op, and so does its own.
TEST(NcclFailure, NamesAStuckRank) {
  const Deadline deadline(60);
  Prepared p = prepare(Family::Gpt2, {"data_parallel=2"});
  std::mutex mutex;
  std::condition_variable changed;
  int ended = 0;
  const auto outcomes = train_with_nccl(
      p, {.timeout_s = kTimeout,
          .sabotage =
              [&](std::int32_t process, std::int64_t step, Communicator&, Device& device) {
                if (process != 1 || step != 1) return;
                auto& streams = dynamic_cast<cuda::StreamSource&>(device);
                cuda_double::enqueue(streams.stream({1, Stream::Compute}), [&] {
                  std::unique_lock lock(mutex);
                  changed.wait(lock, [&] { return ended == 2; });
                });
              },
          .ended =
              [&] {
                const std::scoped_lock lock(mutex);
                ++ended;
                changed.notify_all();
              }});
  expect_said(outcomes[0], "rank 0 timed out in");
  expect_said(outcomes[1], "rank 1 timed out in");
}

// Rank 0's send waits on the device for its forward, which waits for rank 1: of the communicators
// that hold the two kernels neither can be taken down before both are told.
TEST(NcclFailure, EndsCommunicatorsThatWaitForEachOther) {
  const Deadline deadline(60);
  Prepared p = prepare(Family::Gpt2, {"tensor_parallel=2", "pipeline_parallel=2"});
  const auto outcomes = train_with_nccl(p, {.timeout_s = kTimeout, .dead = 1});
  expect_said(outcomes[0], "rank 0 timed out in 0F0");
}

// The launch queue is full behind what waits for rank 0: the host of rank 1 is blocked in a launch.
TEST(NcclFailure, NamesWhatIsStuckWhileTheHostIssues) {
  const Deadline deadline(60);
  Prepared p = prepare(Family::Gpt2, {"tensor_parallel=2"});
  cuda_double::set_queue_depth(8);
  const auto outcomes = train_with_nccl(p, {.timeout_s = kTimeout, .dead = 0});
  cuda_double::set_queue_depth(1024);
  // The first op that the host has not seen to end. The watchdog asks no event itself: that could
  // stand in line behind the host. So the host's last look counts, which on a slow machine came
  // before the tokens were there.
  const std::string& said = outcomes[1].error;
  EXPECT_TRUE(said.find("rank 1 timed out in 0F0") != std::string::npos ||
              said.find("rank 1 timed out in FETCH tokens") != std::string::npos)
      << said;
}

// NCCL connects when it is first asked to carry something: the host is inside that call. What it
// issued a moment before may not have been seen to end, and be named.
TEST(NcclFailure, NamesTheOpWhoseConnectionNobodyAnswers) {
  const Deadline deadline(60);
  Prepared p = prepare(Family::Gpt2, {"tensor_parallel=2"});
  const auto outcomes = train_with_nccl(p, {.timeout_s = kTimeout, .dead = 0, .before = 0});
  expect_said(outcomes[1], "rank 1 timed out in");
}

TEST(NcclFailure, SaysThatSomebodyDoesNotConnect) {
  const Deadline deadline(60);
  Prepared p = prepare(Family::Gpt2, {"data_parallel=2"});
  const auto outcomes = train_with_nccl(p, {.timeout_s = kTimeout, .dead = 1, .before = -1});
  expect_said(outcomes[0], "cannot connect to the other processes: nothing goes on for 4 s");
}

// What a call of CUDA says is looked at, and said.
TEST(NcclFailure, SaysWhatCudaSaysOfStreams) {
  const Deadline deadline(60);
  cuda_double::break_streams(cuda_double::StreamFault::Create);
  const Result<Backend> made = cuda::make_backend({});
  ASSERT_TRUE(made);
  const Result<std::byte*> arena = made.value().device->allocate(0, 64);
  cuda_double::break_streams(cuda_double::StreamFault::None);
  ASSERT_FALSE(arena);
  EXPECT_NE(arena.error().message.find("cudaStreamCreate: out of memory"), std::string::npos)
      << arena.error().message;

  Prepared p = prepare(Family::Gpt2, {"data_parallel=2"});
  cuda_double::break_streams(cuda_double::StreamFault::Query);
  const auto outcomes = train_with_nccl(p, {.timeout_s = kTimeout});
  cuda_double::break_streams(cuda_double::StreamFault::None);
  for (const Outcome& process : outcomes) {
    expect_said(process, "cannot connect to the other processes: cudaStreamQuery: ");
  }
}

// No abort helps: the host does not come back, and the watchdog ends the process, here the test's
// wait.
TEST(Watchdog, EndsAHostThatDoesNotComeBack) {
  const Deadline deadline(60);
  std::mutex mutex;
  std::condition_variable changed;
  std::string said;
  bool aborted = false;
  cuda::Watchdog dog(
      0.1,
      [&](const std::string& why) {
        const std::scoped_lock lock(mutex);
        said = why;
        changed.notify_all();
      },
      0.1);
  dog.watch({.failed = [] { return std::string(); }, .abort = [&] { aborted = true; }});
  dog.begin([](double) { return std::string("an op is stuck"); });
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return !said.empty(); });
  lock.unlock();
  EXPECT_EQ(said, "an op is stuck");
  EXPECT_TRUE(dog.dismiss());
  EXPECT_TRUE(aborted);
}

// Whoever says now and then that something goes on is never late.
TEST(Watchdog, LetsAHostWorkThatGoesOn) {
  cuda::Watchdog dog(1, nullptr);
  dog.begin([](double) { return std::string("late"); });
  for (int k = 0; k < 15; ++k) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    dog.progressed();
  }
  dog.end();
  std::this_thread::sleep_for(std::chrono::milliseconds(1200));
  EXPECT_EQ(dog.failure(), "");
  EXPECT_FALSE(dog.dismiss());
}

}  // namespace
}  // namespace rehearse::exec
