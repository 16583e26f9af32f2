// SPDX-License-Identifier: Apache-2.0
// The CUDA backend: every call enqueues a kernel on its lane's stream and returns.
//
// Device memory: the arenas, which the schedule planned, and beside them what this file allocates
// in the first step and never after: per compute lane scratch of the column sums, the workspace of
// the matrix products, and lists of pieces for the end of a step.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <tuple>

#include "exec/cuda/attention_choice.h"
#include "exec/cuda/device_memory.h"
#include "exec/cuda/gemm.h"
#include "exec/cuda/graphs.h"
#include "exec/cuda/kernels.h"
#include "exec/cuda/make.h"
#include "exec/cuda/streams.h"

namespace rehearse::exec::cuda {
namespace {

std::size_t size(std::int64_t bytes) {
  return static_cast<std::size_t>(bytes);
}

class CudaBackend final : public Backend, public StreamSource {
 public:
  explicit CudaBackend(const CudaOptions& options)
      : options_(options),
        type_(options.type == ElementType::BFloat16 ? Type::BFloat16 : Type::Float32),
        graphs_(options.graphs),
        streams_(options.label) {
    cudaDeviceProp properties{};
    streams_.check(cudaGetDeviceProperties(&properties, options.device), "cudaGetDeviceProperties");
    device_ = properties.name;
    choice_ = AttentionChoice(properties.major == 9, options.attention, options.warn);
  }
  ~CudaBackend() override {
    if (healthy_) cudaDeviceSynchronize();
  }

  std::string_view name() const override { return "cuda"; }
  std::string_view device() const override { return device_; }
  bool asynchronous() const override { return true; }

  // --- memory ----------------------------------------------------------------
  Result<std::byte*> allocate(std::int32_t rank, std::int64_t bytes) override {
    DeviceMemory memory;
    const int error = memory.reserve(std::max<std::int64_t>(bytes, 1));
    if (error != 0) {
      return Error{"no memory on the GPU for the arena of rank " + std::to_string(rank) + ": " +
                   std::to_string(bytes) + " bytes (" +
                   cudaGetErrorString(static_cast<cudaError_t>(error)) + ")"};
    }
    streams_.check(cudaMemset(memory.data(), 0, size(bytes)), "cudaMemset");
    if (arenas_.empty()) first_rank_ = rank;
    std::byte* const data = memory.data();
    if (!ranks_.empty() && rank < first_rank_ + static_cast<std::int32_t>(ranks_.size())) {
      more_.push_back(std::move(memory));  // the rank has its arena and lanes
    } else {
      streams_.add_rank(rank);
      ranks_.emplace_back();
      arenas_.push_back(std::move(memory));
    }
    if (!streams_.error().empty()) return Error{streams_.error()};
    return data;
  }
  Result<std::byte*> allocate_host(std::int32_t rank, std::int64_t bytes) override {
    PinnedMemory memory;
    const int error = memory.reserve(std::max<std::int64_t>(bytes, 1));
    if (error != 0) {
      return Error{"no pinned memory on the host for rank " + std::to_string(rank) + ": " +
                   std::to_string(bytes) + " bytes (" +
                   cudaGetErrorString(static_cast<cudaError_t>(error)) + ")"};
    }
    std::memset(memory.data(), 0, size(bytes));
    return hosts_.emplace_back(std::move(memory)).data();
  }
  // cudaMemcpyDefault: an address says whether it is the device's.
  void write(std::byte* to, const void* from, std::int64_t bytes) override {
    streams_.check(cudaMemcpy(to, from, size(bytes), cudaMemcpyDefault), "cudaMemcpy");
  }
  void read(void* to, const std::byte* from, std::int64_t bytes) override {
    streams_.check(cudaMemcpy(to, from, size(bytes), cudaMemcpyDefault), "cudaMemcpy");
  }

