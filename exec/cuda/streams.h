// SPDX-License-Identifier: Apache-2.0
// The lanes of a process's ranks on one device: a stream for each and for each further track of it,
// an event per op, and order between them.
//
// A track's stream is made when it is first used. What does not compute has the highest priority:
// its blocks are placed before those of kernels that have begun.
//
// Nothing here synchronises the device but finish(), at the end of a step. What is seen to have
// ended on the way there orders nothing: it is kept for late(), which asks the device for nothing.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstdint>
#include <functional>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "exec/backend/exchange.h"
#include "schedules/base/result.h"
#include "schedules/base/units.h"

namespace rehearse::exec::cuda {

class Streams {
 public:
  explicit Streams(std::function<std::string(OpId)> label) : label_(std::move(label)) {}
  ~Streams();
  Streams(const Streams&) = delete;
  Streams& operator=(const Streams&) = delete;

  // Makes the streams of a rank. Ranks come in ascending order, without gaps.
  void add_rank(std::int32_t rank);
  cudaStream_t of(Lane lane) { return opened(lane).stream; }

  void begin_step();
  // The lane waits for ops of its rank, then notes when it begins. `waits` lives until end_step.
  void begin(Lane lane, OpId op, std::span<const OpId> waits);
  void begin_behind(Lane lane, OpId begun);  // waits until that op has begun
  void end(Lane lane, OpId op);
  // What was issued on `lane` so far happens before what is issued on `after` from now on.
  void order(Lane lane, Lane after);
  // Notes what has ended. Open: something has not, or nobody knows because of an error.
  struct Seen {
    bool open = false, more = false;  // than was known
  };
  Seen look();
  // Waits for everything issued since begin_step. `go_on`: told now and then whether more has
  // ended, non-empty ends the wait. Error: that, or what the device says.
  Result<> finish(const std::function<std::string(bool more)>& go_on);
  // The op that has begun and not ended, as far as seen. From any thread.
  std::string late(double seconds) const;
  // When an op of the last step ran [ns since begin_step].
  void times(std::int32_t rank, OpId op, Nanoseconds* start, Nanoseconds* end) const;

  // Remembers the first error of a call, with what was called.
  void check(int error, std::string_view what);
  const std::string& error() const { return error_; }
  std::string forget_error() { return std::exchange(error_, {}); }

 private:
  struct TrackState {
    cudaStream_t stream = nullptr;
    cudaEvent_t met = nullptr;  // order(): re-recorded each time
  };
  struct Issued {
    OpId op;
    Track track{};
    std::span<const OpId> waits;
    bool whole = false;  // its end is issued too
  };
  struct LaneState {
    std::array<TrackState, kTracks> tracks;
    std::vector<Issued> issued;  // in this step, in order
    std::size_t ended = 0;       // of these, seen to have ended
  };
  struct OpEvents {
    cudaEvent_t start = nullptr, end = nullptr;
    bool ended = false;  // seen in this step
  };
  const LaneState& lane_of(Lane lane) const {
    return lanes_[static_cast<std::size_t>(lane.rank - first_) * kNumStreams +
                  static_cast<std::size_t>(lane.stream)];
  }
  LaneState& lane_of(Lane lane) {
    return const_cast<LaneState&>(std::as_const(*this).lane_of(lane));
  }
  TrackState& opened(Lane lane);
  OpEvents& events_of(std::int32_t rank, OpId op);
  std::function<std::string(OpId)> label_;
  std::int32_t first_ = 0;
  std::vector<LaneState> lanes_;               // rank * kNumStreams + stream
  std::vector<std::vector<OpEvents>> events_;  // by rank, by op of the schedule
  cudaEvent_t base_ = nullptr;
  std::string error_;
  mutable std::mutex mutex_;  // of `issued` and `ended`, against late()
};

}  // namespace rehearse::exec::cuda
