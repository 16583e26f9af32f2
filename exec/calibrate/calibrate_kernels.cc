// SPDX-License-Identifier: Apache-2.0
// Kernels bound by memory, by class, over sizes; attention over sequence lengths and head sizes.
// Bytes are counted as the nodes of our bodies count theirs (schedules/body/own/body_rehearse.cc).
#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <utility>

#include "exec/calibrate/calibrate_parts.h"
#include "exec/step/exchanges/quantized_gather.h"
#include "schedules/body/sizes.h"
#include "schedules/scenario/zero/quantized_gather.h"

namespace rehearse::exec {
namespace {

constexpr std::int64_t kKernelSlack = 512;  // floats that alignment may cost

// One class at one size; every call of `run` is one kernel on `rows` rows of `columns`.
struct Kernel {
  std::string_view op;
  bool backward;
  double values, floats;  // of the compute type, and fp32, per element: read and written
  std::function<void(std::int64_t rows, std::int64_t columns)> run;
  bool logits = false;
};

class MemoryBound {
 public:
  explicit MemoryBound(Calibration& c) : c_(c) {}

  void run() {
    std::vector<Kernel> kernels = all();
    if (!c_.gpu()) add_packing(kernels);  // the host's, which a GPU's ops wait for
    const CalibrateSizes::Range& range = c_.sizes.bytes;
    for (std::size_t k = 0; k < kernels.size(); ++k) {
      const Kernel& kernel = kernels[k];
      const double per_element =
          kernel.values * static_cast<double>(c_.element()) + 4 * kernel.floats;
      const std::int64_t columns = kernel.logits ? c_.sizes.vocabulary : c_.sizes.columns;
      for (std::int64_t bytes = range.first; bytes <= range.last; bytes *= range.factor) {
        const double elements = static_cast<double>(bytes) / per_element;
        const std::int64_t rows =
            std::max<std::int64_t>(1, std::llround(elements / static_cast<double>(columns)));
        const double us = c_.watch.median_us([&] { kernel.run(rows, columns); });
        c_.tables.kernels.push_back(
            {kernel.op, kernel.backward,
             std::llround(per_element * static_cast<double>(rows * columns)), us});
      }
      c_.progress("memory-bound kernels",
                  static_cast<double>(k + 1) / static_cast<double>(kernels.size()));
    }
  }

 private:
  static constexpr double kEpsilon = 1e-5;  // of norms

  float* cold(std::int64_t count) { return c_.memory.next(count); }
  // What must not be random: the same value again and again, as many as the largest size wants.
  template <class T, class Value>
  T* constant(std::int64_t count, std::pair<T*, std::int64_t>& kept, const Value& value) {
    if (kept.second >= count) return kept.first;
    std::vector<T> values(static_cast<std::size_t>(count));
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = value(i);
    const std::int64_t bytes = count * static_cast<std::int64_t>(sizeof(T));
    const Result<std::byte*> memory = c_.device.allocate(0, bytes);
    if (!memory) return nullptr;
    c_.device.write(memory.value(), values.data(), bytes);
    kept = {reinterpret_cast<T*>(memory.value()), count};
    return kept.first;
  }
  const std::int32_t* ids(std::int64_t count) {
    const auto columns = static_cast<std::uint32_t>(c_.sizes.columns);
    return constant<std::int32_t>(count, ids_, [=](std::size_t i) {
      return static_cast<std::int32_t>(static_cast<std::uint32_t>(i) * 2654435761U % columns);
    });
  }
  float* positive(std::int64_t count) {
    return constant<float>(count, positive_, [](std::size_t) { return 0.1F; });
  }
  double* norms() {
    return constant<double>(2, norms_, [](std::size_t i) { return i == 0 ? 1.0 : 0.0; });
  }
  // A GPU remembers lists by where arrays lie: one place per size there, else what rotates.
  float* settled(std::int64_t count, RotatingMemory& memory, std::map<std::int64_t, float*>& kept) {
    if (!c_.gpu()) return memory.next(count);
    const auto [place, fresh] = kept.try_emplace(count);
    if (fresh) place->second = memory.next(count);
    return place->second;
  }

