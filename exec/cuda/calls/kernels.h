// SPDX-License-Identifier: Apache-2.0
// What a transformer's bodies run on an NVIDIA GPU beside matrix products: kernel_rows.inc,
// launched on a stream. Plain C++: no CUDA header is needed.
//
// Activations, logits, their gradients and parameters have type T (fp32, bf16 or fp16);
// statistics, lse, loss and gradients of parameters are fp32, norms fp64. Arithmetic is fp32 (sums
// over rows fp64) and rounded once per result. Every sum has a fixed order: no atomics, reruns are
// bitwise equal.
//
// All pointers are device memory unless said otherwise. Arrays aligned to 16 B with a row length
// that divides by 16 B move 16 B per access; others are right, but slower. A call returns a
// cudaError_t (0: launched); 1 (cudaErrorInvalidValue) for a shape that no kernel takes. Nothing
// here synchronises or allocates.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "exec/backend/exchange.h"
#include "exec/backend/shapes.h"

struct CUstream_st;

namespace rehearse::exec::cuda {

using Stream = CUstream_st*;

using Element = void;  // of type `Type`
using exec::ArrivedShape;
using exec::AttentionPart;
using exec::AttentionShape;
using exec::ClampedGlu;
using exec::CopiesShape;
using exec::CountShape;
using exec::DropoutShape;
using exec::DropShape;
using exec::GroupedShape;
using exec::LatentShape;
using exec::PieceShape;
using exec::RotaryShape;
using exec::RouteShape;
using exec::SharedNorm;
using exec::StridedNorm;
using exec::SumNorm;
using exec::Temperature;
using exec::VisitsShape;
using exec::VocabularyShape;

enum class Type : std::uint8_t { Float32, BFloat16, Float16 };
constexpr std::int64_t bytes_of(Type type) {
  return type == Type::Float32 ? 4 : 2;
}
// REQUIRES: not Float64
constexpr Type type_of(ElementType type) {
  return type == ElementType::BFloat16  ? Type::BFloat16
         : type == ElementType::Float16 ? Type::Float16
                                        : Type::Float32;
}

#define COMPOSED(name, parameters, arguments)
#define KERNEL(name, parameters, arguments) int name(Stream stream, Type type, SPREAD parameters);
#include "exec/backend/kernel_rows.inc"

// --- what CudaKernels composes the other rows of ---------------------------------------------------
// Bytes of `scratch` below, for column sums of (rows, columns).
std::int64_t column_sums_scratch(std::int64_t rows, std::int64_t columns);
// Of a norm of rows(rows, h) with `outputs` gradients of parameters.
std::int64_t norm_backward_scratch(std::int64_t rows, std::int64_t h, int outputs);
// With dx null the input's gradient is not wanted. scratch: norm_backward_scratch(rows, h, 2)
// bytes.
int layer_norm_backward(Stream stream, Type type, std::int64_t rows, std::int64_t h, const void* dy,
                        const void* x, const float* statistics, const void* weight,
                        const void* residual, void* dx, float* d_weight, float* d_bias,
                        void* scratch);
// scratch: norm_backward_scratch(rows, h, 1) bytes.
int rms_norm_backward(Stream stream, Type type, std::int64_t rows, std::int64_t h, const void* dy,
                      const void* x, const float* statistics, const void* weight,
                      double weight_offset, const void* residual, void* dx, float* d_weight,
                      void* scratch);
// scratch: column_sums_scratch(rows * groups, width) bytes
int strided_norm_backward(Stream stream, Type type, const StridedNorm& shape, const void* dy,
                          const void* x, const float* statistics, const float* sums,
                          const void* weight, void* dx, float* d_weight, void* scratch);
// scratch: column_sums_scratch(rows, h) bytes
int shared_norm_backward(Stream stream, Type type, const SharedNorm& shape, const void* dy,
                         const void* x, const float* statistics, const float* sums,
                         const void* weight, const void* residual, void* dx, float* d_weight,
                         float* d_bias, void* scratch);
// scratch: column_sums_scratch(rows, cols) bytes
int add_column_sums(Stream stream, Type type, std::int64_t rows, std::int64_t cols, const void* y,
                    float* sums, void* scratch);
// y += bias(cols)
int add_bias(Stream stream, Type type, std::int64_t rows, std::int64_t cols, const void* bias,
             void* y);
// positions is not null
int add_positions(Stream stream, Type type, std::int64_t tokens, std::int64_t h, std::int64_t first,
                  std::int64_t sequence, const void* x, const void* positions, void* out);
// order(tokens): tokens sorted by the row of the table that they add to, those that add to none
// last, tokens of one row by position. scratch: sort_tokens_scratch(tokens) bytes
std::int64_t sort_tokens_scratch(std::int64_t tokens);
int sort_tokens(Stream stream, std::int64_t tokens, const std::int32_t* ids,
                const VocabularyShape& shape, std::int32_t* order, void* scratch);
// order: as sort_tokens left it
int embed_backward(Stream stream, Type type, std::int64_t tokens, std::int64_t h,
                   const std::int32_t* ids, const void* dy, const VocabularyShape& shape,
                   const std::int32_t* order, float* d_table);

// y(rows, cols) += bias(cols)
int add_router_bias(Stream stream, Type type, std::int64_t rows, std::int64_t cols,
                    const void* bias, float* y);
// scratch: as many bytes as the function beside says.
std::int64_t sort_copies_scratch(const CopiesShape& shape);
int sort_copies(Stream stream, const CopiesShape& shape, const std::int32_t* chosen,
                std::int32_t* row, std::int32_t* token, std::int32_t* begin, void* scratch);
std::int64_t drop_copies_scratch(const DropShape& shape);
int drop_copies(Stream stream, const DropShape& shape, const std::int32_t* chosen,
                const float* weights, std::int32_t* kept, void* scratch);
std::int64_t sort_visits_scratch(const VisitsShape& shape);
int sort_visits(Stream stream, const VisitsShape& shape, const std::int32_t* chosen,
                std::int32_t* token, std::int32_t* sent, std::int32_t* row, std::int32_t* weight,
                std::int32_t* begins, std::int32_t* arrived, void* scratch);
std::int64_t count_choices_scratch(const CountShape& shape);
int count_choices(Stream stream, const CountShape& shape, std::int64_t copies,
                  const std::int32_t* chosen, double* most, void* scratch);
std::int64_t sort_rows_scratch(const ArrivedShape& shape);
int sort_rows(Stream stream, const ArrivedShape& shape, const std::int32_t* begins,
              std::int32_t* from, std::int32_t* begin, void* scratch);

// Columns of the widest head that attention takes, and what its blocks take of shared memory above
// 128 columns where tensor cores do not compute it [B]: more than the 99 KiB of sm_86, sm_89,
// sm_120.
inline constexpr std::int64_t kWidestHead = 256, kSharedOfWideHeads = 140288;
// Of a device whose blocks may have so much shared memory.
constexpr std::int64_t widest_head(Type type, std::int64_t shared_bytes) {
  return shared_bytes >= kSharedOfWideHeads ? kWidestHead : type != Type::Float32 ? 192 : 128;
}

// --- attention, by engine ------------------------------------------------------------------------
// REQUIRES: head_dim and values() <= kWidestHead. Tensor cores compute where they take the heads
// and all arrays are aligned to 16 bytes, else an exact fp32 path that is many times slower. Of a
// plain form the scale may be any.
constexpr bool on_tensor_cores(Type type, const AttentionShape& s) {
  return type != Type::Float32 && s.form.plain() && s.head_dim % 8 == 0 && s.values() % 8 == 0 &&
         s.head_dim <= 192 && s.values() <= 128;
}
// Wgmma: REQUIRES a device of compute capability 9.x; only where tensor cores run at all. Cudnn is
// none of the kernels here (cudnn/attention.h).
enum class AttentionEngine : std::uint8_t { MmaSync, Wgmma, Cudnn };
int attention(Stream stream, Type type, const AttentionShape& shape, const void* qkv, void* o,
              float* lse, AttentionEngine engine = AttentionEngine::MmaSync);
// Bytes of `scratch` below: more than 0 where tiles of keys are too few to fill the device.
std::int64_t attention_backward_scratch(Type type, const AttentionShape& shape);
std::int64_t attention_part_backward_scratch(Type type, const AttentionPart& part);
// dK and dV, then dQ, in one pass each: 7 products instead of 5, in exchange for a fixed order of
// summation.
int attention_backward(Stream stream, Type type, const AttentionShape& shape, const void* d_o,
                       const void* qkv, const void* o, const float* lse, void* dqkv, float* delta,
                       void* scratch, AttentionEngine engine = AttentionEngine::MmaSync);

// REQUIRES: a causal part begins at row 0 on both sides and has no more queries than keys.
int attention_part(Stream stream, Type type, const AttentionPart& part, const void* qkv,
                   const void* kv, float* sum, float* lse,
                   AttentionEngine engine = AttentionEngine::MmaSync);
int attention_part_backward(Stream stream, Type type, const AttentionPart& part, const void* d_o,
                            const void* qkv, const void* kv, const void* o, const float* lse,
                            float* dq, float* dkv, float* delta, void* scratch,
                            AttentionEngine engine = AttentionEngine::MmaSync);

// --- the end of a step -------------------------------------------------------
// Flat arrays are worked on in pieces that do not cross a tensor. Made once, by the host.
struct TensorRange {
  std::int64_t begin = 0, end = 0;  // elements of the flat array
  std::int32_t slot = 0;            // of the tensor's norm
  bool decays = false;              // weight decay applies
};
struct Piece {
  std::int64_t begin = 0;
  std::int32_t count = 0, decays = 0;
};
struct SlotRun {  // pieces [first, first + count) belong to `slot`
  std::int32_t slot = 0, first = 0, count = 0;
};
struct Pieces {
  std::vector<Piece> pieces;
  std::vector<SlotRun> runs;  // one per range
};
constexpr std::int32_t kPieceElements = 16384;
Pieces cut_into_pieces(std::span<const TensorRange> ranges);

// slots[run.slot] += sum of squares of its pieces, fp64; partials(num_pieces) is scratch. Runs of
// one slot are added in their order. `pieces` and `runs` are device copies of a Pieces' lists.
int sum_of_squares(Stream stream, const float* values, const Piece* pieces, std::int64_t num_pieces,
                   const SlotRun* runs, std::int64_t num_runs, double* partials, double* slots);
// factor = min(1, clip_norm / (norm + 1e-6)), 1 where clip_norm is 0; norm: the root of the sum of
// squares, which runs in slot order. Gradients and norm are loss_scale too large, and so is the
// factor too small; where the sum is not finite it says that the update is left out. 0: they carry
// no scale, and a norm that is no number is none.
int clip_factor(Stream stream, const double* squares, std::int64_t count, double clip_norm,
                double loss_scale, float* factor);

// Constants of one AdamW step, each rounded as exec/cpu/optimizer.cc rounds it.
struct AdamW {
  float b1 = 0, a1 = 0, b2 = 0, a2 = 0;  // beta and 1 - beta
  float size = 0;                        // rate / (1 - b1^t)
  float root = 0;                        // 1 / sqrt(1 - b2^t)
  float epsilon = 0;
  float keep = 1;  // 1 - rate * decay, for pieces that decay
};
AdamW adamw_constants(double beta1, double beta2, double epsilon, double rate, double decay,
                      std::int64_t step);
// AdamW over the pieces of flat fp32 arrays: master, m, v; gradients are scaled by *scale, of
// clip_factor. Writes `parameters` of a 16-bit type as well (null: the master is the parameter,
// fp32 mode).
int adamw(Stream stream, Type type, const AdamW& constants, const Piece* pieces,
          std::int64_t num_pieces, const float* gradients, const float* scale, float* master,
          float* m, float* v, void* parameters);
// Constants of one Lion step, each rounded as exec/cpu/optimizer.cc rounds it.
struct Lion {
  float b1 = 0, a1 = 0, b2 = 0, a2 = 0;  // beta and 1 - beta
  float size = 0;                        // rate
  float keep = 1;                        // 1 - rate * decay, for pieces that decay
};
Lion lion_constants(double beta1, double beta2, double rate, double decay);
// Lion, as adamw above, with one moment.
int lion(Stream stream, Type type, const Lion& constants, const Piece* pieces,
         std::int64_t num_pieces, const float* gradients, const float* scale, float* master,
         float* m, void* parameters);

// --- plain arrays ------------------------------------------------------------
int cast(Stream stream, Type from, Type to, std::int64_t count, const void* in, void* out);
// *out = *in, in fp64
int to_double(Stream stream, const float* in, double* out);
int fill(Stream stream, std::int64_t count, float value, float* out);
// out(words): different numbers of either sign, 2^-7 to 2 in size, whether they are read as fp32,
// as two bf16 or as two fp16.
int noise(Stream stream, std::int64_t words, std::uint32_t* out);
// out(2) = the largest |a - b| and the largest |a| of `rows` rows of `cols` elements, `stride`
// apart. Where only one is no number the difference is infinite. By one block: for checks, not for
// steps.
int largest_difference(Stream stream, Type type, std::int64_t rows, std::int64_t cols,
                       std::int64_t stride, const void* a, const void* b, float* out);

// Collectives of several ranks on one GPU: out[k][i] = in[0][i] + in[1][i] + ... in that order in
// fp32 (fp64 for doubles), rounded once, for every k; or the maximum. An out may be an in. A
// reduce_scatter is one call per part. REQUIRES: at most kMaxMembers of each.
constexpr std::size_t kMaxMembers = 64;
enum class Reduction : std::uint8_t { Sum, Maximum };
int reduce_arrays(Stream stream, Type type, Reduction reduction, std::int64_t count,
                  std::span<const void* const> in, std::span<void* const> out);
int reduce_doubles(Stream stream, std::int64_t count, std::span<const double* const> in,
                   std::span<double* const> out);

}  // namespace rehearse::exec::cuda
