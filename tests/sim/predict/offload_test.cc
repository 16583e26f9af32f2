// SPDX-License-Identifier: Apache-2.0
// plan.offload: what goes to the host and when it comes back, what it saves, and what it costs.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>

#include "schedules/body/sizes.h"
#include "schedules/ir/listing.h"
#include "schedules/proof/validate.h"
#include "schedules/scenario/scenario.h"
#include "sim/memory/host_memory.h"
#include "sim/predict/predict.h"
#include "sim/report/plan_remarks.h"

namespace rehearse::sim {
namespace {

// GPT-2 124M: 12 layers, one or more GPUs of a node, keys of the plan added.
Scenario scenario(const std::string& keys) {
  const Result<Scenario> read = parse_scenario(
      R"({"model": "models/gpt2-124m.json", "cluster": "clusters/dgx-h200.json", "plan": {)"
      R"("micro_batch": 4, "sequence_length": 1024, "dropout": 0, )" +
          keys + "}}",
      "test.json", 1, {});
  EXPECT_TRUE(read) << read.error().message;
  return read.value();
}

Cluster cluster_of(const Scenario& s, double pcie_gb_per_s) {
  Cluster cluster = read_cluster(s.cluster).value();
  cluster.gpu.pcie.bandwidth.value = pcie_gb_per_s * 1e9;
  cluster.pcie.bandwidth_per_link.value = pcie_gb_per_s * 1e9;
  cluster.pcie.gpus_per_switch = 1;
  return cluster;
}

Prediction predicted(const std::string& keys, double pcie_gb_per_s = 63) {
  const Scenario s = scenario(keys);
  Result<Prediction> made = predict(s, cluster_of(s, pcie_gb_per_s));
  EXPECT_TRUE(made) << made.error().message;
  return std::move(made).value();
}

constexpr const char* kOne = R"("data_parallel": 1, "global_batch": 4, "runtime": "rehearse")";
std::string one(const std::string& more) {
  return kOne + std::string(", ") + more;
}

std::int64_t bytes_of(const Schedule& s, OpId op) {
  std::int64_t sum = 0;
  const auto operands = s.operands_of(op);
  for (std::size_t k = 0; k < operands.size(); k += 2) {
    sum += s.values[operands[k].value.index()].bytes.value;
  }
  return sum;
}

struct Copy {
  OpId id;
  Op op;
  std::int64_t bytes = 0;
};
// Copies of a kind, but for tokens and norms.
std::vector<Copy> copies(const Schedule& s, OpKind kind) {
  std::vector<Copy> found;
  for (std::int32_t i = 0; i < s.num_ops(); ++i) {
    const Op& op = s.ops[static_cast<std::size_t>(i)];
    if (op.kind != kind) continue;
    const ValueKind what = s.values[s.operands_of({i})[0].value.index()].kind;
    if (what == ValueKind::Input || what == ValueKind::Metrics) continue;
    found.push_back({{i}, op, bytes_of(s, {i})});
  }
  return found;
}

std::int64_t total(const std::vector<Copy>& all) {
  std::int64_t sum = 0;
  for (const Copy& copy : all) sum += copy.bytes;
  return sum;
}

// One micro-batch runs parts 0 ... n-1 forward and back again: part j's backward is number
// 2n - 1 - j, and it leaves where at least `prefetch` + 1 parts lie between.
TEST(Offload, MovesWhatAPartKeepsWhereItsBackwardIsFarEnough) {
  for (const int prefetch : {0, 1, 3}) {
    const Prediction p =
        predicted(one(R"("offload": "activations", "prefetch": )" + std::to_string(prefetch)));
    const int n = 14;  // embedding, 12 layers, head
    std::vector<int> expected;
    for (int j = 1; j < n; ++j) {  // our embedding keeps nothing
      if (2 * n - 1 - j - j >= prefetch + 2) expected.push_back(j);
    }
    const std::vector<Copy> out = copies(p.schedule, OpKind::Offload);
    std::vector<Copy> back = copies(p.schedule, OpKind::Fetch);
    // Which of two comes back first is a matter of times: the last to leave is wanted first, and is
    // there last.
    std::stable_sort(back.begin(), back.end(), [](const Copy& a, const Copy& b) {
      return a.op.segment_begin > b.op.segment_begin;
    });
    ASSERT_EQ(out.size(), expected.size()) << prefetch;
    ASSERT_EQ(back.size(), expected.size()) << prefetch;
    for (std::size_t k = 0; k < expected.size(); ++k) {
      EXPECT_EQ(out[k].op.segment_begin, expected[k]);
      EXPECT_EQ(back[k].op.segment_begin, expected[expected.size() - 1 - k]);
      EXPECT_EQ(back[k].bytes, out[expected.size() - 1 - k].bytes);
    }
    // All of it lies on the host at once, when the last has left.
    EXPECT_GE(p.memory.host, total(out));
    EXPECT_LE(p.memory.host, total(out) + 3 * kAlignment * static_cast<std::int64_t>(out.size()));
  }
}

// On the device lie what the running part makes, what is leaving, and what comes back ahead.
TEST(Offload, LeavesAFewPartsOfActivationsOnTheDevice) {
  const Prediction none = predicted(one(R"("offload": "none")"));
  const Prediction p = predicted(one(R"("offload": "activations")"), 1000);
  const std::int64_t layer = copies(p.schedule, OpKind::Offload)[3].bytes;
  EXPECT_GT(none.memory.peak_allocated - p.memory.peak_allocated, 7 * layer);
  EXPECT_EQ(none.memory.host, 0);
  for (const Schedule* s : {&none.schedule, &p.schedule}) {
    const Validation proof = validate(*s, {});
    EXPECT_TRUE(proof.violations.empty());
  }
}

TEST(Offload, CostsNothingWhereTheLinkIsFastAndItsTimeWhereItIsSlow) {
  const double none = predicted(one(R"("offload": "none")")).step_s;
  const Prediction fast = predicted(one(R"("offload": "activations")"), 100000);
  // Parts are ops of their own: a little launch time each, nothing else.
  EXPECT_NEAR(fast.step_s, none, 0.02 * none);
  const double bandwidth = 2e9;
  const Prediction slow = predicted(one(R"("offload": "activations")"), bandwidth * 1e-9);
  const std::vector<Copy> out = copies(slow.schedule, OpKind::Offload);
  const double copied = static_cast<double>(total(out)) / bandwidth;
  // Out and, after the last has come, back.
  EXPECT_GT(slow.step_s, 2 * copied);
  EXPECT_LT(slow.step_s, none + 2 * copied / 0.8 + 1e-3);  // host_copy_fraction 0.8, 10 us each
}

TEST(Offload, StreamsOptimizerStateBucketByBucket) {
  const Prediction none = predicted(one(R"("offload": "none")"));
  const Prediction p = predicted(one(R"("offload": "optimizer")"));
  const std::vector<Copy> in = copies(p.schedule, OpKind::Fetch);
  const std::vector<Copy> out = copies(p.schedule, OpKind::Offload);
  ASSERT_EQ(in.size(), p.schedule.buckets.size());
  ASSERT_EQ(out.size(), in.size());
  std::int64_t state = 0;
  for (const Bucket& bucket : p.schedule.buckets) state += 12 * bucket.padded;
  EXPECT_EQ(total(in), state);
  EXPECT_EQ(total(out), state);
  EXPECT_EQ(p.memory.host, state);  // 12 divides into whole alignments: padded to 64 elements
  EXPECT_EQ(p.memory.ranks[0].parts.optimizer, 0);
  EXPECT_GT(none.memory.peak_allocated - p.memory.peak_allocated, state * 9 / 10);
  // In both directions at once: one way's time and a bucket's more.
  const double way = static_cast<double>(state) / (63e9 * 0.8);
  const std::int64_t largest = std::ranges::max(in, {}, &Copy::bytes).bytes;
  EXPECT_GT(p.step_s, none.step_s + way * 0.9);
  EXPECT_LT(p.step_s, none.step_s + way + 3 * static_cast<double>(largest) / (63e9 * 0.8) + 1e-3);
}

// A framework's gradients go to the host, which updates; parameters come back, in their own types.
TEST(Offload, UpdatesOnTheHostForFrameworks) {
  const std::string keys = R"("data_parallel": 8, "global_batch": 32, "zero_stage": 1)";
  const Prediction none = predicted(keys);
  const Prediction p = predicted(keys + R"(, "offload": "optimizer")");
  std::int64_t owned = 0;
  for (const Bucket& bucket : p.schedule.buckets) owned += bucket.padded / 8;
  std::int64_t down = 0, up = 0;
  for (const Copy& copy : copies(p.schedule, OpKind::Offload)) {
    const Value& host = p.schedule.values[p.schedule.operands_of(copy.id)[1].value.index()];
    EXPECT_EQ(host.home, Home::Host);
    down += host.bytes.value;
  }
  for (const Copy& copy : copies(p.schedule, OpKind::Fetch)) up += copy.bytes;
  EXPECT_EQ(down, 4 * owned);  // bf16 keeps fp32 gradients
  EXPECT_EQ(up, 2 * owned);
  int updates = 0;
  for (const Op& op : p.schedule.ops) {
    if (op.kind != OpKind::OptimizerStep) continue;
    ++updates;
    EXPECT_EQ(op.stream, Stream::D2h);
  }
  EXPECT_EQ(updates, static_cast<int>(p.schedule.buckets.size()));
  // 30 B (28 with bf16 gradients) per element, by two sockets for 8 ranks.
  EXPECT_GT(p.step_s - none.step_s, 28e-9 * static_cast<double>(owned) * 8 / 116 * 0.8);
  EXPECT_EQ(p.memory.ranks[0].parts.optimizer, 0);
  EXPECT_GT(p.memory.host, 12 * owned);
}

// Frameworks' activations: as many bytes as their memory profile keeps, and less memory in flight.
TEST(Offload, MovesWhatFrameworksKeep) {
  const std::string keys =
      R"("pipeline_parallel": 4, "data_parallel": 1, "global_batch": 32, "schedule": "1f1b")";
  const Prediction none = predicted(keys);
  const Prediction p = predicted(keys + R"(, "offload": "activations")");
  const std::vector<Copy> out = copies(p.schedule, OpKind::Offload);
  ASSERT_FALSE(out.empty());
  EXPECT_EQ(total(out), total(copies(p.schedule, OpKind::Fetch)));
  EXPECT_LT(p.memory.peak_allocated, none.memory.peak_allocated);
  EXPECT_GT(predicted(keys + R"(, "offload": "activations")", 1).step_s, 1.2 * none.step_s);
}

// And how many of the layers could leave and come back for nothing: more over a faster link, all
// over one that is fast enough.
TEST(Offload, SaysHowManyLayersOfAFrameworkCouldLeaveForNothing) {
  const Scenario s = scenario(
      R"("pipeline_parallel": 4, "data_parallel": 1, "global_batch": 32, "schedule": "1f1b",
         "offload": "activations")");
  std::int32_t before = 0;
  for (const double link : {20.0, 200.0, 100000.0}) {
    const Cluster cluster = cluster_of(s, link);
    const Prediction p = predict(s, cluster).value();
    std::string said;
    for (const std::string& remark : plan_remarks(p, s, cluster)) {
      const std::size_t at = remark.find("; those of ");
      if (at != std::string::npos) said = remark.substr(at);
    }
    std::int32_t layers = -1, of = 0;
    ASSERT_EQ(std::sscanf(said.c_str(), "; those of %d of %d layers could leave and come back",
                          &layers, &of),
              2)
        << said;
    EXPECT_EQ(of, 12);
    EXPECT_GE(layers, before) << link;
    before = layers;
  }
  EXPECT_EQ(before, 12);
}

// Without the event behind which a copy may read, the validator says so.
// What is beyond the host's memory does not fit, however empty the device is.
TEST(Offload, DoesNotFitWhereTheHostIsTooSmall) {
  for (const char* runtime : {"rehearse", "megatron"}) {
    for (const char* what : {"optimizer", "activations"}) {
      const Scenario s = scenario(R"("data_parallel": 1, "global_batch": 4, "runtime": ")" +
                                  std::string(runtime) + R"(", "offload": ")" + what + '"');
      Cluster cluster = cluster_of(s, 63);
      const Prediction roomy = predict(s, cluster).value();
      ASSERT_TRUE(roomy.memory.fits);
      ASSERT_GT(roomy.memory.host, 0);
      cluster.host.memory_gib = 0.99 * static_cast<double>(roomy.memory.host) / (1 << 30);
      const Prediction small = predict(s, cluster).value();
      EXPECT_FALSE(small.memory.fits) << runtime << " " << what;
      EXPECT_LE(small.memory.peak_device, small.memory.capacity);
      EXPECT_GT(small.memory.host, *small.memory.host_capacity);
    }
  }
}

// Several at once: each moves what it moves alone, and the host holds all of it.
TEST(Offload, OfSeveralMovesWhatEachMovesAlone) {
  const auto moved = [](const Prediction& p) { return total(copies(p.schedule, OpKind::Offload)); };
  const Prediction states = predicted(one(R"("offload": "optimizer")"));
  const Prediction activations = predicted(one(R"("offload": "activations")"));
  const Prediction both = predicted(one(R"("offload": ["optimizer", "activations"])"));
  EXPECT_EQ(moved(both), moved(states) + moved(activations));
  EXPECT_LT(both.memory.peak_allocated, states.memory.peak_allocated);
  EXPECT_LT(both.memory.peak_allocated, activations.memory.peak_allocated);
  EXPECT_GE(both.memory.host, moved(states));
  EXPECT_TRUE(validate(both.schedule, {}).violations.empty());
}

constexpr const char* kEightShards = R"("data_parallel": 8, "global_batch": 32, "zero_stage": 3)";

std::int64_t owned_elements(const Schedule& s, std::int32_t shards) {
  std::int64_t owned = 0;
  for (const Bucket& bucket : s.buckets) owned += bucket.padded / shards;
  return owned;
}

// DeepSpeed: shards of 2 B a parameter rest on the host beside states of 12, come before every
// gather, and are updated where they lie: nothing but gradients goes out, nothing else comes in.
TEST(Offload, OfParametersBringsAShardBeforeEveryGather) {
  const Prediction p =
      predicted(std::string(kEightShards) +
                R"(, "runtime": "generic", "offload": ["optimizer", "parameters"])");
  const Schedule& s = p.schedule;
  std::int64_t gathered = 0;
  for (std::int32_t i = 0; i < s.num_ops(); ++i) {
    if (s.ops[static_cast<std::size_t>(i)].kind != OpKind::Unshard) continue;
    const Value& shard = s.values[s.operands_of({i})[0].value.index()];
    EXPECT_EQ(shard.home, Home::Device);
    gathered += shard.bytes.value;
  }
  EXPECT_EQ(total(copies(s, OpKind::Fetch)), gathered);
  const std::int64_t owned = owned_elements(s, 8);
  EXPECT_GE(p.memory.host, 14 * owned);
  EXPECT_LE(p.memory.host, 18 * owned);  // and gradients of 4 on their way
  EXPECT_EQ(p.memory.ranks[0].parts.parameters, 0);
  EXPECT_EQ(p.memory.ranks[0].parts.optimizer, 0);
  EXPECT_TRUE(validate(s, {}).violations.empty());
  // Slower by what the link takes for the shards, where it is slow.
  const Prediction slow =
      predicted(std::string(kEightShards) +
                    R"(, "runtime": "generic", "offload": ["optimizer", "parameters"])",
                0.5);
  EXPECT_GT(slow.step_s, static_cast<double>(gathered) / 0.5e9);
}

// One replica has nothing to gather: what a part reads comes whole, and no more than a few parts'
// lie on the device.
TEST(Offload, OfParametersOfOneReplicaBringsThemWhole) {
  const std::string keys = R"("data_parallel": 1, "global_batch": 4, "zero_stage": 3, "runtime": )";
  for (const std::string runtime : {R"("generic")", R"("rehearse")"}) {
    const Prediction none = predicted(keys + runtime + R"(, "offload": "optimizer")");
    const Prediction p = predicted(keys + runtime + R"(, "offload": ["optimizer", "parameters"])");
    EXPECT_LT(p.memory.peak_allocated, none.memory.peak_allocated) << runtime;
    std::int64_t whole = 0;
    for (const Bucket& bucket : p.schedule.buckets) {
      whole += p.plan.precision.parameters * bucket.padded;
    }
    EXPECT_GE(total(copies(p.schedule, OpKind::Fetch)), 2 * whole * 9 / 10) << runtime;
    for (const Op& op : p.schedule.ops) EXPECT_NE(op.kind, OpKind::Unshard);
    for (const Violation& bad : validate(p.schedule, {}).violations) ADD_FAILURE() << bad.message;
  }
}

// Our executor updates on the device: the shard, its own master copy, comes and goes.
TEST(Offload, OfParametersAloneBringsThemToTheirUpdate) {
  const Prediction p =
      predicted(std::string(kEightShards) + R"(, "runtime": "rehearse", "offload": "parameters")");
  std::int64_t at_update = 0;
  const std::vector<Copy> out = copies(p.schedule, OpKind::Offload);
  for (const Copy& copy : out) {
    const Operand back = p.schedule.operands_of(copy.id)[1];
    EXPECT_TRUE(p.schedule.values[back.value.index()].persistent);
    at_update += copy.bytes;
  }
  EXPECT_EQ(out.size(), p.schedule.buckets.size());
  EXPECT_EQ(at_update, 4 * owned_elements(p.schedule, 8));
  EXPECT_EQ(p.memory.host, 4 * owned_elements(p.schedule, 8));
  EXPECT_TRUE(validate(p.schedule, {}).violations.empty());
}

TEST(Offload, IsRefusedWhereNothingCouldBeMeant) {
  const auto error = [](const std::string& keys) {
    const Result<Scenario> read = parse_scenario(
        R"({"model": "models/gpt2-124m.json", "cluster": "clusters/dgx-h200.json", "plan": {)"
        R"("micro_batch": 4, "data_parallel": 8, "global_batch": 32, )" +
            keys + "}}",
        "test.json", 1, {});
    return read ? std::string() : read.error().message;
  };
  EXPECT_EQ(error(R"("zero_stage": 1, "offload": "parameters")"),
            "test.json:1: plan.offload: parameters come from the host around their use where they "
            "lie in shards: zero_stage 3");
  EXPECT_EQ(error(R"("zero_stage": 3, "runtime": "fsdp", "offload": "parameters")"),
            "test.json:1: plan.offload: shards that are the master copy are updated where they "
            "lie: optimizer goes with parameters");
}

TEST(Offload, IsProvedByTheValidator) {
  Prediction p = predicted(one(R"("offload": "activations")"));
  Schedule& s = p.schedule;
  const OpId fetch = copies(s, OpKind::Fetch)[2].id;
  const auto first = static_cast<std::size_t>(s.wait_begin[fetch.index()]);
  ASSERT_GT(s.wait_begin[fetch.index() + 1], s.wait_begin[fetch.index()]);
  const OpId other = copies(s, OpKind::Offload)[0].id;
  for (std::size_t w = first; w < static_cast<std::size_t>(s.wait_begin[fetch.index() + 1]); ++w) {
    s.waits[w] = other;  // it waits for another copy
  }
  EXPECT_FALSE(validate(s, {}).violations.empty());
}

// Of 12 layers, embedding and head with full recomputation only the layers' inputs leave.
TEST(Offload, OfCheckpointsIsThatOfRecomputedLayers) {
  const std::string full = R"("recompute": "full", "offload": "activations")";
  const Prediction all = predicted(one(full));
  const Prediction p = predicted(one(full + R"(, "offload_activations": "checkpoints")"));
  const std::vector<Copy> out = copies(p.schedule, OpKind::Offload);
  ASSERT_FALSE(out.empty());
  for (const Copy& copy : out) {
    EXPECT_EQ(p.schedule.segments[0][static_cast<std::size_t>(copy.op.segment_begin)].kind,
              SegmentKind::Layer);
  }
  EXPECT_EQ(out.size(), copies(all.schedule, OpKind::Offload).size());  // here nothing else could
  const Result<Scenario> refused = parse_scenario(
      R"({"model": "models/gpt2-124m.json", "cluster": "clusters/dgx-h200.json", "plan": {)"
      R"("offload": "activations", "offload_activations": "checkpoints"}})",
      "test.json", 1, {});
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("no layer is computed again"), std::string::npos);
}

