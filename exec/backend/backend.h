// SPDX-License-Identifier: Apache-2.0
// What a device does for the interpreter: memory, order, and the arithmetic of one node at a time.
//
// The only virtual interface beside Communicator. Backends: `null` records what it is asked for,
// `cpu` runs at once, `cuda` (a module loaded at run time) enqueues on streams and events.
//
// Types: activations, their gradients and full parameters have the backend's compute type T (fp32,
// or bf16 on CUDA) and are passed as void*; statistics, loss, weight gradients, master weights and
// moments are fp32, norms fp64. Shapes stand at each argument, row-major. Gradients of parameters
// are accumulated, all else is written. Sums have a fixed order: equal inputs give equal bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "exec/backend/exchange.h"
#include "exec/backend/shapes.h"
#include "schedules/base/result.h"
#include "schedules/base/units.h"
#include "schedules/scenario/plan.h"

namespace rehearse::exec {

// AdamW over parts of one flat shard (Loshchilov & Hutter 2019).
struct AdamwRange {
  std::int64_t begin = 0, end = 0;  // elements of the shard
  double decay = 0;
};
struct AdamwArguments {
  const float* gradient = nullptr;   // (count)
  void* parameter = nullptr;         // (count), T; its own master in fp32
  float* master = nullptr;           // (count); nullptr: the parameter is fp32
  float *m = nullptr, *v = nullptr;  // (count)
  std::span<const AdamwRange> ranges;
  const double* norms = nullptr;  // (slots) sums of squares, on the device
  std::int64_t slots = 0;
  const TrainOptions* options = nullptr;
  double rate = 0;
  std::int64_t step = 0;  // 0, 1, ...
};

// One range of a gradient and the slot that takes the sum of its squares.
struct NormRange {
  const float* data = nullptr;
  std::int64_t elements = 0;
  std::int32_t slot = 0;
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string_view name() const = 0;    // "null", "cpu", "cuda"
  virtual std::string_view device() const = 0;  // "avx512", "NVIDIA H200": for reports
  // True: calls enqueue and return, an op "ends" when it has been issued, and begin() makes its
  // lane wait for the ops that it names. Such a backend is called from one thread.
  virtual bool asynchronous() const { return false; }

  // --- memory, outside a step ------------------------------------------------
  // Zeroed, aligned to 256 bytes, alive as long as the backend. Error: what there is too little of.
  virtual Result<std::byte*> allocate(std::int32_t rank, std::int64_t bytes) = 0;
  // Zeroed memory of the host, as long: what to_host and from_host copy to and from.
  virtual Result<std::byte*> allocate_host(std::int32_t rank, std::int64_t bytes) = 0;
  // Of either: from and to what the caller has.
  virtual void write(std::byte* to, const void* from, std::int64_t bytes) = 0;
  virtual void read(void* to, const std::byte* from, std::int64_t bytes) = 0;

  // --- order -----------------------------------------------------------------
  virtual void begin_step() {}
  virtual void begin(Lane, OpId, std::span<const OpId> /*waits, of this rank*/) {}
  virtual void end(Lane, OpId) {}
  // Between begin and end of a compute op whose body meets no other rank and does the same in every
  // step. True: the device repeats what it did then, and the caller leaves the body out.
  virtual bool replay(Lane, OpId) { return false; }
  // Between the body of such an op and end. True: nothing of it took effect, since the device could
  // not keep it to be repeated; the caller issues it once more.
  virtual bool in_vain(Lane, OpId) { return false; }
  // Everything of the step has ended. Error: what the device says.
  virtual Result<> end_step() { return {}; }
  // Of an op of the last step [ns since begin_step]; false: the interpreter's own clock is right.
  virtual bool times(std::int32_t /*rank*/, OpId, Nanoseconds* /*start*/, Nanoseconds* /*end*/) {
    return false;
  }

  // --- data ------------------------------------------------------------------
  virtual void clear(Lane, void* to, std::int64_t bytes) = 0;
  // The caller's memory, read during the call (tokens) or written by the step's end (norms).
  virtual void fetch(Lane, void* to, const void* host, std::int64_t bytes) = 0;
  virtual void offload(Lane, void* host, const void* from, std::int64_t bytes) = 0;
  // Memory of allocate_host.
  virtual void to_host(Lane, std::byte* host, const std::byte* from, std::int64_t bytes) = 0;
  virtual void from_host(Lane, std::byte* to, const std::byte* host, std::int64_t bytes) = 0;
  // From one rank of this process to another; both lanes go on when it is done.
  virtual void transfer(Lane from_lane, const void* from, Lane to_lane, void* to,
                        std::int64_t bytes) = 0;
  virtual void exchange(const Exchange&) = 0;  // REQUIRES: all members are here
  virtual void cast(Lane, std::int64_t count, const float* from, void* to) = 0;  // fp32 -> T