  // --- order -----------------------------------------------------------------
  void begin_step() override {
    graphs_.begin_step();
    streams_.begin_step();
  }
  void begin(Lane lane, OpId op, std::span<const OpId> waits) override {
    streams_.begin(lane, op, waits);
  }
  void end(Lane lane, OpId op) override { streams_.end(lane, op); }
  bool replay(Lane lane, OpId op) override {
    if (!streams_.error().empty()) return false;  // the step has failed
    const bool launched = graphs_.replay(lane.rank, op, on(lane));
    if (!launched) say_without_graph(op);
    return launched;
  }
  bool in_vain(Lane lane, OpId op) override {
    if (!graphs_.captures(lane.rank, op)) return false;
    const bool launched = graphs_.end(on(lane), streams_.forget_error());
    if (!launched) say_without_graph(op);
    return !launched;
  }
  Result<> end_step() override {
    const Result<> finished =
        streams_.finish(options_.timeout_s, [this] { return failed_ ? failed_() : std::string(); });
    healthy_ = static_cast<bool>(finished);
    if (!finished) return finished;
    outgrown_.clear();
    for (const auto& [host, staged] : offloads_)
      std::memcpy(host, staged.first->data(), size(staged.second));
    offloads_.clear();
    return {};
  }
  bool times(std::int32_t rank, OpId op, Nanoseconds* start, Nanoseconds* end) override {
    streams_.times(rank, op, start, end);
    return true;
  }

  // --- StreamSource: what the NCCL communicator enqueues on ------------------
  cudaStream_t stream(Lane lane) override { return streams_.of(lane); }
  void order(Lane lane, Lane after) override { streams_.order(lane, after); }
  void check(int error, std::string_view what) override { streams_.check(error, what); }
  void watch(std::function<std::string()> failed) override { failed_ = std::move(failed); }
  bool healthy() const override { return healthy_; }
  bool timed_out() const override { return streams_.timed_out(); }
  std::int64_t held_bytes() const override {
    std::int64_t bytes = 0;
    for (const auto* list : {&arenas_, &more_}) {
      for (const DeviceMemory& memory : *list) bytes += memory.bytes();
    }
    for (const RankBuffers& rank : ranks_) {
      bytes += rank.scratch.bytes() + rank.workspace.bytes() + rank.factor.bytes();
    }
    for (const auto& [key, made] : pieces_) bytes += made.memory.bytes();
    return bytes;
  }

  // --- data ------------------------------------------------------------------
  void clear(Lane l, void* to, std::int64_t bytes) override {
    streams_.check(cudaMemsetAsync(to, 0, size(bytes), on(l)), "clear");
  }
  void fetch(Lane l, void* to, const void* host, std::int64_t bytes) override {
    PinnedMemory& staged = pinned(to, bytes);
    std::memcpy(staged.data(), host, size(bytes));
    streams_.check(cudaMemcpyAsync(to, staged.data(), size(bytes), cudaMemcpyHostToDevice, on(l)),
                   "fetch");
  }
  void offload(Lane l, void* host, const void* from, std::int64_t bytes) override {
    PinnedMemory& staged = pinned(host, bytes);
    offloads_.insert_or_assign(host, std::pair{&staged, bytes});
    streams_.check(cudaMemcpyAsync(staged.data(), from, size(bytes), cudaMemcpyDeviceToHost, on(l)),
                   "offload");
  }
  void to_host(Lane l, std::byte* host, const std::byte* from, std::int64_t bytes) override {
    streams_.check(cudaMemcpyAsync(host, from, size(bytes), cudaMemcpyDeviceToHost, on(l)),
                   "copy to the host");
  }
  void from_host(Lane l, std::byte* to, const std::byte* host, std::int64_t bytes) override {
    streams_.check(cudaMemcpyAsync(to, host, size(bytes), cudaMemcpyHostToDevice, on(l)),
                   "copy from the host");
  }
  void transfer(Lane from_lane, const void* from, Lane to_lane, void* to,
                std::int64_t bytes) override {
    streams_.order(from_lane, to_lane);
    copy(to_lane, to, from, bytes);
    streams_.order(to_lane, from_lane);
  }
  void cast(Lane l, std::int64_t count, const float* from, void* to) override {
    streams_.check(cuda::cast(on(l), Type::Float32, type_, count, from, to), "cast");
  }