// Where all of it would hold up the step, what is chosen holds up nothing, and the device has less
// to hold; where nothing would, it is all of it. Parts are ops of their own: a little launch time
// each.
TEST(Offload, ChoosesWhatLeavesForNothing) {
  for (const std::string schedule : {"none", "1f1b", "zb_h1", "gpipe", "dualpipev"}) {
    SCOPED_TRACE(schedule);
    const std::string keys =
        R"("global_batch": 64, "data_parallel": 1, "runtime": "rehearse", "pipeline_parallel": )" +
        std::string(schedule == "none" ? "1" : "2") + R"(, "schedule": ")" + schedule +
        R"(", "offload": ")";
    const std::string chosen = keys + R"(activations", "offload_activations": "chosen")";
    const Prediction none = predicted(keys + R"(none")");
    const Prediction all = predicted(keys + R"(activations")", 300);
    const Prediction some = predicted(chosen, 300);
    const Prediction fast = predicted(chosen, 100000);
    EXPECT_GT(all.step_s, 1.05 * none.step_s);
    EXPECT_LE(some.step_s, 1.005 * none.step_s);
    // Of a pair's stage all leaves or nothing: here one stage's, which is not the fullest.
    if (schedule != "dualpipev") {
      EXPECT_LT(some.memory.peak_device, none.memory.peak_device);
    }
    EXPECT_GT(some.memory.host, 0);
    EXPECT_LT(some.memory.host, all.memory.host);
    EXPECT_GT(fast.memory.host, some.memory.host);
    EXPECT_LE(fast.step_s, 1.005 * none.step_s);
    EXPECT_TRUE(validate(some.schedule, {.compute_order = &some.order}).violations.empty());
  }
  const Result<Scenario> refused = parse_scenario(
      R"({"model": "models/gpt2-124m.json", "cluster": "clusters/dgx-h200.json", "plan": {)"
      R"("offload": "activations", "offload_activations": "chosen"}})",
      "test.json", 1, {});
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("chosen is of runtime rehearse"), std::string::npos);
}

