// SPDX-License-Identifier: Apache-2.0
// The real cuDNN, where it is installed, takes our graphs of attention: it makes plans for
// described devices that are not there (CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR), compiles their
// kernels, and hands them to a driver that only says yes (driver_double.cc). Nothing runs.
#include <gtest/gtest.h>

#include "exec/cuda/cudnn/attention_graph.h"

namespace rehearse::exec::cuda::cudnn {
namespace {

// Of the deviceQuery of such cards: what cuDNN chooses engines by.
std::string device(int capability, int processors, int shared_bytes) {
  return R"({"deviceVer":)" + std::to_string(capability) + R"(,"multiProcessorCount":)" +
         std::to_string(processors) + R"(,"maxSharedMemoryPerBlockOptin":)" +
         std::to_string(shared_bytes) +
         R"(,"driverVer":13000,"cudaDeviceId":0,"maxGridSize":[2147483647,65535,65535],
"maxBlockSize":[1024,1024,64],"regsPerBlock":65536,"warpSize":32,"maxSharedMemoryPerBlock":49152,
"reservedSharedMemoryPerBlock":1024,"maxRegistersPerSM":65536,"maxCtasPerSM":32,
"maxThreadsPerBlock":1024,"maxThreadsPerSM":2048,"pciDeviceId":0,"isTccDriver":0,
"supportCoopLaunch":1,"smClockRateKHz":1980000,"memClockRateKHz":2619000,"l2CacheSize":52428800,
"totalGlobalMem":85000000000,"deviceName":"described"})";
}
const std::string kA100 = device(800, 108, 166912), kH100 = device(900, 132, 232448);

class CudnnGraphs : public testing::Test {
 protected:
  void SetUp() override {
    std::string why;
    calls_ = library(&why);
    if (calls_ != nullptr && calls_->cudnnGetVersion() < 91100) why = "cuDNN is older than 9.11";
    if (why.empty()) return;
    std::printf("SKIPPED: %s\n", why.c_str());
    GTEST_SKIP() << why;
  }
  // Bytes beside the arrays; -1: it has no engine. Anything else that it says fails the test.
  std::int64_t plan(const std::string& device, bool backward, const AttentionShape& s,
                    Type type = Type::BFloat16) {
    cudnnBackendDescriptor_t made = nullptr;
    EXPECT_EQ(calls_->cudnnBackendCreateDescriptor(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &made), 0);
    const Descriptor properties(*calls_, made);
    EXPECT_EQ(calls_->cudnnBackendSetAttribute(
                  made, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
                  static_cast<std::int64_t>(device.size()), device.data()),
              0);
    const cudnnStatus_t known = calls_->cudnnBackendFinalize(made);
    EXPECT_EQ(known, 0) << said(*calls_, known);
    Graph graph(*calls_);
    backward ? backward_graph(graph, type, s) : forward_graph(graph, type, s);
    const Descriptor plan = graph.plan({.properties = made}, Sums::InOneOrder);
    if (graph.error() == "it has no engine for this") return -1;
    EXPECT_EQ(graph.error(), "");
    return plan.get() == nullptr ? -2 : workspace_bytes(*calls_, plan.get());
  }
  const Library* calls_ = nullptr;
};

AttentionShape shape(std::int64_t head, std::int64_t kv_heads, std::int64_t window = 0) {
  AttentionShape s{.tokens = 2000, .sequence = 1000, .heads = 8, .kv_heads = kv_heads};
  s.head_dim = head;
  if (head == 192) s.value_dim = 128;
  s.form.window = window;
  return s;
}
// dP of 2 samples and 8 heads, in 16 bits.
constexpr std::int64_t kGradients = std::int64_t{2} * 2 * 8 * 1000 * 1000;

TEST_F(CudnnGraphs, AreTakenForAnH100) {
  for (const std::int64_t head : {64, 128, 192, 256}) {
    EXPECT_GE(plan(kH100, false, shape(head, 8)), 0) << head;
    EXPECT_GE(plan(kH100, true, shape(head, 8)), kGradients) << head;
  }
}
TEST_F(CudnnGraphs, AreTakenWithGroupedKeysWindowsAndInFp16) {
  for (const AttentionShape& s : {shape(128, 2), shape(64, 8, 256), shape(64, 1, 7)}) {
    EXPECT_GE(plan(kH100, false, s), 0);
    EXPECT_GE(plan(kH100, true, s), kGradients);
  }
  EXPECT_GE(plan(kH100, false, shape(64, 2), Type::Float16), 0);
  EXPECT_GE(plan(kH100, true, shape(64, 2), Type::Float16), kGradients);
}
// The support matrix: gradients of heads of 256 on Hopper alone.
TEST_F(CudnnGraphs, AreTakenForAnA100WhereItsMatrixSaysSo) {
  EXPECT_GE(plan(kA100, false, shape(64, 8)), 0);
  EXPECT_GE(plan(kA100, true, shape(64, 8)), kGradients);
  EXPECT_GE(plan(kA100, false, shape(256, 8)), 0);
  EXPECT_EQ(plan(kA100, true, shape(256, 8)), -1);
}

}  // namespace
}  // namespace rehearse::exec::cuda::cudnn
