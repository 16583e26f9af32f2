// SPDX-License-Identifier: Apache-2.0
// What runs beside a dispatch on a device: on streams of its own, in the order that its data needs,
// with the numbers of the CPU.
#include <map>
#include <memory>
#include <set>

#include "exec/cuda/make.h"
#include "tests/cuda_double/device.h"
#include "tests/exec/step/forwarding_device.h"
#include "tests/exec/step/forwarding_kernels.h"
#include "tests/exec/step/overlap_case.h"

namespace rehearse::exec {
namespace {

Backend on_the_double() {
  return cuda::make_backend({.type = ElementType::Float32,
                             .timeout_s = 60,
                             .label = [](OpId op) { return "op " + std::to_string(op.value); }})
      .value();
}

TinyRun train(const Keys& keys, const std::function<Backend()>& backend = on_the_double) {
  return train_tiny("mixtral", keys, {.changed = kShared, .backend = backend});
}

const Keys kSlots{"micro_batch=1",     "data_parallel=2",   "expert_parallel=2",
                  "expert_slots=true", "expert_capacity=4", "train.steps=2"};
const Keys kPairs = [] {
  Keys all = kInterleaved;
  all.insert(all.end(), {"data_parallel=2", "expert_parallel=2", "expert_slots=true"});
  return all;
}();
const char* const kBeside = "overlap.expert_parallel=\"shared\"";
const char* const kPaired = "overlap.expert_parallel=\"pair\"";

void expect_as_the_cpu(const Keys& keys) {
  SCOPED_TRACE(testing::PrintToString(keys));
  const TinyRun here = train(keys, [] { return make_cpu_backend(); });
  cuda_double::shake(1, 40);
  const TinyRun there = train(keys);
  cuda_double::shake(0, 0);
  expect_equal(here, there);
  EXPECT_EQ(cuda_double::unordered(), "");
}

TEST(CudaOverlap, SharedExpertsBesideDispatchGiveTheBitsOfTheCpu) {
  for (const Keys& keys : std::vector<Keys>{
           {},
           {"recompute=full"},
           {"data_parallel=4", "expert_parallel=4", "zero_stage=3"},
           {"pipeline_parallel=2", "schedule=zb_h1"},
           {"pipeline_parallel=2", "schedule=dualpipe", "global_batch=8"},
           {"expert_dispatch=all_gather", "expert_slots=false"},
           {"tensor_parallel=2", "sequence_parallel=true", "expert_tensor_parallel=2"},
           {"data_parallel=1", "context_parallel=2"}}) {
    Keys all = with(kSlots, {kBeside});
    all.insert(all.end(), keys.begin(), keys.end());
    expect_as_the_cpu(all);
  }
}

TEST(CudaOverlap, PairsGiveTheBitsOfTheCpu) {
  for (const Keys& keys : std::vector<Keys>{
           {},
           {"zero_stage=1"},
           {"data_parallel=4", "expert_parallel=4"},
           {"tensor_parallel=2", "sequence_parallel=true", "expert_tensor_parallel=2"}}) {
    Keys all = with(kPairs, {kPaired});
    all.insert(all.end(), keys.begin(), keys.end());
    expect_as_the_cpu(all);
  }
  const Keys dualpipe =
      with(kSlots, {"pipeline_parallel=2", "schedule=dualpipe", "global_batch=8", kPaired});
  expect_as_the_cpu(dualpipe);
  expect_as_the_cpu(with(dualpipe, {"context_parallel=2", "data_parallel=1"}));
}

// On which tracks each thing was issued.
using Tracks = std::map<std::string, std::set<Track>>;

class Noting final : public Forwarding {
 public:
  Noting(std::unique_ptr<Kernels> inner, Tracks& tracks)
      : Forwarding(std::move(inner)), tracks_(tracks) {}
  void linear(Lane lane, std::int64_t m, std::int64_t n, std::int64_t k, const void* x,
              const void* w, const void* bias, void* y) override {
    if (n == 80) tracks_["shared expert"].insert(lane.track);
    inner_->linear(lane, m, n, k, x, w, bias, y);
  }
  void route(Lane lane, const RouteShape& shape, const float* logits, std::int32_t* chosen,
             float* weights, float* scores, float* logsum) override {
    tracks_["forward"].insert(lane.track);
    inner_->route(lane, shape, logits, chosen, weights, scores, logsum);
  }
  void route_backward(Lane lane, const RouteShape& shape, const float* d_weights,
                      const std::int32_t* chosen, const float* weights, const float* scores,
                      const float* logsum, const float* counts, void* d_logits) override {
    tracks_["backward"].insert(lane.track);
    inner_->route_backward(lane, shape, d_weights, chosen, weights, scores, logsum, counts,
                           d_logits);
  }

