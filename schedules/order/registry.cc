// SPDX-License-Identifier: Apache-2.0
#include "schedules/order/registry.h"

#include <algorithm>
#include <utility>

#include "schedules/order/orders.h"
#include "schedules/order/weave.h"
#include "schedules/planner/planner.h"

namespace rehearse {
namespace {

using enum ChunkRule;

constexpr std::int32_t kDefaultChunks = 2, kDefaultSlices = 4;  // as docs/scenario.md says

constexpr std::array kTable{
    ScheduleInfo{
        .name = "none", .aliases = {"single"}, .one_stage = true, .generate = order::naive},
    ScheduleInfo{.name = "naive",
                 .aliases = {"naive_model_parallel"},
                 .serial = true,
                 .dominated = true,
                 .generate = order::naive},
    ScheduleInfo{.name = "gpipe",
                 .aliases = {"afab", "all_forward_all_backward"},
                 .dominated = true,
                 .growth = Growth::Otherwise,
                 .generate = order::gpipe},
    ScheduleInfo{.name = "1f1b",
                 .aliases = {"pipedream_flush", "dapple", "one_f_one_b"},
                 .generate = order::one_f_one_b},
    ScheduleInfo{.name = "eager_1f1b",
                 .aliases = {"1f1b_eager", "overlap_friendly_1f1b"},
                 .generate = order::eager_one_f_one_b},
    ScheduleInfo{.name = "interleaved_1f1b",
                 .aliases = {"interleaved", "vpp", "1f1b_i", "interleaved1f1b", "1f1b_interleaved"},
                 .chunks = Many,
                 .grouped = true,
                 .extra_warmup = true,
                 .pairing = Pairing::Asked,
                 .growth = Growth::ByGroup,
                 .generate = order::interleaved_one_f_one_b},
    ScheduleInfo{.name = "looped_bfs",
                 .aliases = {"loopedbfs", "breadth_first", "bfs"},
                 .chunks = Many,
                 .growth = Growth::Otherwise,
                 .generate = order::looped_breadth_first},
    ScheduleInfo{.name = "zb_h1",
                 .aliases = {"zbh1", "zero_bubble_h1"},
                 .splits_backward = true,
                 .generate = order::zero_bubble_h1},
    ScheduleInfo{.name = "zb_h2",
                 .aliases = {"zbh2", "zero_bubble_h2"},
                 .splits_backward = true,
                 .generate = order::zero_bubble_h2},
    ScheduleInfo{.name = "zb_1p",
                 .aliases = {"zb1", "zero_bubble_1p"},
                 .splits_backward = true,
                 .planned = true,
                 .default_memory = 1,
                 .growth = Growth::Otherwise,
                 .generate = order::zero_bubble_1p},
    ScheduleInfo{.name = "zb_2p",
                 .aliases = {"zb2p", "zb2", "zero_bubble_2p"},
                 .splits_backward = true,
                 .planned = true,
                 .default_memory = 2,
                 .growth = Growth::Otherwise,
                 .generate = order::zero_bubble_2p},
    ScheduleInfo{.name = "zb_v",
                 .aliases = {"zbv", "zero_bubble_v", "zbvzerobubble"},
                 .chunks = V,
                 .splits_backward = true,
                 .generate = order::zero_bubble_v},
    ScheduleInfo{.name = "v_half",
                 .aliases = {"vhalf"},
                 .chunks = V,
                 .splits_backward = true,
                 .generate = order::v_half,
                 .growing = order::v_half_growing},
    ScheduleInfo{.name = "v_min",
                 .aliases = {"vmin"},
                 .chunks = V,
                 .splits_backward = true,
                 .generate = order::v_min},
    ScheduleInfo{.name = "1f1b_v",
                 .aliases = {"1f1bv", "v_1f1b"},
                 .chunks = V,
                 .generate = order::one_f_one_b_v,
                 .growing = order::one_f_one_b_v_growing},
    ScheduleInfo{.name = "dualpipe",
                 .aliases = {"dual_pipe"},
                 .chunks = Bidirectional,
                 .splits_backward = true,
                 .pairing = Pairing::Always,
                 .even_positions = true,
                 .even_microbatches = true,
                 .least_rounds = 2,
                 .growth = Growth::ByTwo,
                 .generate = order::dual_pipe},
    ScheduleInfo{.name = "dualpipev",
                 .aliases = {"dualpipe_v", "dual_pipe_v"},
                 .chunks = V,
                 .splits_backward = true,
                 .pairing = Pairing::Always,
                 .least_rounds = 2,
                 .generate = order::dual_pipe_v},
    ScheduleInfo{.name = "chimera",
                 .chunks = Bidirectional,
                 .even_positions = true,
                 .even_microbatches = true,
                 .least_rounds = 1,
                 .growth = Growth::ByTwo,
                 .generate = order::chimera},
    ScheduleInfo{.name = "chimera_forward_doubling",
                 .chunks = Bidirectional,
                 .asked_only = true,
                 .even_positions = true,
                 .even_microbatches = true,
                 .least_rounds = 2,
                 .generate = order::chimera_doubled,
                 .growing = order::chimera_doubled_growing},
    ScheduleInfo{.name = "hanayo",
                 .aliases = {"wave", "waves"},
                 .chunks = Waves,
                 .asked_only = true,
                 .generate = order::hanayo,
                 .growing = order::hanayo_growing},
    ScheduleInfo{.name = "bitpipe",
                 .aliases = {"bit_pipe"},
                 .chunks = BidirectionalV,
                 .asked_only = true,
                 .even_positions = true,
                 .even_microbatches = true,
                 .least_rounds = 1,
                 .generate = order::bitpipe,
                 .growing = order::bitpipe_growing},
    ScheduleInfo{.name = "interleaved_zb1p",
                 .aliases = {"zb1p", "interleaved_zero_bubble", "interleavedzerobubble"},
                 .chunks = Many,
                 .splits_backward = true,
                 .grouped = true,
                 .growth = Growth::ByGroup,
                 .generate = order::interleaved_zero_bubble},
    ScheduleInfo{.name = "auto",
                 .aliases = {"automatic", "best"},
                 .chunks = Any,
                 .splits_backward = true,
                 .planned = true,
                 .default_memory = 1,
                 .growth = Growth::Otherwise,
                 .generate = order::automatic},
    ScheduleInfo{.name = "seq_1f1b",
                 .aliases = {"seq1f1b", "sequence_1f1b"},
                 .sliced = true,
                 .generate = order::sequence_one_f_one_b},
    ScheduleInfo{.name = "seq_zb_h1",
                 .aliases = {"seq_zbh1", "seq1f1b_zbh1", "sequence_zero_bubble_h1"},
                 .splits_backward = true,
                 .sliced = true,
                 .generate = order::sequence_zero_bubble_h1},
};

// "ZB-H1" and "Interleaved 1F1B" are spelled like the names: lower case, `_` between words.
std::string normal_spelling(std::string_view name) {
  std::string text;
  for (const char c : name) {
    if (c >= 'A' && c <= 'Z') {
      text += static_cast<char>(c - 'A' + 'a');
    } else {
      text += c == '-' || c == ' ' ? '_' : c;
    }
  }
  return text;
}

std::size_t edits(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replace = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = std::exchange(row[j], std::min({row[j] + 1, row[j - 1] + 1, replace}));
    }
  }
  return row[b.size()];
}

