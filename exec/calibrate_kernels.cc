// Kernels bound by memory, by class, over sizes; attention over sequence lengths and head sizes.
// Bytes are counted as the nodes of our bodies count theirs (schedules/body_rehearse.cc).
#include <algorithm>
#include <cmath>

#include "exec/calibrate_parts.h"

namespace rehearse::exec {
namespace {

constexpr Lane kLane{0, Stream::Compute};

// One class at one size; every call of `run` is one kernel on `rows` rows of `columns`.
struct Kernel {
  std::string_view op;
  bool backward;
  double floats_per_element;  // read and written
  std::function<void(std::int64_t rows, std::int64_t columns)> run;
};

class MemoryBound {
 public:
  explicit MemoryBound(Calibration& c) : c_(c) {}

  void run() {
    const std::vector<Kernel> kernels = all();
    const std::int64_t largest = c_.options.quick ? 4 << 20 : 32 << 20;
    for (std::size_t k = 0; k < kernels.size(); ++k) {
      const Kernel& kernel = kernels[k];
      for (std::int64_t bytes = 16 << 10; bytes <= largest; bytes *= c_.options.quick ? 16 : 4) {
        const double elements = static_cast<double>(bytes) / (4 * kernel.floats_per_element);
        const std::int64_t rows = std::max<std::int64_t>(1, std::llround(elements / kColumns));
        const double us = c_.watch.median_us([&] { kernel.run(rows, kColumns); });
        c_.tables.kernels.push_back(
            {kernel.op, kernel.backward,
             std::llround(4 * kernel.floats_per_element * static_cast<double>(rows * kColumns)),
             us});
      }
      c_.progress("memory-bound kernels",
                  static_cast<double>(k + 1) / static_cast<double>(kernels.size()));
    }
  }

 private:
  static constexpr std::int64_t kColumns = 256;
  static constexpr double kEpsilon = 1e-5;  // of norms

  float* cold(std::int64_t count) { return c_.memory.next(count); }
  const std::int32_t* ids(std::int64_t count) {
    if (static_cast<std::int64_t>(ids_.size()) < count) {
      ids_.resize(static_cast<std::size_t>(count));
      for (std::size_t i = 0; i < ids_.size(); ++i) {
        ids_[i] = static_cast<std::int32_t>(i * 2654435761U % kColumns);
      }
    }
    return ids_.data();
  }
  std::int32_t* order(std::int64_t count) {
    order_.resize(static_cast<std::size_t>(count));
    return order_.data();
  }

  std::vector<Kernel> all() {
    Backend& b = c_.backend;
    return {
        {"norm", false, 2,
         [&](std::int64_t r, std::int64_t h) {
           b.layer_norm(kLane, r, h, cold(r * h), cold(h), cold(h), kEpsilon, scratch(r * h),
                        scratch(2 * r));
         }},
        {"norm", true, 4,
         [&](std::int64_t r, std::int64_t h) {
           b.layer_norm_backward(kLane, r, h, cold(r * h), cold(r * h), cold(2 * r), cold(h),
                                 cold(r * h), scratch(r * h), scratch(h), scratch(h));
         }},
        {"rms_norm", false, 2,
         [&](std::int64_t r, std::int64_t h) {
           b.rms_norm(kLane, r, h, cold(r * h), cold(h), kEpsilon, scratch(r * h), scratch(r));
         }},
        {"rms_norm", true, 4,
         [&](std::int64_t r, std::int64_t h) {
           b.rms_norm_backward(kLane, r, h, cold(r * h), cold(r * h), cold(r), cold(h), cold(r * h),
                               scratch(r * h), scratch(h));
         }},
        {"activation", false, 2,
         [&](std::int64_t r, std::int64_t h) {
           b.gelu(kLane, r * h, cold(r * h), scratch(r * h));
         }},
        {"activation", true, 3,
         [&](std::int64_t r, std::int64_t h) {
           b.gelu_backward(kLane, r * h, cold(r * h), cold(r * h), scratch(r * h));
         }},
        {"swiglu", false, 3,
         [&](std::int64_t r, std::int64_t h) {
           b.swiglu(kLane, r, h, cold(2 * r * h), scratch(r * h));
         }},
        {"swiglu", true, 5,
         [&](std::int64_t r, std::int64_t h) {
           b.swiglu_backward(kLane, r, h, cold(r * h), cold(2 * r * h), scratch(2 * r * h));
         }},
        {"rope", false, 2,
         [&](std::int64_t r, std::int64_t h) {
           const AttentionShape shape{
               .tokens = r, .sequence = r, .heads = 2, .kv_heads = 1, .head_dim = h / 4};
           b.rope(kLane, shape, 10000.0, false, scratch(r * h));
         }},
        {"add", false, 3,
         [&](std::int64_t r, std::int64_t h) {
           b.add_residual(kLane, r, h, cold(r * h), cold(r * h), cold(h), scratch(r * h));
         }},
        {"position", false, 2,
         [&](std::int64_t r, std::int64_t h) {
           b.add_positions(kLane, r, h, 0, r, cold(r * h), cold(r * h), scratch(r * h));
         }},
        {"position", true, 1,
         [&](std::int64_t r, std::int64_t h) {
           b.position_gradient(kLane, r, h, 0, r, cold(r * h), scratch(r * h));
         }},
        {"embedding", false, 1,
         [&](std::int64_t r, std::int64_t h) {
           b.embed(kLane, r, h, ids(r), cold(kColumns * h), vocabulary(kColumns), scratch(r * h));
         }},
        {"embedding", true, 1,
         [&](std::int64_t r, std::int64_t h) {
           b.embed_backward(kLane, r, h, ids(r), cold(r * h), vocabulary(kColumns), order(r),
                            scratch(kColumns * h));
         }},
        {"row_maxima", false, 1,
         [&](std::int64_t r, std::int64_t v) {
           b.row_maxima(kLane, r, vocabulary(v), cold(r * v), scratch(r));
         }},
        {"row_sums", false, 1,
         [&](std::int64_t r, std::int64_t v) {
           b.row_sums(kLane, r, vocabulary(v), cold(r * v), cold(r), ids(r), scratch(2 * r));
         }},
        {"cross_entropy", false, 2,
         [&](std::int64_t r, std::int64_t v) {
           float loss = 0;
           float* sums = scratch(2 * r);
           std::fill_n(sums, 2 * r, static_cast<float>(v));
           b.loss_and_gradient(kLane, r, vocabulary(v), cold(r * v), cold(r), sums, ids(r), 1.0F,
                               scratch(r * v), &loss);
         }},
        {"optimizer", false, 7, [&](std::int64_t r, std::int64_t h) { adamw(r * h); }},
        {"gradient_norm", false, 1,
         [&](std::int64_t r, std::int64_t h) {
           double norms[2] = {0, 0};
           const NormRange range{.data = cold(r * h), .elements = r * h, .slot = 0};
           b.norms(kLane, {&range, 1}, nullptr, 2, norms);
         }},
        {"clear", false, 1,
         [&](std::int64_t r, std::int64_t h) { b.clear(kLane, scratch(r * h), 4 * r * h); }},
        {"copy", false, 2,
         [&](std::int64_t r, std::int64_t h) {
           b.transfer(kLane, cold(r * h), kLane, scratch(r * h), 4 * r * h);
         }},
    };
  }