  // Ranks of this process on one GPU: the first member's stream does it for all.
  void exchange(const Exchange& e) override {
    const Lane leader = e.lanes.front();
    for (const Lane lane : e.lanes.subspan(1)) streams_.order(lane, leader);
    perform(leader, e);
    for (const Lane lane : e.lanes.subspan(1)) streams_.order(leader, lane);
  }

  // --- the end of a step -----------------------------------------------------
  void add(Lane l, std::int64_t count, const float* from, float* to) override {
    const void* in[] = {to, from};
    void* out[] = {to};
    streams_.check(reduce_arrays(on(l), Type::Float32, Reduction::Sum, count, in, out), "add");
  }
  void norms(Lane l, std::span<const NormRange> ranges, const float* loss, std::int64_t slots,
             double* norms) override {
    streams_.check(cudaMemsetAsync(norms, 0, size(8 * slots), on(l)), "norms");
    if (!ranges.empty()) {
      // Flat over the arena: a range is where its gradient lies.
      const auto* base = reinterpret_cast<const float*>(arena(l.rank));
      std::vector<TensorRange> flat;
      for (const NormRange& range : ranges) {
        flat.push_back({range.data - base, range.data - base + range.elements, range.slot, false});
      }
      const DevicePieces& pieces = pieces_of(l.rank, norms, flat);
      streams_.check(sum_of_squares(on(l), base, pieces.pieces, pieces.num_pieces, pieces.runs,
                                    pieces.num_runs, pieces.partials, norms),
                     "sum of squares");
    }
    if (loss != nullptr) streams_.check(to_double(on(l), loss, norms + slots - 1), "loss");
  }
  void adamw(Lane l, const AdamwArguments& a) override {
    RankBuffers& rank = of(l.rank);
    streams_.check(rank.factor.reserve(sizeof(float)), "cudaMalloc");
    auto* factor = reinterpret_cast<float*>(rank.factor.data());
    streams_.check(clip_factor(on(l), a.norms, a.slots - 1, a.options->clip_norm, factor), "clip");
    std::vector<TensorRange> flat;
    double decay = 0;
    for (const AdamwRange& range : a.ranges) {
      flat.push_back({range.begin, range.end, 0, range.decay != 0});
      decay = std::max(decay, range.decay);
    }
    const DevicePieces& pieces = pieces_of(l.rank, a.parameter, flat);
    const AdamW constants = adamw_constants(a.options->beta1, a.options->beta2, a.options->epsilon,
                                            a.rate, decay, a.step);
    const bool own_master = a.master == nullptr;
    streams_.check(cuda::adamw(on(l), constants, pieces.pieces, pieces.num_pieces, a.gradient,
                               factor, own_master ? static_cast<float*>(a.parameter) : a.master,
                               a.m, a.v, own_master ? nullptr : a.parameter),
                   "adamw");
  }

