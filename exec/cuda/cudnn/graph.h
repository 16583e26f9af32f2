// SPDX-License-Identifier: Apache-2.0
// A graph of operations as cuDNN's backend takes it (NVIDIA cuDNN, "Graph API"): tensors of four
// dimensions, products, element by element, sums; and the plan that cuDNN makes of it.
//
// The first thing that cuDNN refuses stays in error(); what follows does nothing.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "exec/cuda/cudnn/library.h"

namespace rehearse::exec::cuda::cudnn {

// Owned.
class Descriptor {
 public:
  Descriptor() = default;
  Descriptor(const Library& calls, cudnnBackendDescriptor_t made) : calls_(&calls), made_(made) {}
  Descriptor(Descriptor&& other) noexcept
      : calls_(other.calls_), made_(std::exchange(other.made_, nullptr)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(calls_, other.calls_);
    std::swap(made_, other.made_);
    return *this;
  }
  ~Descriptor() {
    if (made_ != nullptr) calls_->cudnnBackendDestroyDescriptor(made_);
  }
  cudnnBackendDescriptor_t get() const { return made_; }

 private:
  const Library* calls_ = nullptr;
  cudnnBackendDescriptor_t made_ = nullptr;
};

// What a plan runs on. One of them: a handle, or the properties of a device that need not be there
// (a CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, cuDNN 9.8 and later): plans are made, not run.
struct Target {
  cudnnHandle_t handle = nullptr;
  cudnnBackendDescriptor_t properties = nullptr;
};

// Engines of the same graph may sum in an order that differs from run to run.
enum class Sums : std::uint8_t { Any, InOneOrder };

class Graph {
 public:
  using Four = std::array<std::int64_t, 4>;
  using Tensor = std::size_t;  // an index
  using Mode = cudnnPointwiseMode_t;

  explicit Graph(const Library& calls) : calls_(calls) {}

  static std::int64_t uid(Tensor tensor) { return static_cast<std::int64_t>(tensor) + 1; }
  // In memory.
  Tensor array(cudnnDataType_t type, Four dims, Four strides);
  // One number, which is given when the plan runs.
  Tensor number();
  // Between two operations, in no memory; dense.
  Tensor between(cudnnDataType_t type, Four dims);

  void product(Tensor a, Tensor b, Tensor c);
  void apply(Mode mode, Tensor x, Tensor y, cudnnDataType_t computed = CUDNN_DATA_FLOAT);
  void apply(Mode mode, Tensor x, Tensor b, Tensor y, cudnnDataType_t computed = CUDNN_DATA_FLOAT);
  void select(Tensor where_true, Tensor where_false, Tensor condition, Tensor y);
  void index(std::int64_t axis, Tensor like, Tensor y);
  void reduce(cudnnReduceTensorOp_t how, Tensor x, Tensor y);
  // x with its last two dimensions exchanged: the same places by other strides.
  Tensor transposed(Tensor x, cudnnDataType_t type);

  // The first plan that cuDNN's heuristics name and that can be made: nullptr with error().
  // REQUIRES: called once, last.
  Descriptor plan(const Target& target, Sums sums);
  const std::string& error() const { return error_; }

 private:
  cudnnBackendDescriptor_t make(cudnnBackendDescriptorType_t type);
  void set(cudnnBackendDescriptor_t of, cudnnBackendAttributeName_t name,
           cudnnBackendAttributeType_t type, std::int64_t count, const void* values);
  template <class T>
  void set(cudnnBackendDescriptor_t of, cudnnBackendAttributeName_t name,
           cudnnBackendAttributeType_t type, const T& value) {
    set(of, name, type, 1, &value);
  }
  void link(cudnnBackendDescriptor_t of, cudnnBackendAttributeName_t name, Tensor tensor);
  bool finalize(cudnnBackendDescriptor_t made);
  bool check(cudnnStatus_t status, const char* what);
  Tensor tensor(cudnnDataType_t type, Four dims, Four strides, bool is_virtual, bool by_value);
  void pointwise(Mode mode, cudnnDataType_t computed, std::int64_t axis, Tensor x, Tensor y,
                 const Tensor* b, const Tensor* t);
  bool sums_in_one_order(cudnnBackendDescriptor_t config);

  const Library& calls_;
  std::string error_;
  std::vector<Descriptor> owned_;
  struct Made {
    cudnnBackendDescriptor_t descriptor = nullptr;
    Four dims{}, strides{};
  };
  std::vector<Made> tensors_;
  std::vector<cudnnBackendDescriptor_t> operations_;
};

// What cuDNN says of a call that failed.
std::string said(const Library& calls, cudnnStatus_t status);
// Bytes that a plan wants beside its arrays; negative: it does not say.
std::int64_t workspace_bytes(const Library& calls, cudnnBackendDescriptor_t plan);

}  // namespace rehearse::exec::cuda::cudnn