  // --- the end of a step -----------------------------------------------------
  virtual void add(Lane, std::int64_t count, const float* from, float* to) = 0;  // to += from
  // norms(slots): zeroed, then the ranges' sums of squares; the last slot becomes *loss if given
  virtual void norms(Lane, std::span<const NormRange>, const float* loss, std::int64_t slots,
                     double* norms) = 0;
  virtual void adamw(Lane, const AdamwArguments&) = 0;

  // --- products --------------------------------------------------------------
  // y(m, n) = x(m, k) w(n, k)^T + bias(n); bias may be null
  virtual void linear(Lane, std::int64_t m, std::int64_t n, std::int64_t k, const void* x,
                      const void* w, const void* bias, void* y) = 0;
  // As linear without a bias, but y(m, n) in fp32: logits
  virtual void logits(Lane, std::int64_t m, std::int64_t n, std::int64_t k, const void* x,
                      const void* w, float* y) = 0;
  // dx(m, k) = dy(m, n) w(n, k)
  virtual void linear_input(Lane, std::int64_t m, std::int64_t n, std::int64_t k, const void* dy,
                            const void* w, void* dx) = 0;
  // In one pass where a device can: u = as linear, g = gelu(u).
  virtual void linear_gelu(Lane lane, std::int64_t m, std::int64_t n, std::int64_t k, const void* x,
                           const void* w, const void* bias, void* u, void* g) {
    linear(lane, m, n, k, x, w, bias, u);
    gelu(lane, m * n, u, g);
  }
  // Likewise: du(m, k) = gelu'(u) * (dy(m, n) w(n, k))
  virtual void linear_input_gelu(Lane lane, std::int64_t m, std::int64_t n, std::int64_t k,
                                 const void* dy, const void* w, const void* u, void* du) {
    linear_input(lane, m, n, k, dy, w, du);
    gelu_backward(lane, m * k, du, u, du);
  }
  // dw(n, k) += dy(m, n)^T x(m, k)
  virtual void linear_weight(Lane, std::int64_t m, std::int64_t n, std::int64_t k, const void* dy,
                             const void* x, float* dw) = 0;

  // --- norms (Ba et al. 2016; Zhang & Sennrich 2019) -------------------------
  // y(rows, h); statistics(rows, 2) = mean, 1/deviation
  virtual void layer_norm(Lane, std::int64_t rows, std::int64_t h, const void* x,
                          const void* weight, const void* bias, double epsilon, void* y,
                          float* statistics) = 0;
  // dx = its gradient + residual(rows, h) (may be null); d_weight(h), d_bias(h): null where not
  // wanted
  virtual void layer_norm_backward(Lane, std::int64_t rows, std::int64_t h, const void* dy,
                                   const void* x, const float* statistics, const void* weight,
                                   const void* residual, void* dx, float* d_weight,
                                   float* d_bias) = 0;
  // statistics(rows) = 1 / root mean square
  virtual void rms_norm(Lane, std::int64_t rows, std::int64_t h, const void* x, const void* weight,
                        double epsilon, void* y, float* statistics) = 0;
  virtual void rms_norm_backward(Lane, std::int64_t rows, std::int64_t h, const void* dy,
                                 const void* x, const float* statistics, const void* weight,
                                 const void* residual, void* dx, float* d_weight) = 0;

  // --- pointwise -------------------------------------------------------------
  // out = x + y + bias(cols); bias may be null
  virtual void add_residual(Lane, std::int64_t rows, std::int64_t cols, const void* x,
                            const void* y, const void* bias, void* out) = 0;
  // In one pass where a device can; the bits are those of two.
  virtual void add_layer_norm(Lane lane, const SumNorm& n) {
    add_residual(lane, n.rows, n.h, n.x, n.y, n.bias, n.sum);
    layer_norm(lane, n.rows, n.h, n.sum, n.weight, n.norm_bias, n.epsilon, n.out, n.statistics);
  }
  virtual void add_rms_norm(Lane lane, const SumNorm& n) {
    add_residual(lane, n.rows, n.h, n.x, n.y, n.bias, n.sum);
    rms_norm(lane, n.rows, n.h, n.sum, n.weight, n.epsilon, n.out, n.statistics);
  }
  virtual void add_column_sums(Lane, std::int64_t rows, std::int64_t cols, const void* y,
                               float* sums) = 0;
  // Row t is at position (first + t) % sequence. out = x + positions(position); null: a copy
  virtual void add_positions(Lane, std::int64_t rows, std::int64_t cols, std::int64_t first,
                             std::int64_t sequence, const void* x, const void* positions,
                             void* out) = 0;
  virtual void position_gradient(Lane, std::int64_t rows, std::int64_t cols, std::int64_t first,
                                 std::int64_t sequence, const void* dy, float* d_positions) = 0;
  virtual void gelu(Lane, std::int64_t count, const void* u, void* g) = 0;  // tanh form
  virtual void gelu_backward(Lane, std::int64_t count, const void* dg, const void* u, void* du) = 0;
  // u(rows, 2 f): gate, then up; g(rows, f) = silu(gate) * up (Shazeer 2020)
  virtual void swiglu(Lane, std::int64_t rows, std::int64_t f, const void* u, void* g) = 0;
  virtual void swiglu_backward(Lane, std::int64_t rows, std::int64_t f, const void* dg,
                               const void* u, void* du) = 0;
  // Rotates the q and k heads of qkv(tokens, columns) in place (Su et al. 2021); `inverse`:
  // backward. Row t is at position (first + t) % sequence.
  virtual void rope(Lane, const AttentionShape&, double theta, bool inverse, void* qkv) = 0;