  std::vector<Kernel> all() {
    Kernels& b = c_.kernels;
    return {
        {"norm", false, 2, 0,
         [&](std::int64_t r, std::int64_t h) {
           b.layer_norm(kLane, r, h, cold(r * h), cold(h), cold(h), kEpsilon, scratch(r * h),
                        scratch(2 * r));
         }},
        {"norm", true, 4, 0,
         [&](std::int64_t r, std::int64_t h) {
           b.layer_norm_backward(kLane, r, h, cold(r * h), cold(r * h), cold(2 * r), cold(h),
                                 cold(r * h), scratch(r * h), scratch(h), scratch(h));
         }},
        {"rms_norm", false, 2, 0,
         [&](std::int64_t r, std::int64_t h) {
           b.rms_norm(kLane, r, h, cold(r * h), cold(h), 0, kEpsilon, scratch(r * h), scratch(r));
         }},
        {"rms_norm", true, 4, 0,
         [&](std::int64_t r, std::int64_t h) {
           b.rms_norm_backward(kLane, r, h, cold(r * h), cold(r * h), cold(r), cold(h), 0,
                               cold(r * h), scratch(r * h), scratch(h));
         }},
        {"activation", false, 2, 0,
         [&](std::int64_t r, std::int64_t h) {
           b.activation(kLane, ActivationKind::GeluTanh, r * h, cold(r * h), scratch(r * h));
         }},
        {"activation", true, 3, 0,
         [&](std::int64_t r, std::int64_t h) {
           b.activation_backward(kLane, ActivationKind::GeluTanh, r * h, cold(r * h), cold(r * h),
                                 scratch(r * h));
         }},
        {"swiglu", false, 3, 0,
         [&](std::int64_t r, std::int64_t h) {
           b.gated(kLane, ActivationKind::Silu, r, h, cold(2 * r * h), scratch(r * h));
         }},
        {"swiglu", true, 5, 0,
         [&](std::int64_t r, std::int64_t h) {
           b.gated_backward(kLane, ActivationKind::Silu, r, h, cold(r * h), cold(2 * r * h),
                            scratch(2 * r * h));
         }},
        {"rope", false, 2, 0,
         [&](std::int64_t r, std::int64_t h) {
           static constexpr std::array<double, 64> kFrequencies{};
           const std::int64_t dim = std::min<std::int64_t>(h / 8, kFrequencies.size()) * 2;
           const AttentionShape shape{
               .tokens = r, .sequence = r, .heads = h / dim - 2, .kv_heads = 1, .head_dim = dim};
           b.rope(kLane, shape, {.inverse_frequency = kFrequencies.data(), .rotary_dim = dim},
                  false, scratch(r * h));
         }},
        {"add", false, 3, 0,
         [&](std::int64_t r, std::int64_t h) {
           b.add_residual(kLane, r, h, cold(r * h), cold(r * h), cold(h), {}, scratch(r * h));
         }},
        {"dropout", false, 2, 0,
         [&](std::int64_t r, std::int64_t h) {
           b.dropout(kLane, r, h, dropout_of(0.1, 0, 0, 0, DropoutSite::Embedding), cold(r * h),
                     scratch(r * h));
         }},
        {"position", false, 2, 0,
         [&](std::int64_t r, std::int64_t h) {
           b.add_positions(kLane, r, h, 0, positions_of(r), cold(r * h), cold(positions_of(r) * h),
                           scratch(r * h));
         }},
        {"position", true, 1, 0,
         [&](std::int64_t r, std::int64_t h) {
           b.position_gradient(kLane, r, h, 0, positions_of(r), cold(r * h),
                               scratch(positions_of(r) * h));
         }},
        {"embedding", false, 1, 0,
         [&](std::int64_t r, std::int64_t h) {
           b.embed(kLane, r, h, ids(r), cold(h * h), vocabulary(h), scratch(r * h));
         }},
        {"embedding", true, 1, 0,
         [&](std::int64_t r, std::int64_t h) {
           b.embed_backward(kLane, r, h, ids(r), cold(r * h), vocabulary(h),
                            reinterpret_cast<std::int32_t*>(scratch(r)), scratch(h * h));
         }},
        {"row_maxima", false, 1, 0,
         [&](std::int64_t r, std::int64_t v) {
           b.row_maxima(kLane, r, vocabulary(v), cold(r * v), scratch(r));
         },
         true},
        {"row_sums", false, 1, 0,
         [&](std::int64_t r, std::int64_t v) {
           b.row_sums(kLane, r, vocabulary(v), cold(r * v), cold(r), ids(r), scratch(2 * r));
         },
         true},
        {"cross_entropy", false, 2, 0,
         [&](std::int64_t r, std::int64_t v) {
           b.loss_and_gradient(kLane, r, vocabulary(v), cold(r), positive(2 * r), ids(r), 1.0F,
                               scratch(r * v), scratch(1));
         },
         true},
        // In bf16 there is a master, and the parameter is written along.
        {"optimizer", false, has_master() ? 1.0 : 0.0, 7,
         [&](std::int64_t r, std::int64_t h) { adamw(r * h); }},
        {"gradient_norm", false, 0, 1,
         [&](std::int64_t r, std::int64_t h) {
           const NormRange range{.data = settled(r * h, c_.memory, summed_), .elements = r * h};
           b.norms(kLane, {&range, 1}, nullptr, 2, norms());
         }},
        {"clear", false, 0, 1,
         [&](std::int64_t r, std::int64_t h) {
           c_.device.clear(kLane, scratch(r * h), 4 * r * h);
         }},
        {"copy", false, 0, 2,
         [&](std::int64_t r, std::int64_t h) {
           c_.device.transfer(kLane, cold(r * h), kLane, scratch(r * h), 4 * r * h);
         }},
    };
  }

