// SPDX-License-Identifier: Apache-2.0
// Where the tensors of a body lie on this rank.
#include "exec/body/body_state.h"

#include <algorithm>

namespace rehearse::exec {
namespace {

// A weight gradient has no slabs of other slices, though its body's other half names them.
std::byte* of_slice(const std::vector<std::byte*>& slabs, std::int32_t slice, std::byte* own) {
  if (slice < 0) return own;
  const auto k = static_cast<std::size_t>(slice);
  return k < slabs.size() ? slabs[k] : nullptr;
}

}  // namespace

void OpCursor::State::enter() {
  segment = forward() ? visited : segments().size() - 1 - visited;
  body = &body_of(segment, direction_of(kind()));
  tensors.resize(body->tensors.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) tensors[i] = address(body->tensors[i]);
  node = 0;
  chunk = 0;
  inside = true;
}

std::byte* OpCursor::State::address(const BodyTensor& tensor) const {
  const auto in = [&](std::byte* base, std::int64_t begin) {
    return base == nullptr ? nullptr : base + begin + tensor.offset;
  };
  switch (tensor.home) {
    case TensorHome::Input:
      return input_of(segment);
    case TensorHome::Output:
      return segment + 1 == segments().size() ? at().x_out : input_of(segment + 1);
    case TensorHome::OutputGradient:
      return gradient_after(segment);
    case TensorHome::InputGradient:
      return segment == 0 ? at().d_out : gradient_after(segment - 1);
    case TensorHome::SavedForDgrad:
      return in(of_slice(at().earlier_input, tensor.slice, at().slab_input),
                before(&Body::saved_for_dgrad, segment, true));
    case TensorHome::KeyValueGradient:
      return in(of_slice(at().dkv, tensor.slice < 0 ? op->slice : tensor.slice, nullptr),
                before(&Body::key_value_gradient, segment, false));
    case TensorHome::SavedForWgrad:
      return in(at().slab_weight, before(&Body::saved_for_wgrad, segment, false));
    case TensorHome::LeftForWgrad:
      return in(at().left, before(&Body::left_for_wgrad, segment, true));
    case TensorHome::Workspace:
      return in(at().workspace, 0);
    case TensorHome::Loss:
    case TensorHome::Tokens:
    case TensorHome::Parameter:
    case TensorHome::Gradient:
      return nullptr;
  }
  return nullptr;
}

std::int64_t OpCursor::State::before(std::int64_t Body::*slab, std::size_t until,
                                     bool with_boundaries) const {
  const Direction direction = slab == &Body::left_for_wgrad       ? Direction::InputGradient
                              : slab == &Body::key_value_gradient ? direction_of(kind())
                                                                  : Direction::Forward;
  std::int64_t bytes = 0;
  for (std::size_t k = 0; k < until; ++k) {
    bytes += body_of(k, direction).*slab;
    if (with_boundaries) bytes += shared.activation;
  }
  return bytes;
}

std::byte* OpCursor::State::input_of(std::size_t k) const {
  if (k == 0) return at().x_in;
  return at().slab_input + before(&Body::saved_for_dgrad, k, true) - shared.activation;
}

std::byte* OpCursor::State::gradient_after(std::size_t k) const {
  if (k + 1 == segments().size()) return at().d_in;
  if (split()) {
    const std::int64_t own = body_of(k, Direction::InputGradient).left_for_wgrad;
    return at().left + before(&Body::left_for_wgrad, k, true) + own;
  }
  if (at().d_out != nullptr) return at().d_out;
  if (at().d_in != nullptr) return at().d_in;
  std::int64_t largest = 0;
  for (std::size_t i = 0; i < segments().size(); ++i) {
    largest = std::max(largest, body_of(i, Direction::Backward).workspace);
  }
  return at().workspace + largest;
}

std::int64_t OpCursor::State::first_row() const {
  return shared.shape.gather ? coordinate * shared.shape.local : 0;
}

}  // namespace rehearse::exec
