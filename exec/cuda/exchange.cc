// SPDX-License-Identifier: Apache-2.0
// Collectives among ranks of this process on one GPU: the first member's stream does it for all.
#include "exec/cuda/cuda_device.h"

namespace rehearse::exec::cuda {
namespace {

void reduce(CudaDevice& device, Lane l, const Exchange& e, std::int64_t first, std::int64_t count,
            std::span<void* const> out) {
  const Reduction reduction = e.maximum ? Reduction::Maximum : Reduction::Sum;
  const std::int64_t offset = first * exec::bytes_of(e.type);
  std::vector<const void*> in;
  for (const Contribution& c : e.contributions)
    in.push_back(static_cast<const std::byte*>(c.in) + offset);
  if (e.type == ElementType::Float64) {
    std::vector<const double*> from;
    std::vector<double*> to;
    for (const void* array : in) from.push_back(static_cast<const double*>(array));
    for (void* array : out) to.push_back(static_cast<double*>(array));
    device.check(reduce_doubles(device.stream(l), count, from, to), "reduce");
  } else {
    device.check(reduce_arrays(device.stream(l), type_of(e.type), reduction, count, in, out),
                 "reduce");
  }
}

void perform(CudaDevice& device, Lane l, const Exchange& e) {
  const std::size_t members = e.contributions.size();
  const std::int64_t part = e.elements / static_cast<std::int64_t>(members);
  const std::int64_t element = exec::bytes_of(e.type), bytes = part * element;
  const std::int64_t pitch = e.pitch > 0 ? e.pitch : part;  // elements
  const auto in = [&](std::size_t m) { return static_cast<std::byte*>(e.contributions[m].in); };
  const auto out = [&](std::size_t m) { return static_cast<std::byte*>(e.contributions[m].out); };
  const auto first = [&](std::size_t m) { return static_cast<std::int64_t>(m) * pitch; };
  const auto at = [&](std::size_t m) { return first(m) * element; };
  const auto root = static_cast<std::size_t>(e.root);
  std::vector<void*> outs;
  switch (e.kind) {
    case OpKind::AllReduce:
      for (std::size_t m = 0; m < members; ++m) outs.push_back(out(m));
      return reduce(device, l, e, 0, e.elements, outs);
    case OpKind::Reduce:
      outs.push_back(out(root));
      return reduce(device, l, e, 0, e.elements, outs);
    case OpKind::ReduceScatter:
      for (std::size_t m = 0; m < members; ++m) {
        outs.assign(1, out(m) == in(m) ? out(m) + at(m) : out(m));
        reduce(device, l, e, first(m), part, outs);
      }
      return;
    case OpKind::AllGather:
    case OpKind::Unshard:
      for (std::size_t m = 0; m < members; ++m) {
        const std::byte* from = in(m) == out(m) ? in(m) + at(m) : in(m);
        for (std::size_t k = 0; k < members; ++k) device.copy(l, out(k) + at(m), from, bytes);
      }
      return;
    case OpKind::Broadcast:
      for (std::size_t m = 0; m < members; ++m)
        device.copy(l, out(m), in(root), e.elements * element);
      return;
    case OpKind::Gather:
      for (std::size_t m = 0; m < members; ++m) device.copy(l, out(root) + at(m), in(m), bytes);
      return;
    case OpKind::Scatter:
      for (std::size_t m = 0; m < members; ++m) device.copy(l, out(m), in(root) + at(m), bytes);
      return;
    case OpKind::AllToAll:
      for (std::size_t m = 0; m < members; ++m) {
        for (std::size_t k = 0; k < members; ++k)
          device.copy(l, out(m) + at(k), in(k) + at(m), bytes);
      }
      return;
    case OpKind::Send:  // round the ring
      for (std::size_t m = 0; m < members; ++m) {
        device.copy(l, out((m + 1) % members), in(m), e.elements * element);
      }
      return;
    default:
      device.check(cudaErrorInvalidValue, "exchange");
      return;
  }
}

}  // namespace

void CudaDevice::exchange(const Exchange& e) {
  const Lane leader = e.lanes.front();
  for (const Lane lane : e.lanes.subspan(1)) streams_.order(lane, leader);
  perform(*this, leader, e);
  for (const Lane lane : e.lanes.subspan(1)) streams_.order(leader, lane);
}

}  // namespace rehearse::exec::cuda
