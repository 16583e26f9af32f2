// SPDX-License-Identifier: Apache-2.0
#include "exec/processes/diagnosis.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "exec/store/store_messages.h"
#include "exec/store/wire.h"
#include "schedules/ir/listing.h"

namespace rehearse::exec {
namespace {

using How = ProcessView::How;

template <class T>
T of(const std::atomic<T>& value) {
  return value.load(std::memory_order_relaxed);
}

// Where a rank stands: its unfinished op with the smallest place in the global order.
struct Standing {
  std::int64_t step = 0, key = 0;
  std::int32_t op = -1;  // -1: has performed everything, or nothing is known
  bool under_way = false;
  bool waiting = false;  // for other ranks
  bool before(const Standing& other) const {
    if (step != other.step) return step < other.step;
    if (key != other.key) return key < other.key;
    return !waiting && other.waiting;  // of two ends of a transfer, the one that has not come
  }
};

Standing standing(const FailedRun& run, std::int32_t rank) {
  const RankStatus& status = run.board.rank(rank);
  constexpr std::int64_t kEver = std::numeric_limits<std::int64_t>::max();
  Standing at{.step = of(status.step), .key = kEver};
  if (of(status.phase) == RankPhase::Done) return {.step = kEver, .key = kEver};
  const RankClass row = run.rows[static_cast<std::size_t>(rank)];
  std::array<bool, kNumStreams> open{};  // its head was met
  for (std::int32_t i = run.schedule.row_begin[row.index()];
       i < run.schedule.row_begin[row.index() + 1]; ++i) {
    const Op& op = run.schedule.ops[static_cast<std::size_t>(i)];
    const auto stream = static_cast<std::size_t>(op.stream);
    const StreamStatus& on = status.streams[stream];
    if (open[stream] || i <= of(on.ended)) continue;
    open[stream] = true;
    if (op.key >= at.key) continue;
    const bool under_way = of(on.op) == i;
    at = {.step = at.step,
          .key = op.key,
          .op = i,
          .under_way = under_way,
          .waiting = under_way && of(on.waits_for) != kWaitsForNobody};
  }
  if (at.op < 0) at = {.step = at.step + 1, .key = std::numeric_limits<std::int64_t>::min()};
  return at;
}

// The op to name for a rank: what it works on, else what it waits in, else what comes next.
std::int32_t named_op(const FailedRun& run, std::int32_t rank, const Standing& at) {
  const RankStatus& status = run.board.rank(rank);
  for (const StreamStatus& stream : status.streams) {
    if (of(stream.op) >= 0 && of(stream.waits_for) == kWaitsForNobody) return of(stream.op);
  }
  if (at.under_way) return at.op;
  for (const StreamStatus& stream : status.streams) {
    if (of(stream.op) >= 0) return of(stream.op);
  }
  return at.op;
}

class Attributor {
 public:
  explicit Attributor(const FailedRun& run)
      : run_(run),
        each_(static_cast<std::int32_t>(run.rows.size()) /
              static_cast<std::int32_t>(run.processes.size())) {
    for (std::int32_t r = 0; r < static_cast<std::int32_t>(run.rows.size()); ++r) {
      standing_.push_back(standing(run, r));
    }
  }
  FailureAttribution attribute() const;

 private:
  std::int32_t processes() const { return static_cast<std::int32_t>(run_.processes.size()); }
  const ProcessView& view(std::int32_t p) const {
    return run_.processes[static_cast<std::size_t>(p)];
  }
  // The first process for which `is` holds; -1: none.
  template <class Is>
  std::int32_t find(const Is& is) const {
    for (std::int32_t p = 0; p < processes(); ++p) {
      if (is(view(p))) return p;
    }
    return -1;
  }
  bool finished(std::int32_t rank) const { return view(rank / each_).how == How::Finished; }
  // Who is furthest behind among the ranks [first, last).
  std::int32_t straggler(std::int32_t first, std::int32_t last) const {
    std::int32_t found = first;
    for (std::int32_t r = first; r < last; ++r) {
      if (finished(found) || (!finished(r) && at(r).before(at(found)))) found = r;
    }
    return found;
  }
  const Standing& at(std::int32_t rank) const { return standing_[static_cast<std::size_t>(rank)]; }
  std::int32_t rank_in(std::int32_t process) const {
    return straggler(process * each_, (process + 1) * each_);
  }
  std::string name(std::int32_t rank) const {
    std::string text = "rank " + std::to_string(rank);
    if (each_ > 1) {
      const std::int32_t p = rank / each_;
      text += " (process " + std::to_string(p) + ", ranks " + std::to_string(p * each_) + "-" +
              std::to_string((p + 1) * each_ - 1) + ")";
    }
    return text;
  }
  std::string label(std::int32_t op) const {
    return op < run_.schedule.num_ops() ? op_label(run_.schedule, {op}) : "an unknown op";
  }
  // The layer of the collective inside the op that the rank waits in: ", layer 2,"; else nothing.
  static std::string layer(const RankStatus& status, std::int32_t op) {
    for (const StreamStatus& stream : status.streams) {
      const std::int32_t layer = layer_of_wait(of(stream.waits_for));
      if (of(stream.op) == op && layer >= 0) return ", layer " + std::to_string(layer) + ",";
    }
    return "";
  }
  // " in 1F3 of step 4, last finished 1RECV_F3"; steps count from 1 for people.
  std::string where(std::int32_t rank) const {
    const RankStatus& status = run_.board.rank(rank);
    const std::int32_t op = named_op(run_, rank, at(rank)), last = of(status.last_ended);
    if (of(status.step) < 0) return " before its first step";
    std::string text =
        op >= 0 ? " in " + label(op) + layer(status, op) : std::string(" after its last op");
    text += " of step " + std::to_string(of(status.step) + 1);
    if (last >= 0) text += ", last finished " + label(last);
    return text;
  }
  FailureAttribution blame(std::int32_t rank, const std::string& what) const {
    return {.rank = rank, .exit_code = 3, .line = name(rank) + " " + what};
  }
  FailureAttribution ended(std::int32_t process) const;
  FailureAttribution stuck() const;

