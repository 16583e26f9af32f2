// SPDX-License-Identifier: Apache-2.0
// A backend that computes nothing and writes down what it was asked for: the interpreter's logic
// without a device, for layouts of any size. Its memory is addresses alone.
#pragma once

#include <array>
#include <string_view>
#include <type_traits>
#include <vector>

#include "exec/backend/backend.h"

namespace rehearse::exec {

// One call of a device or of its kernels.
struct RecordedCall {
  std::string_view what;  // the method
  Lane lane;              // exchange: of the first member here
  OpId op{};              // begin, end
  OpKind kind{};          // exchange
  std::int64_t bytes = 0;
  std::array<std::int64_t, 3> counts{};  // a kernel's leading numbers: m, n and k of a product
};
using Recording = std::vector<RecordedCall>;

class NullDevice : public Device {
 public:
  // `asynchronous`: as a GPU is, called from one thread. `calls` may be null: then any number of
  // threads may call it.
  NullDevice(bool asynchronous, Recording* calls) : asynchronous_(asynchronous), calls_(calls) {}

  std::string_view name() const override { return "nothing"; }
  bool asynchronous() const override { return asynchronous_; }
  Result<std::byte*> allocate(std::int32_t rank, std::int64_t bytes) override;
  Result<std::byte*> allocate_host(std::int32_t rank, std::int64_t bytes) override;
  void write(std::byte*, const void*, std::int64_t) override {}
  void read(void* to, const std::byte*, std::int64_t bytes) override;  // zeros
  void begin_step() override;                                          // forgets all calls
  void begin(Lane lane, OpId op, std::span<const OpId>) override { note({"begin", lane, op}); }
  void end(Lane lane, OpId op) override { note({"end", lane, op}); }
  void exchange(const Exchange& e) override {
    note({"exchange", e.lanes.front(), {}, e.kind, e.elements * bytes_of(e.type)});
  }
  void transfer(Lane from, const void*, Lane, void*, std::int64_t bytes) override {
    note({"transfer", from, {}, {}, bytes});
  }
  void clear(Lane l, void*, std::int64_t bytes) override { note({"clear", l, {}, {}, bytes}); }
  void fetch(Lane l, void*, const void*, std::int64_t bytes) override {
    note({"fetch", l, {}, {}, bytes});
  }
  void offload(Lane l, void*, const void*, std::int64_t bytes) override {
    note({"offload", l, {}, {}, bytes});
  }
  void to_host(Lane l, std::byte*, const std::byte*, std::int64_t bytes) override {
    note({"to_host", l, {}, {}, bytes});
  }
  void from_host(Lane l, std::byte*, const std::byte*, std::int64_t bytes) override {
    note({"from_host", l, {}, {}, bytes});
  }

 private:
  void note(const RecordedCall& call) {
    if (calls_ != nullptr) calls_->push_back(call);
  }
  bool asynchronous_;
  Recording* calls_;
};

class NullKernels : public Kernels {
 public:
  explicit NullKernels(Recording* calls) : calls_(calls) {}  // calls may be null

#define KERNEL(name, parameters, arguments)          \
  void name(Lane lane, SPREAD parameters) override { \
    note(#name, lane, SPREAD arguments);             \
  }
#include "exec/backend/kernel_rows.inc"
  void norms(Lane lane, std::span<const NormRange>, const float*, std::int64_t slots,
             double*) override {
    note("norms", lane, slots);
  }
  void update(Lane lane, const UpdateArguments&) override {
    note("update", lane);
  }

 private:
  template <class... Arguments>
  void note(std::string_view what, Lane lane, const Arguments&... arguments) {
    if (calls_ != nullptr) calls_->push_back({what, lane, {}, {}, 0, leading(arguments...)});
  }
  using Counts = std::array<std::int64_t, 3>;
  static Counts leading(const auto&...) {
    return {};
  }
  static Counts leading(std::int64_t a, const auto&...) {
    return {a};
  }
  static Counts leading(std::int64_t a, std::int64_t b, const auto&...) {
    return {a, b};
  }
  static Counts leading(std::int64_t a, std::int64_t b, std::int64_t c, const auto&...) {
    return {a, b, c};
  }
  Recording* calls_;
};

}  // namespace rehearse::exec
