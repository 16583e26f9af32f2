// SPDX-License-Identifier: Apache-2.0
#include "exec/messages/composed_collectives.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "exec/cpu/collectives.h"
#include "schedules/ranks/crossing.h"

namespace rehearse::exec {
namespace {

// Slots: the top bit, instance 20, sequence 31, message 12 bits.
constexpr std::int64_t kMessages = 1 << 12;

// One exchange: its members, those that are here, and what travels.
class Composition {
 public:
  Composition(const Exchange& exchange, std::int32_t process, std::int32_t each, const Move& move)
      : x_(exchange), self_(process), travel_(move) {
    for (std::size_t m = 0; m < x_.ranks.size(); ++m) {
      process_.push_back(x_.ranks[m] / each);
      if (process_.back() == self_) here_.push_back(static_cast<std::int32_t>(m));
      if (others_.empty() || others_.back() != process_.back()) others_.push_back(process_.back());
    }
    std::ranges::sort(others_);
    others_.erase(std::unique(others_.begin(), others_.end()), others_.end());
    all_ = others_;
    std::erase(others_, self_);
  }
  Result<> perform();

 private:
  std::int64_t width() const { return bytes_of(x_.type); }
  std::int32_t members() const { return static_cast<std::int32_t>(x_.ranks.size()); }
  std::int64_t part() const { return x_.elements / members() * width(); }  // bytes
  // Byte offset of a member's part in the whole array of an AllGather or a ReduceScatter.
  std::int64_t place(std::int32_t m) const {
    return m * (x_.pitch > 0 ? x_.pitch * width() : part());
  }
  bool is_here(std::int32_t m) const { return process_[static_cast<std::size_t>(m)] == self_; }
  std::int32_t process(std::int32_t m) const { return process_[static_cast<std::size_t>(m)]; }
  std::byte* in(std::int32_t m) const {
    return static_cast<std::byte*>(x_.contributions[static_cast<std::size_t>(m)].in);
  }
  std::byte* out(std::int32_t m) const {
    return static_cast<std::byte*>(x_.contributions[static_cast<std::size_t>(m)].out);
  }
  // Byte offset of a member's own part: read by an AllGather, written by a ReduceScatter.
  std::byte* own(std::byte* at, std::int32_t m) const {
    return in(m) == out(m) ? at + place(m) : at;
  }

  std::uint64_t slot(std::int64_t message) const {
    return kCollective | (static_cast<std::uint64_t>(x_.instance) << 43) |
           ((static_cast<std::uint64_t>(x_.sequence) & 0x7fffffff) << 12) |
           static_cast<std::uint64_t>(message);
  }
  void send(std::int32_t to, std::int64_t message, std::byte* data, std::int64_t bytes) {
    if (bytes > 0) messages_.push_back({to, slot(message), data, bytes, true});
  }
  void receive(std::int32_t from, std::int64_t message, std::byte* data, std::int64_t bytes) {
    if (bytes > 0) messages_.push_back({from, slot(message), data, bytes, false});
  }
  Result<> move() {
    const Result<> moved = travel_(messages_);
    messages_.clear();
    return moved;
  }
  std::byte* scratch(std::int64_t bytes) {
    scratch_.emplace_back(new std::byte[static_cast<std::size_t>(bytes)]);
    return scratch_.back().get();
  }
  // Slice k of an array belongs to the k-th process that has members: bytes [begin, end).
  struct Slice {
    std::int64_t begin = 0, end = 0;
    std::int64_t bytes() const { return end - begin; }
  };
  Slice slice(std::int32_t p) const {
    const auto k = std::ranges::lower_bound(all_, p) - all_.begin();
    const auto count = static_cast<std::int64_t>(all_.size());
    return {x_.elements * k / count * width(), x_.elements * (k + 1) / count * width()};
  }
  bool sliced() const { return x_.elements * width() > kUncutBytes && all_.size() > 2; }
  // Sends slice p of every array here to process p.
  void send_slices() {
    for (const std::int32_t p : others_) {
      for (const std::int32_t m : here_) send(p, m, in(m) + slice(p).begin, slice(p).bytes());
    }
  }
  // Own slices to and from all others: every process then has the whole array.
  Result<> exchange_slices(std::byte* array) {
    for (const std::int32_t p : others_) {
      send(p, members(), array + slice(self_).begin, slice(self_).bytes());
      receive(p, members(), array + slice(p).begin, slice(p).bytes());
    }
    return move();
  }
  // Number of a message from member a to member b: a's and b's places among their processes'
  // members.
  std::int64_t message(std::int32_t a, std::int32_t b) const {
    const auto place = [this](std::int32_t m) {
      return std::count(process_.begin(), process_.begin() + m, process(m));
    };
    return place(a) * std::count(process_.begin(), process_.end(), process(b)) + place(b);
  }
  // Bytes [begin, end) of every member's array, in order, summed into `to`.
  Result<> gather_and_sum(std::int64_t begin, std::int64_t end, std::byte* to);