  // --- products --------------------------------------------------------------
  void linear(Lane l, std::int64_t m, std::int64_t n, std::int64_t k, const void* x, const void* w,
              const void* bias, void* y) override {
    streams_.check(gemm_.linear(on(l), type_, m, n, k, x, w, bias, y, workspace(l)), "gemm");
  }
  void logits(Lane l, std::int64_t m, std::int64_t n, std::int64_t k, const void* x, const void* w,
              float* y) override {
    streams_.check(gemm_.logits(on(l), type_, m, n, k, x, w, y, workspace(l)), "gemm logits");
  }
  void linear_input(Lane l, std::int64_t m, std::int64_t n, std::int64_t k, const void* dy,
                    const void* w, void* dx) override {
    streams_.check(gemm_.linear_input(on(l), type_, m, n, k, dy, w, dx, workspace(l)),
                   "gemm input gradient");
  }
  void linear_gelu(Lane l, std::int64_t m, std::int64_t n, std::int64_t k, const void* x,
                   const void* w, const void* bias, void* u, void* g) override {
    const int error = gemm_.linear_gelu(on(l), type_, m, n, k, x, w, bias, u, g, workspace(l));
    if (error != cudaErrorNotSupported) return streams_.check(error, "gemm with gelu");
    Backend::linear_gelu(l, m, n, k, x, w, bias, u, g);
  }
  void linear_input_gelu(Lane l, std::int64_t m, std::int64_t n, std::int64_t k, const void* dy,
                         const void* w, const void* u, void* du) override {
    const int error = gemm_.linear_input_gelu(on(l), type_, m, n, k, dy, w, u, du, workspace(l));
    if (error != cudaErrorNotSupported) {
      return streams_.check(error, "gemm input gradient with gelu");
    }
    Backend::linear_input_gelu(l, m, n, k, dy, w, u, du);
  }
  void linear_weight(Lane l, std::int64_t m, std::int64_t n, std::int64_t k, const void* dy,
                     const void* x, float* dw) override {
    streams_.check(gemm_.linear_weight(on(l), type_, m, n, k, dy, x, dw, workspace(l)),
                   "gemm weight gradient");
  }

  // --- norms, pointwise ------------------------------------------------------
  void layer_norm(Lane l, std::int64_t rows, std::int64_t h, const void* x, const void* weight,
                  const void* bias, double epsilon, void* y, float* statistics) override {
    streams_.check(cuda::layer_norm(on(l), type_, rows, h, x, weight, bias, epsilon, y, statistics),
                   "layer norm");
  }
  void layer_norm_backward(Lane l, std::int64_t rows, std::int64_t h, const void* dy, const void* x,
                           const float* statistics, const void* weight, const void* residual,
                           void* dx, float* d_weight, float* d_bias) override {
    streams_.check(
        cuda::layer_norm_backward(on(l), type_, rows, h, dy, x, statistics, weight, residual, dx,
                                  d_weight, d_bias, scratch(l, 2 * column_sums_scratch(rows, h))),
        "layer norm backward");
  }
  void rms_norm(Lane l, std::int64_t rows, std::int64_t h, const void* x, const void* weight,
                double epsilon, void* y, float* statistics) override {
    streams_.check(cuda::rms_norm(on(l), type_, rows, h, x, weight, epsilon, y, statistics),
                   "rms norm");
  }
  void rms_norm_backward(Lane l, std::int64_t rows, std::int64_t h, const void* dy, const void* x,
                         const float* statistics, const void* weight, const void* residual,
                         void* dx, float* d_weight) override {
    streams_.check(
        cuda::rms_norm_backward(on(l), type_, rows, h, dy, x, statistics, weight, residual, dx,
                                d_weight, scratch(l, column_sums_scratch(rows, h))),
        "rms norm backward");
  }
  void add_residual(Lane l, std::int64_t rows, std::int64_t cols, const void* x, const void* y,
                    const void* bias, void* out) override {
    streams_.check(cuda::add_residual(on(l), type_, rows, cols, x, y, bias, out), "add residual");
  }
  void add_layer_norm(Lane l, const SumNorm& n) override {
    streams_.check(cuda::add_layer_norm(on(l), type_, n), "add, layer norm");
  }
  void add_rms_norm(Lane l, const SumNorm& n) override {
    streams_.check(cuda::add_rms_norm(on(l), type_, n), "add, rms norm");
  }
  void add_column_sums(Lane l, std::int64_t rows, std::int64_t cols, const void* y,
                       float* sums) override {
    streams_.check(cuda::add_column_sums(on(l), type_, rows, cols, y, sums,
                                         scratch(l, column_sums_scratch(rows, cols))),
                   "bias gradient");
  }
  void add_positions(Lane l, std::int64_t rows, std::int64_t cols, std::int64_t first,
                     std::int64_t sequence, const void* x, const void* positions,
                     void* out) override {
    if (positions == nullptr) return copy(l, out, x, rows * cols * cuda::bytes_of(type_));
    streams_.check(
        cuda::add_positions(on(l), type_, rows, cols, sequence, first, x, positions, out),
        "positions");
  }
  void position_gradient(Lane l, std::int64_t rows, std::int64_t cols, std::int64_t first,
                         std::int64_t sequence, const void* dy, float* d_positions) override {
    streams_.check(
        add_positions_backward(on(l), type_, rows, cols, sequence, first, dy, d_positions),
        "position gradient");
  }
  void gelu(Lane l, std::int64_t count, const void* u, void* g) override {
    streams_.check(cuda::gelu(on(l), type_, count, u, g), "gelu");
  }
  void gelu_backward(Lane l, std::int64_t count, const void* dg, const void* u, void* du) override {
    streams_.check(cuda::gelu_backward(on(l), type_, count, dg, u, du), "gelu backward");
  }
  void swiglu(Lane l, std::int64_t rows, std::int64_t f, const void* u, void* g) override {
    streams_.check(cuda::swiglu(on(l), type_, rows, f, u, g), "swiglu");
  }
  void swiglu_backward(Lane l, std::int64_t rows, std::int64_t f, const void* dg, const void* u,
                       void* du) override {
    streams_.check(cuda::swiglu_backward(on(l), type_, rows, f, dg, u, du), "swiglu backward");
  }
  void rope(Lane l, const exec::AttentionShape& s, double theta, bool inverse, void* qkv) override {
    streams_.check(cuda::rope(on(l), type_, s.tokens, s.first, s.sequence, s.heads + s.kv_heads,
                              s.head_dim, s.columns(), theta, inverse, qkv),
                   "rope");
  }

