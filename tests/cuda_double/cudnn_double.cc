// SPDX-License-Identifier: Apache-2.0
#include <cudnn_graph.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "exec/cuda/cudnn/library.h"
#include "tests/cuda_double/cudart_double.h"
#include "tests/cuda_double/cudnn.h"
#include "tests/cuda_double/cudnn_graph.h"
#include "tests/cuda_double/device.h"
#include "tests/cuda_double/engines.h"

struct cudnnContext {
  cudaStream_t stream = nullptr;
};

namespace {

using rehearse::cuda_double::CudnnFault;
using rehearse::cuda_double::CudnnGraph;
using rehearse::cuda_double::CudnnOperation;
using rehearse::cuda_double::CudnnTensor;

std::atomic<std::size_t> version{0};
std::atomic<CudnnFault> fault{CudnnFault::None};
std::atomic<std::int64_t> plans{0}, runs{0};
thread_local std::string last_error;

// Attributes as they were set: their bytes and how many there are.
struct Attribute {
  cudnnBackendAttributeType_t type{};
  std::int64_t count = 0;
  std::vector<char> bytes;
};

struct Descriptor {
  cudnnBackendDescriptorType_t type{};
  bool finalized = false;
  bool ordered = true;  // of an engine
  CudnnGraph graph;     // of a plan, which outlives what it was made of
  std::map<cudnnBackendAttributeName_t, Attribute> set;

  template <class T>
  std::optional<T> get(cudnnBackendAttributeName_t name) const {
    const auto found = set.find(name);
    if (found == set.end() || found->second.bytes.size() < sizeof(T)) return std::nullopt;
    T value;
    std::memcpy(&value, found->second.bytes.data(), sizeof value);
    return value;
  }
  template <class T>
  std::vector<T> all(cudnnBackendAttributeName_t name) const {
    const auto found = set.find(name);
    if (found == set.end()) return {};
    std::vector<T> values(found->second.bytes.size() / sizeof(T));
    std::memcpy(values.data(), found->second.bytes.data(), values.size() * sizeof(T));
    return values;
  }
  // A descriptor that this one names, which must be whole.
  const Descriptor* named(cudnnBackendAttributeName_t name) const {
    const auto* found = static_cast<const Descriptor*>(get<void*>(name).value_or(nullptr));
    return found != nullptr && found->finalized ? found : nullptr;
  }
};

Descriptor* of(cudnnBackendDescriptor_t descriptor) {
  return static_cast<Descriptor*>(descriptor);
}

cudnnStatus_t fail(cudnnStatus_t status, const std::string& why) {
  last_error = why;
  return status;
}

std::size_t bytes_of(cudnnBackendAttributeType_t type) {
  switch (type) {
    case CUDNN_TYPE_BOOLEAN:
      return 1;
    case CUDNN_TYPE_INT64:
    case CUDNN_TYPE_BACKEND_DESCRIPTOR:
    case CUDNN_TYPE_HANDLE:
    case CUDNN_TYPE_VOID_PTR:
      return 8;
    default:
      return 4;
  }
}

std::optional<CudnnTensor> tensor_of(const Descriptor* d) {
  if (d == nullptr || d->type != CUDNN_BACKEND_TENSOR_DESCRIPTOR) return std::nullopt;
  CudnnTensor made;
  const auto dims = d->all<std::int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS),
             strides = d->all<std::int64_t>(CUDNN_ATTR_TENSOR_STRIDES);
  const auto uid = d->get<std::int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID);
  const auto type = d->get<cudnnDataType_t>(CUDNN_ATTR_TENSOR_DATA_TYPE);
  if (dims.size() != 4 || strides.size() != 4 || !uid || !type ||
      !d->get<std::int64_t>(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT))
    return std::nullopt;
  std::ranges::copy(dims, made.dims.begin());
  std::ranges::copy(strides, made.strides.begin());
  made.uid = *uid;
  made.type = *type;
  made.is_virtual = d->get<bool>(CUDNN_ATTR_TENSOR_IS_VIRTUAL).value_or(false);
  made.by_value = d->get<bool>(CUDNN_ATTR_TENSOR_IS_BY_VALUE).value_or(false);
  return made;
}

