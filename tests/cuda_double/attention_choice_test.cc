// SPDX-License-Identifier: Apache-2.0
// The choice of attention's engine, on the double's streams, with engines that take as long and
// compute what a test says.
#include "exec/cuda/calls/attention_choice.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <sstream>

#include "tests/cuda_double/device.h"

namespace rehearse::exec::cuda {
namespace {

// What an engine does: each result is 1, or as said.
struct Engine {
  double seconds = 0;  // by the device's clock: hours are no wait
  float o = 1, dq = 1, dk = 1, dv = 1, lse = 1;
  int status = 0;
  std::atomic<int> calls{0};
};
Engine engines[3];
Engine& of(AttentionEngine engine) {
  return engines[static_cast<std::size_t>(engine)];
}

std::uint16_t bf16(float value) {
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return static_cast<std::uint16_t>(bits >> 16);
}
float value_of(Type type, const void* array, std::int64_t i) {
  std::uint32_t bits = 0;
  if (type == Type::Float32) {
    std::memcpy(&bits, static_cast<const std::byte*>(array) + 4 * i, 4);
  } else {
    bits = static_cast<std::uint32_t>(static_cast<const std::uint16_t*>(array)[i]) << 16;
  }
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

}  // namespace

int attention(Stream stream, Type, const AttentionShape& s, const void*, void* o, float* lse,
              AttentionEngine engine) {
  Engine& e = of(engine);
  ++e.calls;
  if (e.status != 0) return e.status;
  return cuda_double::enqueue(stream, [=, &e] {
    cuda_double::spend(e.seconds);
    std::fill_n(static_cast<std::uint16_t*>(o), s.tokens * s.heads * s.values(), bf16(e.o));
    std::fill_n(lse, s.tokens * s.heads, e.lse);
  });
}
std::int64_t attention_backward_scratch(Type, const AttentionShape&) {
  return 0;
}
int attention_backward(Stream stream, Type, const AttentionShape& s, const void*, const void*,
                       const void*, const float*, void* dqkv, float*, void*,
                       AttentionEngine engine) {
  Engine& e = of(engine);
  ++e.calls;
  return cuda_double::enqueue(stream, [=, &e] {
    cuda_double::spend(e.seconds);
    auto* to = static_cast<std::uint16_t*>(dqkv);
    for (std::int64_t token = 0; token < s.tokens; ++token) {
      to = std::fill_n(to, s.heads * s.head_dim, bf16(e.dq));
      to = std::fill_n(to, s.kv_heads * s.head_dim, bf16(e.dk));
      to = std::fill_n(to, s.kv_heads * s.values(), bf16(e.dv));
    }
  });
}
int largest_difference(Stream stream, Type type, std::int64_t rows, std::int64_t cols,
                       std::int64_t stride, const void* a, const void* b, float* out) {
  return cuda_double::enqueue(stream, [=] {
    out[0] = out[1] = 0;
    for (std::int64_t row = 0; row < rows; ++row) {
      for (std::int64_t i = row * stride; i < row * stride + cols; ++i) {
        const float x = value_of(type, a, i), y = value_of(type, b, i);
        out[0] = std::max(out[0], std::isnan(x - y) ? INFINITY : std::fabs(x - y));
        out[1] = std::max(out[1], std::fabs(x));
      }
    }
  });
}

// cuDNN's part, played as the other engines are.
namespace {
struct Played {
  std::string why, refuses;
  std::int64_t scratch = 64, prepared = 0;
};
Played played;
}  // namespace
struct CudnnAttention::Plans {};
CudnnAttention::CudnnAttention(std::unique_ptr<Plans> plans) : plans_(std::move(plans)) {}
CudnnAttention::~CudnnAttention() = default;
std::unique_ptr<CudnnAttention> CudnnAttention::open(std::string*) {
  played = {};
  return std::unique_ptr<CudnnAttention>(new CudnnAttention(std::make_unique<Plans>()));
}
bool CudnnAttention::takes(Type type, const AttentionShape& s) {
  return type != Type::Float32 && s.form.softcap == 0;
}
Result<std::int64_t> CudnnAttention::prepare(bool, Type, const AttentionShape&) {
  ++played.prepared;
  if (!played.refuses.empty()) return Error{played.refuses};
  return played.scratch;
}
int CudnnAttention::forward(Stream stream, Type type, const AttentionShape& s, const void* qkv,
                            void* o, float* lse, void* scratch) {
  if (scratch == nullptr) return 1;
  return attention(stream, type, s, qkv, o, lse, AttentionEngine::Cudnn);
}
int CudnnAttention::backward(Stream stream, Type type, const AttentionShape& s, const void* d_o,
                             const void* qkv, const void* o, const float* lse, void* dqkv,
                             float* delta, void* scratch) {
  if (scratch == nullptr) return 1;
  return attention_backward(stream, type, s, d_o, qkv, o, lse, dqkv, delta, nullptr,
                            AttentionEngine::Cudnn);
}
const std::string& CudnnAttention::why() const {
  return played.why;
}

namespace {

using enum AttentionEngine;
constexpr AttentionShape kShape{
    .tokens = 8, .sequence = 4, .heads = 2, .kv_heads = 1, .head_dim = 16};

constexpr double kSlow = 3600;  // [s]: no load of this machine makes the other one slower

std::size_t free_bytes() {
  std::size_t free = 0, total = 0;
  cudaDeviceSynchronize();
  cudaMemGetInfo(&free, &total);
  return free;
}

class AttentionChoiceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (Engine& engine : engines) {
      engine.seconds = 0;
      engine.o = engine.dq = engine.dk = engine.dv = engine.lse = 1;
      engine.status = engine.calls = 0;
    }
    cudaStreamCreateWithFlags(&stream_, 0);
    free_ = free_bytes();
  }
  void TearDown() override {
    EXPECT_EQ(free_bytes(), free_) << "what a trial took is given back";
    cudaStreamDestroy(stream_);
  }
  AttentionChoice choice(std::string_view asked = "", bool has_wgmma = true,
                         CudnnAttention* cudnn = nullptr) {
    return {has_wgmma, asked, [this](const std::string& what) { said_.push_back(what); }, cudnn};
  }
  AttentionEngine forward(AttentionChoice& choice, const AttentionShape& shape = kShape,
                          Type type = Type::BFloat16) {
    return choice.forward(stream_, type, shape, nullptr);
  }
  // Lines, as another process gets them.
  static void hand(const AttentionChoice& from, AttentionChoice& to) {
    std::istringstream lines(from.choices());
    for (std::string line; std::getline(lines, line);) to.take(Type::BFloat16, line);
  }
  AttentionEngine backward(AttentionChoice& choice, const AttentionShape& shape = kShape) {
    return choice.backward(stream_, Type::BFloat16, shape, nullptr, nullptr, nullptr, nullptr);
  }
  AttentionEngine part(AttentionChoice& choice) {
    return choice.forward(stream_, Type::BFloat16, kShape, nullptr, true);
  }

