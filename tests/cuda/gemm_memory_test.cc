// SPDX-License-Identifier: Apache-2.0
// Products where there is no memory for a trial: on the double of cuBLASLt alone, which can be
// full.
#include "exec/cuda/calls/gemm.h"
#include "tests/cuda/memory.h"

extern bool rehearse_cublaslt_double_is_full;

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

}  // namespace
}  // namespace rehearse::exec::cuda::testing
