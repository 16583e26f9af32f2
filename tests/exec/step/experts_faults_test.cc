// SPDX-License-Identifier: Apache-2.0
// What equals what, bit for bit, of layers with experts, and that faults are found: kernels with
// one planted each must leave the numbers that the golden test holds.
#include "tests/exec/step/experts_case.h"
#include "tests/exec/step/forwarding_device.h"
#include "tests/exec/step/forwarding_kernels.h"

namespace rehearse::exec {
namespace {

enum class Fault {
  None,
  RouterWithoutGradient,  // transformers PR 48205
  WrongSplit,             // a row goes to the neighbour of its expert's rank
  OneCopyOnly,            // the last copy of every token is left out of the sum
  UnweightedGradient,     // d_rows without the router's weight
  CountsOfOwnTokens,      // no sum over ranks: an auxiliary loss weighs by this rank's tokens
};

class Faulty final : public Forwarding {
 public:
  Faulty(std::unique_ptr<Kernels> inner, Fault fault)
      : Forwarding(std::move(inner)), fault_(fault) {}

  void route_backward(Lane lane, const RouteShape& shape, const float* d_weights,
                      const std::int32_t* chosen, const float* weights, const float* scores,
                      const float* logsum, const float* counts, void* d_logits) override {
    inner_->route_backward(lane, shape, d_weights, chosen, weights, scores, logsum, counts,
                           d_logits);
    if (fault_ == Fault::CountsOfOwnTokens) {
      std::vector<float> own(static_cast<std::size_t>(shape.experts), 0.0F);
      inner_->count_chosen(lane, shape.tokens * shape.per_token, shape.experts, chosen, own.data());
      inner_->route_backward(lane, shape, d_weights, chosen, weights, scores, logsum, own.data(),
                             d_logits);
    }
    if (fault_ == Fault::RouterWithoutGradient) {
      std::fill_n(static_cast<float*>(d_logits), shape.tokens * shape.experts, 0.0F);
    }
  }
  void sort_copies(Lane lane, const CopiesShape& shape, const std::int32_t* chosen,
                   std::int32_t* row, std::int32_t* token, std::int32_t* begin) override {
    inner_->sort_copies(lane, shape, chosen, row, token, begin);
    if (fault_ == Fault::WrongSplit) --begin[shape.experts / 2];
  }
  void sort_visits(Lane lane, const VisitsShape& shape, const std::int32_t* chosen,
                   std::int32_t* token, std::int32_t* sent, std::int32_t* row, std::int32_t* weight,
                   std::int32_t* begins, std::int32_t* arrived) override {
    inner_->sort_visits(lane, shape, chosen, token, sent, row, weight, begins, arrived);
    for (std::int64_t source = 0; fault_ == Fault::WrongSplit && source < shape.ranks; ++source) {
      --begins[source * (shape.ranks + 1) + shape.ranks / 2];
    }
  }
  void weigh_copies(Lane lane, std::int64_t tokens, std::int64_t per_token, std::int64_t cols,
                    const std::int32_t* row, const float* weights, const void* rows,
                    void* y) override {
    std::vector<std::int32_t> some(row, row + tokens * per_token);
    for (std::int64_t t = 0; t < tokens && fault_ == Fault::OneCopyOnly; ++t) {
      some[static_cast<std::size_t>((t + 1) * per_token - 1)] = -1;
    }
    inner_->weigh_copies(lane, tokens, per_token, cols, some.data(), weights, rows, y);
  }
  void weigh_backward(Lane lane, std::int64_t tokens, std::int64_t per_token, std::int64_t cols,
                      const std::int32_t* row, const float* weights, const void* rows,
                      const void* dy, void* d_rows, float* d_weights) override {
    const std::vector<float> ones(static_cast<std::size_t>(tokens * per_token), 1.0F);
    inner_->weigh_backward(lane, tokens, per_token, cols, row,
                           fault_ == Fault::UnweightedGradient ? ones.data() : weights, rows, dy,
                           d_rows, d_weights);
  }