  // --- attention, embedding, loss --------------------------------------------
  void attention(Lane l, const exec::AttentionShape& s, const void* qkv, void* o,
                 float* lse) override {
    const AttentionEngine engine = choice_.forward(on(l), type_, s, qkv);
    streams_.check(cuda::attention(on(l), type_, s, qkv, o, lse, engine), "attention");
  }
  void attention_backward(Lane l, const exec::AttentionShape& s, const void* d_o, const void* qkv,
                          const void* o, const float* lse, void* dqkv, float* delta) override {
    const AttentionEngine engine = choice_.backward(on(l), type_, s, d_o, qkv, o, lse);
    streams_.check(cuda::attention_backward(on(l), type_, s, d_o, qkv, o, lse, dqkv, delta, engine),
                   "attention backward");
  }
  void attention_part(Lane l, const AttentionPart& part, const void* qkv, const void* kv,
                      float* sum, float* lse) override {
    const AttentionEngine engine = choice_.forward(on(l), type_, part.shape, qkv);
    streams_.check(cuda::attention_part(on(l), type_, part, qkv, kv, sum, lse, engine),
                   "attention part");
  }
  void attention_part_backward(Lane l, const AttentionPart& part, const void* d_o, const void* qkv,
                               const void* kv, const void* o, const float* lse, float* dq,
                               float* dkv, float* delta) override {
    const AttentionEngine engine = choice_.backward(on(l), type_, part.shape, d_o, qkv, o, lse);
    streams_.check(cuda::attention_part_backward(on(l), type_, part, d_o, qkv, kv, o, lse, dq, dkv,
                                                 delta, engine),
                   "attention part backward");
  }
  void copy_columns(Lane l, std::int64_t rows, std::int64_t cols, const void* from,
                    std::int64_t from_stride, void* to, std::int64_t to_stride) override {
    const std::int64_t element = cuda::bytes_of(type_);
    streams_.check(
        cudaMemcpy2DAsync(to, size(to_stride * element), from, size(from_stride * element),
                          size(cols * element), size(rows), cudaMemcpyDeviceToDevice, on(l)),
        "copy columns");
  }
  void cast_columns(Lane l, std::int64_t rows, std::int64_t cols, const float* from, void* to,
                    std::int64_t to_stride) override {
    streams_.check(cuda::cast_columns(on(l), type_, rows, cols, from, to, to_stride),
                   "cast columns");
  }
  void embed(Lane l, std::int64_t tokens, std::int64_t h, const std::int32_t* ids,
             const void* table, const VocabularyShape& v, void* out) override {
    streams_.check(cuda::embed(on(l), type_, tokens, h, ids, table, v.first, v.columns, out),
                   "embed");
  }
  void embed_backward(Lane l, std::int64_t tokens, std::int64_t h, const std::int32_t* ids,
                      const void* dy, const VocabularyShape& v, std::int32_t* order,
                      float* d_table) override {
    streams_.check(sort_tokens(on(l), tokens, ids, order), "sort tokens");
    streams_.check(cuda::embed_backward(on(l), type_, tokens, h, ids, dy, v.first, v.columns, order,
                                        d_table, v.frozen),
                   "embedding gradient");
  }
  void row_maxima(Lane l, std::int64_t rows, const VocabularyShape& v, const float* logits,
                  float* maxima) override {
    streams_.check(cuda::row_maxima(on(l), rows, v.columns, v.valid, logits, maxima), "row maxima");
  }
  void row_sums(Lane l, std::int64_t rows, const VocabularyShape& v, const float* logits,
                const float* maxima, const std::int32_t* targets, float* sums) override {
    streams_.check(
        cuda::row_sums(on(l), rows, v.columns, v.valid, v.first, logits, maxima, targets, sums),
        "row sums");
  }
  void loss_and_gradient(Lane l, std::int64_t rows, const VocabularyShape& v, const float* logits,
                         const float* maxima, const float* sums, const std::int32_t* targets,
                         float scale, void* d_logits, float* loss) override {
    streams_.check(cuda::loss_and_gradient(on(l), type_, rows, v.columns, v.valid, v.first, logits,
                                           maxima, sums, targets, scale, d_logits, loss),
                   "loss");
  }
  void cross_entropy(Lane l, std::int64_t rows, const VocabularyShape& v, const float* logits,
                     const std::int32_t* targets, float scale, float* maxima, float* sums,
                     void* d_logits, float* loss) override {
    streams_.check(cuda::cross_entropy(on(l), type_, rows, v.columns, v.valid, logits, targets,
                                       scale, maxima, sums, d_logits, loss),
                   "cross-entropy");
  }