std::string text(std::int64_t number) {
  return std::to_string(number);
}

Error wrong(std::string_view key, const std::string& reason) {
  return {std::string(key) + ": " + reason};
}

Result<> check_counts(const ScheduleInfo& info, const ScheduleShape& shape) {
  const std::int32_t p = shape.positions, m = shape.microbatches;
  const std::string name(info.name);
  if (p < 1) return wrong("stages", text(p) + " is less than 1");
  if (m < 1) return wrong("microbatches", text(m) + " is less than 1");
  if (shape.chunks < 0) return wrong("chunks", text(shape.chunks) + " is less than 1");
  if (p == 1) return {};
  if (info.one_stage) return wrong("stages", "\"" + name + "\" has one stage, not " + text(p));
  if (info.even_positions && p % 2 != 0) {
    return wrong("stages", name + " needs an even number, not " + text(p));
  }
  if (info.even_microbatches && m % 2 != 0) {
    return wrong("microbatches", name + " needs an even number, not " + text(m));
  }
  const std::int64_t least = std::int64_t{info.least_rounds} * p;
  if (m < least) {
    return wrong("microbatches", name + " needs at least " + text(info.least_rounds) +
                                     " per position (" + text(least) + "), not " + text(m));
  }
  if (info.rounds && m % p != 0) {
    return wrong("microbatches",
                 name + " needs a multiple of the " + text(p) + " positions, not " + text(m));
  }
  return {};
}

