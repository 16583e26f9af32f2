// SPDX-License-Identifier: Apache-2.0
// cuDNN's attention through its double: what it refuses is left out and said, and a run trains with
// it. That its graphs compute attention: tests/cuda/cudnn_attention_test.cc.
#include <gtest/gtest.h>

#include "exec/cuda/cudnn/attention.h"
#include "tests/cuda_double/cudnn.h"
#include "tests/cuda_double/engines.h"
#include "tests/cuda_double/processes.h"

namespace rehearse::exec {
namespace {

using cuda::AttentionEngine;
using cuda::CudnnAttention;
using cuda::Type;
using cuda_double::CudnnFault;

constexpr std::size_t kVersion = 91900;

// Installs it for the length of a test.
class Cudnn : public testing::Test {
 protected:
  void SetUp() override {
    cuda_double::install_cudnn(kVersion);
    cuda_double::take_cudnn();
  }
  void TearDown() override {
    cuda_double::break_cudnn(CudnnFault::None);
    cuda_double::install_cudnn(0);
  }
  std::string why_;
};

TEST_F(Cudnn, APlanIsMadeOncePerShapeAndDirection) {
  const auto engine = CudnnAttention::open(&why_);
  ASSERT_NE(engine, nullptr) << why_;
  const AttentionShape shape{.tokens = 8, .sequence = 4, .heads = 2, .kv_heads = 2, .head_dim = 8};
  for (int k = 0; k < 3; ++k) {
    ASSERT_TRUE(engine->prepare(false, Type::BFloat16, shape));
    ASSERT_TRUE(engine->prepare(true, Type::BFloat16, shape));
  }
  EXPECT_EQ(cuda_double::take_cudnn().plans, 2);
  // dP of 2 samples and heads, in 16 bits.
  EXPECT_EQ(engine->prepare(true, Type::BFloat16, shape).value(), 2 * 2 * 2 * 4 * 4);
}

TEST_F(Cudnn, WhatItRefusesIsAnErrorInItsWords) {
  const auto engine = CudnnAttention::open(&why_);
  ASSERT_NE(engine, nullptr) << why_;
  AttentionShape shape{.tokens = 8, .sequence = 4, .heads = 2, .kv_heads = 2, .head_dim = 8};
  const auto refused = [&](bool backward) {
    shape.tokens += shape.sequence;  // another shape: another plan
    const Result<std::int64_t> made = engine->prepare(backward, Type::BFloat16, shape);
    return made ? std::string() : made.error().message;
  };
  cuda_double::break_cudnn(CudnnFault::NoEngine);
  EXPECT_EQ(refused(false), "it has no engine for this");
  cuda_double::break_cudnn(CudnnFault::Unordered);
  EXPECT_EQ(refused(true), "its engines sum in no fixed order");
  cuda_double::break_cudnn(CudnnFault::NoPlan);
  EXPECT_EQ(refused(false),
            "a descriptor: CUDNN_STATUS_EXECUTION_FAILED: the double makes no plan");
  cuda_double::break_cudnn(CudnnFault::None);
  EXPECT_EQ(refused(false), "");
  cuda_double::install_cudnn(91001);
  EXPECT_EQ(refused(false), "");
  EXPECT_NE(refused(true).find("wrong in this version"), std::string::npos);
  cuda_double::install_cudnn(91500);
  EXPECT_NE(refused(true).find("a multiple of 128") == std::string::npos, false);
  cuda_double::install_cudnn(kVersion);
  shape.sequence = std::int64_t{1} << 16;
  shape.tokens = 0;
  EXPECT_NE(refused(true).find("bytes beside the arrays, more than"), std::string::npos);
}

TEST_F(Cudnn, TakesCausalAttentionOf16BitsAlone) {
  const AttentionShape plain{.tokens = 8, .sequence = 4, .heads = 2, .kv_heads = 1, .head_dim = 64};
  EXPECT_TRUE(CudnnAttention::takes(Type::BFloat16, plain));
  EXPECT_TRUE(CudnnAttention::takes(Type::Float16, plain));
  EXPECT_FALSE(CudnnAttention::takes(Type::Float32, plain));
  const auto with = [&](auto change) {
    AttentionShape s = plain;
    change(s);
    return CudnnAttention::takes(Type::BFloat16, s);
  };
  EXPECT_TRUE(with([](auto& s) { s.form.window = 2; }));
  EXPECT_TRUE(with([](auto& s) { s.head_dim = 256; }));
  EXPECT_FALSE(with([](auto& s) { s.head_dim = 264; }));
  EXPECT_FALSE(with([](auto& s) { s.head_dim = 68; }));
  EXPECT_FALSE(with([](auto& s) { s.form.softcap = 30; }));
  EXPECT_FALSE(with([](auto& s) { s.form.alibi_heads = 2; }));
  EXPECT_FALSE(with([](auto& s) { s.form.sinks = &s; }));
  EXPECT_FALSE(with([](auto& s) { s.form.dropout.threshold = 1; }));
  EXPECT_FALSE(with([](auto& s) { s.sequence = 1; }));
}

TEST_F(Cudnn, IsNotThereWhereItIsNotInstalledOrTooOld) {
  EXPECT_EQ(CudnnAttention::version(), "cuDNN 9.19.0");
  cuda_double::install_cudnn(0);
  EXPECT_EQ(CudnnAttention::version(), "no cuDNN");
  EXPECT_EQ(CudnnAttention::open(&why_), nullptr);
  EXPECT_EQ(why_, "none is installed");
  cuda_double::install_cudnn(8907);
  EXPECT_EQ(CudnnAttention::open(&why_), nullptr);
  EXPECT_NE(why_.find("is not of the version"), std::string::npos) << why_;
}

// --- in a run ------------------------------------------------------------------

struct Made {
  Trained trained;
  std::int64_t attentions = 0;  // forward and backward, of all steps
  std::vector<std::string> said;
  cuda_double::CudnnCounts cudnn;
};
Made train(const Keys& keys, AttentionEngine preferred, const std::string& asked = "") {
  Keys all = keys;
  all.emplace_back("precision=bf16");
  Prepared p = prepare(Family::Llama, all);
  p.scenario.train.steps = 3;
  CudaOptions options = cuda_options(p);
  Made run;
  run.attentions = 2 * p.scenario.model.layers * p.scenario.train.steps * p.plan.global_batch /
                   p.plan.micro_batch * p.plan.tensor_parallel;
  options.attention = asked;
  options.warn = [&](const std::string& line) { run.said.push_back(line); };
  cuda_double::prefer(preferred);
  cuda_double::take_cudnn();
  run.trained = train_prepared(p, options);
  run.cudnn = cuda_double::take_cudnn();
  EXPECT_EQ(run.trained.error, "");
  EXPECT_EQ(cuda_double::unordered(), "");
  return run;
}

// Losses and norms differ by roundings of P and of sums in another order.
void expect_alike(const Made& one, const Made& other) {
  ASSERT_EQ(one.trained.losses.size(), other.trained.losses.size());
  for (std::size_t k = 0; k < one.trained.losses.size(); ++k) {
    EXPECT_NEAR(one.trained.losses[k], other.trained.losses[k], 2e-3 * other.trained.losses[k]);
    EXPECT_NEAR(one.trained.norms[k], other.trained.norms[k], 2e-2 * other.trained.norms[k]);
  }
}

TEST_F(Cudnn, ARunTrainsWithItWhereItIsTheFastest) {
  for (const Keys& keys : {Keys{}, Keys{"pipeline_parallel=2", "tensor_parallel=2"}}) {
    const Made ours = train(keys, AttentionEngine::MmaSync);
    const Made its = train(keys, AttentionEngine::Cudnn);
    EXPECT_EQ(its.cudnn.runs, its.attentions + ours.cudnn.runs);
    EXPECT_EQ(ours.cudnn.runs, 2 * 4);  // trials of one shape, in both directions
    EXPECT_NE(its.trained.losses, ours.trained.losses) << "nothing was computed otherwise";
    expect_alike(its, ours);
    EXPECT_TRUE(its.said.empty()) << its.said[0];
  }
}

TEST_F(Cudnn, IsAskedForWithoutATrial) {
  const Made its = train({}, AttentionEngine::MmaSync, "cudnn");
  EXPECT_EQ(its.cudnn.plans, 2);
  EXPECT_EQ(its.cudnn.runs, its.attentions);
  expect_alike(its, train({}, AttentionEngine::MmaSync, "mma"));
  cuda_double::install_cudnn(0);
  const Result<Backend> refused = cuda::make_backend({.attention = "cudnn"});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message, "attention by cuDNN: none is installed");
}

TEST_F(Cudnn, AFailureLeavesItOutAndIsSaidOnce) {
  const Made ours = train({}, AttentionEngine::MmaSync);
  for (const auto& [fault, words] :
       {std::pair{CudnnFault::NoEngine, "cudnn is left out: it has no engine for this"},
        {CudnnFault::NoPlan, "cudnn is left out: a descriptor: CUDNN_STATUS_EXECUTION_FAILED"},
        {CudnnFault::Execution, "cudnn is left out: CUDNN_STATUS_EXECUTION_FAILED: the double"}}) {
    cuda_double::break_cudnn(fault);
    const Made failed = train({}, AttentionEngine::Cudnn);
    EXPECT_EQ(failed.trained.losses, ours.trained.losses) << words;
    EXPECT_EQ(failed.cudnn.runs, 0) << words;
    ASSERT_EQ(failed.said.size(), 1u) << words;
    EXPECT_NE(failed.said[0].find(words), std::string::npos) << failed.said[0];
  }
}

// What the first step would take is taken before it, and where there is none for a lane it stays
// with ours.
TEST_F(Cudnn, TakesItsMemoryBeforeTheFirstStep) {
  for (const bool full : {false, true}) {
    Prepared p = prepare(Family::Llama, {"precision=bf16"});
    cuda_double::prefer(AttentionEngine::Cudnn);
    std::vector<std::string> said;
    CudaOptions options = cuda_options(p);
    options.warn = [&](const std::string& line) { said.push_back(line); };
    Backend backend = std::move(cuda::make_backend(options)).value();
    const auto made = Interpreter::create({p.scenario.model, p.plan}, p.schedule, backend, {});
    ASSERT_TRUE(made) << made.error().message;
    ASSERT_TRUE(made.value()->try_kernels());
    auto& streams = dynamic_cast<cuda::StreamSource&>(*backend.device);
    const std::int64_t before = streams.held_bytes();
    cuda_double::set_full(full);
    backend.kernels->take_choices(backend.kernels->choices());
    cuda_double::set_full(false);
    const std::int64_t samples = p.plan.micro_batch, n = p.plan.sequence_length;
    const std::int64_t bytes = 2 * samples * 4 * n * n;  // dP of 4 heads
    EXPECT_EQ(streams.held_bytes() - before, full ? 0 : bytes);
    if (!full) {
      EXPECT_TRUE(said.empty());
      continue;
    }
    ASSERT_EQ(said.size(), 1u);
    EXPECT_EQ(said[0], "attention: cudnn is left out: no " + std::to_string(bytes) +
                           " bytes of GPU memory beside the arenas");
  }
}

}  // namespace
}  // namespace rehearse::exec
