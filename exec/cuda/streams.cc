// SPDX-License-Identifier: Apache-2.0
#include "exec/cuda/streams.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <thread>
#include <utility>

namespace rehearse::exec::cuda {
namespace {

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
  const bool computes = lane.stream == Stream::Compute && lane.track != Track::Collectives;
  const int priority = computes ? lowest : highest;
  check(cudaStreamCreateWithPriority(&track.stream, cudaStreamNonBlocking, priority),
        "cudaStreamCreate");
  if (track.stream == nullptr) return track;  // the error is kept
  check(cudaEventCreateWithFlags(&track.met, cudaEventDisableTiming), "cudaEventCreate");
  check(cudaStreamWaitEvent(track.stream, base_, 0), "cudaStreamWaitEvent");
  return track;
}

Streams::OpEvents& Streams::events_of(std::int32_t rank, OpId op) {
  auto& of_rank = events_[static_cast<std::size_t>(rank - first_)];
  if (of_rank.size() <= op.index()) {
    const std::scoped_lock lock(mutex_);
    of_rank.resize(op.index() + 1);
  }
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
  {
    const std::scoped_lock lock(mutex_);
    for (LaneState& lane : lanes_) {
      lane.issued.clear();
      lane.ended = 0;
    }
    for (auto& rank : events_) {
      for (OpEvents& op : rank) op.ended = false;
    }
  }
  for (const LaneState& lane : lanes_) {
    for (const TrackState& track : lane.tracks) {
      if (track.stream != nullptr)
        check(cudaStreamWaitEvent(track.stream, base_, 0), "cudaStreamWaitEvent");
    }
  }
}

void Streams::begin(Lane lane, OpId op, std::span<const OpId> waits) {
  for (const OpId wait : waits) {
    check(cudaStreamWaitEvent(of(lane), events_of(lane.rank, wait).end, 0), "cudaStreamWaitEvent");
  }
  check(cudaEventRecord(events_of(lane.rank, op).start, of(lane)), "cudaEventRecord");
  const std::scoped_lock lock(mutex_);
  lane_of(lane).issued.push_back({op, lane.track, waits});
}

void Streams::begin_behind(Lane lane, OpId begun) {
  check(cudaStreamWaitEvent(of(lane), events_of(lane.rank, begun).start, 0), "cudaStreamWaitEvent");
}

void Streams::end(Lane lane, OpId op) {
  check(cudaEventRecord(events_of(lane.rank, op).end, of(lane)), "cudaEventRecord");
  const std::scoped_lock lock(mutex_);
  lane_of(lane).issued.back().whole = true;
}

void Streams::order(Lane lane, Lane after) {
  const TrackState &before = opened(lane), &then = opened(after);
  if (&before == &then) return;
  check(cudaEventRecord(before.met, before.stream), "cudaEventRecord");
  check(cudaStreamWaitEvent(then.stream, before.met, 0), "cudaStreamWaitEvent");
}

Streams::Seen Streams::look() {
  Seen seen;
  for (std::size_t k = 0; k < lanes_.size(); ++k) {
    LaneState& lane = lanes_[k];
    const auto rank = first_ + static_cast<std::int32_t>(k / kNumStreams);
    const bool in_order = k % kNumStreams != static_cast<std::size_t>(Stream::P2p);
    std::array<bool, kTracks> open{};  // nothing behind the first that has not ended has ended
    for (std::size_t i = lane.ended; i < lane.issued.size(); ++i) {
      const OpId op = lane.issued[i].op;
      OpEvents& events = events_of(rank, op);
      bool& behind_open = open[static_cast<std::size_t>(lane.issued[i].track)];
      if (events.ended || behind_open) continue;
      // Until its end is recorded, the event speaks of the last step.
      const cudaError_t state =
          lane.issued[i].whole ? cudaEventQuery(events.end) : cudaErrorNotReady;
      if (state != cudaSuccess) {
        seen.open = true;
        if (state != cudaErrorNotReady) {
          check(state, "rank " + std::to_string(rank) + ": " + label_(op));
          return seen;
        }
        if (in_order) break;
        behind_open = true;
        continue;
      }
      const std::scoped_lock lock(mutex_);
      events.ended = true;
      seen.more = true;
    }
    const std::scoped_lock lock(mutex_);
    while (lane.ended < lane.issued.size() && events_of(rank, lane.issued[lane.ended].op).ended) {
      ++lane.ended;
    }
  }
  return seen;
}

std::string Streams::late(double seconds) const {
  const std::scoped_lock lock(mutex_);
  for (std::size_t k = 0; k < lanes_.size(); ++k) {
    const LaneState& lane = lanes_[k];
    if (lane.ended == lane.issued.size()) continue;
    const Issued& head = lane.issued[lane.ended];
    const auto& ops = events_[k / kNumStreams];
    if (!std::ranges::all_of(head.waits, [&](OpId wait) { return ops[wait.index()].ended; }))
      continue;
    return "rank " + std::to_string(first_ + static_cast<std::int32_t>(k / kNumStreams)) +
           " timed out in " + label_(head.op) + " after " +
           std::to_string(static_cast<std::int64_t>(seconds)) + " s";
  }
  return "timed out: the host issues nothing for " +
         std::to_string(static_cast<std::int64_t>(seconds)) + " s";
}

Result<> Streams::finish(const std::function<std::string(bool more)>& go_on) {
  while (true) {
    const Seen seen = look();
    if (!error_.empty()) return Error{error_};
    if (!seen.open) break;
    if (std::string why = go_on(seen.more); !why.empty()) return Error{std::move(why)};
    std::this_thread::sleep_for(kPoll);
  }
  for (const LaneState& lane : lanes_) {
    for (const TrackState& track : lane.tracks) {
      if (track.stream != nullptr)
        check(cudaStreamSynchronize(track.stream), "cudaStreamSynchronize");
    }
  }
  if (!error_.empty()) return Error{error_};
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
