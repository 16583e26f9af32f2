// SPDX-License-Identifier: Apache-2.0
#include "exec/step/transfer_tracks.h"

#include <algorithm>
#include <array>

namespace rehearse::exec {
namespace {

// The last op of every track of every stream: what is in order needs no other.
using Latest = std::array<std::array<OpId, kTracks>, kNumStreams>;

void take(OpId& latest, OpId op) {
  latest.value = std::max(latest.value, op.value);
}

// Where a transfer's array lies in the arena.
struct Transfer {
  OpId op;
  Track track{};
  bool writes = false;
  std::int64_t begin = 0, end = 0;

  bool conflicts(const Transfer& other) const {
    return (writes || other.writes) && begin < other.end && other.begin < end;
  }
};

}  // namespace

TransferTracks::TransferTracks(const Schedule& s, RankClass row)
    : first_(s.row_begin[row.index()]),
      entries_(static_cast<std::size_t>(s.row_begin[row.index() + 1] - first_)) {
  const auto stream_of = [&](OpId op) {
    return static_cast<std::size_t>(s.ops[op.index()].stream);
  };
  std::vector<Transfer> transfers;
  std::array<Latest, kTracks> inherited;                           // by a track's next transfer
  std::array<OpId, kTracks> last;                                  // transfer of a track
  std::vector<std::array<OpId, kTracks>> before(entries_.size());  // a transfer, on all tracks
  OpId computing;
  for (std::int32_t i = first_; i < s.row_begin[row.index() + 1]; ++i) {
    const OpId id{i};
    const Op& op = s.ops[id.index()];
    const auto k = static_cast<std::size_t>(i - first_);
    Latest waits;
    for (const OpId wait : s.waits_of(id)) {
      const auto at = static_cast<std::size_t>(wait.value - first_);
      take(waits[stream_of(wait)][static_cast<std::size_t>(entries_[at].track)], wait);
      if (s.ops[wait.index()].stream != Stream::P2p) continue;
      for (std::size_t t = 0; t < kTracks; ++t) take(waits[stream_of(wait)][t], before[at][t]);
    }
    if (op.stream == Stream::Compute) computing = id;
    if (op.stream == Stream::P2p) {
      const bool receives = op.kind == OpKind::Recv;
      const bool behind = op.peer.value > s.position_of(row).value;
      const std::size_t track = (receives ? 2U : 0U) + (behind ? 1U : 0U);
      const Value& value = s.values[s.operands_of(id)[0].value.index()];
      const Transfer mine{id, static_cast<Track>(track), receives, value.offset.value,
                          value.offset.value + value.bytes.value};
      entries_[k].track = mine.track;
      if (receives) entries_[k].behind = computing;
      for (std::size_t t = 0; t < kTracks; ++t) {
        for (std::size_t u = 0; t != track && u < kNumStreams; ++u) {
          for (std::size_t v = 0; v < kTracks; ++v) take(inherited[t][u][v], waits[u][v]);
        }
      }
      for (std::size_t u = 0; u < kNumStreams; ++u) {
        for (std::size_t v = 0; v < kTracks; ++v) take(waits[u][v], inherited[track][u][v]);
      }
      inherited[track] = {};
      for (auto other = transfers.rbegin(); other != transfers.rend(); ++other) {
        OpId& wait =
            waits[static_cast<std::size_t>(Stream::P2p)][static_cast<std::size_t>(other->track)];
        if (other->track != mine.track && mine.conflicts(*other)) take(wait, other->op);
      }
      transfers.push_back(mine);
      before[k] = last;
      last[track] = id;
      waits[static_cast<std::size_t>(Stream::P2p)][track] = {};  // in order
    }
    for (std::size_t stream = 0; stream < kNumStreams; ++stream) {
      for (const OpId wait : waits[stream]) {
        if (wait) entries_[k].waits.push_back(wait);
      }
    }
  }
}

}  // namespace rehearse::exec