double seconds_of(const Prediction& p, const Copy& copy) {
  return 1e-9 * static_cast<double>(
                    (p.timeline.end[copy.id.index()] - p.timeline.start[copy.id.index()]).value);
}
Prediction to_drives(const std::string& keys) {
  return predicted(kEightShards + std::string(R"(, "offload_to": "nvme", )") + keys);
}

// A DGX H200's drives read 48 GB/s and write 26, for eight GPUs: of each, 8 bytes of moments per
// parameter (its shard is the master copy) come at 6 GB/s and go at 3.25, both at once.
TEST(Offload, ToDrivesIsAsFastAsANodesGpusShareThem) {
  const std::string own = R"("runtime": "rehearse", "offload": "optimizer")";
  const Prediction host = predicted(kEightShards + std::string(", ") + own), p = to_drives(own);
  const std::int64_t state = 8 * owned_elements(p.schedule, 8);
  EXPECT_EQ(total(copies(p.schedule, OpKind::Fetch)), state);
  EXPECT_EQ(total(copies(p.schedule, OpKind::Offload)), state);
  for (const Copy& copy : copies(p.schedule, OpKind::Offload)) {
    const double seconds = seconds_of(p, copy);
    EXPECT_NEAR(seconds, static_cast<double>(copy.bytes) / 3.25e9, 0.01 * seconds);
  }
  const double written = static_cast<double>(state) / 3.25e9;
  EXPECT_GT(p.step_s - host.step_s, 0.9 * (written - static_cast<double>(state) / (63e9 * 0.8)));
  EXPECT_LT(p.step_s - host.step_s, 1.2 * written);
  EXPECT_EQ(p.memory.nvme, state);
  EXPECT_EQ(p.memory.host, 0);
  EXPECT_EQ(host.memory.nvme, 0);
  EXPECT_EQ(p.memory.peak_device, host.memory.peak_device);
  EXPECT_TRUE(validate(p.schedule, {}).violations.empty());
}

