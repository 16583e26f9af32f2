// SPDX-License-Identifier: Apache-2.0
#include "exec/cuda/streams.h"

#include <chrono>
#include <thread>
#include <utility>

namespace rehearse::exec::cuda {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kPoll = std::chrono::microseconds(20);

}  // namespace

Streams::~Streams() {
  for (auto& rank : events_) {
    for (OpEvents& events : rank) {
      if (events.start != nullptr) cudaEventDestroy(events.start);
      if (events.end != nullptr) cudaEventDestroy(events.end);
    }
  }
  for (LaneState& lane : lanes_) {
    for (const TrackState& track : lane.tracks) {
      if (track.met != nullptr) cudaEventDestroy(track.met);
      if (track.stream != nullptr) cudaStreamDestroy(track.stream);
    }
  }
  if (base_ != nullptr) cudaEventDestroy(base_);
}

void Streams::check(int error, std::string_view what) {
  if (error == 0 || !error_.empty()) return;
  error_ = std::string(what) + ": " + cudaGetErrorString(static_cast<cudaError_t>(error));
}

void Streams::add_rank(std::int32_t rank) {
  if (lanes_.empty()) {
    first_ = rank;
    check(cudaEventCreate(&base_), "cudaEventCreate");
  }
  for (std::size_t s = 0; s < kNumStreams; ++s) {
    lanes_.emplace_back();
    opened({rank, static_cast<Stream>(s)});
  }
  events_.emplace_back();
}

Streams::TrackState& Streams::opened(Lane lane) {
  TrackState& track = lane_of(lane).tracks[static_cast<std::size_t>(lane.track)];
  if (track.stream != nullptr) return track;
  int lowest = 0, highest = 0;
  check(cudaDeviceGetStreamPriorityRange(&lowest, &highest), "cudaDeviceGetStreamPriorityRange");
  const int priority = lane.track == Track::Collectives ? highest : lowest;
  check(cudaStreamCreateWithPriority(&track.stream, cudaStreamNonBlocking, priority),
        "cudaStreamCreate");
  check(cudaEventCreateWithFlags(&track.met, cudaEventDisableTiming), "cudaEventCreate");
  return track;
}

Streams::OpEvents& Streams::events_of(std::int32_t rank, OpId op) {
  auto& of_rank = events_[static_cast<std::size_t>(rank - first_)];
  if (of_rank.size() <= op.index()) of_rank.resize(op.index() + 1);
  OpEvents& events = of_rank[op.index()];
  if (events.start == nullptr) {  // in the first step alone
    check(cudaEventCreate(&events.start), "cudaEventCreate");
    check(cudaEventCreate(&events.end), "cudaEventCreate");
  }
  return events;
}

// The last step has been waited for: every stream starts from the base event.
void Streams::begin_step() {
  check(cudaEventRecord(base_, lanes_.front().tracks.front().stream), "cudaEventRecord");
  for (LaneState& lane : lanes_) {
    lane.issued.clear();
    lane.ended = 0;
    check(cudaStreamWaitEvent(lane.tracks.front().stream, base_, 0), "cudaStreamWaitEvent");
  }
}

void Streams::begin(Lane lane, OpId op, std::span<const OpId> waits) {
  for (const OpId wait : waits) {
    check(cudaStreamWaitEvent(of(lane), events_of(lane.rank, wait).end, 0), "cudaStreamWaitEvent");
  }
  lane_of(lane).issued.push_back(op.value);
  check(cudaEventRecord(events_of(lane.rank, op).start, of(lane)), "cudaEventRecord");
}

void Streams::end(Lane lane, OpId op) {
  check(cudaEventRecord(events_of(lane.rank, op).end, of(lane)), "cudaEventRecord");
}

void Streams::order(Lane lane, Lane after) {
  const TrackState &before = opened(lane), &then = opened(after);
  if (&before == &then) return;
  check(cudaEventRecord(before.met, before.stream), "cudaEventRecord");
  check(cudaStreamWaitEvent(then.stream, before.met, 0), "cudaStreamWaitEvent");
}

// The first op that has begun and not ended; what waits for it on other lanes has not begun.
std::string Streams::late(double seconds) {
  const std::string after = " after " + std::to_string(static_cast<std::int64_t>(seconds)) + " s";
  std::string waiting;
  for (std::size_t k = 0; k < lanes_.size(); ++k) {
    const LaneState& lane = lanes_[k];
    if (lane.ended == lane.issued.size()) continue;
    const OpId op{lane.issued[lane.ended]};
    const auto rank = first_ + static_cast<std::int32_t>(k / kNumStreams);
    const std::string said = "rank " + std::to_string(rank) + " timed out in " + label_(op) + after;
    if (cudaEventQuery(events_of(rank, op).start) == cudaSuccess) return said;
    if (waiting.empty()) waiting = said;
  }
  return waiting;
}

Result<> Streams::finish(double timeout_s, const std::function<std::string()>& failed) {
  if (!error_.empty()) return Error{error_};
  Clock::time_point progress = Clock::now();
  bool open = true;
  while (open) {
    open = false;
    for (std::size_t k = 0; k < lanes_.size(); ++k) {
      LaneState& lane = lanes_[k];
      const auto rank = first_ + static_cast<std::int32_t>(k / kNumStreams);
      while (lane.ended < lane.issued.size()) {
        const cudaError_t state = cudaEventQuery(events_of(rank, {lane.issued[lane.ended]}).end);
        if (state == cudaErrorNotReady) {
          open = true;
          break;
        }
        check(state, label_({lane.issued[lane.ended]}));
        if (!error_.empty()) return Error{"rank " + std::to_string(rank) + ": " + error_};
        ++lane.ended;
        progress = Clock::now();
      }
    }
    if (!open) break;
    if (std::string why = failed(); !why.empty()) return Error{std::move(why)};
    const double waited = std::chrono::duration<double>(Clock::now() - progress).count();
    if (waited > timeout_s) {
      timed_out_ = true;
      return Error{late(waited)};
    }
    std::this_thread::sleep_for(kPoll);
  }
  return {};
}

void Streams::times(std::int32_t rank, OpId op, Nanoseconds* start, Nanoseconds* end) const {
  const OpEvents& events = events_[static_cast<std::size_t>(rank - first_)][op.index()];
  float ms = 0;
  if (cudaEventElapsedTime(&ms, base_, events.start) == cudaSuccess) {
    start->value = static_cast<std::int64_t>(static_cast<double>(ms) * 1e6);
  }
  if (cudaEventElapsedTime(&ms, base_, events.end) == cudaSuccess) {
    end->value = static_cast<std::int64_t>(static_cast<double>(ms) * 1e6);
  }
}

}  // namespace rehearse::exec::cuda