  // What is written is not what others read: their data stay random.
  float* scratch(std::int64_t count) { return c_.written.next(count); }
  static VocabularyShape vocabulary(std::int64_t columns) {
    return {.columns = columns, .valid = columns, .first = 0};
  }

  void adamw(std::int64_t count) {
    const AdamwRange range{.begin = 0, .end = count, .decay = 0.01};
    const double norms[2] = {1, 0};
    c_.backend.adamw(kLane, {.gradient = cold(count),
                             .parameter = scratch(count),
                             .m = scratch(count),
                             .v = squares(count),
                             .ranges = {&range, 1},
                             .norms = norms,
                             .slots = 2,
                             .options = &train_,
                             .rate = 1e-6,
                             .step = 10});
  }
  // Second moments are not negative.
  float* squares(std::int64_t count) {
    if (static_cast<std::int64_t>(squares_.size()) < count)
      squares_.assign(static_cast<std::size_t>(count), 0.1F);
    return squares_.data();
  }

  Calibration& c_;
  TrainOptions train_;
  std::vector<float> squares_;
  std::vector<std::int32_t> ids_, order_;
};

void attention_point(Calibration& c, std::int64_t heads, std::int64_t sequence, std::int64_t dim) {
  const AttentionShape shape{
      .tokens = sequence, .sequence = sequence, .heads = heads, .kv_heads = heads, .head_dim = dim};
  const std::int64_t out = sequence * heads * dim, in = sequence * shape.columns(),
                     rows = heads * sequence;
  RotatingMemory warm(sizeof(float) * static_cast<std::size_t>(2 * in + 2 * out + 2 * rows) +
                      (1 << 13));
  float *qkv = warm.next(in), *dqkv = warm.next(in), *o = warm.next(out), *d_o = warm.next(out);
  float *lse = warm.next(rows), *delta = warm.next(rows);
  const double forward = c.watch.median_us([&] { c.backend.attention(kLane, shape, qkv, o, lse); });
  const double backward = c.watch.median_us(
      [&] { c.backend.attention_backward(kLane, shape, d_o, qkv, o, lse, dqkv, delta); });
  c.tables.attention.push_back({false, heads, sequence, dim, forward});
  c.tables.attention.push_back({true, heads, sequence, dim, backward});
}

}  // namespace

void measure_memory_bound(Calibration& c) {
  MemoryBound(c).run();
}

void measure_attention(Calibration& c) {
  struct Size {
    std::int64_t sequence, dim;
    auto operator<=>(const Size&) const = default;
  };
  std::vector<Size> sizes;
  for (const std::int64_t dim : {16, 32, 64, 128}) {
    for (std::int64_t sequence = 32; sequence <= (c.options.quick ? 512 : 2048);
         sequence *= c.options.quick ? 4 : 2) {
      sizes.push_back({sequence, dim});
    }
  }
  for (const Scenario& scenario : c.options.scenarios) {
    const Size own{scenario.plan.sequence_length, scenario.model.head_dim};
    if (std::ranges::find(sizes, own) == sizes.end()) sizes.push_back(own);
  }
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    attention_point(c, 2, sizes[i].sequence, sizes[i].dim);
    c.progress("attention", static_cast<double>(i + 1) / static_cast<double>(sizes.size()));
  }
}

}  // namespace rehearse::exec