// ZeRO-Infinity: gradients go to the drives as states do. An update reads 16 bytes per parameter
// and writes 12, and 2 where the parameters rest there too, one after the other; in the host's
// memory are the buffers through which that passes.
TEST(Offload, ToDrivesIsSwappedAroundTheHostsUpdate) {
  const std::string states = R"("runtime": "megatron", "offload": "optimizer")";
  const Prediction host = predicted(kEightShards + std::string(", ") + states);
  const Prediction p = to_drives(states);
  const auto owned = static_cast<double>(owned_elements(p.schedule, 8));
  const double gradients = owned * 4 / 3.25e9, update = owned * (16 / 6e9 + 12 / 3.25e9);
  EXPECT_GT(p.step_s - host.step_s, 0.95 * update);
  EXPECT_LT(p.step_s - host.step_s, 1.05 * (update + gradients));
  EXPECT_EQ(p.memory.nvme, 16 * owned_elements(p.schedule, 8));
  const std::int64_t buffers = 4 * 4 * owned_elements(p.schedule, 8);
  EXPECT_GT(p.memory.host, buffers);  // and new parameters on their way
  EXPECT_LE(p.memory.host, buffers + 2 * owned_elements(p.schedule, 8));
  const Prediction both =
      to_drives(R"("runtime": "megatron", "offload": ["optimizer", "parameters"])");
  EXPECT_EQ(both.memory.nvme, 18 * owned_elements(both.schedule, 8));
  EXPECT_EQ(both.memory.host, 4 * 4 * owned_elements(both.schedule, 8) + 2 * 500'000'000);
  for (const Copy& copy : copies(both.schedule, OpKind::Fetch)) {
    const double seconds = seconds_of(both, copy);
    EXPECT_NEAR(seconds, static_cast<double>(copy.bytes) / 6e9, 0.01 * seconds);
  }
  EXPECT_TRUE(validate(both.schedule, {}).violations.empty());
}