  const FailedRun& run_;
  std::int32_t each_;
  std::vector<Standing> standing_;
};

FailureAttribution Attributor::ended(std::int32_t process) const {
  const ProcessView& who = view(process);
  const std::int32_t rank = rank_in(process);
  switch (who.how) {
    case How::Killed:
      return blame(rank, "was killed by signal " + std::to_string(who.code) + " (" +
                             strsignal(who.code) + ")" + where(rank));
    case How::Exited:
      return blame(rank, "ended with exit code " + std::to_string(who.code) + where(rank));
    case How::Stopped:
      return blame(rank, "is stopped" + where(rank));
    case How::Silent:
      return blame(rank, "has not been heard of for " +
                             std::to_string(static_cast<int>(who.silent_s)) + " s" + where(rank));
    default:
      return blame(rank, "died (its connection closed)" + where(rank));
  }
}

// Everybody lives and is heard of, and somebody waited too long.
FailureAttribution Attributor::stuck() const {
  const std::int32_t rank = straggler(0, static_cast<std::int32_t>(run_.rows.size()));
  const std::string limit =
      "the timeout of " + std::to_string(static_cast<int>(run_.timeout_s)) + " s";
  return blame(rank, "holds up the others for longer than " + limit + where(rank));
}

FailureAttribution Attributor::attribute() const {
  const auto reported = [](FailureReport::Kind kind) {
    return [kind](const ProcessView& p) { return p.report && p.report->kind == kind; };
  };
  const auto own = [&](std::int32_t p) {
    const FailureReport& report = *view(p).report;
    return FailureAttribution{.rank = report.rank >= 0 ? report.rank : p * each_,
                              .exit_code = report.exit_code,
                              .line = report.text};
  };
  if (const std::int32_t p = find(reported(FailureReport::Kind::Refused)); p >= 0) return own(p);
  if (const std::int32_t p = find(reported(FailureReport::Kind::Own)); p >= 0) return own(p);
  const auto dead = [](const ProcessView& p) {
    return !p.report && (p.how == How::Killed || p.how == How::Exited || p.how == How::Lost);
  };
  if (const std::int32_t p = find(dead); p >= 0) return ended(p);
  const auto quiet = [](const ProcessView& p) {
    return p.how == How::Stopped || p.how == How::Silent;
  };
  if (const std::int32_t p = find(quiet); p >= 0) return ended(p);
  if (const std::int32_t p = find([](const ProcessView& v) { return v.how == How::Absent; });
      p >= 0) {
    return {.rank = p * each_, .exit_code = 3, .line = name(p * each_) + " did not join in time"};
  }
  if (find(reported(FailureReport::Kind::Timeout)) >= 0) return stuck();
  if (const std::int32_t p = find(reported(FailureReport::Kind::PeerLost)); p >= 0) return own(p);
  return stuck();
}

}  // namespace

FailureAttribution diagnose(const FailedRun& run) {
  return Attributor(run).attribute();
}

std::string status_bytes(const StatusBoard& board, std::int32_t first, std::int32_t last) {
  WireWriter out;
  out.number(first).number(last);
  for (std::int32_t r = first; r < last; ++r) {
    const RankStatus& rank = board.rank(r);
    out.number(of(rank.step)).number(of(rank.last_ended));
    out.number(static_cast<std::uint8_t>(of(rank.phase)));
    for (const StreamStatus& stream : rank.streams) {
      out.number(of(stream.op)).number(of(stream.ended)).number(of(stream.waits_for));
    }
  }
  return out.take();
}

void apply_status(std::string_view bytes, const StatusBoard& board, std::int32_t first,
                  std::int32_t last) {
  WireReader in(bytes);
  if (in.number<std::int32_t>() != first || in.number<std::int32_t>() != last) return;
  if (bytes.size() != largest_body(StoreMessage::Beat, {.ranks_each = last - first})) return;
  for (std::int32_t r = first; r < last; ++r) {
    RankStatus& rank = board.rank(r);
    rank.step.store(in.number<std::int32_t>(), std::memory_order_relaxed);
    rank.last_ended.store(in.number<std::int32_t>(), std::memory_order_relaxed);
    rank.phase.store(static_cast<RankPhase>(in.number<std::uint8_t>()), std::memory_order_relaxed);
    for (StreamStatus& stream : rank.streams) {
      stream.op.store(in.number<std::int32_t>(), std::memory_order_relaxed);
      stream.ended.store(in.number<std::int32_t>(), std::memory_order_relaxed);
      stream.waits_for.store(in.number<std::int32_t>(), std::memory_order_relaxed);
    }
  }
}

}  // namespace rehearse::exec
