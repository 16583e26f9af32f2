// SPDX-License-Identifier: Apache-2.0
#include "exec/cuda/cudnn/graph.h"

#include <algorithm>

namespace rehearse::exec::cuda::cudnn {
namespace {

constexpr std::int64_t kAlignment = 16;    // of arrays [B]
constexpr std::int64_t kSuggestions = 16;  // of cuDNN's heuristics that are looked at

}  // namespace

std::string said(const Library& calls, cudnnStatus_t status) {
  char more[400] = "";
  calls.cudnnGetLastErrorString(more, sizeof more);
  std::string text = calls.cudnnGetErrorString(status);
  std::string reason = more;
  reason = reason.substr(0, reason.find('\n'));
  return reason.empty() ? text : text + ": " + reason;
}

std::int64_t workspace_bytes(const Library& calls, cudnnBackendDescriptor_t plan) {
  std::int64_t bytes = -1, count = 0;
  const cudnnStatus_t status = calls.cudnnBackendGetAttribute(
      plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &count, &bytes);
  return status == CUDNN_STATUS_SUCCESS ? bytes : -1;
}

bool Graph::check(cudnnStatus_t status, const char* what) {
  if (status == CUDNN_STATUS_SUCCESS) return true;
  if (error_.empty()) error_ = std::string(what) + ": " + said(calls_, status);
  return false;
}

cudnnBackendDescriptor_t Graph::make(cudnnBackendDescriptorType_t type) {
  cudnnBackendDescriptor_t made = nullptr;
  if (!error_.empty() || !check(calls_.cudnnBackendCreateDescriptor(type, &made), "a descriptor"))
    return nullptr;
  owned_.emplace_back(calls_, made);
  return made;
}

void Graph::set(cudnnBackendDescriptor_t of, cudnnBackendAttributeName_t name,
                cudnnBackendAttributeType_t type, std::int64_t count, const void* values) {
  if (error_.empty())
    check(calls_.cudnnBackendSetAttribute(of, name, type, count, values), "an attribute");
}

void Graph::link(cudnnBackendDescriptor_t of, cudnnBackendAttributeName_t name, Tensor tensor) {
  set(of, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, tensors_[tensor].descriptor);
}

bool Graph::finalize(cudnnBackendDescriptor_t made) {
  return error_.empty() && check(calls_.cudnnBackendFinalize(made), "a descriptor");
}

Graph::Tensor Graph::tensor(cudnnDataType_t type, Four dims, Four strides, bool is_virtual,
                            bool by_value) {
  cudnnBackendDescriptor_t made = make(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  const std::int64_t number = uid(tensors_.size());
  set(made, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, type);
  set(made, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, dims.data());
  set(made, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, strides.data());
  set(made, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, number);
  set(made, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, kAlignment);
  if (is_virtual) set(made, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, is_virtual);
  if (by_value) set(made, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, by_value);
  finalize(made);
  tensors_.push_back({made, dims, strides});
  return tensors_.size() - 1;
}

Graph::Tensor Graph::array(cudnnDataType_t type, Four dims, Four strides) {
  return tensor(type, dims, strides, false, false);
}

Graph::Tensor Graph::number() {
  return tensor(CUDNN_DATA_FLOAT, {1, 1, 1, 1}, {1, 1, 1, 1}, false, true);
}

Graph::Tensor Graph::between(cudnnDataType_t type, Four d) {
  return tensor(type, d, {d[1] * d[2] * d[3], d[2] * d[3], d[3], 1}, true, false);
}

void Graph::product(Tensor a, Tensor b, Tensor c) {
  cudnnBackendDescriptor_t how = make(CUDNN_BACKEND_MATMUL_DESCRIPTOR);
  set(how, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
  finalize(how);
  cudnnBackendDescriptor_t made = make(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
  link(made, CUDNN_ATTR_OPERATION_MATMUL_ADESC, a);
  link(made, CUDNN_ATTR_OPERATION_MATMUL_BDESC, b);
  link(made, CUDNN_ATTR_OPERATION_MATMUL_CDESC, c);
  set(made, CUDNN_ATTR_OPERATION_MATMUL_DESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, how);
  finalize(made);
  operations_.push_back(made);
}

void Graph::pointwise(Mode mode, cudnnDataType_t computed, std::int64_t axis, Tensor x, Tensor y,
                      const Tensor* b, const Tensor* t) {
  cudnnBackendDescriptor_t how = make(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  set(how, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, mode);
  set(how, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, computed);
  if (mode == CUDNN_POINTWISE_GEN_INDEX)
    set(how, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, axis);
  finalize(how);
  cudnnBackendDescriptor_t made = make(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  set(made, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, CUDNN_TYPE_BACKEND_DESCRIPTOR, how);
  link(made, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
  link(made, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
  if (b != nullptr) link(made, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, *b);
  if (t != nullptr) link(made, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, *t);
  finalize(made);
  operations_.push_back(made);
}

void Graph::apply(Mode mode, Tensor x, Tensor y, cudnnDataType_t computed) {
  pointwise(mode, computed, 0, x, y, nullptr, nullptr);
}

void Graph::apply(Mode mode, Tensor x, Tensor b, Tensor y, cudnnDataType_t computed) {
  pointwise(mode, computed, 0, x, y, &b, nullptr);
}

void Graph::select(Tensor where_true, Tensor where_false, Tensor condition, Tensor y) {
  pointwise(CUDNN_POINTWISE_BINARY_SELECT, CUDNN_DATA_FLOAT, 0, where_true, y, &where_false,
            &condition);
}

void Graph::index(std::int64_t axis, Tensor like, Tensor y) {
  pointwise(CUDNN_POINTWISE_GEN_INDEX, CUDNN_DATA_FLOAT, axis, like, y, nullptr, nullptr);
}

void Graph::reduce(cudnnReduceTensorOp_t how_reduced, Tensor x, Tensor y) {
  cudnnBackendDescriptor_t how = make(CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
  set(how, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
  set(how, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, how_reduced);
  finalize(how);
  cudnnBackendDescriptor_t made = make(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
  link(made, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x);
  link(made, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y);
  set(made, CUDNN_ATTR_OPERATION_REDUCTION_DESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, how);
  finalize(made);
  operations_.push_back(made);
}

Graph::Tensor Graph::transposed(Tensor x, cudnnDataType_t type) {
  Four dims = tensors_[x].dims, strides = tensors_[x].strides;
  std::swap(dims[2], dims[3]);
  std::swap(strides[2], strides[3]);
  const Tensor y = tensor(type, dims, strides, true, false);
  cudnnBackendDescriptor_t made = make(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
  link(made, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x);
  link(made, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y);
  finalize(made);
  operations_.push_back(made);
  return y;
}

// Does the engine behind a configuration say that its sums have no fixed order?
bool Graph::sums_in_one_order(cudnnBackendDescriptor_t config) {
  cudnnBackendDescriptor_t engine = make(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  std::int64_t count = 0;
  if (!error_.empty() ||
      !check(calls_.cudnnBackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_ENGINE,
                                             CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &engine),
             "an engine"))
    return false;
  cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT] = {};
  if (!check(calls_.cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                                             CUDNN_TYPE_NUMERICAL_NOTE,
                                             CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &count, notes),
             "an engine's notes"))
    return false;
  return std::find(notes, notes + count, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC) == notes + count;
}

Descriptor Graph::plan(const Target& target, Sums sums) {
  cudnnBackendDescriptor_t whole = make(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  set(whole, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
      static_cast<std::int64_t>(operations_.size()), operations_.data());
  if (target.handle != nullptr)
    set(whole, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, target.handle);
  finalize(whole);
  std::string refused;  // the last suggestion's
  for (const cudnnBackendHeurMode_t mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK}) {
    cudnnBackendDescriptor_t heuristics = make(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    set(heuristics, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, whole);
    set(heuristics, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, mode);
    if (target.properties != nullptr)
      set(heuristics, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR,
          target.properties);
    if (!error_.empty()) return {};
    if (!finalize(heuristics)) {
      refused = std::exchange(error_, {});
      continue;
    }
    std::vector<cudnnBackendDescriptor_t> suggested(kSuggestions);
    for (auto& one : suggested) one = make(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    std::int64_t count = 0;
    if (!error_.empty() ||
        !check(calls_.cudnnBackendGetAttribute(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                               CUDNN_TYPE_BACKEND_DESCRIPTOR, kSuggestions, &count,
                                               suggested.data()),
               "suggestions"))
      return {};
    suggested.resize(static_cast<std::size_t>(std::min(count, kSuggestions)));
    for (cudnnBackendDescriptor_t one : suggested) {
      if (sums == Sums::InOneOrder && !sums_in_one_order(one)) {
        if (error_.empty()) refused = "its engines sum in no fixed order";
        error_.clear();
        continue;
      }
      cudnnBackendDescriptor_t made = nullptr;
      if (!check(
              calls_.cudnnBackendCreateDescriptor(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, &made),
              "a plan"))
        return {};
      Descriptor plan(calls_, made);
      set(made, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR, one);
      if (target.handle != nullptr)
        set(made, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, target.handle);
      if (target.properties != nullptr)
        set(made, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR,
            target.properties);
      if (finalize(made)) return plan;
      refused = std::exchange(error_, {});
    }
  }
  error_ = refused.empty() ? "it has no engine for this" : refused;
  return {};
}

}  // namespace rehearse::exec::cuda::cudnn