  cudaStream_t stream_ = nullptr;
  std::size_t free_ = 0;
  std::vector<std::string> said_;
};

TEST_F(AttentionChoiceTest, TheFasterOneIsChosenOncePerShapeAndDirection) {
  of(MmaSync).seconds = kSlow;
  AttentionChoice c = choice();
  EXPECT_EQ(forward(c), Wgmma);
  const int calls = of(Wgmma).calls;
  EXPECT_EQ(forward(c), Wgmma);
  EXPECT_EQ(of(Wgmma).calls, calls);
  of(MmaSync).seconds = 0;
  of(Wgmma).seconds = kSlow;
  EXPECT_EQ(backward(c), MmaSync);
  AttentionShape longer = kShape;
  longer.sequence = 8;
  EXPECT_EQ(forward(c, longer), MmaSync);
  EXPECT_EQ(forward(c), Wgmma);
  EXPECT_TRUE(said_.empty());
}

TEST_F(AttentionChoiceTest, ADifferenceInAnyResultLeavesMmaSyncForAllShapesAndIsSaidOnce) {
  using Result = float Engine::*;
  for (const auto& [result, is_forward] : {std::pair<Result, bool>{&Engine::o, true},
                                           {&Engine::lse, true},
                                           {&Engine::dq, false},
                                           {&Engine::dk, false},
                                           {&Engine::dv, false}}) {
    SetUp();
    said_.clear();
    of(MmaSync).seconds = kSlow;
    AttentionChoice c = choice();
    AttentionShape before = kShape;
    before.sequence = 8;
    EXPECT_EQ(forward(c, before), Wgmma);
    of(Wgmma).*result = result == &Engine::dv ? NAN : 1.03F;
    EXPECT_EQ(is_forward ? forward(c) : backward(c), MmaSync);
    EXPECT_EQ(is_forward ? backward(c) : forward(c), MmaSync);
    EXPECT_EQ(forward(c, before), MmaSync);
    ASSERT_EQ(said_.size(), 1u);
    EXPECT_NE(said_[0].find("differs from mma.sync by"), std::string::npos) << said_[0];
    TearDown();
  }
  SetUp();
}

// DeepSeek-V2's: keys of 192 columns, values of 128. Each width is a shape of its own, and all of
// every result is compared.
TEST_F(AttentionChoiceTest, LatentHeadsAreTriedToo) {
  AttentionShape latent = kShape;
  latent.head_dim = 192;
  latent.value_dim = 128;
  AttentionShape narrow = latent;
  narrow.value_dim = 64;
  of(MmaSync).seconds = kSlow;
  AttentionChoice c = choice("say");
  EXPECT_EQ(forward(c, latent), Wgmma);
  EXPECT_EQ(said_.back().find("attention forward, 2 heads of 192 and values of 128, 2 x 4 tokens"),
            0u)
      << said_.back();
  of(MmaSync).seconds = 0;
  of(Wgmma).seconds = kSlow;
  EXPECT_EQ(forward(c, narrow), MmaSync);
  EXPECT_EQ(forward(c, latent), Wgmma);
  of(Wgmma).seconds = 0;
  of(Wgmma).dv = 1.03F;
  EXPECT_EQ(backward(c, latent), MmaSync);
  EXPECT_NE(said_.back().find("differs from mma.sync by"), std::string::npos) << said_.back();
}

TEST_F(AttentionChoiceTest, RoundingIsNoDifference) {
  of(MmaSync).seconds = kSlow;
  of(Wgmma).o = 1 + 1.0F / 128;  // one in the last place
  AttentionChoice c = choice();
  EXPECT_EQ(forward(c), Wgmma);
}

TEST_F(AttentionChoiceTest, WgmmaThatFailsLeavesMmaSync) {
  of(Wgmma).status = 98;
  AttentionChoice c = choice();
  EXPECT_EQ(forward(c), MmaSync);
  ASSERT_EQ(said_.size(), 1u);
  EXPECT_NE(said_[0].find("wgmma fails"), std::string::npos) << said_[0];
}

TEST_F(AttentionChoiceTest, WithoutMemoryForATrialItIsMmaSync) {
  of(MmaSync).seconds = kSlow;
  cuda_double::set_full(true);
  AttentionChoice c = choice();
  EXPECT_EQ(forward(c), MmaSync);
  EXPECT_EQ(backward(c), MmaSync);
  cuda_double::set_full(false);
  EXPECT_EQ(forward(c), MmaSync);  // and stays so
  ASSERT_EQ(said_.size(), 1u);     // once
  EXPECT_NE(said_[0].find("bytes of GPU memory for a trial"), std::string::npos) << said_[0];
  EXPECT_EQ(of(MmaSync).calls, 0);
}

TEST_F(AttentionChoiceTest, NothingIsTriedWhileAGraphIsCaptured) {
  of(MmaSync).seconds = kSlow;
  AttentionChoice c = choice();
  ASSERT_EQ(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  EXPECT_EQ(forward(c), MmaSync);
  cudaGraph_t graph = nullptr;
  ASSERT_EQ(cudaStreamEndCapture(stream_, &graph), cudaSuccess);
  cudaGraphDestroy(graph);
  EXPECT_EQ(of(MmaSync).calls, 0);
  EXPECT_EQ(forward(c), Wgmma);
}

TEST_F(AttentionChoiceTest, NothingIsTriedWhereThereIsNoChoice) {
  of(MmaSync).seconds = kSlow;
  AttentionChoice without = choice("", false), mma = choice("mma"), wgmma = choice("wgmma"),
                  c = choice();
  EXPECT_EQ(forward(without), MmaSync);
  EXPECT_EQ(forward(mma), MmaSync);
  EXPECT_EQ(forward(wgmma), Wgmma);
  EXPECT_EQ(backward(wgmma), Wgmma);
  EXPECT_EQ(forward(c, kShape, Type::Float32), MmaSync);
  AttentionShape wide = kShape;
  wide.head_dim = 192;
  EXPECT_EQ(forward(c, wide), MmaSync);
  EXPECT_EQ(of(MmaSync).calls + of(Wgmma).calls, 0);
}

// A process takes what another has chosen, whatever it finds or has found itself; where there is
// nothing to choose, it keeps what it has.
TEST_F(AttentionChoiceTest, WhatAnotherHasChosenIsTaken) {
  of(MmaSync).seconds = kSlow;
  AttentionChoice first = choice(), second = choice(), mma = choice("mma");
  EXPECT_EQ(forward(first), Wgmma);
  of(MmaSync).seconds = 0;
  of(Wgmma).seconds = kSlow;
  EXPECT_EQ(backward(first), MmaSync);
  EXPECT_EQ(forward(second), MmaSync);
  hand(first, second);
  hand(first, mma);
  const int calls = of(Wgmma).calls + of(MmaSync).calls;
  EXPECT_EQ(forward(second), Wgmma);
  EXPECT_EQ(backward(second), MmaSync);
  EXPECT_EQ(of(Wgmma).calls + of(MmaSync).calls, calls);  // no trial
  EXPECT_EQ(forward(mma), MmaSync);
  EXPECT_EQ(second.choices(), first.choices());
  // A difference that one has found is one for all.
  of(Wgmma).seconds = 0;
  of(Wgmma).o = 1.03F;
  AttentionChoice third = choice();
  EXPECT_EQ(forward(third), MmaSync);
  hand(third, first);
  EXPECT_EQ(forward(first), MmaSync);
  EXPECT_EQ(backward(first), MmaSync);
  EXPECT_EQ(first.choices().find("attention wgmma differed=1\n"), 0u) << first.choices();
  for (const char* not_a_choice : {"attention 1 2", "attention 0 8 4 2 1 16 16 0 0 x1",
                                   "attention 0 8 4 2 1 16 16 0 0=7", "product 1=2"}) {
    second.take(Type::BFloat16, not_a_choice);
  }
  EXPECT_EQ(forward(second), Wgmma);
}

TEST_F(AttentionChoiceTest, SaysWhatItChoseWhenAskedTo) {
  of(MmaSync).seconds = kSlow;
  AttentionChoice c = choice("say");
  EXPECT_EQ(forward(c), Wgmma);
  ASSERT_EQ(said_.size(), 1u);
  EXPECT_EQ(said_[0].find("attention forward, 2 heads of 16, 2 x 4 tokens: wgmma: wgmma "), 0u)
      << said_[0];
}

// --- cuDNN, a third engine -------------------------------------------------------

class CudnnChoiceTest : public AttentionChoiceTest {
 protected:
  std::string why_;
  std::unique_ptr<CudnnAttention> cudnn_ = CudnnAttention::open(&why_);
};

TEST_F(CudnnChoiceTest, TheFastestOfThreeIsChosen) {
  for (const auto fastest : {MmaSync, Wgmma, Cudnn}) {
    for (const auto engine : {MmaSync, Wgmma, Cudnn}) {
      of(engine).seconds = engine == fastest ? 0 : kSlow * (1 + static_cast<int>(engine));
    }
    AttentionChoice c = choice("", true, cudnn_.get()), without = choice("", false, cudnn_.get());
    EXPECT_EQ(forward(c), fastest);
    EXPECT_EQ(backward(c), fastest);
    EXPECT_EQ(forward(without), fastest == Wgmma ? MmaSync : fastest);  // no wgmma on the device
    EXPECT_EQ(c.scratch(), fastest == Cudnn ? 64 : 0);
  }
  EXPECT_TRUE(said_.empty());
}

TEST_F(CudnnChoiceTest, PartsRunOnTheFastestOfTheOthers) {
  of(MmaSync).seconds = 2 * kSlow;
  of(Wgmma).seconds = kSlow;
  AttentionChoice c = choice("", true, cudnn_.get());
  EXPECT_EQ(part(c), Wgmma);
  EXPECT_EQ(played.prepared, 0);  // no second of compiling for what it cannot do
  EXPECT_EQ(forward(c), Cudnn);
  EXPECT_EQ(part(c), Wgmma);
}

// Windows and heads of 256 columns run on no tensor cores of ours, but on cuDNN's.
TEST_F(CudnnChoiceTest, IsTriedWhereOursHaveNoTensorCores) {
  of(MmaSync).seconds = kSlow;
  AttentionShape wide = kShape, near = kShape, capped = kShape;
  wide.head_dim = 256;
  near.form.window = 2;
  capped.form.softcap = 30;
  AttentionChoice c = choice("say", true, cudnn_.get());
  EXPECT_EQ(forward(c, wide), Cudnn);
  EXPECT_EQ(forward(c, near), Cudnn);
  EXPECT_NE(said_.back().find("2 x 4 tokens, window 2: cudnn: cudnn "), std::string::npos)
      << said_.back();
  EXPECT_EQ(forward(c, capped), MmaSync);
  EXPECT_EQ(of(Wgmma).calls, 0);
}

TEST_F(CudnnChoiceTest, ADifferenceLeavesItOutOfAllShapesAndTheOthersIn) {
  of(MmaSync).seconds = 2 * kSlow;
  of(Wgmma).seconds = kSlow;
  AttentionChoice c = choice("", true, cudnn_.get());
  AttentionShape before = kShape;
  before.sequence = 8;
  EXPECT_EQ(forward(c, before), Cudnn);
  of(Cudnn).lse = 1.001F;
  EXPECT_EQ(forward(c), Wgmma);
  EXPECT_EQ(backward(c), Wgmma);  // is not even tried
  EXPECT_EQ(forward(c, before), Wgmma);
  ASSERT_EQ(said_.size(), 1u);
  EXPECT_NE(said_[0].find("cudnn differs from mma.sync by 0.001 of the largest value; it is left "
                          "out of all"),
            std::string::npos)
      << said_[0];
  // And of those of other processes.
  AttentionChoice other = choice("", true, cudnn_.get());
  of(Cudnn).lse = 1;
  EXPECT_EQ(forward(other), Cudnn);
  hand(c, other);
  EXPECT_EQ(forward(other), Wgmma);
}

TEST_F(CudnnChoiceTest, WhatItRefusesIsLeftOutAndSaidOncePerReason) {
  of(MmaSync).seconds = 2 * kSlow;
  of(Wgmma).seconds = kSlow;
  played.refuses = "no engine";
  AttentionChoice c = choice("", true, cudnn_.get());
  AttentionShape longer = kShape;
  longer.sequence = 8;
  EXPECT_EQ(forward(c), Wgmma);
  EXPECT_EQ(forward(c, longer), Wgmma);
  played.refuses = "too much memory";
  EXPECT_EQ(backward(c), Wgmma);
  ASSERT_EQ(said_.size(), 2u);
  EXPECT_EQ(said_[0],
            "attention forward, 2 heads of 16, 2 x 4 tokens: cudnn is left out: no engine");
  EXPECT_EQ(said_[1],
            "attention backward, 2 heads of 16, 2 x 4 tokens: cudnn is left out: too much memory");
  played.refuses = "";
  of(Cudnn).status = 999;  // a plan that does not run
  played.why = "it broke";
  AttentionShape longest = kShape;
  longest.tokens = longest.sequence = 16;
  EXPECT_EQ(forward(c, longest), Wgmma);
  EXPECT_NE(said_.back().find("cudnn is left out: it broke"), std::string::npos) << said_.back();
  EXPECT_EQ(c.scratch(), 0);
}

TEST_F(CudnnChoiceTest, IsTakenFromAnotherProcessWhereItRunsHereToo) {
  of(MmaSync).seconds = kSlow;
  of(Wgmma).seconds = 2 * kSlow;
  AttentionChoice first = choice("", true, cudnn_.get());
  EXPECT_EQ(forward(first), Cudnn);
  AttentionChoice same = choice("", true, cudnn_.get()), lacks = choice();
  hand(first, same);
  EXPECT_EQ(same.scratch(), 64);  // known before the first call
  hand(first, lacks);
  const int calls = of(Cudnn).calls + of(MmaSync).calls;
  first.leave_out_cudnn("no memory");
  EXPECT_EQ(forward(first), MmaSync);
  EXPECT_EQ(first.scratch(), 0);
  EXPECT_EQ(said_.back(), "attention: cudnn is left out: no memory");
  EXPECT_EQ(forward(same), Cudnn);
  EXPECT_EQ(forward(lacks), MmaSync);
  played.refuses = "no engine";
  AttentionChoice refused = choice("", true, cudnn_.get());
  hand(first, refused);
  EXPECT_EQ(forward(refused), MmaSync);
  EXPECT_EQ(of(Cudnn).calls + of(MmaSync).calls, calls);
}

TEST_F(CudnnChoiceTest, IsAskedForWithoutATrial) {
  AttentionChoice c = choice("cudnn", true, cudnn_.get());
  EXPECT_EQ(forward(c), Cudnn);
  EXPECT_EQ(part(c), MmaSync);
  played.refuses = "no engine";
  EXPECT_EQ(backward(c), MmaSync);
  EXPECT_EQ(of(Cudnn).calls + of(MmaSync).calls + of(Wgmma).calls, 0);
  ASSERT_EQ(said_.size(), 1u);
}

}  // namespace
}  // namespace rehearse::exec::cuda
