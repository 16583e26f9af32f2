// SPDX-License-Identifier: Apache-2.0
// What the double of cuBLASLt alone can show: products where there is no memory for a trial, and
// algorithms that another process has chosen, which this device may lack.
#include <sstream>

#include "exec/cuda/calls/gemm.h"
#include "tests/cuda/memory.h"

extern bool rehearse_cublaslt_double_is_full;
extern std::uint64_t rehearse_cublaslt_double_lacks;
extern float rehearse_cublaslt_double_epilogue, rehearse_cublaslt_double_bias;

namespace rehearse::exec::cuda::testing {
namespace {

TEST(GemmMemory, ATrialThatHasNoneIsSaidOnce) {
  std::vector<std::string> said;
  Gemm gemm([&](const std::string& what) { said.push_back(what); });
  Memory d(Type::BFloat16);
  Array &x = d.values(std::vector<float>(16 * 32, 1)),
        &dy = d.values(std::vector<float>(16 * 24, 1)),
        &dw = d.floats(std::vector<float>(24 * 32, 0)), &room = d.scratch(1 << 20);
  rehearse_cublaslt_double_is_full = true;
  for (const std::int64_t m : {16, 8}) {
    d.run([&] {
      return gemm.linear_weight(nullptr, Type::BFloat16, m, 24, 32, dy.at(), x.at(), dw.at<float>(),
                                {room.at(), 1 << 20});
    });
  }
  rehearse_cublaslt_double_is_full = false;
  EXPECT_EQ(gemm.timed(), 0);
  ASSERT_EQ(said.size(), 1u);
  EXPECT_EQ(said[0].find("products: no 3072 bytes of GPU memory for a trial"), 0u) << said[0];
}

// Of the double's four algorithms the third is the fastest.
TEST(GemmChoices, OfAnotherProcessAreTakenWhereTheDeviceHasThem) {
  constexpr std::uint64_t kFastest = 2;
  Memory d(Type::BFloat16);
  Array &x = d.values(std::vector<float>(16 * 32, 1)),
        &w = d.values(std::vector<float>(24 * 32, 1)), &y = d.empty(16 * 24),
        &room = d.scratch(1 << 20);
  Gemm first, second, lacking;
  std::string chosen;
  const auto multiply = [&](Gemm& gemm) {
    return gemm.linear(nullptr, Type::BFloat16, 16, 24, 32, x.at(), w.at(), nullptr, y.at(),
                       {room.at(), 1 << 20});
  };
  const auto take = [&](Gemm& gemm) {
    std::istringstream lines(chosen);
    for (std::string line; std::getline(lines, line);) gemm.take(line);
  };
  d.run([&] {
    first.only_plan(true);
    int status = multiply(first);
    chosen = first.choices();
    take(second);
    take(lacking);
    if (status == 0) status = multiply(second);
    rehearse_cublaslt_double_lacks = kFastest;
    if (status == 0) status = multiply(lacking);
    rehearse_cublaslt_double_lacks = ~std::uint64_t{0};
    return status;
  });
  EXPECT_NE(chosen.find('=' + std::to_string(kFastest) + ' '), std::string::npos) << chosen;
  EXPECT_GT(first.timed(), 1);
  EXPECT_EQ(second.timed(), 0);
  EXPECT_EQ(second.choices(), chosen);
  EXPECT_GT(lacking.timed(), 1);
  EXPECT_EQ(y.values(), std::vector<float>(16 * 24, 32));
  for (const char* not_a_choice : {"product 1 2", "attention 1=2", "product"}) {
    second.take(not_a_choice);
  }
  EXPECT_EQ(second.choices(), chosen);
}

// A bias's gradient is summed by the product's epilogue where that is faster and gives the same,
// and as another process found it.
TEST(GemmBias, IsSummedByTheEpilogueWhereThatIsFaster) {
  Memory d(Type::BFloat16);
  Array &x = d.values(std::vector<float>(16 * 32, 1)),
        &dy = d.values(std::vector<float>(16 * 24, 1)), &room = d.scratch(1 << 20);
  Array &dw = d.floats(std::vector<float>(24 * 32, 0)), &sums = d.floats(std::vector<float>(24, 0));
  Array& scratch = d.scratch(Gemm::bias_scratch(16, 24));
  std::vector<std::string> said;
  const auto chosen = [&](float takes, float off, bool full, const std::string& given) {
    rehearse_cublaslt_double_epilogue = takes;
    rehearse_cublaslt_double_bias = off;
    rehearse_cublaslt_double_is_full = full;
    Gemm gemm([&](const std::string& what) { said.push_back(what); });
    if (!given.empty()) gemm.take(given);
    EXPECT_EQ(gemm.linear_weight_bias(nullptr, Type::BFloat16, 16, 24, 32, dy.at(), x.at(),
                                      dw.at<float>(), sums.at<float>(), {room.at(), 1 << 20},
                                      scratch.at()),
              0);
    const std::string lines = gemm.choices();
    return lines.substr(lines.find("bias"));
  };
  const std::string fused = "bias 1 16 24 32=1\n", apart = "bias 1 16 24 32=0\n";
  d.run([&] {
    EXPECT_EQ(chosen(-0.5F, 1, false, ""), fused);
    EXPECT_EQ(chosen(0.5F, 1, false, ""), apart);
    EXPECT_EQ(chosen(0.5F, 1, false, fused), fused);
    EXPECT_EQ(chosen(-0.5F, 1.03F, false, ""), apart);
    EXPECT_EQ(said.size(), 1U);
    EXPECT_EQ(chosen(-0.5F, 1, true, ""), apart);
    EXPECT_EQ(said.size(), 3U);  // and no memory for the bias's trial, nor for the weight's
    EXPECT_EQ(said[1],
              "products: no 3272 bytes of GPU memory for a trial: bias gradients are summed by "
              "passes of their own, perhaps the slower way");
    said.clear();
    chosen(-0.5F, 1, false, "");
    return 0;
  });
  // Each of the six, whichever way it went, added 16 ones to every column.
  EXPECT_EQ(sums.values()[0], 6 * 16);
  EXPECT_EQ(dw.values()[0], 6 * 16);
}

}  // namespace
}  // namespace rehearse::exec::cuda::testing
