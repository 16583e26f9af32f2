// SPDX-License-Identifier: Apache-2.0
#include "schedules/trace/step_work.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <limits>
#include <string>

namespace rehearse {
namespace {

constexpr std::array kWorkParts{&StepWork::products,     &StepWork::attention,
                                &StepWork::memory_bound, &StepWork::computing,
                                &StepWork::collectives,  &StepWork::transfers};

void add(StepWork& to, KernelWork work, double ns) {
  switch (work) {
    case KernelWork::Product:
      to.products += ns;
      break;
    case KernelWork::Attention:
      to.attention += ns;
      break;
    case KernelWork::MemoryBound:
      to.memory_bound += ns;
      break;
  }
}

// Nodes inside ops of a class, once.
StepWork inside(const Trace& trace, std::size_t of) {
  StepWork work;
  for (auto r = static_cast<std::size_t>(trace.run_begin[of]);
       r < static_cast<std::size_t>(trace.run_begin[of + 1]); ++r) {
    const TraceBody& body = trace.bodies[static_cast<std::size_t>(trace.runs[r].body)];
    for (std::int32_t n = body.node_begin; n < body.node_end; ++n) {
      const TraceNode& node = trace.nodes[static_cast<std::size_t>(n)];
      if (node.time_ns < 0) continue;
      const double ns = static_cast<double>(node.time_ns) * trace.runs[r].count;
      if (node.collective != 0) continue;  // what the op waits for is in the trace
      const KernelWork kind = node.m > 0       ? KernelWork::Product
                              : node.flops > 0 ? KernelWork::Attention
                                               : KernelWork::MemoryBound;
      add(work, kind, ns);
    }
  }
  return work;
}

// The least time that an op of each class communicates for, over all rows: on its own stream, or
// waited for inside a compute op.
std::vector<double> least_communication(const Trace& trace) {
  std::vector<double> least(trace.classes.size(), std::numeric_limits<double>::infinity());
  for (OpId op{0}; op.value < trace.num_ops(); ++op.value) {
    const OpClass kind = traits(trace.class_of(op).kind).op_class;
    double ns = 0;
    if (kind == OpClass::Collective || kind == OpClass::Transfer) {
      ns = static_cast<double>(trace.end_ns[op.index()] - trace.start_ns[op.index()]);
    } else if (!trace.communicating_ns.empty()) {
      ns = static_cast<double>(trace.communicating_ns[op.index()]);
    }
    double& of = least[static_cast<std::size_t>(trace.op_class[op.index()])];
    of = std::min(of, ns);
  }
  return least;
}

class Counting {
 public:
  explicit Counting(const Trace& trace) : trace_(trace), least_(least_communication(trace)) {
    if (trace.label != TraceLabel::Predicted || trace.run_begin.empty()) return;
    for (std::size_t c = 0; c < trace.classes.size(); ++c) bodies_.push_back(inside(trace, c));
  }

  StepWork row(std::size_t row) const {
    StepWork work;
    for (std::int64_t i = trace_.row_begin[row]; i < trace_.row_begin[row + 1]; ++i) {
      add_op({static_cast<std::int32_t>(i)}, work);
    }
    return work;
  }

 private:
  void add_op(OpId op, StepWork& work) const {
    const auto of = static_cast<std::size_t>(trace_.op_class[op.index()]);
    switch (traits(trace_.classes[of].kind).op_class) {
      case OpClass::Collective:
        work.collectives += least_[of];
        break;
      case OpClass::Transfer:
        work.transfers += least_[of];
        break;
      case OpClass::Copy:
      case OpClass::Text:
        break;
      case OpClass::Compute:
      case OpClass::Local:
        add_compute(op, of, work);
        break;
    }
  }

  // By its nodes in a prediction, by its name in a foreign trace, else whole.
  void add_compute(OpId op, std::size_t of, StepWork& work) const {
    const auto lasts = static_cast<double>(trace_.end_ns[op.index()] - trace_.start_ns[op.index()]);
    const double waits = trace_.communicating_ns.empty()
                             ? 0
                             : static_cast<double>(trace_.communicating_ns[op.index()]);
    work.computing += lasts - waits;
    work.collectives += least_[of];
    if (trace_.classes[of].name >= 0) {
      add(work, work_of_kernel(trace_.text(trace_.classes[of].name)), lasts);
    } else if (!bodies_.empty()) {
      const StepWork& body = bodies_[of];
      work.products += body.products;
      work.attention += body.attention;
      work.memory_bound += body.has_kernels() ? body.memory_bound : lasts - waits;
    }
  }

  const Trace& trace_;
  const std::vector<double> least_;
  std::vector<StepWork> bodies_;  // per class; empty: nobody knows
};

}  // namespace

StepWork step_work(const Trace& trace) {
  const Counting counting(trace);
  StepWork sum;
  double ranks = 0;
  for (std::size_t row = 0; row < trace.rows.size(); ++row) {
    const StepWork work = counting.row(row);
    const double multiplicity = trace.rows[row].multiplicity;
    ranks += multiplicity;
    for (const auto part : kWorkParts) sum.*part += multiplicity * work.*part;
  }
  for (const auto part : kWorkParts) sum.*part /= std::max(ranks, 1.0);
  return sum;
}

KernelWork work_of_kernel(std::string_view name) {
  std::string lower(name);
  std::ranges::transform(lower, lower.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  const auto holds_any = [&](std::initializer_list<std::string_view> words) {
    return std::ranges::any_of(
        words, [&](std::string_view word) { return lower.find(word) != std::string::npos; });
  };
  if (holds_any({"flash", "fmha", "sdpa", "attention"})) return KernelWork::Attention;
  if (holds_any({"gemm", "nvjet", "cutlass", "xmma", "cublas"})) return KernelWork::Product;
  return KernelWork::MemoryBound;
}

}  // namespace rehearse