  Result<> all_reduce();
  Result<> reduce_scatter();
  Result<> all_gather();
  Result<> broadcast();
  Result<> reduce();
  Result<> gather();
  Result<> scatter();
  Result<> all_to_all();
  void unequal_parts(std::int32_t m, const Contribution& mine);
  Result<> shift();

  const Exchange& x_;
  const std::int32_t self_;
  const Move& travel_;
  std::vector<std::int32_t> process_;  // by member
  std::vector<std::int32_t> here_;     // members of this process
  std::vector<std::int32_t> all_;      // the processes that have members
  std::vector<std::int32_t> others_;   // all but this one
  std::vector<Message> messages_;
  std::vector<std::unique_ptr<std::byte[]>> scratch_;
};

// REQUIRES: the other processes' sends of [begin, end) to this one, and this one's to them, are
// what messages_ lacks only on the receiving side.
Result<> Composition::gather_and_sum(std::int64_t begin, std::int64_t end, std::byte* to) {
  std::vector<const void*> arrays;
  for (std::int32_t m = 0; m < members(); ++m) {
    if (is_here(m)) {
      arrays.push_back(in(m) + begin);
      continue;
    }
    std::byte* from = scratch(end - begin);
    receive(process(m), m, from, end - begin);
    arrays.push_back(from);
  }
  const Result<> moved = move();
  if (moved && end > begin) combine(x_.type, arrays, (end - begin) / width(), x_.maximum, to);
  return moved;
}

Result<> Composition::all_reduce() {
  const std::int64_t bytes = x_.elements * width();
  std::byte* first = out(here_.front());
  const auto copy_to_the_rest = [&] {
    for (const std::int32_t m : here_) {
      if (out(m) != first) std::memcpy(out(m), first, static_cast<std::size_t>(bytes));
    }
  };
  // Between two members a slice and the other's sum are as many bytes as the whole array at once.
  if (bytes <= kUncutBytes || members() == 2) {
    for (const std::int32_t p : others_) {
      for (const std::int32_t m : here_) send(p, m, in(m), bytes);
    }
    const Result<> summed = gather_and_sum(0, bytes, first);
    if (summed) copy_to_the_rest();
    return summed;
  }
  send_slices();
  const auto [begin, end] = slice(self_);
  const Result<> summed = gather_and_sum(begin, end, first + begin);
  if (!summed) return summed;
  const Result<> moved = exchange_slices(first);
  if (moved) copy_to_the_rest();
  return moved;
}

Result<> Composition::reduce_scatter() {
  for (const std::int32_t a : here_) {
    for (std::int32_t b = 0; b < members(); ++b) {
      if (!is_here(b)) send(process(b), message(a, b), in(a) + place(b), part());
    }
  }
  std::vector<std::vector<const void*>> arrays;
  for (const std::int32_t b : here_) {
    std::vector<const void*>& of = arrays.emplace_back();
    for (std::int32_t a = 0; a < members(); ++a) {
      std::byte* from = is_here(a) ? in(a) + place(b) : scratch(part());
      if (!is_here(a)) receive(process(a), message(a, b), from, part());
      of.push_back(from);
    }
  }
  const Result<> moved = move();
  if (!moved) return moved;
  for (std::size_t i = 0; i < here_.size(); ++i) {
    combine(x_.type, arrays[i], part() / width(), x_.maximum, own(out(here_[i]), here_[i]));
  }
  return {};
}

Result<> Composition::all_gather() {
  std::byte* first = out(here_.front());
  for (const std::int32_t a : here_) {
    for (const std::int32_t p : others_) send(p, a, own(in(a), a), part());
  }
  for (std::int32_t a = 0; a < members(); ++a) {
    if (!is_here(a)) receive(process(a), a, first + place(a), part());
  }
  const Result<> moved = move();
  if (!moved) return moved;
  for (std::int32_t a = 0; a < members(); ++a) {
    const std::byte* from = is_here(a) ? own(in(a), a) : first + place(a);
    for (const std::int32_t m : here_) {
      std::byte* to = out(m) + place(a);
      if (to != from) std::memcpy(to, from, static_cast<std::size_t>(part()));
    }
  }
  return {};
}

Result<> Composition::broadcast() {
  const std::int64_t bytes = x_.elements * width();
  const bool root_here = is_here(x_.root);
  std::byte* array = root_here ? in(x_.root) : out(here_.front());
  if (!sliced()) {
    for (const std::int32_t p : others_) {
      if (root_here) send(p, 0, array, bytes);
    }
    if (!root_here) receive(process(x_.root), 0, array, bytes);
    const Result<> moved = move();
    if (!moved) return moved;
  } else {
    // Whoever gets a slice passes it on (Barnett et al. 1994, scatter and collect): nobody sends
    // more than 2 arrays.
    for (const std::int32_t p : others_) {
      if (root_here) send(p, 0, array + slice(p).begin, slice(p).bytes());
    }
    if (!root_here) {
      receive(process(x_.root), 0, array + slice(self_).begin, slice(self_).bytes());
    }
    const Result<> scattered = move();
    if (!scattered) return scattered;
    const Result<> moved = exchange_slices(array);
    if (!moved) return moved;
  }
  for (const std::int32_t m : here_) {
    if (out(m) != array) std::memcpy(out(m), array, static_cast<std::size_t>(bytes));
  }
  return {};
}

Result<> Composition::reduce() {
  const std::int64_t bytes = x_.elements * width();
  const bool root_here = is_here(x_.root);
  if (!sliced()) {
    if (root_here) return gather_and_sum(0, bytes, out(x_.root));
    for (const std::int32_t m : here_) send(process(x_.root), m, in(m), bytes);
    return move();
  }
  // Every process sums its slice, in the order of the members, and sends it to the root.
  send_slices();
  const auto [begin, end] = slice(self_);
  std::byte* sum = root_here ? out(x_.root) + begin : scratch(end - begin);
  const Result<> summed = gather_and_sum(begin, end, sum);
  if (!summed) return summed;
  for (const std::int32_t p : others_) {
    if (root_here) receive(p, members(), out(x_.root) + slice(p).begin, slice(p).bytes());
  }
  if (!root_here) send(process(x_.root), members(), sum, end - begin);
  return move();
}

Result<> Composition::gather() {
  for (std::int32_t m = 0; m < members(); ++m) {
    if (is_here(x_.root) && !is_here(m)) receive(process(m), m, out(x_.root) + m * part(), part());
    if (!is_here(x_.root) && is_here(m)) send(process(x_.root), m, in(m), part());
  }
  const Result<> moved = move();
  if (!moved || !is_here(x_.root)) return moved;
  for (const std::int32_t m : here_) {
    std::byte* to = out(x_.root) + m * part();
    if (to != in(m)) std::memcpy(to, in(m), static_cast<std::size_t>(part()));
  }
  return {};
}

Result<> Composition::scatter() {
  for (std::int32_t m = 0; m < members(); ++m) {
    if (is_here(x_.root) && !is_here(m)) send(process(m), m, in(x_.root) + m * part(), part());
    if (!is_here(x_.root) && is_here(m)) receive(process(x_.root), m, out(m), part());
  }
  const Result<> moved = move();
  if (!moved || !is_here(x_.root)) return moved;
  for (const std::int32_t m : here_) {
    const std::byte* from = in(x_.root) + m * part();
    if (out(m) != from) std::memcpy(out(m), from, static_cast<std::size_t>(part()));
  }
  return {};
}

// Parts may be unequal (Contribution); who is not here knows what it sends.
Result<> Composition::all_to_all() {
  for (const std::int32_t m : here_) {
    const Contribution& mine = x_.contributions[static_cast<std::size_t>(m)];
    if (mine.sends != nullptr) {
      unequal_parts(m, mine);
      continue;
    }
    for (std::int32_t k = 0; k < members(); ++k) {
      if (is_here(k)) {
        std::memcpy(out(m) + k * part(), in(k) + m * part(), static_cast<std::size_t>(part()));
      } else {
        send(process(k), message(m, k), in(m) + k * part(), part());
        receive(process(k), message(k, m), out(m) + k * part(), part());
      }
    }
  }
  return move();
}

void Composition::unequal_parts(std::int32_t m, const Contribution& mine) {
  std::byte *from = in(m), *to = out(m);
  for (std::int32_t k = 0; k < members(); ++k) {
    const std::int64_t sent = mine.sends[k] * width(), received = mine.receives[k] * width();
    if (is_here(k)) {
      const std::int64_t* theirs = x_.contributions[static_cast<std::size_t>(k)].sends;
      const std::int64_t before = std::accumulate(theirs, theirs + m, std::int64_t{0}) * width();
      if (received > 0) std::memcpy(to, in(k) + before, static_cast<std::size_t>(received));
    } else {
      send(process(k), message(m, k), from, sent);
      receive(process(k), message(k, m), to, received);
    }
    from += sent;
    to += received;
  }
}

Result<> Composition::shift() {
  const std::int64_t bytes = x_.elements * width();
  for (const std::int32_t m : here_) {
    const std::int32_t next = (m + 1) % members(), before = (m + members() - 1) % members();
    if (is_here(next)) {
      std::memcpy(out(next), in(m), static_cast<std::size_t>(bytes));
    } else {
      send(process(next), m, in(m), bytes);
    }
    if (!is_here(before)) receive(process(before), before, out(m), bytes);
  }
  return move();
}

Result<> Composition::perform() {
  const auto most = static_cast<std::int64_t>(members());
  if (most >= kMessages ||
      static_cast<std::int64_t>(here_.size()) * static_cast<std::int64_t>(here_.size()) >
          kMessages) {
    return Error{"a group of " + std::to_string(most) + " ranks is too large"};
  }
  if (others_.empty()) {
    exec::perform(x_);
    return {};
  }
  switch (x_.kind) {
    case OpKind::AllReduce:
      return all_reduce();
    case OpKind::ReduceScatter:
      return reduce_scatter();
    case OpKind::AllGather:
    case OpKind::Unshard:
      return all_gather();
    case OpKind::Broadcast:
      return broadcast();
    case OpKind::Reduce:
      return reduce();
    case OpKind::Gather:
      return gather();
    case OpKind::Scatter:
      return scatter();
    case OpKind::AllToAll:
      return all_to_all();
    case OpKind::Send:
      return shift();
    default:
      return Error{"no collective"};
  }
}

}  // namespace

std::int64_t scratch_bytes(OpKind kind, std::int64_t bytes, std::int32_t members, std::int32_t here,
                           std::int32_t processes) {
  const std::int64_t away = members - here;
  if (processes < 2 || away == 0) return 0;
  const std::int64_t slice = (bytes + processes - 1) / processes;
  switch (kind) {
    case OpKind::AllReduce:
      return away * (bytes <= kUncutBytes || members == 2 ? bytes : slice);
    case OpKind::ReduceScatter:
      return here * away * (bytes / members);
    case OpKind::Reduce:  // who is not the root has its own sum too
      return bytes > kUncutBytes && processes > 2 ? (away + 1) * slice : away * bytes;
    default:
      return 0;
  }
}

Result<> compose(const Exchange& exchange, std::int32_t process, std::int32_t ranks_per_process,
                 const Move& move) {
  return Composition(exchange, process, ranks_per_process, move).perform();
}

}  // namespace rehearse::exec