// In eight parts of 2M parameters (of 15.6M): the first is read and the last written beside
// nothing, and what lies between takes what DeepSpeed's swapper leaves to be waited for.
TEST(Offload, ToDrivesMayBeSwappedBesideTheHostsUpdate) {
  const auto update_of = [](const std::string& keys) {
    const Prediction p = to_drives(R"("runtime": "megatron", "offload": "optimizer")" + keys);
    double seconds = 0;
    for (std::int32_t i = 0; i < p.schedule.num_ops(); ++i) {
      const Op& op = p.schedule.ops[static_cast<std::size_t>(i)];
      if (op.kind == OpKind::OptimizerStep) seconds += seconds_of(p, {.id = {i}, .op = op});
    }
    // Beside the buffers lie gradients, as many as wait for the update.
    return std::pair(seconds, p.memory.host - std::ranges::max(host_bytes(p.schedule)));
  };
  const Prediction plain = to_drives(R"("runtime": "megatron", "offload": "optimizer")");
  const auto owned = static_cast<double>(owned_elements(plain.schedule, 8));
  const double read = owned * 16 / 6e9, written = owned * 12 / 3.25e9;
  const auto [whole, buffers] = update_of("");
  const double update = whole - read - written;
  ASSERT_GT(update, 0);
  const std::string parts = R"(, "swap_elements": 2000000, "swap_pipeline": )";
  const struct {
    const char* word;
    double middle;
    int buffered;  // parts that have buffers
  } rows[] = {{"\"none\"", read + update + written, 1},
              {"\"read\"", std::max(read, update + written), 2},
              {"\"write\"", std::max(read + update, written), 2},
              {"\"both\"", std::max({read, update, written}), 3}};
  for (const auto& row : rows) {
    const auto [seconds, buffered] = update_of(parts + row.word);
    EXPECT_NEAR(seconds, (whole + 7 * row.middle) / 8, 1e-3 * seconds) << row.word;
    EXPECT_EQ(buffered, row.buffered * std::int64_t{4 * 4 * 2'000'000}) << row.word;
    EXPECT_LT(buffered, buffers);
  }
  // One part has nothing beside it.
  EXPECT_EQ(update_of(R"(, "swap_pipeline": "both")").first, whole);
}

