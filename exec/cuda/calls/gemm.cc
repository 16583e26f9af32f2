// SPDX-License-Identifier: Apache-2.0
#include "exec/cuda/calls/gemm.h"

#include <sstream>
#include <string_view>
#include <utility>

#include "exec/cuda/calls/gemm_plan.h"

namespace rehearse::exec::cuda {
namespace {

int add_to(Stream stream, std::int64_t count, const float* from, float* to) {
  const void* in[] = {to, from};
  void* out[] = {to};
  return reduce_arrays(stream, Type::Float32, Reduction::Sum, count, in, out);
}

constexpr std::int64_t aligned_bytes(std::int64_t bytes) {
  return (bytes + 255) / 256 * 256;
}

}  // namespace

// The epilogue's sums, then what the pass of its own takes.
std::int64_t Gemm::bias_scratch(std::int64_t m, std::int64_t n) {
  return aligned_bytes(4 * n) + column_sums_scratch(m, n);
}

int Gemm::linear_weight_bias(Stream stream, Type type, std::int64_t m, std::int64_t n,
                             std::int64_t k, const void* dy, const void* x, float* dw, float* sums,
                             GemmWorkspace workspace, void* scratch) {
  Plans& p = *plans_;
  auto* own = static_cast<float*>(scratch);
  void* pass = static_cast<std::byte*>(scratch) + aligned_bytes(4 * n);
  const auto in_epilogue = [&](float* to, float* bias) {
    const int status = p.run(stream, workspace, type, Product::WeightGradientBias, m, n, k,
                             {.left = x, .right = dy, .bias = own, .out = to});
    return status != 0 || p.only_plans ? status : add_to(stream, n, own, bias);
  };
  const auto in_a_pass = [&](float* to, float* bias) {
    const int status = linear_weight(stream, type, m, n, k, dy, x, to, workspace);
    return status != 0 || p.only_plans ? status
                                       : add_column_sums(stream, type, m, n, dy, bias, pass);
  };
  if (m == 0 || n == 0 || k == 0) return in_a_pass(dw, sums);
  const std::array<std::int64_t, 4> shape{static_cast<std::int64_t>(type), m, n, k};
  auto found = p.sums_in_epilogue.find(shape);
  if (found == p.sums_in_epilogue.end()) {
    const bool tries = p.tuning && type != Type::Float32;
    const bool faster = tries && p.epilogue_is_faster(stream, m, n, k, in_epilogue, in_a_pass);
    found = p.sums_in_epilogue.emplace(shape, faster).first;
  }
  if (found->second) {
    const int status = in_epilogue(dw, sums);
    if (status != cudaErrorNotSupported) return status;
    found->second = false;  // another process has found it, on another device
  }
  return in_a_pass(dw, sums);
}

Gemm::Gemm(Say say) : plans_(std::make_unique<Plans>()) {
  plans_->say = std::move(say);
  plans_->created = cublasLtCreate(&plans_->handle);
}
Gemm::~Gemm() {
  plans_->plans.clear();
  if (plans_->handle != nullptr) cublasLtDestroy(plans_->handle);
}

int Gemm::linear(Stream stream, Type type, std::int64_t m, std::int64_t n, std::int64_t k,
                 const void* x, const void* w, const void* bias, void* y, GemmWorkspace workspace) {
  // The epilogue reads the bias 16 bytes at a time.
  const bool fused = bias != nullptr && alignment_of(bias) >= 16;
  const int status =
      plans_->run(stream, workspace, type, fused ? Product::LinearBias : Product::Linear, m, n, k,
                  {.left = w, .right = x, .bias = fused ? bias : nullptr, .out = y});
  return status != 0 || bias == nullptr || fused ? status : add_bias(stream, type, m, n, bias, y);
}

int Gemm::linear_gelu(Stream stream, Type type, std::int64_t m, std::int64_t n, std::int64_t k,
                      const void* x, const void* w, const void* bias, void* u, void* y,
                      GemmWorkspace workspace) {
  if (type == Type::Float32 || n % 8 != 0 || alignment_of(u) < 16 || alignment_of(y) < 16 ||
      bias == nullptr || alignment_of(bias) < 16) {
    return cudaErrorNotSupported;
  }
  return plans_->run(stream, workspace, type, Product::LinearBiasGelu, m, n, k,
                     {.left = w, .right = x, .bias = bias, .out = y, .aux = u});
}

int Gemm::linear_fp32(Stream stream, Type type, std::int64_t m, std::int64_t n, std::int64_t k,
                      const void* x, const void* w, float* y, GemmWorkspace workspace) {
  return plans_->run(stream, workspace, type, Product::LinearFp32, m, n, k,
                     {.left = w, .right = x, .out = y});
}

int Gemm::linear_input(Stream stream, Type type, std::int64_t m, std::int64_t n, std::int64_t k,
                       const void* dy, const void* w, void* dx, GemmWorkspace workspace) {
  return plans_->run(stream, workspace, type, Product::InputGradient, m, n, k,
                     {.left = w, .right = dy, .out = dx});
}

int Gemm::linear_input_gelu(Stream stream, Type type, std::int64_t m, std::int64_t n,
                            std::int64_t k, const void* dy, const void* w, const void* u, void* du,
                            GemmWorkspace workspace) {
  if (type == Type::Float32 || k % 8 != 0 || alignment_of(u) < 16) return cudaErrorNotSupported;
  // The epilogue only reads `aux` here.
  return plans_->run(stream, workspace, type, Product::InputGradientGelu, m, n, k,
                     {.left = w, .right = dy, .out = du, .aux = const_cast<void*>(u)});
}

int Gemm::linear_weight(Stream stream, Type type, std::int64_t m, std::int64_t n, std::int64_t k,
                        const void* dy, const void* x, float* dw, GemmWorkspace workspace) {
  return plans_->run(stream, workspace, type, Product::WeightGradient, m, n, k,
                     {.left = x, .right = dy, .out = dw});
}

int Gemm::logits(Stream stream, Type type, std::int64_t m, std::int64_t n, std::int64_t k,
                 std::int64_t stride, const void* x, const void* w, void* y,
                 GemmWorkspace workspace) {
  return plans_->run(stream, workspace, type, Product::Linear, m, n, k,
                     {.left = w, .right = x, .out = y, .stride = stride});
}

int Gemm::logits_input(Stream stream, Type type, std::int64_t m, std::int64_t n, std::int64_t k,
                       std::int64_t stride, const void* dy, const void* w, void* dx,
                       GemmWorkspace workspace) {
  return plans_->run(stream, workspace, type, Product::InputGradient, m, n, k,
                     {.left = w, .right = dy, .out = dx, .stride = stride});
}

int Gemm::logits_weight(Stream stream, Type type, std::int64_t m, std::int64_t n, std::int64_t k,
                        std::int64_t stride, const void* dy, const void* x, float* dw,
                        GemmWorkspace workspace) {
  return plans_->run(stream, workspace, type, Product::WeightGradient, m, n, k,
                     {.left = x, .right = dy, .out = dw, .stride = stride});
}

int Gemm::linear_piece(Stream stream, Type type, const PieceShape& p, const void* x, const void* w,
                       const void* bias, void* y, GemmWorkspace workspace) {
  const bool fused = bias != nullptr && alignment_of(bias) >= 16;
  const int status = plans_->run(stream, workspace, type,
                                 fused ? Product::LinearBias : Product::Linear, p.rows, p.n, p.k,
                                 {.left = w,
                                  .right = x,
                                  .bias = fused ? bias : nullptr,
                                  .out = y,
                                  .parts = p.parts,
                                  .apart = p.apart});
  if (status != 0 || bias == nullptr || fused) return status;
  for (std::int64_t part = 0; part < p.parts; ++part) {
    auto* to = static_cast<std::byte*>(y) + part * p.apart * p.n * bytes_of(type);
    if (const int added = add_bias(stream, type, p.rows, p.n, bias, to); added != 0) return added;
  }
  return 0;
}

int Gemm::linear_gelu_piece(Stream stream, Type type, const PieceShape& p, const void* x,
                            const void* w, const void* bias, void* u, void* y,
                            GemmWorkspace workspace) {
  if (type == Type::Float32 || p.n % 8 != 0 || alignment_of(u) < 16 || alignment_of(y) < 16 ||
      bias == nullptr || alignment_of(bias) < 16) {
    return cudaErrorNotSupported;
  }
  return plans_->run(stream, workspace, type, Product::LinearBiasGelu, p.rows, p.n, p.k,
                     {.left = w,
                      .right = x,
                      .bias = bias,
                      .out = y,
                      .aux = u,
                      .parts = p.parts,
                      .apart = p.apart});
}

int Gemm::linear_input_piece(Stream stream, Type type, const PieceShape& p, const void* dy,
                             const void* w, void* dx, GemmWorkspace workspace) {
  return plans_->run(stream, workspace, type, Product::InputGradient, p.rows, p.n, p.k,
                     {.left = w, .right = dy, .out = dx, .parts = p.parts, .apart = p.apart});
}

int Gemm::linear_input_gelu_piece(Stream stream, Type type, const PieceShape& p, const void* dy,
                                  const void* w, const void* u, void* du, GemmWorkspace workspace) {
  if (type == Type::Float32 || p.k % 8 != 0 || alignment_of(u) < 16) return cudaErrorNotSupported;
  return plans_->run(stream, workspace, type, Product::InputGradientGelu, p.rows, p.n, p.k,
                     {.left = w,
                      .right = dy,
                      .out = du,
                      .aux = const_cast<void*>(u),
                      .parts = p.parts,
                      .apart = p.apart});
}

void Gemm::tune(bool on) {
  plans_->tuning = on;
}
void Gemm::only_plan(bool on) {
  plans_->only_plans = on;
}

namespace {

// "product TYPE PRODUCT m n k stride left right out workspace parts apart", as a line's key.
constexpr std::string_view kLine = "product ";
// "bias TYPE m n k", likewise.
constexpr std::string_view kBiasLine = "bias ";
std::array<std::int64_t, 12> numbers_of(const GemmKey& k) {
  return {static_cast<std::int64_t>(k.type),
          static_cast<std::int64_t>(k.product),
          k.m,
          k.n,
          k.k,
          k.stride,
          k.left,
          k.right,
          k.out,
          k.workspace,
          k.parts,
          k.apart};
}

}  // namespace

std::string Gemm::choices() const {
  std::string lines;
  for (const auto& [key, plan] : plans_->plans) {
    if (!plans_->tuning || key.type == Type::Float32) continue;
    lines += kLine;
    for (const std::int64_t number : numbers_of(key)) lines += std::to_string(number) + ' ';
    lines.back() = '=';
    for (const std::uint64_t word : plan.algorithm.data) lines += std::to_string(word) + ' ';
    lines.back() = '\n';
  }
  for (const auto& [shape, in_epilogue] : plans_->sums_in_epilogue) {
    if (!plans_->tuning || static_cast<Type>(shape[0]) == Type::Float32) continue;
    lines += kBiasLine;
    for (const std::int64_t number : shape) lines += std::to_string(number) + ' ';
    lines.back() = '=';
    lines += in_epilogue ? "1\n" : "0\n";
  }
  return lines;
}

void Gemm::take(const std::string& line) {
  if (line.starts_with(kBiasLine)) {
    std::istringstream in(line.substr(kBiasLine.size()));
    std::array<std::int64_t, 4> shape{};
    for (std::int64_t& number : shape) in >> number;
    char equals = 0;
    int in_epilogue = 0;
    in >> equals >> in_epilogue;
    if (!in.fail() && equals == '=') plans_->sums_in_epilogue[shape] = in_epilogue == 1;
    return;
  }
  if (!line.starts_with(kLine)) return;
  std::istringstream in(line.substr(kLine.size()));
  std::array<std::int64_t, 12> n{};
  for (std::int64_t& number : n) in >> number;
  char equals = 0;
  in >> equals;
  cublasLtMatmulAlgo_t algorithm{};
  for (std::uint64_t& word : algorithm.data) in >> word;
  if (in.fail() || equals != '=') return;
  const auto narrow = [](std::int64_t number) { return static_cast<std::int32_t>(number); };
  const GemmKey key{.type = static_cast<Type>(n[0]),
                    .product = static_cast<Product>(n[1]),
                    .m = n[2],
                    .n = n[3],
                    .k = n[4],
                    .stride = n[5],
                    .left = narrow(n[6]),
                    .right = narrow(n[7]),
                    .out = narrow(n[8]),
                    .workspace = n[9],
                    .parts = n[10],
                    .apart = n[11]};
  plans_->given.insert_or_assign(key, algorithm);
  const auto made = plans_->plans.find(key);
  if (made != plans_->plans.end()) plans_->take_given(key, made->second);
}

std::int64_t Gemm::plans() const {
  return static_cast<std::int64_t>(plans_->plans.size());
}
std::int64_t Gemm::timed() const {
  return plans_->timed;
}

}  // namespace rehearse::exec::cuda