 private:
  Fault fault_;
};

// How far losses and norms of eight steps are from the golden ones, relative, at most.
double distance(const TinyRun& one, const TinyRun& run) {
  double far = 0;
  for (std::size_t step = 0; step < run.losses.size(); ++step) {
    far = std::max({far, std::abs(run.losses[step] / one.losses[step] - 1),
                    std::abs(run.norms[step] / one.norms[step] - 1)});
  }
  return run.losses.size() == 8 ? far : 1;
}
double distance(const TinyRun& run, const char* variant = "plain") {
  const Json& golden_run = golden()["models"]["mixtral"]["variants"][variant]["f64"];
  double far = 0;
  for (std::size_t step = 0; step < run.losses.size(); ++step) {
    far = std::max({far, std::abs(run.losses[step] / golden_run["loss"][step].get<double>() - 1),
                    std::abs(run.norms[step] / golden_run["grad_norm"][step].get<double>() - 1)});
  }
  return run.losses.size() == 8 ? far : 1;
}

TEST(ExpertFaults, AreFound) {
  for (const char* dispatch : {"expert_dispatch=all_to_all", "expert_dispatch=deduplicated"}) {
    const std::vector<std::string> keys{"micro_batch=2", "data_parallel=2", "expert_parallel=2",
                                        "expert_capacity=4", dispatch};
    for (const Fault fault : {Fault::None, Fault::RouterWithoutGradient, Fault::WrongSplit,
                              Fault::OneCopyOnly, Fault::UnweightedGradient}) {
      const auto backend = [fault] {
        Backend made = make_cpu_backend();
        made.kernels = std::make_unique<Faulty>(std::move(made.kernels), fault);
        return made;
      };
      const double far = distance(train_tiny("mixtral", keys, {.backend = backend}));
      std::printf("%s, fault %d: off by %.1e\n", dispatch, static_cast<int>(fault), far);
      if (fault == Fault::None) {
        EXPECT_LE(far, 2e-5);
      } else {
        EXPECT_GE(far, 1e-3) << static_cast<int>(fault);
      }
    }
  }
}

// A rank that knows its own counts alone would train another loss.
TEST(ExpertFaults, CountsThatAreNotSummedAreFound) {
  for (const char* splits : {"sequence_parallel=true", "context_parallel=2"}) {
    for (const Fault fault : {Fault::None, Fault::CountsOfOwnTokens}) {
      const auto backend = [fault] {
        Backend made = make_cpu_backend();
        made.kernels = std::make_unique<Faulty>(std::move(made.kernels), fault);
        return made;
      };
      const std::string tensor = splits[0] == 's' ? "tensor_parallel=2" : "tensor_parallel=1";
      const TinyRun run = train_tiny(
          "mixtral", {"micro_batch=4", tensor, splits, "train.router_auxiliary_loss=0.01"},
          {.backend = backend});
      ASSERT_EQ(run.error, "");
      const double far = distance(run, "aux");
      std::printf("%s, fault %d: off by %.1e\n", splits, static_cast<int>(fault), far);
      if (fault == Fault::None) {
        EXPECT_LE(far, 2e-5);
      } else {
        EXPECT_GE(far, 1e-3);
      }
    }
  }
}

// Section 7.2 of the reference: an expert sees the same rows in the same order and one product,
// however many ranks share the experts. Products of dense layers give a row the same bits however
// many rows there are, so after one step every expert has the same bits as on one rank whose
// micro-batch holds the tokens of all ranks, in their order.
TEST(ExpertBits, ExpertsAreTheSameHoweverManyRanksShareThem) {
  const TinyRun one = train_tiny("mixtral", {"micro_batch=4", "train.steps=1"});
  ASSERT_EQ(one.error, "");
  for (const std::vector<std::string>& keys : std::vector<std::vector<std::string>>{
           {"micro_batch=2", "data_parallel=2", "expert_parallel=2"},
           {"micro_batch=1", "data_parallel=4", "expert_parallel=4"},
           {"micro_batch=1", "data_parallel=4", "expert_parallel=4", "zero_stage=3"}}) {
    std::vector<std::string> all = keys;
    all.insert(all.end(), {"train.steps=1", "expert_capacity=4"});
    const TinyRun many = train_tiny("mixtral", all);
    ASSERT_EQ(many.error, "");
    for (const auto& [name, weights] : one.weights) {
      if (name.find("experts") == std::string::npos) continue;
      EXPECT_EQ(weights, many.weights.at(name)) << name << " with " << keys.back();
    }
  }
}

// Twice the same, bit for bit, with two workers, in both dispatchers.
TEST(ExpertBits, AWorkerMoreChangesNothing) {
  for (const char* dispatch : {"expert_dispatch=all_to_all", "expert_dispatch=all_gather",
                               "expert_dispatch=deduplicated"}) {
    const std::vector<std::string> keys{"micro_batch=1",     "data_parallel=2",
                                        "expert_parallel=2", "pipeline_parallel=2",
                                        "expert_capacity=4", dispatch};
    const TinyRun alone = train_tiny("mixtral", keys),
                  two = train_tiny("mixtral", keys, {.workers = 2});
    ASSERT_EQ(alone.error, "");
    EXPECT_EQ(alone.losses, two.losses);
    EXPECT_EQ(alone.norms, two.norms);
    EXPECT_EQ(alone.weights, two.weights);
  }
}

// Sums over two replicas leave out what one of them has no gradient of, as if a rank whose expert
// had no tokens did not take part in that expert's sum. Here groups of two that sum are the
// replicas of experts alone.
class SkipsIdle final : public ForwardingDevice {
 public:
  using ForwardingDevice::ForwardingDevice;
  void exchange(const Exchange& exchange) override {
    std::vector<std::vector<float>> had;
    const bool experts = exchange.kind == OpKind::AllReduce && exchange.ranks.size() == 2;
    for (const Contribution& one : exchange.contributions) {
      const auto* in = static_cast<const float*>(one.in);
      if (experts) had.emplace_back(in, in + exchange.elements);
    }
    inner_->exchange(exchange);
    for (std::size_t m = 0; m < had.size(); ++m) {
      auto* out = static_cast<float*>(exchange.contributions[m].out);
      for (std::size_t i = 0; i < had[m].size(); ++i) {
        if (had[m][i] == 0) out[i] = 0;
      }
    }
  }
};

TEST(ExpertFaults, ASkippedSumOfAnIdleExpertIsFound) {
  const Json changed = {{"num_local_experts", 32}, {"num_experts_per_tok", 1}};
  const std::vector<std::string> keys{"micro_batch=1", "data_parallel=4", "expert_parallel=2",
                                      "expert_capacity=8"};
  const auto skipping = [] {
    Backend made = make_cpu_backend();
    made.device = std::make_unique<SkipsIdle>(std::move(made.device));
    return made;
  };
  const TinyRun one = train_tiny("mixtral", {"micro_batch=1"}, {.changed = changed}),
                whole = train_tiny("mixtral", keys, {.changed = changed}),
                skips = train_tiny("mixtral", keys, {.changed = changed, .backend = skipping});
  EXPECT_LE(distance(one, whole), 1e-5);
  EXPECT_GE(distance(one, skips), 1e-3);
}

// One expert of 32 for each of 16 tokens of a rank: experts without tokens take part in every
// exchange, reduction and update.
TEST(Experts, WithoutTokensTakePartInEverything) {
  const Json changed = {{"num_local_experts", 32}, {"num_experts_per_tok", 1}};
  const TinyRun one = train_tiny("mixtral", {"micro_batch=1"}, {.changed = changed});
  ASSERT_EQ(one.error, "");
  for (const char* zero : {"zero_stage=0", "zero_stage=1", "zero_stage=2", "zero_stage=3"}) {
    for (const char* parallel : {"expert_parallel=4", "expert_parallel=2"}) {
      const TinyRun many = train_tiny(
          "mixtral", {"micro_batch=1", "data_parallel=4", "expert_capacity=8", zero, parallel},
          {.changed = changed});
      ASSERT_EQ(many.error, "") << zero << parallel;
      bool idle = false;
      for (std::size_t step = 0; step < one.losses.size(); ++step) {
        EXPECT_NEAR(many.losses[step] / one.losses[step], 1, 1e-6);
        EXPECT_NEAR(many.norms[step] / one.norms[step], 1, 1e-5);
        EXPECT_EQ(many.rows[step], one.rows[step]);
        for (const std::int64_t rows : many.rows[step]) idle |= rows == 0;
      }
      EXPECT_TRUE(idle) << "no expert was without tokens in a step: the test tests nothing";
    }
  }
}

TEST(Experts, TooLittleRoomIsSaidByRankLayerAndFactor) {
  const TinyRun run = train_tiny(
      "mixtral", {"micro_batch=1", "data_parallel=4", "expert_parallel=4", "expert_capacity=0.5"});
  EXPECT_NE(run.error.find("rank "), std::string::npos) << run.error;
  EXPECT_NE(run.error.find(", layer 0: "), std::string::npos) << run.error;
  EXPECT_NE(run.error.find("room for 16: plan.expert_capacity "), std::string::npos) << run.error;
}

// One layer, one step, one micro-batch: what a line names holds all that there is, on every rank.
TEST(Experts, TheFactorThatIsNamedDoes) {
  for (const char* dispatch : {"all_to_all", "all_gather", "deduplicated"}) {
    for (const char* slots : {"expert_slots=false", "expert_slots=true"}) {
      SCOPED_TRACE(std::string(dispatch) + ", " + slots);
      const bool gathers = std::string_view(dispatch) == "all_gather";
      if (gathers && std::string_view(slots) == "expert_slots=true") continue;
      std::vector<std::string> keys{"micro_batch=1",
                                    "data_parallel=4",
                                    "expert_parallel=4",
                                    "train.steps=1",
                                    slots,
                                    std::string("expert_dispatch=") + dispatch};
      const TinyOptions how{.changed = {{"num_hidden_layers", 1}}};
      keys.emplace_back("expert_capacity=0.3");
      const std::string said = train_tiny("mixtral", keys, how).error;
      constexpr std::string_view kKey = "plan.expert_capacity ";
      const std::size_t at = said.find(kKey);
      ASSERT_NE(at, std::string::npos) << said;
      const double factor = std::stod(said.substr(at + kKey.size()));
      keys.back() = "expert_capacity=" + std::to_string(factor);
      EXPECT_EQ(train_tiny("mixtral", keys, how).error, "") << said;
      keys.back() = "expert_capacity=" + std::to_string(factor - 0.2);
      EXPECT_NE(train_tiny("mixtral", keys, how).error, "") << "a smaller one does too: " << said;
    }
  }
}

// Two ranks, one layer: the line is of the rank that lacks most, and the factor holds what any saw.
TEST(Experts, OfAllRanksTheOneThatLacksMostIsNamed) {
  const ExpertLimits limits{{{.rows = 4, .mean = 4, .what = " rows, room for "},
                             {.rows = 8, .mean = 4, .what = " rows, slots of "}}};
  std::array<double, 2> first{5, 8}, second{7, 1};  // most
  const std::array<RankCounts, 2> counts{{{.rank = 3, .counts = {.most = first.data()}},
                                          {.rank = 5, .counts = {.most = second.data()}}}};
  EXPECT_EQ(too_many_rows(counts, 1, limits),
            "rank 5, layer 0: 7 rows, room for 4: plan.expert_capacity 2.00 would hold them");
  EXPECT_EQ(too_many_rows(std::span(counts).first(1), 1, limits),
            "rank 3, layer 0: 5 rows, room for 4: plan.expert_capacity 2.00 would hold them");
  first = {4, 8}, second = {4, 8};
  EXPECT_EQ(too_many_rows(counts, 1, limits), "");
}

// All tokens choose the same experts: whether there is room for them or not.
TEST(Experts, ScoresThatAreNoNumbersAreSaidAsSuch) {
  for (const char* capacity : {"expert_capacity=1.9", "expert_capacity=8"}) {
    for (const char* dispatch : {"all_to_all", "all_gather", "deduplicated"}) {
      const TinyRun run =
          train_tiny("mixtral",
                     {"micro_batch=1", "data_parallel=4", "expert_parallel=4", capacity,
                      std::string("expert_dispatch=") + dispatch},
                     {.backend = [] { return without_numbers(make_cpu_backend()); }});
      EXPECT_TRUE(run.error.starts_with("diverged at step 1: rank ")) << run.error;
      EXPECT_TRUE(run.error.ends_with(", layer 0: the router's scores are not numbers"))
          << run.error;
      EXPECT_TRUE(run.diverged);
    }
  }
}

// 16 tokens with two copies each for four ranks: 8 rows of a pair on average, so slots of 4.
TEST(Experts, TooSmallSlotsAreSaidByRankLayerAndFactor) {
  const TinyRun run =
      train_tiny("mixtral", {"micro_batch=1", "data_parallel=4", "expert_parallel=4",
                             "expert_capacity=0.5", "expert_slots=true"});
  EXPECT_NE(run.error.find("layer 0: "), std::string::npos) << run.error;
  EXPECT_NE(run.error.find("for the experts of one rank, slots of 4: plan.expert_capacity "),
            std::string::npos)
      << run.error;
}

// 16 tokens of a rank, two of four experts each: half of them visit a rank, so slots of 4 tokens.
TEST(Experts, TooSmallSlotsOfTokensAreSaidByRankLayerAndFactor) {
  const TinyRun run = train_tiny(
      "mixtral", {"micro_batch=1", "data_parallel=4", "expert_parallel=4", "expert_capacity=0.5",
                  "expert_slots=true", "expert_dispatch=deduplicated"});
  EXPECT_NE(run.error.find("layer 0: "), std::string::npos) << run.error;
  EXPECT_NE(run.error.find(" tokens for one rank, slots of 4: plan.expert_capacity "),
            std::string::npos)
      << run.error;
}

// A slot holds the rows that are counted, in the same order: only where they lie differs. Without a
// capacity slots are as large as random routing needs, which 16 tokens show: 1.25 times the mean
// is too small for them.
TEST(Experts, SlotsHaveTheBitsOfCounts) {
  for (const char* dispatch : {"expert_dispatch=all_to_all", "expert_dispatch=deduplicated"}) {
    for (const char* capacity :
         {"expert_capacity=4", R"(expert_capacity={"drop": 1.0})", "expert_capacity=null"}) {
      SCOPED_TRACE(std::string(dispatch) + ", " + capacity);
      std::vector<std::string> keys{"micro_batch=1", "data_parallel=4", "expert_parallel=4",
                                    dispatch, "expert_capacity=4"};
      if (!std::string_view(capacity).ends_with("null")) keys.back() = capacity;
      const TinyRun counted = train_tiny("mixtral", keys);
      keys.back() = capacity;
      keys.emplace_back("expert_slots=true");
      const TinyRun slots = train_tiny("mixtral", keys);
      ASSERT_EQ(slots.error, "");
      EXPECT_EQ(slots.losses, counted.losses);
      EXPECT_EQ(slots.norms, counted.norms);
      EXPECT_EQ(slots.rows, counted.rows);
      EXPECT_EQ(slots.weights, counted.weights);
      EXPECT_EQ(slots.planned, slots.counted);
    }
  }
}

}  // namespace
}  // namespace rehearse::exec
