// SPDX-License-Identifier: Apache-2.0
// What runs while tokens travel changes no bit, and really runs while they travel.
#include "tests/exec/step/forwarding_kernels.h"
#include "tests/exec/step/overlap_case.h"

namespace rehearse::exec {
namespace {

TEST(ExpertOverlap, SharedExpertsBesideDispatchChangeNoBit) {
  for (const Keys& keys : std::vector<Keys>{
           {"micro_batch=2", "data_parallel=2", "expert_parallel=2"},
           {"micro_batch=1", "data_parallel=4", "expert_parallel=4", "zero_stage=3"},
           {"micro_batch=2", "data_parallel=2", "expert_parallel=2", "expert_dispatch=all_gather"},
           {"micro_batch=1", "data_parallel=4", "expert_parallel=2",
            "expert_dispatch=deduplicated"},
           {"micro_batch=1", "data_parallel=2", "expert_parallel=2", "recompute=full"},
           {"micro_batch=1", "data_parallel=4", "expert_parallel=4", "expert_slots=true"},
           {"micro_batch=1", "data_parallel=2", "expert_parallel=2", "pipeline_parallel=2",
            "schedule=zb_h1"},
           {"micro_batch=1", "data_parallel=2", "expert_parallel=2", "tensor_parallel=2",
            "sequence_parallel=true", "expert_tensor_parallel=2"},
           {"micro_batch=1", "data_parallel=2", "expert_parallel=4", "tensor_parallel=2",
            "sequence_parallel=true", "expert_tensor_parallel=1", "schedule=zb_h1"}}) {
    SCOPED_TRACE(keys.back());
    const Keys all = with(keys, {"expert_capacity=4", "train.steps=3"});
    const TinyRun plain = train_tiny("mixtral", all, {.changed = kShared});
    for (const int workers : {1, 3}) {
      expect_equal(plain, train_tiny("mixtral", with(all, {"overlap.expert_parallel=\"shared\""}),
                                     {.workers = workers, .changed = kShared}));
    }
  }
}

TEST(ExpertOverlap, PairsChangeNoBit) {
  for (const Keys& keys : std::vector<Keys>{
           {"data_parallel=2", "expert_parallel=2"},
           {"data_parallel=2", "expert_parallel=2", "expert_slots=true"},
           {"data_parallel=2", "expert_parallel=2", "expert_dispatch=deduplicated", "zero_stage=1"},
           {"data_parallel=2", "expert_parallel=2", "tensor_parallel=2", "sequence_parallel=true",
            "expert_tensor_parallel=2"}}) {
    SCOPED_TRACE(keys.back());
    Keys all = kInterleaved;
    all.insert(all.end(), keys.begin(), keys.end());
    const TinyRun plain = train_tiny("mixtral", all, {.changed = kShared});
    for (const int workers : {1, 3}) {
      expect_equal(plain, train_tiny("mixtral", with(all, {"overlap.expert_parallel=\"pair\""}),
                                     {.workers = workers, .changed = kShared}));
    }
  }
}

// Which rank called which kernel, in the order in which one worker did.
struct Call {
  char kernel;
  std::int32_t rank;
  std::int64_t columns = 0;
};
class Listed final : public Forwarding {
 public:
  Listed(std::unique_ptr<Kernels> inner, std::vector<Call>& calls)
      : Forwarding(std::move(inner)), calls_(calls) {}
  void linear(Lane lane, std::int64_t m, std::int64_t n, std::int64_t k, const void* x,
              const void* w, const void* bias, void* y) override {
    calls_.push_back({'L', lane.rank, n});
    inner_->linear(lane, m, n, k, x, w, bias, y);
  }
  void gather_rows(Lane lane, std::int64_t count, std::int64_t cols, const std::int32_t* from,
                   const void* x, void* y) override {
    calls_.push_back({'G', lane.rank});
    inner_->gather_rows(lane, count, cols, from, x, y);
  }
  void route(Lane lane, const RouteShape& shape, const float* logits, std::int32_t* chosen,
             float* weights, float* scores, float* logsum) override {
    calls_.push_back({'R', lane.rank});
    inner_->route(lane, shape, logits, chosen, weights, scores, logsum);
  }
  void route_backward(Lane lane, const RouteShape& shape, const float* d_weights,
                      const std::int32_t* chosen, const float* weights, const float* scores,
                      const float* logsum, const float* counts, void* d_logits) override {
    calls_.push_back({'B', lane.rank});
    inner_->route_backward(lane, shape, d_weights, chosen, weights, scores, logsum, counts,
                           d_logits);
  }
  void weigh_copies(Lane lane, std::int64_t tokens, std::int64_t per_token, std::int64_t cols,
                    const std::int32_t* row, const float* weights, const void* rows,
                    void* y) override {
    if (weights != nullptr) calls_.push_back({'W', lane.rank});
    inner_->weigh_copies(lane, tokens, per_token, cols, row, weights, rows, y);
  }

 private:
  std::vector<Call>& calls_;
};

std::vector<Call> calls_of(const Keys& keys) {
  std::vector<Call> calls;
  const auto backend = [&] {
    Backend made = make_cpu_backend();
    made.kernels = std::make_unique<Listed>(std::move(made.kernels), calls);
    return made;
  };
  const TinyRun run = train_tiny("mixtral", with(keys, {"expert_capacity=4", "train.steps=1"}),
                                 {.changed = kShared, .backend = backend});
  EXPECT_EQ(run.error, "");
  return calls;
}

// Products of the shared expert (80 columns) that a rank runs between its first gather of copies,
// which it then sends, and the other rank's: the other has not sent its own yet.
std::int64_t products_beside(const std::vector<Call>& calls) {
  std::size_t at = 0;
  while (calls[at].kernel != 'G') ++at;
  std::int64_t count = 0;
  for (std::size_t i = at; i < calls.size(); ++i) {
    if (calls[i].kernel == 'G' && calls[i].rank != calls[at].rank) return count;
    count += calls[i].kernel == 'L' && calls[i].columns == 80 && calls[i].rank == calls[at].rank;
  }
  return -1;
}

TEST(ExpertOverlap, ASharedExpertRunsBeforeTheOtherRankHasSentItsTokens) {
  const Keys keys{"micro_batch=2", "data_parallel=2", "expert_parallel=2"};
  EXPECT_EQ(products_beside(calls_of(keys)), 0);
  EXPECT_EQ(products_beside(calls_of(with(keys, {"overlap.expert_parallel=\"shared\""}))), 1);
}

// Backwards of the router that rank 0 runs between a forward's choice and the sum of its copies.
std::int64_t backwards_beside(const std::vector<Call>& calls) {
  bool inside = false;
  std::int64_t count = 0;
  for (const Call& call : calls) {
    if (call.rank != 0) continue;
    if (call.kernel == 'R') inside = true;
    if (call.kernel == 'W') inside = false;
    count += call.kernel == 'B' && inside;
  }
  return count;
}

TEST(ExpertOverlap, OneHalfOfAPairComputesWhileTheOthersTokensTravel) {
  const Keys keys{"micro_batch=1",
                  "pipeline_parallel=2",
                  "data_parallel=2",
                  "virtual_stages=2",
                  "schedule=interleaved_1f1b",
                  "expert_parallel=2",
                  "extra_warmup=1",
                  "global_batch=8"};
  EXPECT_EQ(backwards_beside(calls_of(keys)), 0);
  EXPECT_GT(backwards_beside(calls_of(with(keys, {"overlap.expert_parallel=\"pair\""}))), 0);
}

}  // namespace
}  // namespace rehearse::exec
