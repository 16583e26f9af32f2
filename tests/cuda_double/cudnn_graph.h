// SPDX-License-Identifier: Apache-2.0
// An operation graph of cuDNN's as the double keeps and computes it.
#pragma once

#include <cudnn_graph.h>

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace rehearse::cuda_double {

struct CudnnTensor {
  std::int64_t uid = 0;
  cudnnDataType_t type{};
  std::array<std::int64_t, 4> dims{}, strides{};
  bool is_virtual = false, by_value = false;

  std::int64_t elements() const { return dims[0] * dims[1] * dims[2] * dims[3]; }
  std::int64_t bytes_of_element() const { return type == CUDNN_DATA_FLOAT ? 4 : 2; }
  std::int64_t place(const std::array<std::int64_t, 4>& at) const {
    return at[0] * strides[0] + at[1] * strides[1] + at[2] * strides[2] + at[3] * strides[3];
  }
};

struct CudnnOperation {
  enum class Kind : std::uint8_t { Product, Pointwise, Reduction, Reshape } kind{};
  cudnnPointwiseMode_t mode{};
  cudnnReduceTensorOp_t reduction{};
  std::int64_t axis = 0;
  CudnnTensor x, b, t, y;  // what of it there is
  bool has_b = false, has_t = false;
};

struct CudnnGraph {
  std::vector<CudnnOperation> operations;

  // Why cuDNN would have no engine for it; empty: it has one.
  std::string refusal() const;
  // A backward pass has more than two products.
  bool is_backward() const;
  // That its engine wants beside the arrays: dP in 16 bits.
  std::int64_t workspace_bytes() const;
  // The arrays in memory, by uid: what each operation reads before it is written, and writes.
  std::map<std::int64_t, CudnnTensor> read() const, written() const;
  // at: arrays and numbers by uid.
  void compute(const std::map<std::int64_t, void*>& at) const;
};

}  // namespace rehearse::cuda_double
