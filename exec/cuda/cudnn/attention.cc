// SPDX-License-Identifier: Apache-2.0
#include "exec/cuda/cudnn/attention.h"

#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "exec/cuda/cudnn/attention_graph.h"

namespace rehearse::exec::cuda {
namespace {

using cudnn::AttentionTensors;
using cudnn::Descriptor;
using cudnn::Graph;
using cudnn::Library;

constexpr int kUnknown = 999;  // cudaErrorUnknown
constexpr std::size_t kLeastVersion = 90000;
// Backward these two are wrong (NVIDIA/cudnn-frontend, pre_validate_node of the composite backward
// node: "known bugs"), and up to 9.15 sequences that are no multiple of 128 want lengths beside the
// arrays (the same file), which are not given here.
constexpr std::size_t kWrong[] = {91000, 91001};
constexpr std::size_t kNeedsLengths = 91500;
// What a plan may want beside the arrays [B]. Our choice: dP of 8,192 tokens and 8 heads.
constexpr std::int64_t kMostScratch = std::int64_t{1} << 30;

struct Plan {
  Descriptor plan;
  AttentionTensors at;
  std::int64_t bytes = 0;
  std::string refused;  // no plan: why
};

using Key = std::tuple<bool, Type, std::int64_t, std::int64_t, std::int64_t, std::int64_t,
                       std::int64_t, std::int64_t, bool>;
Key key_of(bool backward, Type type, const AttentionShape& s) {
  return {backward,   type,       s.tokens,   s.sequence,       s.heads,
          s.kv_heads, s.head_dim, s.values(), s.form.window > 0};
}

}  // namespace

struct CudnnAttention::Plans {
  const Library& calls;
  cudnnHandle_t handle = nullptr;
  std::map<Key, Plan> plans;
  std::string why;

  explicit Plans(const Library& library) : calls(library) {}
  Plans(const Plans&) = delete;
  Plans& operator=(const Plans&) = delete;
  ~Plans() {
    plans.clear();
    if (handle != nullptr) calls.cudnnDestroy(handle);
  }

  Plan make(bool backward, Type type, const AttentionShape& s) const {
    Plan made;
    const std::size_t version = calls.cudnnGetVersion();
    if (backward && (version == kWrong[0] || version == kWrong[1])) {
      made.refused = "its gradients are wrong in this version";
    } else if (backward && version <= kNeedsLengths && s.sequence % 128 != 0) {
      made.refused = "sequences that are no multiple of 128 need a version after 9.15";
    }
    if (!made.refused.empty()) return made;
    Graph graph(calls);
    made.at = backward ? backward_graph(graph, type, s) : forward_graph(graph, type, s);
    made.plan = graph.plan({.handle = handle}, cudnn::Sums::InOneOrder);
    made.refused = graph.error();
    if (!made.refused.empty()) return made;
    made.bytes = workspace_bytes(calls, made.plan.get());
    if (made.bytes < 0 || made.bytes > kMostScratch) {
      made.refused = "it wants " + std::to_string(made.bytes) +
                     " bytes beside the arrays, more than " + std::to_string(kMostScratch);
    }
    return made;
  }

  // What a plan is given when it runs.
  class Pack {
   public:
    void add(Graph::Tensor tensor, const void* at) {
      uids_.push_back(Graph::uid(tensor));
      pointers_.push_back(const_cast<void*>(at));
    }
    cudnnStatus_t run(const Plans& by, cudnnBackendDescriptor_t plan, void* scratch) const {
      cudnnBackendDescriptor_t made = nullptr;
      const Library& calls = by.calls;
      cudnnStatus_t status =
          calls.cudnnBackendCreateDescriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &made);
      if (status != CUDNN_STATUS_SUCCESS) return status;
      const Descriptor owned(calls, made);
      const auto count = static_cast<std::int64_t>(uids_.size());
      const auto set = [&](cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                           std::int64_t elements, const void* values) {
        if (status == CUDNN_STATUS_SUCCESS)
          status = calls.cudnnBackendSetAttribute(made, name, type, elements, values);
      };
      set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, count, uids_.data());
      set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, count, pointers_.data());
      set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &scratch);
      if (status == CUDNN_STATUS_SUCCESS) status = calls.cudnnBackendFinalize(made);
      return status == CUDNN_STATUS_SUCCESS ? calls.cudnnBackendExecute(by.handle, plan, made)
                                            : status;
    }

   private:
    std::vector<std::int64_t> uids_;
    std::vector<void*> pointers_;
  };

  // Arrays of the plan's, and the numbers that every plan takes, which lie on the host.
  template <class Add>
  int run(bool backward, Stream stream, Type type, const AttentionShape& s, void* scratch,
          const Add& add) {
    const auto found = plans.find(key_of(backward, type, s));
    if (found == plans.end() || !found->second.refused.empty()) {
      why = "there is no plan";
      return kUnknown;
    }
    const Plan& plan = found->second;
    const double scale =
        s.form.scale > 0 ? s.form.scale : 1 / std::sqrt(static_cast<double>(s.head_dim));
    const auto scaled = static_cast<float>(scale), window = static_cast<float>(s.form.window);
    const float one = 1, hidden = -std::numeric_limits<float>::infinity();
    Pack pack;
    pack.add(plan.at.scale, &scaled);
    pack.add(plan.at.hidden, &hidden);
    if (s.form.window > 0) pack.add(plan.at.window, &window);
    if (backward) pack.add(plan.at.one, &one);
    add(pack, plan.at);
    cudnnStatus_t status = calls.cudnnSetStream(handle, stream);
    if (status == CUDNN_STATUS_SUCCESS) status = pack.run(*this, plan.plan.get(), scratch);
    if (status == CUDNN_STATUS_SUCCESS) return 0;
    why = cudnn::said(calls, status);
    return kUnknown;
  }
};