  // A shard of ZeRO-3 on its way in 8 bit, and from it: there and back.
  void add_packing(std::vector<Kernel>& to) {
    constexpr double kFloats = 1.25;  // of a value, read in one form and written in the other
    to.push_back({"quantize", false, 0, kFloats, [&](std::int64_t r, std::int64_t h) {
                    pack_values(c_.device, blocks_of(r * h), bytes_at(cold(r * h)), r * h,
                                bytes_at(scratch(packed_bytes(r * h) / 4)), packed_bytes(r * h));
                  }});
    to.push_back({"quantize", true, 0, kFloats, [&](std::int64_t r, std::int64_t h) {
                    const StoredBucket whole{.parameter = bytes_at(scratch(r * h)),
                                             .type = ElementType::Float32};
                    unpack_values(c_.device, blocks_of(r * h),
                                  bytes_at(cold(packed_bytes(r * h) / 4)), packed_bytes(r * h),
                                  whole, 0, r * h);
                  }});
  }
  static std::byte* bytes_at(float* data) { return reinterpret_cast<std::byte*>(data); }
  // Of whole blocks, as rows of 256 columns are.
  static std::int64_t packed_bytes(std::int64_t values) {
    return values + 4 * (values / kGatherBlock);
  }
  std::span<const std::int64_t> blocks_of(std::int64_t values) {
    const auto count = static_cast<std::size_t>(values / kGatherBlock);
    for (std::size_t i = blocks_.size(); i < count; ++i) {
      blocks_.push_back(static_cast<std::int64_t>(i + 1) * kGatherBlock);
    }
    return std::span(blocks_).first(count);
  }

  // Rows are tokens of several samples: positions are few beside them, as the nodes count.
  static std::int64_t positions_of(std::int64_t rows) { return std::min<std::int64_t>(rows, 1024); }
  // What is written is not what others read: their data stay random.
  float* scratch(std::int64_t count) { return c_.written.next(count); }
  static VocabularyShape vocabulary(std::int64_t columns) {
    return {.columns = columns, .valid = columns, .first = 0};
  }

  bool has_master() const { return c_.options.type == ElementType::BFloat16; }
  // Second moments are not negative.
  void adamw(std::int64_t count) {
    const UpdateRange range{.begin = 0, .end = count, .decay = 0.01};
    c_.kernels.update(kLane, {.gradient = cold(count),
                              .parameter = scratch(count),
                              .master = has_master() ? scratch(count) : nullptr,
                              .moments = {settled(count, c_.written, moments_), positive(count)},
                              .ranges = {&range, 1},
                              .norms = norms(),
                              .slots = 2,
                              .options = &train_,
                              .rate = 1e-6,
                              .step = 10});
  }

