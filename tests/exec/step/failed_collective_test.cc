// SPDX-License-Identifier: Apache-2.0
// A collective or transfer that fails at any place of a step, inside an op's body too: every
// process ends with its words, and the op that waited does not go on with what never came.
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "exec/cpu/collectives.h"
#include "exec/step/observer.h"
#include "tests/exec/step/layout_case.h"

namespace rehearse::exec {
namespace {

using Keys = std::vector<std::string>;
using Done = Communicator::Done;

constexpr const char* kGone = "process 1 is gone";

// Where the communicators of all processes meet, which are threads here. The last to come performs
// the exchange for all. Once it is broken, whoever waits and whoever comes hears kGone.
class Room {
 public:
  explicit Room(int of) : processes(of) {}

  void collective(const Exchange& exchange, const Done& done) {
    std::unique_lock lock(mutex_);
    if (broken_) return lock.unlock(), done(Error{kGone});
    Meeting& at = meetings_[{exchange.instance, exchange.sequence}];
    at.contributions.resize(exchange.ranks.size());
    for (std::size_t m = 0; m < exchange.ranks.size(); ++m) {
      const Contribution& one = exchange.contributions[m];
      if (one.in == nullptr) continue;  // of another process
      at.contributions[m] = one;
      ++at.here;
    }
    at.done.push_back(done);
    if (at.here < exchange.ranks.size()) return;
    Exchange whole = exchange;
    whole.contributions = at.contributions;
    perform(whole);
    const Meeting over = std::move(at);
    meetings_.erase({exchange.instance, exchange.sequence});
    lock.unlock();
    for (const Done& one : over.done) one({});
  }

  // The two ends of a transfer: `data` is read of the one that sends.
  void transfer(std::uint64_t tag, bool sends, std::span<std::byte> data, const Done& done) {
    std::unique_lock lock(mutex_);
    if (broken_) return lock.unlock(), done(Error{kGone});
    const auto [at, first] = transfers_.try_emplace(tag, End{data, done});
    if (first) return;
    const End other = at->second;
    transfers_.erase(at);
    const auto from = sends ? data : other.data, to = sends ? other.data : data;
    std::ranges::copy(from, to.begin());
    lock.unlock();
    other.done({});
    done({});
  }

  void break_down() {
    std::unique_lock lock(mutex_);
    broken_ = true;
    std::vector<Done> waiting;
    for (auto& [key, at] : std::exchange(meetings_, {})) {
      waiting.insert(waiting.end(), at.done.begin(), at.done.end());
    }
    for (auto& [tag, end] : std::exchange(transfers_, {})) waiting.push_back(end.done);
    lock.unlock();
    for (const Done& one : waiting) one(Error{kGone});
  }

  const int processes;

 private:
  struct Meeting {
    std::vector<Contribution> contributions;  // by member
    std::size_t here = 0;
    std::vector<Done> done;
  };
  struct End {
    std::span<std::byte> data;
    Done done;
  };
  std::mutex mutex_;
  bool broken_ = false;
  std::map<std::pair<std::int32_t, std::int64_t>, Meeting> meetings_;
  std::map<std::uint64_t, End> transfers_;
};

// Of process 0, at the call that fails: what each of its ranks had begun and ended.
using Progress = std::vector<std::pair<std::uint32_t, std::int32_t>>;
Progress progress_of(const StatusBoard& board) {
  Progress out;
  for (const RankStatus& rank : board.ranks()) out.emplace_back(rank.events, rank.last_ended);
  return out;
}

enum class Fails { Never, AtOnce, Later };

// Fails at its call number `at`, from the caller's own thread or from another one.
class Failing final : public Communicator {
 public:
  Failing(Room& room, int process, const StatusBoard& board, Fails how, int at)
      : room_(room), process_(process), board_(board), how_(how), at_(at) {}
  ~Failing() override {
    if (later_.joinable()) later_.join();
  }
  std::string_view name() const override { return "failing"; }
  std::int32_t process() const override { return process_; }
  std::int32_t processes() const override { return room_.processes; }
  void collective(const Exchange& exchange, Done done) override {
    if (!fails(done)) room_.collective(exchange, done);
  }
  void send(Lane, std::int32_t, std::uint64_t tag, std::span<const std::byte> data,
            Done done) override {
    auto* bytes = const_cast<std::byte*>(data.data());
    if (!fails(done)) room_.transfer(tag, true, {bytes, data.size()}, done);
  }
  void receive(Lane, std::int32_t, std::uint64_t tag, std::span<std::byte> data,
               Done done) override {
    if (!fails(done)) room_.transfer(tag, false, data, done);
  }

  int calls = 0;
  std::optional<Progress> failed_at;

 private:
  bool fails(const Done& done) {
    const std::unique_lock lock(mutex_);
    if (++calls != at_ || how_ == Fails::Never) return false;
    const auto fail = [this, done] {
      done(Error{kGone});
      room_.break_down();
    };
    failed_at = progress_of(board_);
    if (how_ == Fails::Later) {
      later_ = std::thread(fail);
    } else {
      fail();
    }
    return true;
  }
  Room& room_;
  const int process_;
  const StatusBoard& board_;
  const Fails how_;
  const int at_;
  std::mutex mutex_;
  std::thread later_;
};

constexpr const char* kModel = R"({"model_type": "qwen2_moe", "num_hidden_layers": 4,
    "hidden_size": 32, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 61,
    "max_position_embeddings": 16, "intermediate_size": 48, "num_experts": 4,
    "num_experts_per_tok": 2, "moe_intermediate_size": 24, "shared_expert_intermediate_size": 40,
    "decoder_sparse_step": 1, "norm_topk_prob": false, "tie_word_embeddings": false})";