 private:
  Tracks& tracks_;
};

class Watched final : public ForwardingDevice {
 public:
  Watched(std::unique_ptr<Device> inner, Tracks& tracks)
      : ForwardingDevice(std::move(inner)), tracks_(tracks) {}
  void exchange(const Exchange& exchange) override {
    if (exchange.kind == OpKind::AllToAll) {
      for (const Lane lane : exchange.lanes) tracks_["tokens"].insert(lane.track);
    }
    ForwardingDevice::exchange(exchange);
  }

 private:
  Tracks& tracks_;
};

Tracks tracks_of(const Keys& keys) {
  Tracks tracks;
  const TinyRun run = train(keys, [&] {
    Backend made = on_the_double();
    return Backend{std::make_unique<Watched>(std::move(made.device), tracks),
                   std::make_unique<Noting>(std::move(made.kernels), tracks)};
  });
  EXPECT_EQ(run.error, "");
  return tracks;
}

TEST(CudaOverlap, TokensTravelBesideTheSharedExpert) {
  EXPECT_EQ(tracks_of(kSlots)["tokens"], std::set{Track::Main});
  Tracks beside = tracks_of(with(kSlots, {kBeside}));
  EXPECT_EQ(beside["tokens"], std::set{Track::Collectives});
  EXPECT_EQ(beside["shared expert"], std::set{Track::Main});
}

// Forwards and backwards that are no pair have the lane for themselves.
TEST(CudaOverlap, TheBodiesOfAPairHaveATrackEach) {
  Tracks alone = tracks_of(kPairs);
  EXPECT_EQ(alone["forward"], std::set{Track::Main});
  EXPECT_EQ(alone["backward"], std::set{Track::Main});
  Tracks paired = tracks_of(with(kPairs, {kPaired}));
  EXPECT_EQ(paired["forward"], std::set{Track::Main});
  EXPECT_EQ(paired["backward"], (std::set{Track::Main, Track::Second}));
  EXPECT_EQ(paired["tokens"], (std::set{Track::Main, Track::Collectives}));
}

TEST(CudaOverlap, EveryTrackOfALaneIsAStreamOfItsOwn) {
  Backend made = on_the_double();
  ASSERT_TRUE(made.device->allocate(0, 1));
  auto& source = dynamic_cast<cuda::StreamSource&>(*made.device);
  std::set<cudaStream_t> streams;
  for (const Track track : {Track::Main, Track::Second, Track::Collectives, Track::Fourth}) {
    streams.insert(source.stream({0, Stream::Compute, track}));
  }
  EXPECT_EQ(streams.size(), kTracks);
  EXPECT_EQ(streams.count(nullptr), 0U);
}

// Marks of one rank, each on the stream of what it stands for: two that nothing orders are found as
// if they wrote the same memory.
class Marks {
 public:
  explicit Marks(Device& device) : streams_(dynamic_cast<cuda::StreamSource&>(device)) {}
  void set(Lane lane, const char* what) {
    if (lane.rank != 0) return;
    cuda_double::enqueue(streams_.stream(lane), cuda_double::Touched(what).writes(&mark_), [] {});
  }

 private:
  cuda::StreamSource& streams_;
  char mark_ = 0;
};

// A product of the shared expert; a forward's experts; what a backward does when its tokens are
// home.
class Marking final : public Forwarding {
 public:
  Marking(std::unique_ptr<Kernels> inner, std::shared_ptr<Marks> marks)
      : Forwarding(std::move(inner)), marks_(std::move(marks)) {}
  void linear(Lane lane, std::int64_t m, std::int64_t n, std::int64_t k, const void* x,
              const void* w, const void* bias, void* y) override {
    if (n == 80) marks_->set(lane, "shared expert");
    inner_->linear(lane, m, n, k, x, w, bias, y);
  }
  void grouped_linear(Lane lane, const GroupedShape& shape, std::int64_t n, std::int64_t k,
                      const void* x, const void* w, const void* bias, void* y) override {
    marks_->set(lane, "forward");
    inner_->grouped_linear(lane, shape, n, k, x, w, bias, y);
  }
  void route_backward(Lane lane, const RouteShape& shape, const float* d_weights,
                      const std::int32_t* chosen, const float* weights, const float* scores,
                      const float* logsum, const float* counts, void* d_logits) override {
    marks_->set(lane, "backward");
    inner_->route_backward(lane, shape, d_weights, chosen, weights, scores, logsum, counts,
                           d_logits);
  }