CudnnAttention::CudnnAttention(std::unique_ptr<Plans> plans) : plans_(std::move(plans)) {}
CudnnAttention::~CudnnAttention() = default;
const std::string& CudnnAttention::why() const {
  return plans_->why;
}

std::string CudnnAttention::version() {
  std::string why;
  const Library* calls = cudnn::library(&why);
  if (calls == nullptr) return "no cuDNN";
  const std::size_t number = calls->cudnnGetVersion();
  return "cuDNN " + std::to_string(number / 10000) + '.' + std::to_string(number / 100 % 100) +
         '.' + std::to_string(number % 100);
}

std::unique_ptr<CudnnAttention> CudnnAttention::open(std::string* why) {
  const Library* calls = cudnn::library(why);
  if (calls == nullptr) return nullptr;
  if (const std::size_t version = calls->cudnnGetVersion();
      version < kLeastVersion || version / 10000 != CUDNN_MAJOR) {
    *why = "cuDNN " + std::to_string(version) + " is not of the version that this build is for";
    return nullptr;
  }
  auto plans = std::make_unique<Plans>(*calls);
  if (const cudnnStatus_t status = calls->cudnnCreate(&plans->handle);
      status != CUDNN_STATUS_SUCCESS) {
    plans->handle = nullptr;
    *why = cudnn::said(*calls, status);
    return nullptr;
  }
  return std::unique_ptr<CudnnAttention>(new CudnnAttention(std::move(plans)));
}

bool CudnnAttention::takes(Type type, const AttentionShape& s) {
  AttentionForm rest = s.form;
  rest.window = 0;
  return type != Type::Float32 && rest.plain() && s.sequence > 1 && s.head_dim % 8 == 0 &&
         s.values() % 8 == 0 && s.head_dim <= 256 && s.values() <= 256 && s.heads % s.kv_heads == 0;
}

Result<std::int64_t> CudnnAttention::prepare(bool backward, Type type, const AttentionShape& s) {
  const auto [found, fresh] = plans_->plans.try_emplace(key_of(backward, type, s));
  if (fresh) found->second = plans_->make(backward, type, s);
  if (!found->second.refused.empty()) return Error{found->second.refused};
  return found->second.bytes;
}

int CudnnAttention::forward(Stream stream, Type type, const AttentionShape& s, const void* qkv,
                            void* o, float* lse, void* scratch) {
  return plans_->run(false, stream, type, s, scratch,
                     [&](Plans::Pack& pack, const AttentionTensors& at) {
                       const auto* q = static_cast<const std::byte*>(qkv);
                       const std::int64_t keys = 2 * s.heads * s.head_dim;
                       pack.add(at.q, q);
                       pack.add(at.k, q + keys);
                       pack.add(at.v, q + keys + 2 * s.kv_heads * s.head_dim);
                       pack.add(at.o, o);
                       pack.add(at.lse, lse);
                     });
}

int CudnnAttention::backward(Stream stream, Type type, const AttentionShape& s, const void* d_o,
                             const void* qkv, const void* o, const float* lse, void* dqkv,
                             float* delta, void* scratch) {
  return plans_->run(true, stream, type, s, scratch,
                     [&](Plans::Pack& pack, const AttentionTensors& at) {
                       const std::int64_t keys = 2 * s.heads * s.head_dim,
                                          values = keys + 2 * s.kv_heads * s.head_dim;
                       const auto* q = static_cast<const std::byte*>(qkv);
                       const auto* dq = static_cast<const std::byte*>(dqkv);
                       pack.add(at.q, q);
                       pack.add(at.k, q + keys);
                       pack.add(at.v, q + values);
                       pack.add(at.o, o);
                       pack.add(at.d_o, d_o);
                       pack.add(at.lse, lse);
                       pack.add(at.delta, delta);
                       pack.add(at.d_q, dq);
                       pack.add(at.d_k, dq + keys);
                       pack.add(at.d_v, dq + values);
                     });
}

}  // namespace rehearse::exec::cuda