TEST(Offload, ToDrivesNeedsDrivesThatAreKnownAndLargeEnough) {
  const Scenario s = scenario(kEightShards + std::string(R"(, "runtime": "rehearse",
      "offload": "optimizer", "offload_to": "nvme")"));
  Cluster cluster = cluster_of(s, 63);
  cluster.nvme.capacity_gb = 8 * 0.12;  // of 0.124 GB each
  const Prediction small = predict(s, cluster).value();
  EXPECT_FALSE(small.memory.fits);
  EXPECT_GT(small.memory.nvme, *small.memory.nvme_capacity);
  cluster.nvme = {};
  const Result<Prediction> unknown = predict(s, cluster);
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().message,
            "plan.offload_to: nvme: dgx-h200 does not say how fast its drives are "
            "(cluster.nvme.read_gb_per_s, write_gb_per_s)");
  const Result<Scenario> activations = parse_scenario(
      R"({"model": "models/gpt2-124m.json", "cluster": "clusters/dgx-h200.json", "plan": {)"
      R"("micro_batch": 4, "data_parallel": 1, "offload": "activations", "offload_to": "nvme"}})",
      "test.json", 1, {});
  ASSERT_FALSE(activations);
  EXPECT_EQ(activations.error().message,
            "test.json:1: plan.offload_to: nvme: activations go to the host's memory; optimizer "
            "and parameters rest on drives");
}

TEST(Offload, OfActivationsIsRefusedForSlices) {
  const Result<Scenario> read = parse_scenario(
      R"({"model": "models/gpt2-124m.json", "cluster": "clusters/dgx-h200.json", "plan":
{"pipeline_parallel": 2, "schedule": "seq_1f1b", "global_batch": 8, "micro_batch": 1,
"offload": "activations"}})",
      "test.json", 1, {});
  ASSERT_FALSE(read);
  EXPECT_NE(read.error().message.find("test.json:3: plan.offload: "), std::string::npos)
      << read.error().message;
}

}  // namespace
}  // namespace rehearse::sim