// Null: something that it needs is not there, or not whole.
std::optional<CudnnOperation> operation_of(const Descriptor& d) {
  CudnnOperation made;
  const auto take = [&](cudnnBackendAttributeName_t name, CudnnTensor* to) {
    const std::optional<CudnnTensor> found = tensor_of(d.named(name));
    if (found) *to = *found;
    return found.has_value();
  };
  const auto optional = [&](cudnnBackendAttributeName_t name, CudnnTensor* to, bool* has) {
    *has = d.set.contains(name);
    return !*has || take(name, to);
  };
  bool whole = false;
  switch (d.type) {
    case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR:
      made.kind = CudnnOperation::Kind::Product;
      made.has_b = true;
      whole = take(CUDNN_ATTR_OPERATION_MATMUL_ADESC, &made.x) &&
              take(CUDNN_ATTR_OPERATION_MATMUL_BDESC, &made.b) &&
              take(CUDNN_ATTR_OPERATION_MATMUL_CDESC, &made.y) &&
              d.named(CUDNN_ATTR_OPERATION_MATMUL_DESC) != nullptr;
      break;
    case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR: {
      made.kind = CudnnOperation::Kind::Pointwise;
      const Descriptor* how = d.named(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
      whole = how != nullptr && take(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, &made.x) &&
              take(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, &made.y) &&
              optional(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, &made.b, &made.has_b) &&
              optional(CUDNN_ATTR_OPERATION_POINTWISE_TDESC, &made.t, &made.has_t);
      if (!whole) break;
      made.mode = how->get<cudnnPointwiseMode_t>(CUDNN_ATTR_POINTWISE_MODE).value();
      made.axis = how->get<std::int64_t>(CUDNN_ATTR_POINTWISE_AXIS).value_or(0);
      break;
    }
    case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR: {
      made.kind = CudnnOperation::Kind::Reduction;
      const Descriptor* how = d.named(CUDNN_ATTR_OPERATION_REDUCTION_DESC);
      whole = how != nullptr && take(CUDNN_ATTR_OPERATION_REDUCTION_XDESC, &made.x) &&
              take(CUDNN_ATTR_OPERATION_REDUCTION_YDESC, &made.y);
      if (whole)
        made.reduction = how->get<cudnnReduceTensorOp_t>(CUDNN_ATTR_REDUCTION_OPERATOR).value();
      break;
    }
    case CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR:
      made.kind = CudnnOperation::Kind::Reshape;
      whole = take(CUDNN_ATTR_OPERATION_RESHAPE_XDESC, &made.x) &&
              take(CUDNN_ATTR_OPERATION_RESHAPE_YDESC, &made.y);
      break;
    default:
      break;
  }
  return whole ? std::optional(made) : std::nullopt;
}

// Empty: it is not one.
CudnnGraph graph_of(const Descriptor* d) {
  CudnnGraph made;
  if (d == nullptr) return made;
  for (void* one : d->all<void*>(CUDNN_ATTR_OPERATIONGRAPH_OPS)) {
    const auto* operation = static_cast<const Descriptor*>(one);
    const std::optional<CudnnOperation> whole =
        operation != nullptr && operation->finalized ? operation_of(*operation) : std::nullopt;
    if (!whole) return {};
    made.operations.push_back(*whole);
  }
  return made;
}

// What a plan was made of: its engine's graph.
const Descriptor* graph_behind(const Descriptor* plan) {
  const Descriptor* config =
      plan == nullptr ? nullptr : plan->named(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
  return config == nullptr ? nullptr : config->named(CUDNN_ATTR_ENGINE_OPERATION_GRAPH);
}

std::size_t cudnn_version() {
  return version;
}
const char* error_string(cudnnStatus_t status) {
  return status == CUDNN_STATUS_NOT_SUPPORTED      ? "CUDNN_STATUS_NOT_SUPPORTED"
         : status == CUDNN_STATUS_EXECUTION_FAILED ? "CUDNN_STATUS_EXECUTION_FAILED"
                                                   : "CUDNN_STATUS_BAD_PARAM";
}
void last_error_string(char* to, std::size_t size) {
  std::strncpy(to, last_error.c_str(), size - 1);
  to[size - 1] = 0;
}
cudnnStatus_t create(cudnnHandle_t* handle) {
  *handle = new cudnnContext;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t destroy(cudnnHandle_t handle) {
  delete handle;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t set_stream(cudnnHandle_t handle, cudaStream_t stream) {
  handle->stream = stream;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t make(cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t* made) {
  *made = new Descriptor{.type = type, .graph = {}, .set = {}};
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t drop(cudnnBackendDescriptor_t descriptor) {
  delete of(descriptor);
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t set(cudnnBackendDescriptor_t to, cudnnBackendAttributeName_t name,
                  cudnnBackendAttributeType_t type, std::int64_t count, const void* values) {
  if (of(to)->finalized) return fail(CUDNN_STATUS_BAD_PARAM, "the descriptor is final");
  if (count < 1 || values == nullptr) return fail(CUDNN_STATUS_BAD_PARAM, "no values");
  const auto* begin = static_cast<const char*>(values);
  of(to)->set[name] = {
      type, count,
      std::vector<char>(begin, begin + static_cast<std::size_t>(count) * bytes_of(type))};
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t finalize(cudnnBackendDescriptor_t descriptor) {
  Descriptor& d = *of(descriptor);
  if (d.finalized) return fail(CUDNN_STATUS_BAD_PARAM, "the descriptor is final");
  d.finalized = true;
  const auto refuse = [&](cudnnStatus_t status, const char* why) {
    d.finalized = false;
    return fail(status, why);
  };
  switch (d.type) {
    case CUDNN_BACKEND_TENSOR_DESCRIPTOR:
      if (!tensor_of(&d)) return refuse(CUDNN_STATUS_BAD_PARAM, "a tensor lacks an attribute");
      break;
    case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR:
      if (!operation_of(d)) return refuse(CUDNN_STATUS_BAD_PARAM, "an operation lacks a tensor");
      break;
    case CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR:
      if (!d.set.contains(CUDNN_ATTR_OPERATIONGRAPH_HANDLE) || graph_of(&d).operations.empty())
        return refuse(CUDNN_STATUS_BAD_PARAM, "a graph without operations or a handle");
      break;
    case CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR:
      if (d.named(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH) == nullptr)
        return refuse(CUDNN_STATUS_BAD_PARAM, "heuristics of no graph");
      break;
    case CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR:
      if (fault == CudnnFault::NoPlan)
        return refuse(CUDNN_STATUS_EXECUTION_FAILED, "the double makes no plan");
      if (graph_behind(&d) == nullptr)
        return refuse(CUDNN_STATUS_BAD_PARAM, "a plan without an engine");
      d.graph = graph_of(graph_behind(&d));
      ++plans;
      break;
    default:
      break;
  }
  return CUDNN_STATUS_SUCCESS;
}

// Two engines for what it supports: the first one, as is its way, sums in no fixed order.
cudnnStatus_t suggest(const Descriptor& heuristics, std::int64_t room, std::int64_t* count,
                      void** to) {
  *count = 0;
  void* graph = heuristics.get<void*>(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH).value();
  const std::string refused = graph_of(static_cast<const Descriptor*>(graph)).refusal();
  if (fault == CudnnFault::NoEngine || !refused.empty()) return CUDNN_STATUS_SUCCESS;
  for (std::int64_t k = 0; k < std::min<std::int64_t>(room, 2); ++k) {
    Descriptor& config = *of(to[k]);
    const auto* bytes = reinterpret_cast<const char*>(&graph);
    config.set[CUDNN_ATTR_ENGINE_OPERATION_GRAPH] = {CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                                                     std::vector<char>(bytes, bytes + 8)};
    config.ordered = k > 0 && fault != CudnnFault::Unordered;
    config.finalized = true;
    ++*count;
  }
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t get(cudnnBackendDescriptor_t from, cudnnBackendAttributeName_t name,
                  cudnnBackendAttributeType_t, std::int64_t room, std::int64_t* count,
                  void* values) {
  const Descriptor& d = *of(from);
  if (!d.finalized) return fail(CUDNN_STATUS_BAD_PARAM, "the descriptor is not final");
  switch (name) {
    case CUDNN_ATTR_ENGINEHEUR_RESULTS:
      return suggest(d, room, count, static_cast<void**>(values));
    case CUDNN_ATTR_ENGINECFG_ENGINE:
      of(*static_cast<void**>(values))->ordered = d.ordered;
      of(*static_cast<void**>(values))->finalized = true;
      *count = 1;
      return CUDNN_STATUS_SUCCESS;
    case CUDNN_ATTR_ENGINE_NUMERICAL_NOTE: {
      auto* notes = static_cast<cudnnBackendNumericalNote_t*>(values);
      *count = 0;
      notes[(*count)++] = CUDNN_NUMERICAL_NOTE_TENSOR_CORE;
      if (!d.ordered) notes[(*count)++] = CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC;
      return CUDNN_STATUS_SUCCESS;
    }
    case CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE:
      *static_cast<std::int64_t*>(values) = d.graph.workspace_bytes();
      *count = 1;
      return CUDNN_STATUS_SUCCESS;
    default:
      return fail(CUDNN_STATUS_NOT_SUPPORTED, "the double does not know the attribute");
  }
}

constexpr double kSlow = 3600;  // [s], of the engine that is not preferred

cudnnStatus_t execute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                      cudnnBackendDescriptor_t pack) {
  if (fault == CudnnFault::Execution)
    return fail(CUDNN_STATUS_EXECUTION_FAILED, "the double runs no plan");
  const CudnnGraph& graph = of(plan)->graph;
  const auto uids = of(pack)->all<std::int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
  const auto pointers = of(pack)->all<void*>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
  void* scratch = of(pack)->get<void*>(CUDNN_ATTR_VARIANT_PACK_WORKSPACE).value_or(nullptr);
  if (uids.size() != pointers.size() || !of(pack)->finalized || scratch == nullptr)
    return fail(CUDNN_STATUS_BAD_PARAM, "not a pack of variants");
  std::map<std::int64_t, void*> at;
  for (std::size_t k = 0; k < uids.size(); ++k) at[uids[k]] = pointers[k];
  // Numbers lie on the host, and are taken now.
  auto numbers = std::make_shared<std::map<std::int64_t, float>>();
  rehearse::cuda_double::Touched touched(graph.is_backward() ? "cuDNN's backward" : "cuDNN's");
  const auto extent = [](const CudnnTensor& t) {
    std::int64_t last = 0;
    for (std::size_t k = 0; k < 4; ++k) last += (t.dims[k] - 1) * t.strides[k];
    return (last + 1) * t.bytes_of_element();
  };
  for (const auto& all : {graph.read(), graph.written()}) {
    for (const auto& [uid, t] : all) {
      if (!at.contains(uid) || at[uid] == nullptr)
        return fail(CUDNN_STATUS_BAD_PARAM, "an array is missing");
      if (t.by_value) (*numbers)[uid] = *static_cast<const float*>(at[uid]);
    }
  }
  for (const auto& [uid, t] : graph.read()) {
    if (!t.by_value) touched.reads(at[uid], extent(t));
  }
  // Rows of an array that others write at the same time would be one with it: written element by
  // element, an array is touched where its own heads are.
  for (const auto& [uid, t] : graph.written()) {
    const std::int64_t width = t.dims[3] * t.strides[3] * t.bytes_of_element();
    for (std::int64_t b = 0; b < t.dims[0]; ++b) {
      for (std::int64_t h = 0; h < t.dims[1]; ++h) {
        for (std::int64_t s = 0; s < t.dims[2]; ++s) {
          touched.writes(static_cast<char*>(at[uid]) + t.place({b, h, s, 0}) * t.bytes_of_element(),
                         width);
        }
      }
    }
  }
  const std::int64_t beside = graph.workspace_bytes();
  touched.writes(scratch, beside);
  for (auto& [uid, number] : *numbers) at[uid] = &number;
  const bool slower = rehearse::cuda_double::slower(rehearse::exec::cuda::AttentionEngine::Cudnn);
  // A graph runs it again and again: the numbers live as long as it does.
  const auto work = [=, graph = graph, numbers = numbers] {
    if (slower) rehearse::cuda_double::spend(kSlow);
    std::memset(scratch, 0xFF, static_cast<std::size_t>(beside));  // no numbers
    graph.compute(at);
    ++runs;
  };
  const cudaStream_t stream =
      handle->stream == nullptr ? rehearse::cuda_double::legacy() : handle->stream;
  rehearse::cuda_double::enqueue(stream, std::move(touched), work);
  return CUDNN_STATUS_SUCCESS;
}

}  // namespace

namespace rehearse::exec::cuda::cudnn {

const Library* library(std::string* why) {
  static const Library calls{.cudnnGetVersion = cudnn_version,
                             .cudnnGetErrorString = error_string,
                             .cudnnGetLastErrorString = last_error_string,
                             .cudnnCreate = create,
                             .cudnnDestroy = destroy,
                             .cudnnSetStream = set_stream,
                             .cudnnBackendCreateDescriptor = make,
                             .cudnnBackendDestroyDescriptor = drop,
                             .cudnnBackendSetAttribute = set,
                             .cudnnBackendGetAttribute = get,
                             .cudnnBackendFinalize = finalize,
                             .cudnnBackendExecute = execute};
  if (version != 0) return &calls;
  *why = "none is installed";
  return nullptr;
}

}  // namespace rehearse::exec::cuda::cudnn

namespace rehearse::cuda_double {

void install_cudnn(std::size_t now) {
  version = now;
}
void break_cudnn(CudnnFault now) {
  fault = now;
}
CudnnCounts take_cudnn() {
  return {plans.exchange(0), runs.exchange(0)};
}

}  // namespace rehearse::cuda_double
