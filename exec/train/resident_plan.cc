// SPDX-License-Identifier: Apache-2.0
#include "exec/train/resident_plan.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <vector>

#include "exec/body/body_runner.h"
#include "exec/checkpoint/checkpoint_digests.h"
#include "exec/checkpoint/tensor_files.h"
#include "exec/cpu/kernels/instruction_set.h"
#include "exec/messages/composed_collectives.h"
#include "exec/status/status.h"
#include "exec/step/exchanges/group_instances.h"
#include "exec/train/train.h"
#include "exec/weights/stored_bucket.h"
#include "schedules/body/body.h"
#include "schedules/body/sizes.h"
#include "schedules/ranks/group_key.h"
#include "schedules/ranks/unfold.h"
#include "schedules/scenario/mesh.h"

namespace rehearse::exec {
namespace {

// What a block on the heap takes beside what it holds (glibc's, 64 bits).
constexpr std::int64_t kHeapBlock = 16;
// What is touched of a thread's stack, and what the C library keeps of it.
constexpr std::int64_t kThread = 64 << 10;
// Threads of a process among several that perform no op: its status, its store, Gloo's, and those
// that wait for messages, one for every stream of a rank that meets others.
constexpr std::int64_t kServants = 4;

template <class T>
std::int64_t bytes_of_vector(const std::vector<T>& of) {
  return static_cast<std::int64_t>(of.capacity() * sizeof(T));
}

std::int64_t schedule_bytes(const Schedule& s) {
  return bytes_of_vector(s.ops) + bytes_of_vector(s.children) + bytes_of_vector(s.waits) +
         bytes_of_vector(s.wait_begin) + bytes_of_vector(s.wait_is_reuse) +
         bytes_of_vector(s.values) + bytes_of_vector(s.operands) +
         bytes_of_vector(s.operand_begin) + bytes_of_vector(s.buckets);
}

// The addresses of one compute op (ComputeOp) with the tensors of each of its segments.
std::int64_t compute_op_bytes(const Layout& layout, const Schedule& s, const Op& op) {
  const auto& all = s.segments[op.stage.index()];
  const bool whole = op.segment_end < 0;
  const std::size_t begin = whole ? 0 : static_cast<std::size_t>(op.segment_begin),
                    end = whole ? all.size() : static_cast<std::size_t>(op.segment_end);
  auto bytes = static_cast<std::int64_t>(sizeof(ComputeOp)) + 4 * kHeapBlock;
  for (std::size_t i = begin; i < end; ++i) {
    const auto tensors =
        static_cast<std::int64_t>(segment_parameters(layout, all[i].kind, all[i].layer).size());
    bytes += static_cast<std::int64_t>(sizeof(SegmentInfo) + 2 * sizeof(std::vector<void*>)) +
             2 * (tensors * static_cast<std::int64_t>(sizeof(void*)) + kHeapBlock);
  }
  return bytes;
}

// Ops of all ranks with their addresses, queues and what has ended (exec/step/scheduler.h).
std::int64_t executor_bytes(const Layout& layout, const Schedule& s) {
  std::map<std::tuple<std::int32_t, std::int16_t, std::int16_t>, std::int64_t> known;
  const auto of = [&](const Op& op) {
    const auto [at, fresh] =
        known.try_emplace({op.stage.value, op.segment_begin, op.segment_end}, 0);
    if (fresh) at->second = compute_op_bytes(layout, s, op);
    return at->second;
  };
  std::int64_t sum = 0;
  for (std::int32_t row = 0; row < s.num_rows(); ++row) {
    std::int64_t bytes = 0;
    for (const Op& op : s.program({row})) {
      bytes += static_cast<std::int64_t>(sizeof(std::vector<ComputeOp>)) + 1 + 4;
      if (op.kind == OpKind::Overlap) {
        bytes += of(s.children[static_cast<std::size_t>(op.child)]) +
                 of(s.children[static_cast<std::size_t>(op.child) + 1]);
      } else if (is_compute(op.kind)) {
        bytes += of(op);
      }
    }
    sum += bytes * s.rows[static_cast<std::size_t>(row)].multiplicity;
  }
  return sum;
}

// What sums over processes need beside the arenas: every group's largest exchange, of all its
// instances at once, as their ranks may meet at the same time.
std::int64_t scratch_of_collectives(const Layout& layout, const Schedule& s,
                                    std::int32_t processes) {
  const Plan& plan = layout.plan;
  if (processes < 2) return 0;
  std::map<std::int32_t, std::set<std::pair<OpKind, std::int64_t>>> exchanges;  // by group
  for (std::size_t i = 0; i < s.ops.size(); ++i) {
    const Op& op = s.ops[i];
    if (traits(op.kind).op_class != OpClass::Collective || !op.group) continue;
    const auto operands = s.operands_of({static_cast<std::int32_t>(i)});
    std::int64_t bytes = 0;
    for (const Operand& operand : operands)
      bytes = std::max(bytes, s.values[operand.value.index()].bytes.value);
    exchanges[op.group.value].emplace(op.kind, bytes);
  }
  for (std::size_t k = 0; k < kNumSegmentShapes; ++k) {
    const auto shape = static_cast<SegmentShape>(k);
    const bool experts = shape == SegmentShape::ExpertLayer;
    if (experts && layout.model.experts.count == 0) continue;
    if (shape == SegmentShape::PredictionLayer) continue;  // only frameworks have them
    for (const Direction direction : {Direction::Forward, Direction::Backward,
                                      Direction::InputGradient, Direction::WeightGradient}) {
      const Body body = make_body(layout, {.segment = kind_of(shape),
                                           .experts = experts,
                                           .direction = direction,
                                           .slice = plan.sequence_slices > 1 ? 0 : -1});
      for (const Node& node : body.nodes) {
        const OpKind kind = collective_kind(node.kind());
        if (kind == OpKind::Forward) continue;
        const GroupId group = s.group(kind_along(node.axis));
        if (group) exchanges[group.value].emplace(kind, node.bytes);
      }
    }
  }
  const Mesh mesh(plan);
  const GroupInstances groups(s, mesh);
  const std::int32_t each = mesh.ranks() / processes;
  std::int64_t sum = 0;
  for (const auto& [group, kinds] : exchanges) {
    std::set<std::int32_t> instances;
    for (const GroupInstances::Place& place : groups.of[static_cast<std::size_t>(group)]) {
      if (place.instance >= 0) instances.insert(place.instance);
    }
    for (const std::int32_t instance : instances) {
      const auto& ranks = groups.ranks[static_cast<std::size_t>(instance)];
      std::map<std::int32_t, std::int32_t> members;  // by process
      for (const std::int32_t rank : ranks) ++members[rank / each];
      for (const auto& [process, here] : members) {
        std::int64_t most = 0;
        for (const auto& [kind, bytes] : kinds) {
          most = std::max(most, scratch_bytes(kind, bytes, static_cast<std::int32_t>(ranks.size()),
                                              here, static_cast<std::int32_t>(members.size())));
        }
        sum += most;
      }
    }
  }
  return sum;
}

}  // namespace

ResidentPlan plan_resident(const Layout& layout, const Schedule& s, const RunShape& shape) {
  const Transformer& model = layout.model;
  const Plan& plan = layout.plan;
  const std::int64_t p = shape.processes, all = p + (shape.launched ? 1 : 0);
  const std::int64_t ranks = plan.gpus();
  const std::int64_t ops = ops_of_ranks(s, rows_of_ranks(plan, s));
  const std::int64_t tokens = plan.microbatches() * plan.sequence_slices *
                              layout.shape.batch_tokens() * plan.data_parallel *
                              plan.context_parallel;
  const std::int64_t threads = p * (shape.workers - 1 + (p > 1 ? kServants : 0));
  // In every process that holds it whole: where it lies in several, each holds all replicas'.
  const std::int64_t batches = p * 2 * 4 * tokens;
  const std::int64_t mailboxes =
      p > 1 ? p * p * std::max<std::int64_t>(64, 16 * (ranks / p) * (ranks / p)) * 32 : 0;
  const std::int64_t board = p > 1 ? ranks * static_cast<std::int64_t>(sizeof(RankStatus)) : 0;
  const bool in_parts = plan.context_parallel > 1 || plan.sequence_slices > 1;
  // A part of an array and what gathers for each of the two files; then the first process reads
  // what was written, for its sums.
  const std::int64_t written =
      p * (4 * kPartElements + 2 * kFileBuffer) + static_cast<std::int64_t>(kDigestPiece);
  return {.arenas = arena_bytes(s),
          .outside = {
              {"program_and_libraries", "program and libraries", shape.now.files},
              {"program_data", "their data and heaps", all * shape.program.own()},
              {"schedule", "schedule", all * schedule_bytes(s)},
              {"executor", "the executor's ops and queues", executor_bytes(layout, s)},
              // In the scheduler; once more as they are handed over, and as process 0 keeps,
              // reads and merges what others hand over.
              {"recorder", "times of ops", ops * 2 * 8 * (p > 1 ? 5 : 2)},
              {"tokens", "tokens of the data and of a step", batches + shape.data_bytes},
              {"kernel_buffers", "kernels' buffers of all threads",
               p * shape.workers *
                   kernel_room_bytes({.width = std::max(model.head_dim, model.latent.v_head_dim),
                                      .sequence = in_parts ? 0 : plan.sequence_length,
                                      .widens = layout.shape.element == 2})},
              {"thread_stacks", "threads' stacks", threads * kThread},
              {"communication", "sums and messages among processes",
               scratch_of_collectives(layout, s, shape.processes) + mailboxes + board},
              {"checkpoint", "checkpoint on its way to the files", shape.checkpoints ? written : 0},
          }};
}

}  // namespace rehearse::exec