 private:
  // Lists of a rank's pieces, on the device.
  struct DevicePieces {
    DeviceMemory memory;
    const Piece* pieces = nullptr;
    const SlotRun* runs = nullptr;
    double* partials = nullptr;
    std::int64_t num_pieces = 0, num_runs = 0;
  };
  // rank, where the result lies, how many ranges, from where to where
  using PiecesKey = std::tuple<std::int32_t, const void*, std::size_t, std::int64_t, std::int64_t>;
  struct RankBuffers {
    DeviceMemory scratch, workspace, factor;
  };

  cudaStream_t on(Lane lane) const { return streams_.of(lane); }
  // Once, of the first op for which there is a reason.
  void say_without_graph(OpId op) {
    if (said_without_graph_ || graphs_.failure().empty()) return;
    said_without_graph_ = true;
    if (options_.warn) {
      options_.warn("no CUDA graph of " + options_.label(op) + ", which is issued kernel by " +
                    "kernel: " + graphs_.failure());
    }
  }
  RankBuffers& of(std::int32_t rank) {
    return ranks_[static_cast<std::size_t>(rank - first_rank_)];
  }
  std::byte* arena(std::int32_t rank) {
    return arenas_[static_cast<std::size_t>(rank - first_rank_)].data();
  }
  void copy(Lane l, void* to, const void* from, std::int64_t bytes) {
    if (to == from) return;
    streams_.check(cudaMemcpyAsync(to, from, size(bytes), cudaMemcpyDeviceToDevice, on(l)), "copy");
  }
  // Grows in the first step alone. What it outgrows is still used by kernels under way, and freeing
  // waits for the device, which may wait for a partner that waits for us: freed after the step.
  // REQUIRES: kernels of one rank use it one after another.
  void* scratch(Lane l, std::int64_t bytes) {
    DeviceMemory& memory = of(l.rank).scratch;
    if (memory.bytes() < bytes && memory.data() != nullptr) {
      outgrown_.push_back(std::move(memory));
      memory = {};
    }
    streams_.check(memory.reserve(bytes), "cudaMalloc");
    return memory.data();
  }
  GemmWorkspace workspace(Lane l) {
    streams_.check(of(l.rank).workspace.reserve(kGemmWorkspaceBytes), "cudaMalloc");
    return {of(l.rank).workspace.data(), kGemmWorkspaceBytes};
  }
  PinnedMemory& pinned(const void* key, std::int64_t bytes) {
    std::unique_ptr<PinnedMemory>& memory = pinned_[key];
    if (memory == nullptr) memory = std::make_unique<PinnedMemory>();
    streams_.check(memory->reserve(bytes), "cudaMallocHost");
    return *memory;
  }