  // --- attention (Dao et al. 2022): causal, tiled, never s x s ---------------
  // o(tokens, heads * d), lse(heads, tokens)
  virtual void attention(Lane, const AttentionShape&, const void* qkv, void* o, float* lse) = 0;
  // dqkv(tokens, columns); delta(heads, tokens) is scratch
  virtual void attention_backward(Lane, const AttentionShape&, const void* d_o, const void* qkv,
                                  const void* o, const float* lse, void* dqkv, float* delta) = 0;

  // --- attention in parts (Liu et al. 2023, arXiv 2310.01889) ----------------
  // kv: the block's first key, rows part.key_stride apart. After all parts sum(tokens, heads * d),
  // in fp32, is o, and lse(heads, tokens) that of all keys.
  virtual void attention_part(Lane, const AttentionPart&, const void* /*qkv*/, const void* /*kv*/,
                              float* /*sum*/, float* /*lse*/) {}
  // Adds to dq(tokens, heads * d) and dkv(tokens, kv_columns), fp32. The first part clears dq (not
  // dkv) and computes delta(heads, tokens).
  virtual void attention_part_backward(Lane, const AttentionPart&, const void* /*d_o*/,
                                       const void* /*qkv*/, const void* /*kv*/, const void* /*o*/,
                                       const float* /*lse*/, float* /*dq*/, float* /*dkv*/,
                                       float* /*delta*/) {}
  // Rows of `cols` elements, `from_stride` and `to_stride` elements apart.
  virtual void copy_columns(Lane, std::int64_t /*rows*/, std::int64_t /*cols*/,
                            const void* /*from*/, std::int64_t /*from_stride*/, void* /*to*/,
                            std::int64_t /*to_stride*/) {}
  virtual void cast_columns(Lane, std::int64_t /*rows*/, std::int64_t /*cols*/,
                            const float* /*from*/, void* /*to*/, std::int64_t /*to_stride*/) {}

  // --- embedding and loss ----------------------------------------------------
  // out(tokens, h): rows of table(columns, h); tokens of other ranks give zeros
  virtual void embed(Lane, std::int64_t tokens, std::int64_t h, const std::int32_t* ids,
                     const void* table, const VocabularyShape&, void* out) = 0;
  // order(tokens): scratch
  virtual void embed_backward(Lane, std::int64_t tokens, std::int64_t h, const std::int32_t* ids,
                              const void* dy, const VocabularyShape&, std::int32_t* order,
                              float* d_table) = 0;
  virtual void row_maxima(Lane, std::int64_t rows, const VocabularyShape&, const float* logits,
                          float* maxima) = 0;
  // sums(rows, 2): sum of exp(logit - maximum), logit of the target where it is here (else 0)
  virtual void row_sums(Lane, std::int64_t rows, const VocabularyShape&, const float* logits,
                        const float* maxima, const std::int32_t* targets, float* sums) = 0;
  // Adds scale * loss of the rows to *loss; writes d_logits, scaled likewise.
  virtual void loss_and_gradient(Lane, std::int64_t rows, const VocabularyShape&,
                                 const float* logits, const float* maxima, const float* sums,
                                 const std::int32_t* targets, float scale, void* d_logits,
                                 float* loss) = 0;
  // The three of them, in fewer passes where a device can. REQUIRES: the whole vocabulary is here.
  virtual void cross_entropy(Lane lane, std::int64_t rows, const VocabularyShape& shape,
                             const float* logits, const std::int32_t* targets, float scale,
                             float* maxima, float* sums, void* d_logits, float* loss) {
    row_maxima(lane, rows, shape, logits, maxima);
    row_sums(lane, rows, shape, logits, maxima, targets, sums);
    loss_and_gradient(lane, rows, shape, logits, maxima, sums, targets, scale, d_logits, loss);
  }
};

}  // namespace rehearse::exec
