// SPDX-License-Identifier: Apache-2.0
// What the names that PyTorch's profiler writes say: which collective a kernel of NCCL is, how many
// bytes it moves, and which op of a pipeline schedule a range on the device is.
//
// Names as in torch: `ncclDevKernel_*` from NCCL; the collective's fields from
// torch/csrc/distributed/c10d/ParamCommsUtils.hpp; ranges "PP:2F3" from
// torch/distributed/pipelining/schedules.py, _get_profiler_function_name.
#include <algorithm>
#include <charconv>

#include "viz/import/import_events.h"

namespace rehearse::viz {
namespace {

using Category = ForeignEvent::Category;

// Takes the number that `text` begins with; -1: none.
std::int32_t take_number(std::string_view& text) {
  std::int32_t value = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || value < 0) return -1;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return value;
}

}  // namespace

OpKind kind_of_event(const ForeignEvent& e, std::string_view name, std::string_view collective) {
  if (e.category == Category::Copy) {
    if (holds(name, "HtoD")) return OpKind::Fetch;
    if (holds(name, "DtoH")) return OpKind::Offload;
    return OpKind::Add;
  }
  if (e.category != Category::Kernel || !holds(name, "nccl")) return OpKind::Add;
  if (holds(name, "ReduceScatter")) return OpKind::ReduceScatter;
  if (holds(name, "AllReduce")) return OpKind::AllReduce;
  if (holds(name, "AllGather")) return OpKind::AllGather;
  if (holds(name, "Broadcast")) return OpKind::Broadcast;
  if (holds(name, "SendRecv")) {  // one kernel for all that goes from peer to peer
    if (holds(collective, "all_to_all")) return OpKind::AllToAll;
    return holds(collective, "recv") ? OpKind::Recv : OpKind::Send;
  }
  if (holds(name, "Reduce")) return OpKind::Reduce;
  return OpKind::Add;
}

std::int64_t element_bytes(std::string_view dtype) {
  static constexpr std::pair<std::string_view, std::int64_t> kSizes[] = {
      {"Double", 8},  {"Float", 4},   {"Half", 2},    {"BFloat16", 2}, {"Long", 8},
      {"Int", 4},     {"Short", 2},   {"Byte", 1},    {"Char", 1},     {"Bool", 1},
      {"float64", 8}, {"float32", 4}, {"float16", 2}, {"bfloat16", 2}, {"int64", 8},
      {"int32", 4},   {"int8", 1},    {"uint8", 1},   {"bool", 1}};
  for (const auto& [name, size] : kSizes) {
    if (name == dtype) return size;
  }
  return dtype.starts_with("Float8") || dtype.starts_with("float8") ? 1 : 0;
}

std::optional<PipelineOp> pipeline_op(std::string_view name) {
  static constexpr std::pair<char, OpKind> kKinds[] = {{'F', OpKind::Forward},
                                                       {'B', OpKind::Backward},
                                                       {'I', OpKind::InputGradient},
                                                       {'W', OpKind::WeightGradient}};
  constexpr std::string_view kPrefix = "PP:";
  if (!name.starts_with(kPrefix)) return std::nullopt;
  name.remove_prefix(kPrefix.size());
  PipelineOp op{.stage = take_number(name)};
  if (op.stage < 0 || name.empty()) return std::nullopt;
  const auto kind = std::ranges::find(kKinds, name[0], &std::pair<char, OpKind>::first);
  if (kind == std::end(kKinds)) return std::nullopt;  // transfers show as NCCL's kernels
  op.kind = kind->second;
  name.remove_prefix(1);
  op.microbatch = take_number(name);
  return op.microbatch >= 0 && name.empty() ? std::optional(op) : std::nullopt;
}

}  // namespace rehearse::viz
