// SPDX-License-Identifier: Apache-2.0
// DualPipe and DualPipeV: forwards and backwards of two chunks run as overlapped pairs.
// Sources: DeepSeek-AI, "DeepSeek-V3 Technical Report" (arXiv 2412.19437), section 3.2.1 and figure
// 5; the orders: deepseek-ai/DualPipe, dualpipe.py and dualpipev.py, whose eight steps these are.
#include <array>
#include <deque>

#include "schedules/order/orders.h"

namespace rehearse::order {
namespace {

// What a position calls its two chunks: DualPipe's two directions, DualPipeV's two legs of the V.
struct Chunk {
  Stage stage{};
  std::int32_t first_microbatch = 0;
  std::int32_t forwards = 0, backwards = 0;  // done so far
};

class Position8Steps {
 public:
  Position8Steps(Schedule& schedule, Chunk zero, Chunk one)
      : schedule_(schedule), chunks_{zero, one} {}

  // h: distance from the outer end of the pipeline, H: positions of one half (or of the V);
  // microbatches: of one chunk.
  void run(std::int32_t h, std::int32_t H, std::int32_t microbatches) {
    const std::int32_t inner = H - h - 1;
    for (std::int32_t i = 0; i < 2 * inner; ++i) forward(0);                           // 1
    for (std::int32_t i = 0; i < h + 1; ++i) forward(0), forward(1);                   // 2
    for (std::int32_t i = 0; i < inner; ++i) backward(1, true), weight(), forward(1);  // 3
    for (std::int32_t i = 0; i < microbatches - 2 * H + h + 1; ++i) {                  // 4
      if (i == 0 && inner == 0) {
        // The turning point: nothing of chunk 1 is there yet that could be overlapped.
        forward(0), backward(1, false);
      } else {
        overlapped(0, 1);
      }
      overlapped(1, 0);
    }
    for (std::int32_t i = 0; i < inner; ++i) backward(1, false), overlapped(1, 0);  // 5
    bool split = false;
    for (std::int32_t i = 0; i < h + 1; ++i) {  // 6
      if (i == (h + 1) / 2 && h % 2 == 1) split = true;
      backward(1, split);
      if (i == (h + 1) / 2 && h % 2 == 0) split = true;
      backward(0, split);
    }
    for (std::int32_t i = 0; i < inner; ++i) weight(), backward(0, true);  // 7
    for (std::int32_t i = 0; i < h + 1; ++i) weight();                     // 8
  }

 private:
  Op next(OpKind kind, std::int32_t chunk) {
    Chunk& c = chunks_[static_cast<std::size_t>(chunk)];
    std::int32_t& done = kind == OpKind::Forward ? c.forwards : c.backwards;
    return compute_op(kind, c.stage, {c.first_microbatch + done++});
  }
  void forward(std::int32_t chunk) { schedule_.ops.push_back(next(OpKind::Forward, chunk)); }
  void backward(std::int32_t chunk, bool split) {
    schedule_.ops.push_back(next(split ? OpKind::InputGradient : OpKind::Backward, chunk));
    if (!split) return;
    Op later = schedule_.ops.back();
    later.kind = OpKind::WeightGradient;
    weights_.push_back(later);
  }
  void weight() {
    if (weights_.empty()) return;
    schedule_.ops.push_back(weights_.front());
    weights_.pop_front();
  }
  void overlapped(std::int32_t forward_chunk, std::int32_t backward_chunk) {
    const auto child = static_cast<std::int32_t>(schedule_.children.size());
    schedule_.children.push_back(next(OpKind::Forward, forward_chunk));
    schedule_.children.push_back(next(OpKind::Backward, backward_chunk));
    const Op& first = schedule_.children[static_cast<std::size_t>(child)];
    Op pair = compute_op(OpKind::Overlap, first.stage, first.microbatch);
    pair.child = child;
    schedule_.ops.push_back(pair);
  }

  Schedule& schedule_;
  std::array<Chunk, 2> chunks_;
  std::deque<Op> weights_;
};

}  // namespace

// Two replicas of the model: stage s on positions s (downward) and p-1-s (upward).
Result<Schedule> dual_pipe(const ScheduleShape& shape) {
  const std::int32_t p = shape.positions, half = shape.microbatches / 2;
  Schedule schedule;
  schedule.placement = bidirectional_placement(p, half);
  for (std::int32_t r = 0; r < p; ++r) {
    const Chunk down{.stage = {r}, .first_microbatch = 0};
    const Chunk up{.stage = {p - 1 - r}, .first_microbatch = half};
    const bool upper = r < p / 2;
    Position8Steps(schedule, upper ? down : up, upper ? up : down)
        .run(std::min(r, p - 1 - r), p / 2, half);
    schedule.end_row();
  }
  return schedule;
}

// DualPipe cut in half (sail-sg's "cut-in-half"): one replica, 2p stages in a V.
Result<Schedule> dual_pipe_v(const ScheduleShape& shape) {
  const std::int32_t p = shape.positions;
  Schedule schedule;
  schedule.placement = v_placement(p);
  for (std::int32_t r = 0; r < p; ++r) {
    Position8Steps(schedule, {.stage = {r}}, {.stage = {2 * p - 1 - r}})
        .run(r, p, shape.microbatches);
    schedule.end_row();
  }
  return schedule;
}

}  // namespace rehearse::order