// Orders that are searched for, and how many rules are tried for each; zb_v only with fewer than 2p
// - 1 micro-batches, and shifts each of its 24 eight times.
struct Searched {
  Result<Schedule> (*generate)(const ScheduleShape& shape);
  std::int32_t rules,
      rounds;  // rounds: searched with fewer than rounds * p - 1 micro-batches; 0: always
};
constexpr std::array kSearched{Searched{order::zero_bubble_1p, 20, 0},
                               Searched{order::zero_bubble_2p, 20, 0},
                               Searched{order::v_half, 6, 0}, Searched{order::v_min, 3, 0},
                               Searched{order::zero_bubble_v, 24 * 9, 2}};

// Minutes of search are refused before they begin.
Result<> check_search(const ScheduleInfo& info, const ScheduleShape& shape) {
  const auto row = std::ranges::find(kSearched, info.generate, &Searched::generate);
  if (row == kSearched.end()) return {};
  const std::int32_t p = shape.positions, m = shape.microbatches;
  if (row->rounds > 0 && m >= std::int64_t{row->rounds} * p - 1) return {};
  const std::int32_t chunks = std::max(1, shape.chunks);
  const std::int32_t finalists = planner_finalists(std::int64_t{p} * chunks, m);
  const double steps = planner_steps(row->rules, finalists, p, chunks, m);
  if (steps <= kMostPlannerSteps) return {};
  return wrong("microbatches",
               std::string(info.name) + " is searched for: with " + text(m) + " on " + text(p) +
                   " positions that takes " + text(static_cast<std::int64_t>(steps * 1e-6)) +
                   " million steps, more than " +
                   text(static_cast<std::int64_t>(kMostPlannerSteps * 1e-6)) + " million");
}

Result<> check_group(std::int32_t p, std::int32_t m, std::int32_t n) {
  if (n == std::min(m, default_group_size(p, m))) return {};
  if (n < p || n > m) {
    return wrong("group_size", text(n) + " is not between " + text(p) + " (positions) and " +
                                   text(m) + " (micro-batches)");
  }
  if (m % n != 0 && m % n < p) {
    return wrong("group_size", text(n) + " leaves a last group of " + text(m % n) +
                                   " micro-batches, fewer than " + text(p) + " positions");
  }
  return {};
}

// The generator and its arguments, as files and reports quote it.
std::string name_of(const ScheduleInfo& info, const ScheduleShape& shape) {
  std::string name(info.name);
  name += "(p=" + text(shape.positions) + ",m=" + text(shape.microbatches);
  if (info.chunks == Many || info.chunks == Waves) name += ",v=" + text(shape.chunks);
  if (info.grouped) name += ",N=" + text(shape.group_size);
  if (shape.extra_warmup > 0) name += ",extra_warmup=" + text(shape.extra_warmup);
  if (shape.pairs) name += ",pairs";
  if (info.sliced) name += ",slices=" + text(shape.slices);
  if (info.planned) {
    name += ",limit=" + std::to_string(shape.memory_limit);
    name.erase(name.find_last_not_of('0') + 1);  // 1.500000 is 1.5, 2.000000 is 2
    if (name.back() == '.') name.pop_back();
  }
  return name + ")";
}

Schedule named(Schedule schedule, const ScheduleInfo& info, const ScheduleShape& shape) {
  schedule.microbatches = shape.microbatches;
  if (schedule.name.empty()) schedule.name = name_of(info, shape);
  return schedule;
}