  Calibration& c_;
  TrainOptions train_;
  std::pair<std::int32_t*, std::int64_t> ids_;
  std::pair<float*, std::int64_t> positive_;
  std::pair<double*, std::int64_t> norms_;
  std::map<std::int64_t, float*> moments_, summed_;
  std::vector<std::int64_t> blocks_;
};

struct AttentionForm {
  bool backward = false, causal = true, part = false;
};

void attention_point(Calibration& c, const AttentionShape& shape) {
  const std::int64_t out = shape.tokens * shape.heads * shape.values(),
                     queries = shape.tokens * shape.heads * shape.head_dim,
                     in = shape.tokens * shape.columns(), rows = shape.heads * shape.tokens,
                     keys = shape.tokens * shape.kv_columns();
  // larger than the device?
  if (!c.warm.holds(2 * in + 2 * out + queries + 2 * rows + 2 * keys + kKernelSlack)) return;
  c.warm.restart();
  float *qkv = c.warm.next(in), *o = c.warm.next(out), *d_o = c.warm.next(out);
  float *lse = c.warm.next(rows), *delta = c.warm.next(rows), *dqkv = c.warm.next(in);
  float *kv = c.warm.next(keys), *dkv = c.warm.next(keys), *dq = c.warm.next(queries);
  const auto measure = [&](const AttentionForm& form, const std::function<void()>& work) {
    const double us = c.watch.median_us(work);
    c.tables.attention.push_back({form.backward, form.causal, form.part, shape.heads,
                                  shape.sequence, shape.head_dim, us, shape.tokens / shape.sequence,
                                  shape.values()});
  };
  measure({}, [&] { c.kernels.attention(kLane, shape, qkv, o, lse); });
  measure({.backward = true},
          [&] { c.kernels.attention_backward(kLane, shape, d_o, qkv, o, lse, dqkv, delta); });
  // The own part comes first forward and last backward, others find sums that are already there. On
  // a CPU it is the whole: one kernel, one type.
  for (const bool causal : {true, false}) {
    if (causal && !c.gpu()) continue;
    AttentionPart part{.shape = shape,
                       .query_end = shape.sequence,
                       .key_end = shape.sequence,
                       .key_stride = causal ? shape.columns() : shape.kv_columns(),
                       .causal = causal,
                       .first = causal};
    const float* met = causal ? qkv : kv;
    measure({.causal = causal, .part = true},
            [&] { c.kernels.attention_part(kLane, part, qkv, met, o, lse); });
    part.first = false;
    measure({.backward = true, .causal = causal, .part = true}, [&] {
      c.kernels.attention_part_backward(kLane, part, d_o, qkv, met, o, lse, dq, dkv, delta);
    });
  }
  if (c.gpu() || shape.sequence < 2) return;
  // A block of the ring: of a place before this one its early half, of one behind it for the late
  // half of the queries. Over all places and steps there are as many of either.
  for (const bool backward : {false, true}) {
    double us = 0;
    for (const bool late : {false, true}) {
      AttentionPart part{.shape = shape,
                         .query_begin = late ? shape.sequence / 2 : 0,
                         .query_end = shape.sequence,
                         .key_end = late ? shape.sequence : shape.sequence / 2,
                         .key_stride = shape.kv_columns()};
      us += c.watch.median_us([&] {
        if (backward) {
          c.kernels.attention_part_backward(kLane, part, d_o, qkv, kv, o, lse, dq, dkv, delta);
        } else {
          c.kernels.attention_part(kLane, part, qkv, kv, o, lse);
        }
      });
    }
    c.tables.attention.push_back({.backward = backward,
                                  .causal = false,
                                  .part = true,
                                  .heads = shape.heads,
                                  .sequence = shape.sequence,
                                  .head_dim = shape.head_dim,
                                  .us = us / 2,
                                  .samples = shape.tokens / shape.sequence,
                                  .value_dim = shape.values(),
                                  .half = true});
  }
}

}  // namespace

void measure_memory_bound(Calibration& c) {
  MemoryBound(c).run();
}

void measure_attention(Calibration& c) {
  std::vector<AttentionShape> shapes;
  const auto add = [&](std::int64_t samples, std::int64_t sequence, std::int64_t heads,
                       std::int64_t dim, std::int64_t values) {
    const AttentionShape shape{.tokens = samples * sequence,
                               .sequence = sequence,
                               .heads = heads,
                               .kv_heads = heads,
                               .head_dim = dim,
                               .value_dim = values};
    const auto same = [&](const AttentionShape& other) {
      return other.tokens == shape.tokens && other.sequence == sequence && other.heads == heads &&
             other.head_dim == dim && other.value_dim == values;
    };
    if (std::ranges::none_of(shapes, same)) shapes.push_back(shape);
  };
  const auto samples = [&](std::int64_t sequence) {
    return std::max<std::int64_t>(1, c.sizes.attention_tokens / sequence);
  };
  // First, for the first of a length is the one that is read.
  for (const Scenario& scenario : c.options.scenarios) {
    const Plan& plan = scenario.plan;
    const std::int64_t sequence =
        plan.sequence_length / plan.context_parallel / plan.sequence_slices;
    if (c.gpu()) {  // which it fills more or less
      const RankShape rank = Layout(scenario.model, plan).shape;
      add(rank.tokens / sequence, sequence, rank.heads, rank.head_dim, rank.value_dim);
    } else {
      add(samples(sequence), sequence, c.sizes.heads, scenario.model.head_dim,
          scenario.model.value_dim());
    }
  }
  const CalibrateSizes::Range& range = c.sizes.sequence;
  for (const std::int64_t dim : {16, 32, 64, 128, 192}) {
    if (c.gpu() ? dim < 64 : dim > 128) continue;                  // a GPU pads heads to 64
    const std::int64_t values = std::min<std::int64_t>(dim, 128);  // 192: DeepSeek-V2's heads
    for (std::int64_t sequence = range.first; sequence <= range.last; sequence *= range.factor) {
      add(samples(sequence), sequence, c.sizes.heads, dim, values);
    }
  }
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    attention_point(c, shapes[i]);
    c.progress("attention", static_cast<double>(i + 1) / static_cast<double>(shapes.size()));
  }
}

}  // namespace rehearse::exec
