// A second of fuzzing in every test run: seeded, so that a failure comes back. The same function
// runs for minutes under libFuzzer (schedule_files_fuzz.cc).
#include "tests/fuzz/schedule_files.h"

#include <gtest/gtest.h>

#include <chrono>
#include <random>
#include <string>
#include <vector>

#include "schedules/compute_timing.h"
#include "schedules/passes/lower.h"
#include "schedules/registry.h"
#include "tests/schedules/example_case.h"

namespace rehearse {
namespace {

// Small schedules in both forms and at both levels: mutations of them are nearly schedules.
std::vector<std::string> seeds() {
  std::vector<std::string> seeds{"",
                                 "{}",
                                 "{\"orders\": [[\"0F0\"]]}",
                                 "0F0,0B0\n",
                                 "[0SEND_F0>r1 0RECV_B0<r1]\n",
                                 "0UNSHARD,0F0,0B0,0RESHARD,0REDUCE_GRAD,0OPTIMIZER_STEP\n"};
  for (const ScheduleInfo& info : schedule_table()) {
    const Result<Schedule> made = generate(info.name, {.positions = 2, .microbatches = 4});
    if (!made) continue;
    const Schedule& order = made.value();
    const std::vector<Nanoseconds> finish = time_compute(order, {}).value().end;
    for (const Schedule& schedule :
         {order, add_transfers(order, finish), add_transfers(order, finish, TransferPolicy::Naive),
          add_transfers(order, finish, TransferPolicy::Grouped)}) {
      seeds.push_back(to_csv(schedule).value());
      seeds.push_back(to_schedule_json(schedule));
    }
  }
  for (const std::int32_t zero_stage : {1, 3}) {  // a full L1, with its columns
    const Plan plan = example_plan(zero_stage);
    const Schedule order = generate("interleaved_1f1b", rehearse::shape_of(plan).value()).value();
    seeds.push_back(to_schedule_json(lower(order, example_model(), plan).value()));
  }
  return seeds;
}

class Mutator {
 public:
  explicit Mutator(std::vector<std::string> seeds) : seeds_(std::move(seeds)) {}

  std::string next() {
    std::string text = seeds_[below(seeds_.size())];
    for (std::size_t edits = below(4); edits > 0; --edits) edit(text);
    return text;
  }

 private:
  std::size_t below(std::size_t n) { return n == 0 ? 0 : random_() % n; }
  // A run of characters: often one cell.
  std::pair<std::size_t, std::size_t> cell(const std::string& text) {
    const std::size_t at = below(text.size());
    const std::size_t begin = text.find_last_of(",\n\"", at);
    const std::size_t from = begin == std::string::npos ? 0 : begin + 1;
    const std::size_t end = text.find_first_of(",\n\"", from);
    return {from, end == std::string::npos ? text.size() : end};
  }
  void edit(std::string& text) {
    static constexpr std::string_view kBytes =
        "0123456789FBIWR_SENDRCV.,;:()[]{}<>\"\n\r \t-+exn\\\0\xFF";
    if (text.empty()) text = "0F0";
    switch (below(7)) {
      case 0:
        text[below(text.size())] = kBytes[below(kBytes.size())];
        break;
      case 1:
        text.insert(below(text.size()), 1, kBytes[below(kBytes.size())]);
        break;
      case 2:
        text.erase(below(text.size()), 1 + below(8));
        break;
      case 3:
        text.resize(below(text.size()));
        break;
      case 4: {  // two cells change places: the order is what proofs are about
        const auto [a, a_end] = cell(text);
        const auto [b, b_end] = cell(text);
        if (a_end > b || a >= b) break;
        const std::string first = text.substr(a, a_end - a), second = text.substr(b, b_end - b);
        text.replace(b, second.size(), first);
        text.replace(a, first.size(), second);
        break;
      }
      case 5: {  // a cell is doubled or lost
        const auto [begin, end] = cell(text);
        if (below(2) == 0) {
          text.insert(begin, text.substr(begin, end - begin) + ",");
        } else {
          text.erase(begin, end - begin);
        }
        break;
      }
      default: {  // a number becomes another
        const std::size_t at = text.find_first_of("0123456789", below(text.size()));
        if (at != std::string::npos) text[at] = static_cast<char>('0' + below(10));
      }
    }
  }

  std::vector<std::string> seeds_;
  std::mt19937_64 random_{20260721};
};

TEST(ScheduleFiles, AnyBytesAreAnsweredForASecond) {
  Mutator mutator(seeds());
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  std::int64_t tried = 0, read = 0;
  while (std::chrono::steady_clock::now() < end) {
    const std::string text = mutator.next();
    testing::try_schedule_file(text);
    read += parse_schedule_file(text, "fuzz") ? 1 : 0;
    ++tried;
  }
  EXPECT_GT(tried, 50);
  EXPECT_GT(read, tried / 10);  // mutations are near enough to be schedules often
  RecordProperty("tried", std::to_string(tried));
}

}  // namespace
}  // namespace rehearse