struct Case {
  const char* name;
  int processes;
  Keys keys;
  friend void PrintTo(const Case& of, std::ostream* out) { *out << of.name; }
};

// What one step came to: of every process its error, and of process 0 how far it was.
struct Step {
  std::vector<std::string> errors;
  int calls = 0;
  std::optional<Progress> failed_at;
  Progress at_the_end;
};

Step step_of(const Case& of, int workers, Fails how, int at) {
  const Result<Scenario> scenario = layout_scenario(kModel, of.keys);
  EXPECT_TRUE(scenario) << scenario.error().message;
  const Transformer& model = scenario.value().model;
  Plan plan = scenario.value().plan;
  TrainOptions options = scenario.value().train;
  options.steps = 1;
  const Result<Schedule> schedule = lower_for_run(model, plan);
  EXPECT_TRUE(schedule) << schedule.error().message;
  const Data data = Data::open("synthetic", model.vocabulary, 7).value();
  Room room(of.processes);
  Step out;
  out.errors.resize(static_cast<std::size_t>(of.processes));
  const auto process = [&](int number) {
    const Backend backend = make_cpu_backend();
    const StatusBoard board = StatusBoard::create(Mesh(plan).ranks()).value();
    Observer observer(board);
    Failing communicator(room, number, board, number == 0 ? how : Fails::Never, at);
    const auto made = Interpreter::create(
        {model, plan}, schedule.value(), backend,
        {.workers = workers, .communicator = &communicator, .observer = &observer});
    made.value()->initialise(initial_values(model, options.seed));
    const auto steps = train(*made.value(), plan, options, data, nullptr);
    out.errors[static_cast<std::size_t>(number)] = steps ? "" : steps.error().message;
    if (number != 0) return;
    out.calls = communicator.calls;
    out.failed_at = communicator.failed_at;
    out.at_the_end = progress_of(board);
  };
  std::vector<std::thread> others;
  for (int number = 1; number < of.processes; ++number) others.emplace_back(process, number);
  process(0);
  for (std::thread& other : others) other.join();
  return out;
}

class FailedCollective : public testing::TestWithParam<Case> {
 protected:
  // About `count` of the calls that process 0 makes in a step, the first and the last among them.
  std::vector<int> places(int count) const {
    const Step whole = step_of(GetParam(), 1, Fails::Never, 0);
    EXPECT_EQ(whole.errors, std::vector<std::string>(whole.errors.size()));
    EXPECT_GT(whole.calls, 20);
    std::vector<int> out;
    for (int i = 0; i < count; ++i) out.push_back(1 + i * (whole.calls - 1) / (count - 1));
    return out;
  }
  void expect_gone(const Step& step) const {
    EXPECT_EQ(step.errors, std::vector<std::string>(step.errors.size(), kGone));
  }
};

// With one worker, which is the one that hears it: no op begins or ends behind the failure.
TEST_P(FailedCollective, EndsTheOpThatWaitedForIt) {
  for (const int at : places(40)) {
    SCOPED_TRACE("call " + std::to_string(at));
    const Step step = step_of(GetParam(), 1, Fails::AtOnce, at);
    expect_gone(step);
    ASSERT_TRUE(step.failed_at);
    EXPECT_EQ(step.at_the_end, *step.failed_at);
  }
}

// Heard while other workers compute, and while ops are put back.
TEST_P(FailedCollective, EndsTheStepWheneverItIsHeard) {
  for (const int at : places(15)) {
    SCOPED_TRACE("call " + std::to_string(at));
    expect_gone(step_of(GetParam(), 1, Fails::Later, at));
    expect_gone(step_of(GetParam(), 2, Fails::AtOnce, at));
    expect_gone(step_of(GetParam(), 2, Fails::Later, at));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Layouts, FailedCollective,
    testing::Values(
        Case{"experts", 2, {"data_parallel=4", "expert_parallel=4", "expert_capacity=4"}},
        Case{"deduplicated",
             2,
             {"data_parallel=4", "expert_parallel=4", "expert_dispatch=deduplicated",
              "zero_stage=3", "expert_capacity=4"}},
        Case{"shared_overlap",
             2,
             {"data_parallel=4", "expert_parallel=4", "overlap.expert_parallel=\"shared\"",
              "expert_capacity=4"}},
        Case{"pairs",
             4,
             {"pipeline_parallel=2", "virtual_stages=2", "data_parallel=2",
              "schedule=interleaved_1f1b", "extra_warmup=1", "expert_parallel=2",
              "overlap.expert_parallel=\"pair\"", "expert_capacity=4"}},
        Case{"tensor",
             4,
             {"tensor_parallel=2", "sequence_parallel=true", "pipeline_parallel=2", "schedule=1f1b",
              "expert_tensor_parallel=2", "expert_capacity=4"}}),
    [](const auto& layout) { return std::string(layout.param.name); });

}  // namespace
}  // namespace rehearse::exec