  // Uploaded when they are first asked for: a rank's lists do not change from step to step.
  const DevicePieces& pieces_of(std::int32_t rank, const void* of,
                                const std::vector<TensorRange>& ranges) {
    const PiecesKey key{rank, of, ranges.size(), ranges.front().begin, ranges.back().end};
    const auto [found, fresh] = pieces_.try_emplace(key);
    DevicePieces& made = found->second;
    if (!fresh) return made;
    const Pieces cut = cut_into_pieces(ranges);
    const std::int64_t pieces = static_cast<std::int64_t>(cut.pieces.size() * sizeof(Piece));
    const std::int64_t runs = static_cast<std::int64_t>(cut.runs.size() * sizeof(SlotRun));
    const std::int64_t runs_at = (pieces + 15) / 16 * 16,
                       partials_at = (runs_at + runs + 15) / 16 * 16;
    made.num_pieces = static_cast<std::int64_t>(cut.pieces.size());
    made.num_runs = static_cast<std::int64_t>(cut.runs.size());
    streams_.check(made.memory.reserve(partials_at + 8 * made.num_pieces), "cudaMalloc");
    std::byte* at = made.memory.data();
    if (at == nullptr) return made;
    write(at, cut.pieces.data(), pieces);
    write(at + runs_at, cut.runs.data(), runs);
    made.pieces = reinterpret_cast<const Piece*>(at);
    made.runs = reinterpret_cast<const SlotRun*>(at + runs_at);
    made.partials = reinterpret_cast<double*>(at + partials_at);
    return made;
  }

  void reduce(Lane l, const Exchange& e, std::int64_t first, std::int64_t count,
              std::span<void* const> out) {
    const Reduction reduction = e.maximum ? Reduction::Maximum : Reduction::Sum;
    const std::int64_t offset = first * exec::bytes_of(e.type);
    std::vector<const void*> in;
    for (const Contribution& c : e.contributions)
      in.push_back(static_cast<const std::byte*>(c.in) + offset);
    if (e.type == ElementType::Float64) {
      std::vector<const double*> from;
      std::vector<double*> to;
      for (const void* array : in) from.push_back(static_cast<const double*>(array));
      for (void* array : out) to.push_back(static_cast<double*>(array));
      streams_.check(reduce_doubles(on(l), count, from, to), "reduce");
    } else {
      const Type type = e.type == ElementType::BFloat16 ? Type::BFloat16 : Type::Float32;
      streams_.check(reduce_arrays(on(l), type, reduction, count, in, out), "reduce");
    }
  }

