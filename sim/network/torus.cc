// SPDX-License-Identifier: Apache-2.0
#include "sim/network/torus.h"

#include <algorithm>

namespace rehearse::sim {
namespace {

// Which way round from one coordinate of an axis to another.
bool goes_forward(const TorusAxis& axis, std::int32_t from, std::int32_t to) {
  if (axis.open) return to > from;
  const std::int32_t ahead = (to - from + axis.size) % axis.size;
  return 2 * ahead == axis.size ? from % 2 == 0 : 2 * ahead < axis.size;
}

// Calls `pass` with every coordinate that is left on the way, and the direction.
template <class Pass>
void along(const TorusAxis& axis, std::int32_t from, std::int32_t to, Pass pass) {
  const bool forward = goes_forward(axis, from, to);
  for (std::int32_t at = from; at != to;) {
    pass(at, forward);
    at = (at + (forward ? 1 : axis.size - 1)) % axis.size;
  }
}

// What one line along an axis carries: its two directions, by the coordinate that is left.
struct TorusLine {
  std::vector<double> forward, back;
  std::int32_t longest = 0;  // links of the longest way

  explicit TorusLine(const TorusAxis& axis)
      : forward(static_cast<std::size_t>(axis.size)), back(forward) {}
  void add(const TorusAxis& axis, std::int32_t from, std::int32_t to, double bytes) {
    std::int32_t links = 0;
    along(axis, from, to, [&](std::int32_t at, bool ahead) {
      (ahead ? forward : back)[static_cast<std::size_t>(at)] += bytes;
      ++links;
    });
    longest = std::max(longest, links);
  }
  double busiest() const {
    return std::max(*std::ranges::max_element(forward), *std::ranges::max_element(back));
  }
};

// A ring through the coordinates, half of whose data goes the one way round and half the other.
TorusLine ring_line(const TorusAxis& axis, std::span<const std::int32_t> through) {
  TorusLine line(axis);
  for (std::size_t i = 0; i < through.size(); ++i) {
    const std::int32_t a = through[i], b = through[(i + 1) % through.size()];
    line.add(axis, a, b, .5);
    line.add(axis, b, a, .5);
  }
  return line;
}

TorusLine pairs_line(const TorusAxis& axis, std::span<const std::int32_t> among) {
  TorusLine line(axis);
  for (const std::int32_t a : among) {
    for (const std::int32_t b : among) line.add(axis, a, b, 1);
  }
  return line;
}

}  // namespace

Torus::Torus(std::span<const TorusAxis> axes) : axes_(axes.begin(), axes.end()) {
  for (const TorusAxis& axis : axes_) {
    stride_.push_back(chips_);
    chips_ *= axis.size;
  }
}

std::vector<std::int32_t> Torus::route(std::int32_t from, std::int32_t to) const {
  std::vector<std::int32_t> links;
  std::int32_t chip = from;
  for (std::int32_t d = 0; d < num_axes(); ++d) {
    const std::int32_t end = coordinate(to, d);
    along(axis(d), coordinate(chip, d), end, [&](std::int32_t at, bool forward) {
      links.push_back(link(with_coordinate(chip, d, at), d, forward));
    });
    chip = with_coordinate(chip, d, end);
  }
  return links;
}

std::vector<std::int32_t> Torus::coordinates(std::span<const std::int32_t> members,
                                             std::int32_t d) const {
  std::vector<std::int32_t> all;
  for (const std::int32_t chip : members) all.push_back(coordinate(chip, d));
  std::ranges::sort(all);
  all.erase(std::unique(all.begin(), all.end()), all.end());
  return all;
}

std::vector<std::int32_t> Torus::block_of(std::span<const std::int32_t> members) const {
  std::vector<std::int32_t> sizes;
  std::size_t places = 1;
  for (std::int32_t d = 0; d < num_axes(); ++d) {
    const std::size_t size = coordinates(members, d).size();
    sizes.push_back(static_cast<std::int32_t>(size));
    places *= size;
  }
  if (places != members.size()) sizes.clear();
  return sizes;
}

TorusGroup Torus::group(std::span<const std::int32_t> members, std::int32_t ranks) const {
  if (members.size() < 2) return {};
  TorusGroup made = block_of(members).empty() ? scattered(members, ranks) : block(members, ranks);
  // To the next of the group, and to the first where all of it is here.
  const std::size_t m = members.size();
  for (std::size_t i = 0; i + 1 < m || (i < m && static_cast<std::int32_t>(m) == ranks); ++i) {
    const std::vector<std::int32_t> links = route(members[i], members[(i + 1) % m]);
    made.next_hops = std::max(made.next_hops, static_cast<std::int32_t>(links.size()));
    for (const std::int32_t passed : links) made.loads.push_back({.link = passed, .next = 1});
  }
  return made;
}

TorusGroup Torus::block(std::span<const std::int32_t> members, std::int32_t ranks) const {
  struct Along {
    std::int32_t d;
    std::vector<std::int32_t> at;
    TorusLine ring, pairs;
    double carries;    // [B/s] that a member may send around its ring
    double share = 0;  // of what a member sends around all rings, along this axis
  };
  std::vector<Along> spans;
  double carried = 0;
  TorusGroup made;
  for (std::int32_t d = 0; d < num_axes(); ++d) {
    const std::vector<std::int32_t> at = coordinates(members, d);
    if (at.size() < 2) continue;
    const TorusLine ring = ring_line(axis(d), at), pairs = pairs_line(axis(d), at);
    const double carries = axis(d).bandwidth_per_link.value / ring.busiest();
    carried += carries;
    made.turn_hops += (static_cast<std::int32_t>(at.size()) - 1) * ring.longest;
    made.reach_hops += pairs.longest;
    spans.push_back({d, at, ring, pairs, carries});
  }
  // Where a member's part begins along axis s, a_s - 1 of a_s parts move there, and of each of the
  // a_s parts that are left the same along the next axis; all together (m - 1) / m.
  const auto m = static_cast<double>(members.size());
  for (std::size_t s = 0; s < spans.size(); ++s) {
    double parts = 1;
    for (std::size_t k = 0; k < spans.size(); ++k) {
      Along& then = spans[(s + k) % spans.size()];
      const auto a = static_cast<double>(then.at.size());
      then.share += spans[s].carries / carried * (a - 1) / (parts * a) * m / (m - 1);
      parts *= a;
    }
  }
  for (const Along& span : spans) {
    const double ways = m / static_cast<double>(span.at.size());  // pairs that move there, per line
    for (const std::int32_t chip : members) {
      if (coordinate(chip, span.d) != span.at.front()) continue;  // one of each line
      for (std::int32_t x = 0; x < axis(span.d).size; ++x) {
        const auto i = static_cast<std::size_t>(x);
        for (const bool forward : {true, false}) {
          const double ring = (forward ? span.ring.forward : span.ring.back)[i];
          const double pairs = (forward ? span.pairs.forward : span.pairs.back)[i];
          if (ring == 0 && pairs == 0) continue;
          made.loads.push_back({.link = link(with_coordinate(chip, span.d, x), span.d, forward),
                                .ring = span.share * ring,
                                .pairwise = pairs * ways / ranks});
        }
      }
    }
  }
  return made;
}

TorusGroup Torus::scattered(std::span<const std::int32_t> members, std::int32_t ranks) const {
  TorusGroup made;
  std::int32_t longest = 0;  // between neighbours of the ring
  const std::size_t m = members.size();
  for (std::size_t i = 0; i < m; ++i) {
    for (std::size_t j = 0; j < m; ++j) {
      if (i == j) continue;
      const std::vector<std::int32_t> links = route(members[i], members[j]);
      const auto hops = static_cast<std::int32_t>(links.size());
      made.reach_hops = std::max(made.reach_hops, hops);
      // Among two members each is the other's next one, and the one before.
      const double turns = (j == (i + 1) % m ? .5 : 0) + (i == (j + 1) % m ? .5 : 0);
      if (turns > 0) longest = std::max(longest, hops);
      for (const std::int32_t passed : links) {
        made.loads.push_back({.link = passed, .ring = turns, .pairwise = 1.0 / ranks});
      }
    }
  }
  made.turn_hops = static_cast<std::int32_t>(m - 1) * longest;
  return made;
}

std::int32_t Torus::shifted(std::int32_t chip, std::int32_t by) const {
  for (std::int32_t d = 0; d < num_axes(); ++d) {
    const std::int32_t to = (coordinate(chip, d) + coordinate(by, d)) % axis(d).size;
    chip = with_coordinate(chip, d, to);
  }
  return chip;
}

std::vector<std::int32_t> Torus::equal_links(std::span<const std::int32_t> content) const {
  std::vector<std::int32_t> equal(static_cast<std::size_t>(num_links()));
  for (std::int32_t own = 0; own < num_links(); ++own) equal[static_cast<std::size_t>(own)] = own;
  const std::int32_t of_chip = 2 * num_axes();
  std::vector<std::int32_t> to(static_cast<std::size_t>(chips_));
  for (std::int32_t by = 1; by < chips_; ++by) {
    bool keeps = true;
    for (std::int32_t d = 0; d < num_axes() && keeps; ++d) {
      keeps = !axis(d).open || coordinate(by, d) == 0;
    }
    for (std::size_t chip = 0; chip < to.size() && keeps; ++chip) {
      to[chip] = shifted(static_cast<std::int32_t>(chip), by);
      keeps = content[chip] == content[static_cast<std::size_t>(to[chip])];
    }
    if (!keeps) continue;
    for (std::int32_t own = 0; own < num_links(); ++own) {
      const std::int32_t chip = to[static_cast<std::size_t>(own / of_chip)];
      std::int32_t& least = equal[static_cast<std::size_t>(chip * of_chip + own % of_chip)];
      least = std::min(least, own);
    }
  }
  return equal;
}

}  // namespace rehearse::sim
