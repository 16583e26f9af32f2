// SPDX-License-Identifier: Apache-2.0
// exec/cuda/calls/kernels.h on a double's streams: each launch runs the CPU's kernel of the same
// meaning and type when its stream gets there.
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <mutex>
#include <string>
#include <thread>
#include <type_traits>

#include "exec/cpu/kernels/table.h"
#include "exec/cpu/optimizer.h"
#include "exec/cuda/calls/kernels.h"
#include "tests/cuda_double/device.h"
#include "tests/cuda_double/engines.h"

namespace {

std::atomic<std::int64_t> by_mma{0}, by_wgmma{0}, compared{0};

}  // namespace

namespace rehearse::cuda_double {

EngineCounts take_engines() {
  return {by_mma.exchange(0), by_wgmma.exchange(0), compared.exchange(0)};
}

}  // namespace rehearse::cuda_double

namespace rehearse::exec::cuda {
namespace {

using cuda_double::Touched;

// Calls work(kernels of the type).
template <class Work>
int run(Stream stream, Type type, Touched touched, Work work) {
  // Asked to, they take their turn and compute nothing: for `calibrate`, which only takes times.
  static const bool idle = std::getenv("REHEARSE_DOUBLE_IDLES_IN_BF16") != nullptr;
  if (type == Type::Float32) {
    return cuda_double::enqueue(stream, std::move(touched), [=] { work(kernels().of<float>()); });
  }
  if (idle) return cuda_double::enqueue(stream, [] {});
  if (type == Type::Float16) {
    return cuda_double::enqueue(stream, std::move(touched), [=] { work(kernels().of<Float16>()); });
  }
  return cuda_double::enqueue(stream, std::move(touched), [=] { work(kernels().of<BFloat16>()); });
}
// Of a kernel that knows no elements.
template <class Work>
int run(Stream stream, Touched touched, Work work) {
  return cuda_double::enqueue(stream, std::move(touched), std::move(work));
}
constexpr double kSlow = 3600;  // [s]: no load of this machine makes the other one slower
// Of attention, whose other engine takes so much longer where one is the faster.
template <class Work>
int run(Stream stream, Type type, AttentionEngine engine, Touched touched, Work work) {
  const bool slower = cuda_double::slower(engine);
  ++(engine == AttentionEngine::Wgmma ? by_wgmma : by_mma);
  return run(stream, type, std::move(touched), [=](const auto& all) {
    if (slower) cuda_double::spend(kSlow);
    work(all);
  });
}
template <class Table>
using ElementOf = typename std::remove_cvref_t<Table>::Element;
// Of a kernel's row.
namespace extents = cuda_double::kernel_extents;
#define TOUCHED(name, element, ...) \
  Touched::arguments(#name, extents::name(element, __VA_ARGS__), __VA_ARGS__)
// And what it takes beside.
Touched with(Touched all, void* scratch, std::int64_t bytes) {
  return all.writes(scratch, bytes);
}
}  // namespace

// One pass writes a row's norm before it reads other rows of the sum: where the norm lies over what
// is summed, the double spoils that, as a device may.
template <class E, class... Arguments>
void spoil(const Arguments&...) {}
template <class E>
void spoil(const SumNorm& n) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::fill_n(static_cast<E*>(n.out), n.rows * n.h, E(nan));
  std::fill_n(n.statistics, n.rows, nan);
}

#define COMPOSED(name, parameters, arguments)
#define KERNEL(name, parameters, arguments)                                               \
  int name(Stream s, Type t, SPREAD parameters) {                                         \
    return run(s, t, TOUCHED(name, bytes_of(t), SPREAD arguments), [=](const auto& all) { \
      spoil<ElementOf<decltype(all)>>(SPREAD arguments);                                  \
      call_kernel(all.name, SPREAD arguments);                                            \
    });                                                                                   \
  }
#include "exec/backend/kernel_rows.inc"

std::int64_t column_sums_scratch(std::int64_t, std::int64_t columns) {
  return 4 * columns;
}
std::int64_t norm_backward_scratch(std::int64_t, std::int64_t h, int outputs) {
  return 4 * h * outputs;
}
int layer_norm_backward(Stream s, Type t, std::int64_t rows, std::int64_t h, const void* dy,
                        const void* x, const float* statistics, const void* weight,
                        const void* residual, void* dx, float* d_weight, float* d_bias,
                        void* scratch) {
  return run(s, t,
             with(TOUCHED(layer_norm_backward, bytes_of(t), rows, h, dy, x, statistics, weight,
                          residual, dx, d_weight, d_bias),
                  scratch, norm_backward_scratch(rows, h, 2)),
             [=](const auto& all) {
               call_kernel(all.layer_norm_backward, rows, h, dy, x, statistics, weight, residual,
                           dx, d_weight, d_bias);
             });
}
int rms_norm_backward(Stream s, Type t, std::int64_t rows, std::int64_t h, const void* dy,
                      const void* x, const float* statistics, const void* weight,
                      double weight_offset, const void* residual, void* dx, float* d_weight,
                      void* scratch) {
  return run(s, t,
             with(TOUCHED(rms_norm_backward, bytes_of(t), rows, h, dy, x, statistics, weight,
                          weight_offset, residual, dx, d_weight),
                  scratch, norm_backward_scratch(rows, h, 1)),
             [=](const auto& all) {
               call_kernel(all.rms_norm_backward, rows, h, dy, x, statistics, weight, weight_offset,
                           residual, dx, d_weight);
             });
}
int strided_norm_backward(Stream s, Type t, const StridedNorm& shape, const void* dy, const void* x,
                          const float* statistics, const float* sums, const void* weight, void* dx,
                          float* d_weight, void* scratch) {
  return run(s, t,
             with(TOUCHED(strided_norm_backward, bytes_of(t), shape, dy, x, statistics, sums,
                          weight, dx, d_weight),
                  scratch, column_sums_scratch(shape.rows * shape.groups, shape.width)),
             [=](const auto& all) {
               call_kernel(all.strided_norm_backward, shape, dy, x, statistics, sums, weight, dx,
                           d_weight);
             });
}
int shared_norm_backward(Stream s, Type t, const SharedNorm& shape, const void* dy, const void* x,
                         const float* statistics, const float* sums, const void* weight,
                         const void* residual, void* dx, float* d_weight, float* d_bias,
                         void* scratch) {
  return run(s, t,
             with(TOUCHED(shared_norm_backward, bytes_of(t), shape, dy, x, statistics, sums, weight,
                          residual, dx, d_weight, d_bias),
                  scratch, column_sums_scratch(shape.rows, shape.h)),
             [=](const auto& all) {
               call_kernel(all.shared_norm_backward, shape, dy, x, statistics, sums, weight,
                           residual, dx, d_weight, d_bias);
             });
}
int add_column_sums(Stream s, Type t, std::int64_t rows, std::int64_t cols, const void* y,
                    float* sums, void* scratch) {
  return run(s, t,
             with(TOUCHED(add_column_sums, bytes_of(t), rows, cols, y, sums), scratch,
                  column_sums_scratch(rows, cols)),
             [=](const auto& all) { call_kernel(all.add_column_sums, rows, cols, y, sums); });
}
int attention(Stream s, Type t, const AttentionShape& shape, const void* qkv, void* o, float* lse,
              AttentionEngine engine) {
  return run(s, t, engine, TOUCHED(attention, bytes_of(t), shape, qkv, o, lse),
             [=](const auto& all) { call_kernel(all.attention, shape, qkv, o, lse); });
}
int attention_part(Stream s, Type t, const AttentionPart& part, const void* qkv, const void* kv,
                   float* sum, float* lse, AttentionEngine engine) {
  return run(s, t, engine, TOUCHED(attention_part, bytes_of(t), part, qkv, kv, sum, lse),
             [=](const auto& all) { call_kernel(all.attention_part, part, qkv, kv, sum, lse); });
}
std::int64_t attention_backward_scratch(Type, const AttentionShape&) {
  return 4;
}
std::int64_t attention_part_backward_scratch(Type, const AttentionPart&) {
  return 4;
}
int attention_part_backward(Stream s, Type t, const AttentionPart& part, const void* d_o,
                            const void* qkv, const void* kv, const void* o, const float* lse,
                            float* dq, float* dkv, float* delta, void* scratch,
                            AttentionEngine engine) {
  return run(s, t, engine,
             with(TOUCHED(attention_part_backward, bytes_of(t), part, d_o, qkv, kv, o, lse, dq, dkv,
                          delta),
                  scratch, attention_part_backward_scratch(t, part)),
             [=](const auto& all) {
               call_kernel(all.attention_part_backward, part, d_o, qkv, kv, o, lse, dq, dkv, delta);
             });
}
int attention_backward(Stream s, Type t, const AttentionShape& shape, const void* d_o,
                       const void* qkv, const void* o, const float* lse, void* dqkv, float* delta,
                       void* scratch, AttentionEngine engine) {
  return run(s, t, engine,
             with(TOUCHED(attention_backward, bytes_of(t), shape, d_o, qkv, o, lse, dqkv, delta),
                  scratch, attention_backward_scratch(t, shape)),
             [=](const auto& all) {
               call_kernel(all.attention_backward, shape, d_o, qkv, o, lse, dqkv, delta);
             });
}
// embed_backward sorts
std::int64_t sort_tokens_scratch(std::int64_t) {
  return 4;
}
int sort_tokens(Stream, std::int64_t, const std::int32_t*, const VocabularyShape&, std::int32_t*,
                void*) {
  return 0;
}
int embed_backward(Stream s, Type t, std::int64_t tokens, std::int64_t h, const std::int32_t* ids,
                   const void* dy, const VocabularyShape& shape, const std::int32_t* order,
                   float* d_table) {
  return run(s, t,
             TOUCHED(embed_backward, bytes_of(t), tokens, h, ids, dy, shape,
                     const_cast<std::int32_t*>(order), d_table),
             [=](const auto& all) {
               call_kernel(all.embed_backward, tokens, h, ids, dy, shape,
                           const_cast<std::int32_t*>(order), d_table);
             });
}
int add_router_bias(Stream s, Type t, std::int64_t rows, std::int64_t cols, const void* bias,
                    float* y) {
  return run(s, t,
             Touched("add router bias").reads(bias, bytes_of(t) * cols).writes(y, 4 * rows * cols),
             [=](const auto& all) {
               const auto* added = static_cast<const ElementOf<decltype(all)>*>(bias);
               for (std::int64_t i = 0; i < rows * cols; ++i) y[i] += float{added[i % cols]};
             });
}
std::int64_t sort_copies_scratch(const CopiesShape&) {
  return 4;
}
int sort_copies(Stream s, const CopiesShape& shape, const std::int32_t* chosen, std::int32_t* row,
                std::int32_t* token, std::int32_t* begin, void* scratch) {
  return run(s, with(TOUCHED(sort_copies, 1, shape, chosen, row, token, begin), scratch, 4),
             [=] { kernels().sort_copies(shape, chosen, row, token, begin); });
}
std::int64_t drop_copies_scratch(const DropShape&) {
  return 4;
}
int drop_copies(Stream s, const DropShape& shape, const std::int32_t* chosen, const float* weights,
                std::int32_t* kept, void* scratch) {
  return run(s, with(TOUCHED(drop_copies, 1, shape, chosen, weights, kept), scratch, 4),
             [=] { kernels().drop_copies(shape, chosen, weights, kept); });
}
std::int64_t sort_visits_scratch(const VisitsShape&) {
  return 4;
}
int sort_visits(Stream s, const VisitsShape& shape, const std::int32_t* chosen, std::int32_t* token,
                std::int32_t* sent, std::int32_t* row, std::int32_t* weight, std::int32_t* begins,
                std::int32_t* arrived, void* scratch) {
  return run(
      s,
      with(TOUCHED(sort_visits, 1, shape, chosen, token, sent, row, weight, begins, arrived),
           scratch, 4),
      [=] { kernels().sort_visits(shape, chosen, token, sent, row, weight, begins, arrived); });
}
std::int64_t count_choices_scratch(const CountShape&) {
  return 4;
}
int count_choices(Stream s, const CountShape& shape, std::int64_t copies,
                  const std::int32_t* chosen, double* most, void* scratch) {
  return run(s, with(TOUCHED(count_choices, 1, shape, copies, chosen, most), scratch, 4),
             [=] { kernels().count_choices(shape, copies, chosen, most); });
}
std::int64_t sort_rows_scratch(const ArrivedShape&) {
  return 4;
}
int sort_rows(Stream s, const ArrivedShape& shape, const std::int32_t* begins, std::int32_t* from,
              std::int32_t* begin, void* scratch) {
  return run(s, with(TOUCHED(sort_rows, 1, shape, begins, from, begin), scratch, 4),
             [=] { kernels().sort_rows(shape, begins, from, begin); });
}
int add_positions(Stream s, Type t, std::int64_t tokens, std::int64_t h, std::int64_t first,
                  std::int64_t sequence, const void* x, const void* positions, void* out) {
  return run(s, t,
             TOUCHED(add_positions, bytes_of(t), tokens, h, first, sequence, x, positions, out),
             [=](const auto& all) {
               call_kernel(all.add_positions, tokens, h, first, sequence, x, positions, out);
             });
}

Pieces cut_into_pieces(std::span<const TensorRange> ranges) {  // one piece per range
  Pieces made;
  for (const TensorRange& r : ranges) {
    made.runs.push_back({r.slot, static_cast<std::int32_t>(made.pieces.size()), 1});
    made.pieces.push_back({r.begin, static_cast<std::int32_t>(r.end - r.begin), r.decays ? 1 : 0});
  }
  return made;
}
int sum_of_squares(Stream s, const float* values, const Piece* pieces, std::int64_t,
                   const SlotRun* runs, std::int64_t num_runs, double*, double* slots) {
  Touched all("sum of squares");
  for (std::int64_t r = 0; r < num_runs; ++r) {
    const Piece& piece = pieces[runs[r].first];
    all.reads(values + piece.begin, 4 * std::int64_t{piece.count});
    all.writes(slots + runs[r].slot, 8);
  }
  return run(s, std::move(all), [=] {
    for (std::int64_t r = 0; r < num_runs; ++r) {
      const Piece& piece = pieces[runs[r].first];
      slots[runs[r].slot] +=
          exec::sum_of_squares({values + piece.begin, static_cast<std::size_t>(piece.count)});
    }
  });
}
// A factor below zero says that the update is left out.
int clip_factor(Stream s, const double* squares, std::int64_t count, double clip_norm,
                double loss_scale, float* factor) {
  return run(s, Touched("clip factor").reads(squares, 8 * count).writes(factor, 4), [=] {
    double sum = 0;
    for (std::int64_t k = 0; k < count; ++k) sum += squares[k];
    const double unscale = loss_scale > 0 ? 1 / loss_scale : 1;
    const double clip = double{exec::clip_factor(std::sqrt(sum) * unscale, clip_norm)};
    const bool skips = loss_scale > 0 && !std::isfinite(sum);
    *factor = skips ? -1.0F : static_cast<float>(clip * unscale);
  });
}
AdamW adamw_constants(double beta1, double beta2, double epsilon, double rate, double decay,
                      std::int64_t step) {
  const double t = static_cast<double>(step + 1);
  return {static_cast<float>(beta1),
          static_cast<float>(1 - beta1),
          static_cast<float>(beta2),
          static_cast<float>(1 - beta2),
          static_cast<float>(rate / (1 - std::pow(beta1, t))),
          static_cast<float>(1 / std::sqrt(1 - std::pow(beta2, t))),
          static_cast<float>(epsilon),
          static_cast<float>(1 - rate * decay)};
}
// Element `at` of parameters that are not their own master.
void* narrow(Type t, void* parameters, std::int64_t at) {
  return parameters == nullptr ? nullptr : static_cast<std::byte*>(parameters) + at * bytes_of(t);
}
template <class E>
void round_to(const Piece& piece, const float* master, void* parameters) {
  if (parameters == nullptr) return;
  auto* to = static_cast<E*>(parameters);
  for (std::int64_t i = piece.begin; i < piece.begin + piece.count; ++i) to[i] = E(master[i]);
}
int adamw(Stream s, Type t, const AdamW& c, const Piece* pieces, std::int64_t num_pieces,
          const float* gradients, const float* scale, float* master, float* m, float* v,
          void* parameters) {
  Touched all("adamw");
  all.reads(scale, 4);
  for (std::int64_t k = 0; k < num_pieces; ++k) {
    const std::int64_t at = pieces[k].begin, bytes = 4 * std::int64_t{pieces[k].count};
    all.reads(gradients + at, bytes).writes(master + at, bytes);
    all.writes(m + at, bytes).writes(v + at, bytes);
    all.writes(narrow(t, parameters, at), bytes_of(t) * pieces[k].count);
  }
  return run(s, t, std::move(all), [=](const auto& typed) {
    if (*scale < 0) return;
    for (std::int64_t k = 0; k < num_pieces; ++k) {
      const std::int64_t at = pieces[k].begin;
      kernels().adamw(pieces[k].count,
                      {.scale = *scale,
                       .beta1 = c.b1,
                       .rest1 = c.a1,
                       .beta2 = c.b2,
                       .rest2 = c.a2,
                       .keep = pieces[k].decays != 0 ? c.keep : 1.0F,
                       .size = c.size,
                       .root = c.root,
                       .epsilon = c.epsilon},
                      gradients + at, master + at, m + at, v + at);
      round_to<ElementOf<decltype(typed)>>(pieces[k], master, parameters);
    }
  });
}
Lion lion_constants(double beta1, double beta2, double rate, double decay) {
  return {static_cast<float>(beta1), static_cast<float>(1 - beta1),
          static_cast<float>(beta2), static_cast<float>(1 - beta2),
          static_cast<float>(rate),  static_cast<float>(1 - rate * decay)};
}
int lion(Stream s, Type t, const Lion& c, const Piece* pieces, std::int64_t num_pieces,
         const float* gradients, const float* scale, float* master, float* m, void* parameters) {
  Touched all("lion");
  all.reads(scale, 4);
  for (std::int64_t k = 0; k < num_pieces; ++k) {
    const std::int64_t at = pieces[k].begin, bytes = 4 * std::int64_t{pieces[k].count};
    all.reads(gradients + at, bytes).writes(master + at, bytes).writes(m + at, bytes);
    all.writes(narrow(t, parameters, at), bytes_of(t) * pieces[k].count);
  }
  return run(s, t, std::move(all), [=](const auto& typed) {
    if (*scale < 0) return;
    for (std::int64_t k = 0; k < num_pieces; ++k) {
      const std::int64_t at = pieces[k].begin;
      kernels().lion(pieces[k].count,
                     {.scale = *scale,
                      .beta1 = c.b1,
                      .rest1 = c.a1,
                      .beta2 = c.b2,
                      .rest2 = c.a2,
                      .keep = pieces[k].decays != 0 ? c.keep : 1.0F,
                      .size = c.size},
                     gradients + at, master + at, m + at);
      round_to<ElementOf<decltype(typed)>>(pieces[k], master, parameters);
    }
  });
}

int cast(Stream s, Type from, Type to, std::int64_t count, const void* in, void* out) {
  return run(s, from,
             Touched("cast").reads(in, bytes_of(from) * count).writes(out, bytes_of(to) * count),
             [=](const auto& all) {
               const auto* values = static_cast<const ElementOf<decltype(all)>*>(in);
               for (std::int64_t i = 0; i < count; ++i) {
                 const float value{values[i]};
                 if (to == Type::Float32) static_cast<float*>(out)[i] = value;
                 if (to == Type::BFloat16) static_cast<BFloat16*>(out)[i] = BFloat16(value);
                 if (to == Type::Float16) static_cast<Float16*>(out)[i] = Float16(value);
               }
             });
}
int noise(Stream s, std::int64_t words, std::uint32_t* out) {
  return run(s, Touched("noise").writes(out, 4 * words), [=] {
    for (std::int64_t i = 0; i < words; ++i) {
      out[i] = 0x3C003C00U | (static_cast<std::uint32_t>(i) * 0x9E3779B9U & 0x837F837FU);
    }
  });
}
int to_double(Stream s, const float* in, double* out) {
  return run(s, Touched("to double").reads(in, 4).writes(out, 8),
             [=] { *out = static_cast<double>(*in); });
}
// Only trials compare. CUDA_DOUBLE_SLOW_TRIALS, of the command in a test: a folder, and the first
// process that makes `slow` there takes its time.
void take_time() {
  static const char* const folder = std::getenv("CUDA_DOUBLE_SLOW_TRIALS");
  static const bool slow =
      folder != nullptr && mkdir((std::string(folder) + "/slow").c_str(), 0700) == 0;
  static std::once_flag once;
  if (slow) std::call_once(once, [] { std::this_thread::sleep_for(std::chrono::seconds(12)); });
}
// Both engines of attention are the CPU's kernel.
int largest_difference(Stream s, Type, std::int64_t, std::int64_t, std::int64_t, const void*,
                       const void*, float* out) {
  ++compared;
  take_time();
  return run(s, Touched("largest difference").writes(out, 8), [=] { out[0] = out[1] = 0; });
}
int reduce_arrays(Stream s, Type t, Reduction reduction, std::int64_t count,
                  std::span<const void* const> in, std::span<void* const> out) {
  Touched all("reduce");
  for (const void* from : in) all.reads(from, bytes_of(t) * count);
  for (void* to : out) all.writes(to, bytes_of(t) * count);
  return run(s, t, std::move(all),
             [=, in = std::vector(in.begin(), in.end()),
              out = std::vector(out.begin(), out.end())](const auto& typed) {
               using E = ElementOf<decltype(typed)>;
               const auto value = [&](std::size_t k, std::int64_t i) {
                 return float{static_cast<const E*>(in[k])[i]};
               };
               for (std::int64_t i = 0; i < count; ++i) {
                 float sum = value(0, i);
                 for (std::size_t k = 1; k < in.size(); ++k) {
                   sum =
                       reduction == Reduction::Sum ? sum + value(k, i) : std::max(sum, value(k, i));
                 }
                 for (void* to : out) static_cast<E*>(to)[i] = E(sum);
               }
             });
}
int reduce_doubles(Stream s, std::int64_t count, std::span<const double* const> in,
                   std::span<double* const> out) {
  Touched all("reduce");
  for (const double* from : in) all.reads(from, 8 * count);
  for (double* to : out) all.writes(to, 8 * count);
  return run(
      s, std::move(all),
      [=, in = std::vector(in.begin(), in.end()), out = std::vector(out.begin(), out.end())] {
        for (std::int64_t i = 0; i < count; ++i) {
          double sum = in[0][i];
          for (std::size_t k = 1; k < in.size(); ++k) sum += in[k][i];
          for (double* to : out) to[i] = sum;
        }
      });
}

}  // namespace rehearse::exec::cuda