  void perform(Lane l, const Exchange& e) {
    const std::size_t members = e.contributions.size();
    const std::int64_t part = e.elements / static_cast<std::int64_t>(members);
    const std::int64_t element = exec::bytes_of(e.type), bytes = part * element;
    const auto in = [&](std::size_t m) { return static_cast<std::byte*>(e.contributions[m].in); };
    const auto out = [&](std::size_t m) { return static_cast<std::byte*>(e.contributions[m].out); };
    const auto at = [&](std::size_t m) { return static_cast<std::int64_t>(m) * bytes; };
    const auto root = static_cast<std::size_t>(e.root);
    std::vector<void*> outs;
    switch (e.kind) {
      case OpKind::AllReduce:
        for (std::size_t m = 0; m < members; ++m) outs.push_back(out(m));
        return reduce(l, e, 0, e.elements, outs);
      case OpKind::Reduce:
        outs.push_back(out(root));
        return reduce(l, e, 0, e.elements, outs);
      case OpKind::ReduceScatter:
        for (std::size_t m = 0; m < members; ++m) {
          outs.assign(1, out(m) == in(m) ? out(m) + at(m) : out(m));
          reduce(l, e, static_cast<std::int64_t>(m) * part, part, outs);
        }
        return;
      case OpKind::AllGather:
      case OpKind::Unshard:
        for (std::size_t m = 0; m < members; ++m) {
          const std::byte* from = in(m) == out(m) ? in(m) + at(m) : in(m);
          for (std::size_t k = 0; k < members; ++k) copy(l, out(k) + at(m), from, bytes);
        }
        return;
      case OpKind::Broadcast:
        for (std::size_t m = 0; m < members; ++m) copy(l, out(m), in(root), e.elements * element);
        return;
      case OpKind::Gather:
        for (std::size_t m = 0; m < members; ++m) copy(l, out(root) + at(m), in(m), bytes);
        return;
      case OpKind::Scatter:
        for (std::size_t m = 0; m < members; ++m) copy(l, out(m), in(root) + at(m), bytes);
        return;
      case OpKind::AllToAll:
        for (std::size_t m = 0; m < members; ++m) {
          for (std::size_t k = 0; k < members; ++k) copy(l, out(m) + at(k), in(k) + at(m), bytes);
        }
        return;
      case OpKind::Send:  // round the ring
        for (std::size_t m = 0; m < members; ++m) {
          copy(l, out((m + 1) % members), in(m), e.elements * element);
        }
        return;
      default:
        streams_.check(cudaErrorInvalidValue, "exchange");
        return;
    }
  }

  CudaOptions options_;
  Type type_;
  std::string device_;
  std::int32_t first_rank_ = 0;
  bool healthy_ = true;
  std::vector<DeviceMemory> arenas_;  // by rank
  std::vector<DeviceMemory> more_;    // of ranks that were given memory again
  std::vector<PinnedMemory> hosts_;   // what the plan keeps on the host
  std::vector<RankBuffers> ranks_;
  std::vector<DeviceMemory> outgrown_;
  std::map<PiecesKey, DevicePieces> pieces_;
  std::map<const void*, std::unique_ptr<PinnedMemory>> pinned_;
  // host address: what arrives there at the end of this step, and how much
  std::map<void*, std::pair<PinnedMemory*, std::int64_t>> offloads_;
  std::function<std::string()> failed_;
  Gemm gemm_;
  AttentionChoice choice_{false, "", nullptr};
  Graphs graphs_;
  bool said_without_graph_ = false;
  Streams streams_;
};

}  // namespace

Result<std::unique_ptr<Backend>> make_backend(const CudaOptions& options) {
  const Result<std::int32_t> there = devices();
  if (!there) return there.error();
  CudaOptions mine = options;
  mine.device = options.device % there.value();
  if (const cudaError_t error = cudaSetDevice(mine.device); error != cudaSuccess) {
    return Error{"CUDA device " + std::to_string(mine.device) + ": " + cudaGetErrorString(error)};
  }
  int major = 0;
  cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, mine.device);
  if (options.attention == "wgmma" && major != 9) {
    return Error{"attention by wgmma needs a device of compute capability 9"};
  }
  return std::unique_ptr<Backend>(std::make_unique<CudaBackend>(mine));
}

Result<std::int32_t> devices() {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaSuccess && count > 0) return static_cast<std::int32_t>(count);
  return Error{std::string("no CUDA device") +
               (error == cudaSuccess ? "" : std::string(": ") + cudaGetErrorString(error))};
}

}  // namespace rehearse::exec::cuda