// One position: its chunks in order and back, one micro-batch after another.
Schedule one_position(const ScheduleInfo& info, const ScheduleShape& shape) {
  Schedule schedule;
  schedule.placement = placement_of(info, shape);
  const std::int32_t stages = schedule.placement.stages();
  for (Microbatch b{0}; b.value < shape.microbatches; ++b.value) {
    for (Stage stage{0}; stage.value < stages; ++stage.value) {
      schedule.ops.push_back(compute_op(OpKind::Forward, stage, b));
    }
    for (Stage stage{stages - 1}; stage.value >= 0; --stage.value) {
      if (info.splits_backward) {
        schedule.ops.push_back(compute_op(OpKind::InputGradient, stage, b));
        schedule.ops.push_back(compute_op(OpKind::WeightGradient, stage, b));
      } else {
        schedule.ops.push_back(compute_op(OpKind::Backward, stage, b));
      }
    }
  }
  schedule.end_row();
  return schedule;
}

// One position without chunks of its own, whatever the schedule's name.
bool alone(const ScheduleInfo& info, const ScheduleShape& shape) {
  const bool looped = (info.chunks == Many || info.chunks == Any) && shape.chunks > 1;
  return shape.positions == 1 && !looped;
}

std::int32_t repeated_of(Growth growth, const ScheduleShape& shape) {
  switch (growth) {
    case Growth::ByOne:
      return 1;
    case Growth::ByTwo:
      return 2;
    case Growth::ByGroup:
      return shape.group_size;
    case Growth::Otherwise:
      break;
  }
  return 0;
}

}  // namespace

std::span<const ScheduleInfo> schedule_table() {
  return kTable;
}

const ScheduleInfo* find_schedule(std::string_view name) {
  const std::string normal = normal_spelling(name);
  for (const ScheduleInfo& info : kTable) {
    if (info.name == normal) return &info;
    if (!normal.empty() && std::ranges::find(info.aliases, normal) != info.aliases.end()) {
      return &info;
    }
  }
  return nullptr;
}

std::string unknown_schedule(std::string_view name, const std::string& shown) {
  const std::string normal = normal_spelling(name);
  std::string_view nearest;
  std::string all;
  std::size_t fewest = normal.size() / 2 + 1;
  for (const ScheduleInfo& info : kTable) {
    all += (all.empty() ? "" : ", ") + std::string(info.name);
    const std::size_t distance = edits(normal, info.name);
    if (distance < fewest) {
      fewest = distance;
      nearest = info.name;
    }
  }
  return "unknown schedule " + shown +
         (nearest.empty() ? ", known are " + all
                          : ", the nearest known one is " + std::string(nearest));
}

std::int32_t default_group_size(std::int32_t positions, std::int32_t microbatches) {
  if (microbatches < positions) return microbatches;
  std::int32_t n = positions;
  while (microbatches % n != 0 && microbatches % n < positions) ++n;
  return n;
}

Result<ScheduleShape> resolve_shape(const ScheduleInfo& info, const ScheduleShape& shape) {
  if (Result<> counts = check_counts(info, shape); !counts) return counts.error();
  ScheduleShape full = shape;
  const std::string name(info.name);
  switch (info.chunks) {
    case Many:
      if (full.chunks == 0) full.chunks = kDefaultChunks;
      break;
    case Waves:
      if (full.chunks == 0) full.chunks = kDefaultChunks;
      if (full.positions > 1 && full.chunks % 2 != 0) {
        return wrong("chunks",
                     name + " needs an even number, two a wave, not " + text(full.chunks));
      }
      break;
    case V:
    case BidirectionalV:
      if (full.chunks > 2) return wrong("chunks", name + " has 2, not " + text(full.chunks));
      full.chunks = 2;
      break;
    case Any:
      break;
    case One:
    case Bidirectional:
      if (full.chunks > 1) return wrong("chunks", name + " has 1, not " + text(full.chunks));
      full.chunks = 1;
      break;
  }
  if (info.grouped) {
    if (full.group_size == 0) {
      full.group_size = default_group_size(full.positions, full.microbatches);
    }
    if (Result<> group = check_group(full.positions, full.microbatches, full.group_size); !group) {
      return group.error();
    }
  }
  if (info.pairing == Pairing::Always) full.pairs = false;  // no need to say it
  if (full.pairs && (info.pairing == Pairing::Never || full.extra_warmup < 1)) {
    return wrong("pairs", info.pairing == Pairing::Never
                              ? name + " has no pairs of a forward and a backward"
                              : "extra_warmup must be at least 1: else a backward waits for the "
                                "forward beside it");
  }
  if (full.extra_warmup < 0) {
    return wrong("extra_warmup", text(full.extra_warmup) + " is less than 0");
  }
  if (info.planned) {
    if (full.memory_limit == 0) full.memory_limit = info.default_memory;
    if (!(full.memory_limit > 0) || full.memory_limit > 1e6) {
      return wrong("memory_limit", "it must be a number above 0");
    }
  }
  if (Result<> search = check_search(info, full); !search) return search.error();
  if (info.sliced) {
    if (full.slices == 0) full.slices = kDefaultSlices;
    if (full.slices < 1 || full.slices > 127) {
      return wrong("slices", text(full.slices) + " is not between 1 and 127");
    }
  } else if (info.chunks != Any) {
    full.slices = 1;
  }
  return full;
}

