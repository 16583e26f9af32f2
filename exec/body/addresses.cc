// SPDX-License-Identifier: Apache-2.0
// Where the tensors of a segment's body lie on this rank.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "exec/body/op_view.h"

namespace rehearse::exec {
namespace {

bool split(const OpView& op) {
  return op.compute->kind == OpKind::InputGradient || op.compute->kind == OpKind::WeightGradient;
}

// Bytes before the k-th segment's own part in one of the op's slabs.
std::int64_t before(const OpView& op, std::int64_t Body::*slab, std::size_t k,
                    bool with_boundaries) {
  const bool remade = slab == &Body::remade_for_dgrad || slab == &Body::remade_for_wgrad;
  const Direction direction = slab == &Body::left_for_wgrad       ? Direction::InputGradient
                              : slab == &Body::key_value_gradient ? direction_of(op.compute->kind)
                              : remade                            ? Direction::Recompute
                                                                  : Direction::Forward;
  std::int64_t bytes = 0;
  for (std::size_t i = 0; i < k; ++i) {
    bytes += op.body_of(i, direction).*slab;
    if (with_boundaries) bytes += op.shared.activation;
  }
  return bytes;
}

std::byte* input_of(const OpView& op, std::size_t k) {
  const OpAddresses& at = op.compute->at;
  if (k == 0) return at.x_in;
  return at.slab_input + before(op, &Body::saved_for_dgrad, k, true) - op.shared.activation;
}

// Gradient at the boundary after the k-th segment.
std::byte* gradient_after(const OpView& op, std::size_t k) {
  const OpAddresses& at = op.compute->at;
  const std::size_t segments = op.compute->segments.size();
  if (k + 1 == segments) return at.d_in;
  if (split(op)) {
    const std::int64_t own = op.body_of(k, Direction::InputGradient).left_for_wgrad;
    return at.left + before(op, &Body::left_for_wgrad, k, true) + own;
  }
  if (at.d_out != nullptr) return at.d_out;
  const bool of_outputs = op.compute->segments.back().kind == SegmentKind::Head;  // logits
  if (at.d_in != nullptr && !of_outputs) return at.d_in;
  std::int64_t largest = 0;
  for (std::size_t i = 0; i < segments; ++i) {
    largest = std::max(largest, op.body_of(i, Direction::Backward).workspace);
  }
  return at.workspace + largest;
}

// A weight gradient has no slabs of other slices, though its body's other half names them.
std::byte* of_slice(const std::vector<std::byte*>& slabs, std::int32_t slice, std::byte* own) {
  if (slice < 0) return own;
  const auto k = static_cast<std::size_t>(slice);
  return k < slabs.size() ? slabs[k] : nullptr;
}

std::byte* address(const OpView& op, const BodyTensor& tensor) {
  const OpAddresses& at = op.compute->at;
  const std::size_t k = op.segment;
  const auto in = [&](std::byte* base, std::int64_t begin) {
    return base == nullptr ? nullptr : base + begin + tensor.offset;
  };
  switch (tensor.home) {
    case TensorHome::Input:
      return input_of(op, k);
    case TensorHome::Output:
      return k + 1 == op.compute->segments.size() ? at.x_out : input_of(op, k + 1);
    case TensorHome::OutputGradient:
      return gradient_after(op, k);
    case TensorHome::InputGradient:
      return k == 0 ? at.d_out : gradient_after(op, k - 1);
    case TensorHome::SavedForDgrad:
      return in(of_slice(at.earlier_input, tensor.slice, at.slab_input),
                before(op, &Body::saved_for_dgrad, k, true));
    case TensorHome::KeyValueGradient:
      return in(of_slice(at.dkv, tensor.slice < 0 ? op.compute->slice : tensor.slice, nullptr),
                before(op, &Body::key_value_gradient, k, false));
    case TensorHome::SavedForWgrad:
      return in(at.slab_weight, before(op, &Body::saved_for_wgrad, k, false));
    case TensorHome::RemadeForDgrad:
      return in(at.remade_input, before(op, &Body::remade_for_dgrad, k, false));
    case TensorHome::RemadeForWgrad:
      return in(at.remade_weight, before(op, &Body::remade_for_wgrad, k, false));
    case TensorHome::LeftForWgrad:
      return in(at.left, before(op, &Body::left_for_wgrad, k, true));
    case TensorHome::Workspace:
      return in(at.workspace, 0);
    case TensorHome::Loss:
    case TensorHome::Tokens:
    case TensorHome::Parameter:
    case TensorHome::Gradient:
      return nullptr;
  }
  return nullptr;
}

}  // namespace

void enter(OpView& op, std::size_t segment) {
  op.segment = segment;
  op.body = &op.body_of(segment, direction_of(op.compute->kind));
  op.tensors.resize(op.body->tensors.size());
  for (std::size_t i = 0; i < op.tensors.size(); ++i) {
    op.tensors[i] = address(op, op.body->tensors[i]);
  }
  op.carry.next = 0;
  op.carry.chunk = 0;
}

}  // namespace rehearse::exec
