// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda_double/cudnn_graph.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <set>

#include "exec/backend/element.h"

namespace rehearse::cuda_double {
namespace {

using Four = std::array<std::int64_t, 4>;
using Values = std::vector<float>;  // dense, in the order of the dimensions
using Kind = CudnnOperation::Kind;
using exec::BFloat16;
using exec::Float16;

template <class Visit>
void each(const Four& dims, const Visit& visit) {
  Four at{};
  std::size_t i = 0;
  for (at[0] = 0; at[0] < dims[0]; ++at[0]) {
    for (at[1] = 0; at[1] < dims[1]; ++at[1]) {
      for (at[2] = 0; at[2] < dims[2]; ++at[2]) {
        for (at[3] = 0; at[3] < dims[3]; ++at[3]) visit(at, i++);
      }
    }
  }
}

float rounded(cudnnDataType_t type, float value) {
  return type == CUDNN_DATA_BFLOAT16 ? float{BFloat16(value)}
         : type == CUDNN_DATA_HALF   ? float{Float16(value)}
                                     : value;
}

float load(const CudnnTensor& t, const void* from, std::int64_t place) {
  if (t.type == CUDNN_DATA_BFLOAT16) return float{static_cast<const BFloat16*>(from)[place]};
  if (t.type == CUDNN_DATA_HALF) return float{static_cast<const Float16*>(from)[place]};
  return static_cast<const float*>(from)[place];
}
void store(const CudnnTensor& t, void* to, std::int64_t place, float value) {
  if (t.type == CUDNN_DATA_BFLOAT16) {
    static_cast<BFloat16*>(to)[place] = BFloat16(value);
  } else if (t.type == CUDNN_DATA_HALF) {
    static_cast<Float16*>(to)[place] = Float16(value);
  } else {
    static_cast<float*>(to)[place] = value;
  }
}

// Where the element of a tensor is that belongs to `at` of a larger one: dimensions of one element
// are spread, heads are shared.
std::size_t spread(const Four& dims, const Four& larger, const Four& at) {
  std::size_t place = 0;
  for (std::size_t k = 0; k < 4; ++k) {
    place = place * static_cast<std::size_t>(dims[k]) +
            static_cast<std::size_t>(at[k] * dims[k] / larger[k]);
  }
  return place;
}

float pointwise(cudnnPointwiseMode_t mode, float x, float b, float t) {
  switch (mode) {
    case CUDNN_POINTWISE_MUL:
      return x * b;
    case CUDNN_POINTWISE_ADD:
      return x + b;
    case CUDNN_POINTWISE_SUB:
      return x - b;
    case CUDNN_POINTWISE_DIV:
      return x / b;
    case CUDNN_POINTWISE_EXP:
      return std::exp(x);
    case CUDNN_POINTWISE_LOG:
      return std::log(x);
    case CUDNN_POINTWISE_CMP_GE:
      return x >= b ? 1 : 0;
    case CUDNN_POINTWISE_CMP_GT:
      return x > b ? 1 : 0;
    case CUDNN_POINTWISE_BINARY_SELECT:
      return t != 0 ? x : b;
    default:
      std::abort();  // the double does not know it
  }
}

Values apply(const CudnnOperation& o, const Values& x, const Values& b, const Values& t) {
  Values y(static_cast<std::size_t>(o.y.elements()));
  each(o.y.dims, [&](const Four& at, std::size_t i) {
    if (o.mode == CUDNN_POINTWISE_GEN_INDEX) {
      y[i] = static_cast<float>(at[static_cast<std::size_t>(o.axis)]);
      return;
    }
    const auto value = [&](const CudnnTensor& of, const Values& all) {
      return all[spread(of.dims, o.y.dims, at)];
    };
    y[i] =
        pointwise(o.mode, value(o.x, x), o.has_b ? value(o.b, b) : 0, o.has_t ? value(o.t, t) : 0);
  });
  return y;
}

// Heads of `of` may be shared by those of the result.
const float* matrix(const CudnnTensor& of, const Values& all, const Four& result, std::int64_t b,
                    std::int64_t h) {
  const std::int64_t head = h * of.dims[1] / result[1];
  return all.data() + (b * of.dims[1] + head) * of.dims[2] * of.dims[3];
}

Values multiply(const CudnnOperation& o, const Values& a, const Values& b) {
  const Four& size = o.y.dims;
  Values y(static_cast<std::size_t>(o.y.elements()));
  float* to = y.data();
  for (std::int64_t n = 0; n < size[0]; ++n) {
    for (std::int64_t h = 0; h < size[1]; ++h, to += size[2] * size[3]) {
      const float *left = matrix(o.x, a, size, n, h), *right = matrix(o.b, b, size, n, h);
      for (std::int64_t row = 0; row < size[2]; ++row) {
        for (std::int64_t k = 0; k < o.x.dims[3]; ++k) {
          const float value = left[row * o.x.dims[3] + k];
          for (std::int64_t i = 0; i < size[3]; ++i)
            to[row * size[3] + i] += value * right[k * size[3] + i];
        }
      }
    }
  }
  return y;
}

Values reduce(const CudnnOperation& o, const Values& x) {
  const bool most = o.reduction == CUDNN_REDUCE_TENSOR_MAX;
  Values y(static_cast<std::size_t>(o.y.elements()),
           most ? -std::numeric_limits<float>::infinity() : 0);
  each(o.x.dims, [&](const Four& at, std::size_t i) {
    float& to = y[spread(o.y.dims, o.x.dims, at)];
    to = most ? std::max(to, x[i]) : to + x[i];
  });
  return y;
}

// The same places by other strides.
Values reshape(const CudnnOperation& o, const Values& x) {
  const auto end = [](const CudnnTensor& t) {
    return static_cast<std::size_t>(
        t.place({t.dims[0] - 1, t.dims[1] - 1, t.dims[2] - 1, t.dims[3] - 1}) + 1);
  };
  Values memory(std::max(end(o.x), end(o.y)), NAN);
  each(o.x.dims, [&](const Four& at, std::size_t i) {
    memory[static_cast<std::size_t>(o.x.place(at))] = x[i];
  });
  Values y(static_cast<std::size_t>(o.y.elements()));
  each(o.y.dims, [&](const Four& at, std::size_t i) {
    y[i] = memory[static_cast<std::size_t>(o.y.place(at))];
  });
  return y;
}

std::vector<CudnnTensor> inputs(const CudnnOperation& o) {
  std::vector<CudnnTensor> all{o.x};
  if (o.has_b) all.push_back(o.b);
  if (o.has_t) all.push_back(o.t);
  return all;
}

bool divides(const Four& small, const Four& large) {
  for (std::size_t k = 0; k < 4; ++k) {
    if (small[k] < 1 || large[k] % small[k] != 0) return false;
  }
  return true;
}

// Do the dimensions of an operation fit?
bool fits(const CudnnOperation& o) {
  const Four &x = o.x.dims, &b = o.b.dims, &y = o.y.dims;
  switch (o.kind) {
    case Kind::Product:
      return x[3] == b[2] && x[2] == y[2] && b[3] == y[3] && x[0] == y[0] && b[0] == y[0] &&
             y[1] % x[1] == 0 && y[1] % b[1] == 0;
    case Kind::Pointwise:
      return divides(x, y) && (!o.has_b || divides(b, y)) && (!o.has_t || divides(o.t.dims, y));
    case Kind::Reduction:
      return divides(y, x);
    case Kind::Reshape:
      return o.x.elements() == o.y.elements();
  }
  return false;
}

}  // namespace

bool CudnnGraph::is_backward() const {
  return std::ranges::count(operations, Kind::Product, &CudnnOperation::kind) > 2;
}

std::int64_t CudnnGraph::workspace_bytes() const {
  if (!is_backward()) return 256;
  return 2 * operations.front().y.dims[1] * operations.front().y.dims[0] *
         operations.front().y.dims[2] * operations.front().y.dims[2];
}

std::map<std::int64_t, CudnnTensor> CudnnGraph::read() const {
  std::map<std::int64_t, CudnnTensor> found;
  std::set<std::int64_t> made;
  for (const CudnnOperation& o : operations) {
    for (const CudnnTensor& in : inputs(o)) {
      if (!in.is_virtual && !made.contains(in.uid)) found.emplace(in.uid, in);
    }
    made.insert(o.y.uid);
  }
  return found;
}

std::map<std::int64_t, CudnnTensor> CudnnGraph::written() const {
  std::map<std::int64_t, CudnnTensor> found;
  for (const CudnnOperation& o : operations) {
    if (!o.y.is_virtual) found.emplace(o.y.uid, o.y);
  }
  return found;
}

std::string CudnnGraph::refusal() const {
  std::set<std::int64_t> made;
  for (const CudnnOperation& o : operations) {
    if (!fits(o)) return "dimensions that do not fit";
    for (const CudnnTensor& in : inputs(o)) {
      if (in.is_virtual && !made.contains(in.uid)) return "a virtual tensor that nothing writes";
    }
    if (!made.insert(o.y.uid).second) return "a tensor that is written twice";
  }
  for (const auto& all : {read(), written()}) {
    for (const auto& [uid, t] : all) {
      if (t.by_value || t.type == CUDNN_DATA_FLOAT) continue;
      // Of a head's columns, which a transposed array has along its rows.
      const bool turned = t.strides[3] != 1;
      const std::int64_t width = turned ? t.dims[2] : t.dims[3];
      if (t.strides[turned ? 2 : 3] != 1) return "the last stride is not 1";
      if (width % 8 != 0 || width > 256) return "heads of " + std::to_string(width) + " columns";
      if (t.dims[turned ? 3 : 2] < 2) return "sequences of one token";
    }
  }
  return {};
}

void CudnnGraph::compute(const std::map<std::int64_t, void*>& at) const {
  std::map<std::int64_t, Values> values;
  for (const auto& [uid, t] : read()) {
    Values& in = values[uid];
    in.resize(static_cast<std::size_t>(t.elements()));
    each(t.dims, [&](const Four& k, std::size_t i) { in[i] = load(t, at.at(uid), t.place(k)); });
  }
  static const Values none;
  for (const CudnnOperation& o : operations) {
    const Values &x = values.at(o.x.uid), &b = o.has_b ? values.at(o.b.uid) : none,
                 &t = o.has_t ? values.at(o.t.uid) : none;
    Values y = o.kind == Kind::Product     ? multiply(o, x, b)
               : o.kind == Kind::Pointwise ? apply(o, x, b, t)
               : o.kind == Kind::Reduction ? reduce(o, x)
                                           : reshape(o, x);
    for (float& value : y) value = rounded(o.y.type, value);
    values[o.y.uid] = std::move(y);
  }
  for (const auto& [uid, t] : written()) {
    const Values& out = values.at(uid);
    each(t.dims, [&](const Four& k, std::size_t i) { store(t, at.at(uid), t.place(k), out[i]); });
  }
}

}  // namespace rehearse::cuda_double
