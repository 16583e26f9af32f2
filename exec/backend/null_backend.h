// SPDX-License-Identifier: Apache-2.0
// A backend that computes nothing and writes down what it was asked for: the interpreter's logic
// without a device, for layouts of any size. Its memory is addresses alone.
#pragma once

#include <string_view>
#include <vector>

#include "exec/backend/backend.h"

namespace rehearse::exec {

class NullBackend : public Backend {
 public:
  // `asynchronous`: as a device's, called from one thread. Without `records` any number of threads
  // may call it.
  explicit NullBackend(bool asynchronous, bool records = true)
      : asynchronous_(asynchronous), records_(records) {}
  struct Call {
    std::string_view what;  // the method
    Lane lane;              // exchange: of the first member here
    OpId op{};              // begin, end
    OpKind kind{};          // exchange
    std::int64_t size = 0;  // bytes, elements or multiply-adds, as the method counts
  };
  std::vector<Call> calls;

  std::string_view name() const override { return "null"; }
  std::string_view device() const override { return "nothing"; }
  bool asynchronous() const override { return asynchronous_; }
  Result<std::byte*> allocate(std::int32_t rank, std::int64_t bytes) override;
  Result<std::byte*> allocate_host(std::int32_t rank, std::int64_t bytes) override;
  void write(std::byte*, const void*, std::int64_t) override {}
  void read(void* to, const std::byte*, std::int64_t bytes) override;  // zeros
  void begin_step() override { calls.clear(); }
  void begin(Lane lane, OpId op, std::span<const OpId>) override {
    note({"begin", lane, op, {}, 0});
  }
  void end(Lane lane, OpId op) override { note({"end", lane, op, {}, 0}); }
  void exchange(const Exchange& e) override {
    note({"exchange", e.lanes.front(), {}, e.kind, e.elements * bytes_of(e.type)});
  }
  void transfer(Lane from, const void*, Lane, void*, std::int64_t bytes) override {
    note("transfer", from, bytes);
  }
  void clear(Lane l, void*, std::int64_t bytes) override { note("clear", l, bytes); }
  void fetch(Lane l, void*, const void*, std::int64_t bytes) override { note("fetch", l, bytes); }
  void offload(Lane l, void*, const void*, std::int64_t bytes) override {
    note("offload", l, bytes);
  }
  void to_host(Lane l, std::byte*, const std::byte*, std::int64_t bytes) override {
    note("to_host", l, bytes);
  }
  void from_host(Lane l, std::byte*, const std::byte*, std::int64_t bytes) override {
    note("from_host", l, bytes);
  }
  void cast(Lane l, std::int64_t count, const float*, void*) override { note("cast", l, count); }
  void add(Lane l, std::int64_t count, const float*, float*) override { note("add", l, count); }
  void norms(Lane l, std::span<const NormRange>, const float*, std::int64_t slots,
             double*) override {
    note("norms", l, slots);
  }
  void adamw(Lane l, const AdamwArguments& a) override {
    note("adamw", l, a.ranges.empty() ? 0 : a.ranges.back().end);
  }
  void linear(Lane l, std::int64_t m, std::int64_t n, std::int64_t k, const void*, const void*,
              const void*, void*) override {
    note("linear", l, m * n * k);
  }
  void logits(Lane l, std::int64_t m, std::int64_t n, std::int64_t k, const void*, const void*,
              float*) override {
    note("logits", l, m * n * k);
  }
  void linear_input(Lane l, std::int64_t m, std::int64_t n, std::int64_t k, const void*,
                    const void*, void*) override {
    note("linear_input", l, m * n * k);
  }
  void linear_weight(Lane l, std::int64_t m, std::int64_t n, std::int64_t k, const void*,
                     const void*, float*) override {
    note("linear_weight", l, m * n * k);
  }
  void layer_norm(Lane l, std::int64_t rows, std::int64_t h, const void*, const void*, const void*,
                  double, void*, float*) override {
    note("layer_norm", l, rows * h);
  }
  void layer_norm_backward(Lane l, std::int64_t rows, std::int64_t h, const void*, const void*,
                           const float*, const void*, const void*, void*, float*, float*) override {
    note("layer_norm_backward", l, rows * h);
  }
  void rms_norm(Lane l, std::int64_t rows, std::int64_t h, const void*, const void*, double, void*,
                float*) override {
    note("rms_norm", l, rows * h);
  }
  void rms_norm_backward(Lane l, std::int64_t rows, std::int64_t h, const void*, const void*,
                         const float*, const void*, const void*, void*, float*) override {
    note("rms_norm_backward", l, rows * h);
  }
  void add_residual(Lane l, std::int64_t rows, std::int64_t cols, const void*, const void*,
                    const void*, void*) override {
    note("add_residual", l, rows * cols);
  }
  void add_layer_norm(Lane l, const SumNorm& n) override {
    note("add_layer_norm", l, n.rows * n.h);
  }
  void add_rms_norm(Lane l, const SumNorm& n) override { note("add_rms_norm", l, n.rows * n.h); }
  void add_column_sums(Lane l, std::int64_t rows, std::int64_t cols, const void*, float*) override {
    note("add_column_sums", l, rows * cols);
  }
  void add_positions(Lane l, std::int64_t rows, std::int64_t cols, std::int64_t, std::int64_t,
                     const void*, const void*, void*) override {
    note("add_positions", l, rows * cols);
  }
  void position_gradient(Lane l, std::int64_t rows, std::int64_t cols, std::int64_t, std::int64_t,
                         const void*, float*) override {
    note("position_gradient", l, rows * cols);
  }
  void gelu(Lane l, std::int64_t count, const void*, void*) override { note("gelu", l, count); }
  void gelu_backward(Lane l, std::int64_t count, const void*, const void*, void*) override {
    note("gelu_backward", l, count);
  }
  void swiglu(Lane l, std::int64_t rows, std::int64_t f, const void*, void*) override {
    note("swiglu", l, rows * f);
  }
  void swiglu_backward(Lane l, std::int64_t rows, std::int64_t f, const void*, const void*,
                       void*) override {
    note("swiglu_backward", l, rows * f);
  }
  void rope(Lane l, const AttentionShape& s, double, bool, void*) override {
    note("rope", l, s.tokens);
  }
  void attention(Lane l, const AttentionShape& s, const void*, void*, float*) override {
    note("attention", l, s.tokens);
  }
  void attention_backward(Lane l, const AttentionShape& s, const void*, const void*, const void*,
                          const float*, void*, float*) override {
    note("attention_backward", l, s.tokens);
  }
  void attention_part(Lane l, const AttentionPart& p, const void*, const void*, float*,
                      float*) override {
    note("attention_part", l, p.shape.tokens);
  }
  void attention_part_backward(Lane l, const AttentionPart& p, const void*, const void*,
                               const void*, const void*, const float*, float*, float*,
                               float*) override {
    note("attention_part_backward", l, p.shape.tokens);
  }
  void copy_columns(Lane l, std::int64_t rows, std::int64_t cols, const void*, std::int64_t, void*,
                    std::int64_t) override {
    note("copy_columns", l, rows * cols);
  }
  void cast_columns(Lane l, std::int64_t rows, std::int64_t cols, const float*, void*,
                    std::int64_t) override {
    note("cast_columns", l, rows * cols);
  }
  void embed(Lane l, std::int64_t tokens, std::int64_t, const std::int32_t*, const void*,
             const VocabularyShape&, void*) override {
    note("embed", l, tokens);
  }
  void embed_backward(Lane l, std::int64_t tokens, std::int64_t, const std::int32_t*, const void*,
                      const VocabularyShape&, std::int32_t*, float*) override {
    note("embed_backward", l, tokens);
  }
  void row_maxima(Lane l, std::int64_t rows, const VocabularyShape&, const float*,
                  float*) override {
    note("row_maxima", l, rows);
  }
  void row_sums(Lane l, std::int64_t rows, const VocabularyShape&, const float*, const float*,
                const std::int32_t*, float*) override {
    note("row_sums", l, rows);
  }
  void loss_and_gradient(Lane l, std::int64_t rows, const VocabularyShape&, const float*,
                         const float*, const float*, const std::int32_t*, float, void*,
                         float*) override {
    note("loss_and_gradient", l, rows);
  }

 private:
  void note(const Call& call) {
    if (records_) calls.push_back(call);
  }
  void note(std::string_view what, Lane lane, std::int64_t size) {
    note({what, lane, {}, {}, size});
  }
  bool asynchronous_, records_;
};

}  // namespace rehearse::exec