Growing growing_of(const ScheduleInfo& info, const ScheduleShape& shape) {
  const bool one_by_one = alone(info, shape);
  if (info.growing != nullptr && !one_by_one) {
    Growing growing = info.growing(shape);
    if (growing.repeated == 0) return {};
    growing.with = [&info, shape,
                    with = std::move(growing.with)](std::int32_t microbatches) -> Result<Schedule> {
      Result<Schedule> made = with(microbatches);
      if (!made) return made;
      ScheduleShape fewer = shape;
      fewer.microbatches = microbatches;
      return named(std::move(made).value(), info, fewer);
    };
    return growing;
  }
  const std::int32_t repeated = one_by_one ? 1 : repeated_of(info.growth, shape);
  if (repeated == 0) return {};
  return {.repeated = repeated,
          .least = 2 * shape.positions,
          .with = [name = info.name, shape](std::int32_t microbatches) {
            ScheduleShape fewer = shape;  // with the group size of the whole
            fewer.microbatches = microbatches;
            return generate(name, fewer);
          }};
}

Placement placement_of(const ScheduleInfo& info, const ScheduleShape& shape) {
  const std::int32_t p = shape.positions, v = std::max(1, shape.chunks);
  switch (info.chunks) {
    case One:
      return loop_placement(p, 1);
    case Bidirectional:
      return p == 1 ? loop_placement(1, 1) : bidirectional_placement(p, shape.microbatches / 2);
    case V:
      return p == 1 ? loop_placement(1, v) : v_placement(p);
    case Waves:
      return wave_placement(p, v);
    case BidirectionalV:
      return p == 1 ? loop_placement(1, v) : mirrored(v_placement(p), shape.microbatches / 2);
    case Many:
    case Any:
      break;
  }
  return loop_placement(p, v);
}

Result<Schedule> generate(std::string_view name, const ScheduleShape& shape) {
  const ScheduleInfo* info = find_schedule(name);
  if (info == nullptr) {
    return wrong("schedule", unknown_schedule(name, "\"" + std::string(name) + "\""));
  }
  Result<ScheduleShape> full = resolve_shape(*info, shape);
  if (!full) return full.error();
  const bool one_by_one = alone(*info, full.value());
  if (one_by_one && info->planned && full.value().memory_limit < 1) {
    return Error{.message = "memory_limit: one micro-batch needs 1, not " +
                            std::to_string(full.value().memory_limit),
                 .infeasible = true};
  }
  if (one_by_one && !info->sliced) {
    return named(one_position(*info, full.value()), *info, full.value());
  }
  Result<Schedule> made = info->generate(full.value());
  if (!made) return made;
  return named(std::move(made).value(), *info, full.value());
}

std::int32_t visited_chunks(const Schedule& schedule) {
  const Placement& placement = schedule.placement;
  return std::max(1, placement.stages() / std::max(1, placement.positions));
}

}  // namespace rehearse