 private:
  std::shared_ptr<Marks> marks_;
};
class MarkingTokens final : public ForwardingDevice {
 public:
  MarkingTokens(std::unique_ptr<Device> inner, std::shared_ptr<Marks> marks)
      : ForwardingDevice(std::move(inner)), marks_(std::move(marks)) {}
  void exchange(const Exchange& exchange) override {
    ForwardingDevice::exchange(exchange);
    if (exchange.kind != OpKind::AllToAll) return;
    for (const Lane lane : exchange.lanes) marks_->set(lane, "tokens");
  }

 private:
  std::shared_ptr<Marks> marks_;
};

// What nothing orders of the marks that are wanted.
std::string beside(const Keys& keys, bool kernels, bool tokens) {
  const TinyRun run = train(keys, [&] {
    Backend made = on_the_double();
    const auto marks = std::make_shared<Marks>(*made.device);
    if (kernels) made.kernels = std::make_unique<Marking>(std::move(made.kernels), marks);
    if (tokens) made.device = std::make_unique<MarkingTokens>(std::move(made.device), marks);
    return made;
  });
  EXPECT_EQ(run.error, "");
  return cuda_double::unordered();
}

TEST(CudaOverlap, NothingOrdersWhatRunsBesideOneAnother) {
  EXPECT_EQ(beside(kSlots, true, true), "");
  EXPECT_NE(beside(with(kSlots, {kBeside}), true, true).find("shared expert"), std::string::npos);
  EXPECT_EQ(beside(kPairs, true, true), "");
  // A backward waits for its own tokens, not for what the forward computes before it sends its
  // next.
  const std::string bodies = beside(with(kPairs, {kPaired}), true, false);
  EXPECT_NE(bodies.find("forward"), std::string::npos) << bodies;
  EXPECT_NE(bodies.find("backward"), std::string::npos) << bodies;
  // Tokens of one lane travel one after the other.
  EXPECT_EQ(beside(with(kPairs, {kPaired}), false, true), "");
}

// Leaves out what orders one track behind another.
class Forgetful final : public ForwardingDevice {
 public:
  Forgetful(std::unique_ptr<Device> inner, std::pair<Track, Track> left_out)
      : ForwardingDevice(std::move(inner)), left_out_(left_out) {}
  void order(Lane lane, Lane after) override {
    if (std::pair(lane.track, after.track) != left_out_) ForwardingDevice::order(lane, after);
  }

 private:
  std::pair<Track, Track> left_out_;
};

TEST(CudaOverlap, AnOrderThatIsLeftOutIsFound) {
  using enum Track;
  const Keys beside = with(kSlots, {kBeside}), paired = with(kPairs, {kPaired});
  for (const Keys& keys : {beside, paired}) {
    cuda_double::idle(true);
    train(keys);
    cuda_double::idle(false);
    EXPECT_EQ(cuda_double::unordered(), "");
  }
  for (const auto& [keys, left_out] :
       std::vector<std::pair<Keys, std::pair<Track, Track>>>{{beside, {Main, Collectives}},
                                                             {beside, {Collectives, Main}},
                                                             {paired, {Main, Second}},
                                                             {paired, {Second, Main}},
                                                             {paired, {Main, Collectives}},
                                                             {paired, {Collectives, Main}},
                                                             {paired, {Second, Collectives}},
                                                             {paired, {Collectives, Second}}}) {
    cuda_double::idle(true);
    train(keys, [&] {
      Backend made = on_the_double();
      made.device = std::make_unique<Forgetful>(std::move(made.device), left_out);
      return made;
    });
    cuda_double::idle(false);
    EXPECT_NE(cuda_double::unordered(), "")
        << keys.back() << ' ' << static_cast<int>(left_out.first) << " before "
        << static_cast<int>(left_out.second);
  }
}

}  // namespace
}  // namespace rehearse::exec
