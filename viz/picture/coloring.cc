// SPDX-License-Identifier: Apache-2.0
#include "viz/picture/coloring.h"

#include <algorithm>
#include <cmath>

#include "viz/analysis/units_text.h"

namespace rehearse::viz {
namespace {

// Okabe and Ito's, and a dark grey, in an order in which neighbours differ in lightness too.
constexpr std::array<Color, 8> kHues{{{0, 114, 178},
                                      {240, 228, 66},
                                      {213, 94, 0},
                                      {86, 180, 233},
                                      {0, 158, 115},
                                      {230, 159, 0},
                                      {204, 121, 167},
                                      {90, 90, 96}}};
constexpr Color kNone{160, 160, 164};

// What a body's name says of its layer, but for the direction and what follows it: "layer (mamba2)
// F" is "mamba2", "layer (attention) with experts B" "attention with experts", "head F" "head".
std::string layer_word(std::string_view name) {
  for (const std::string_view direction : {" F", " B", " I", " W"}) {
    const std::size_t at = name.rfind(direction);
    if (at == std::string_view::npos) continue;
    const std::size_t behind = at + direction.size();
    if (behind == name.size() || name[behind] == ',') name = name.substr(0, at);
  }
  std::string word(name);
  const std::size_t open = word.find('('), close = word.find(')');
  if (open == std::string::npos || close == std::string::npos) return word;
  return word.substr(open + 1, close - open - 1) + word.substr(close + 1);
}

// Of all nodes one after the other; 0: no predicted times.
std::int64_t time_of(const Trace& trace, const TraceBody& body) {
  std::int64_t time = 0;
  for (std::int32_t i = body.node_begin; i < body.node_end; ++i) {
    const TraceNode& node = trace.nodes[static_cast<std::size_t>(i)];
    if (node.overlapped == 0 && node.time_ns > 0) time += node.time_ns;
  }
  return time;
}

Color mixed(Color a, Color b, double share) {  // share of b
  const auto mix = [share](std::uint8_t x, std::uint8_t y) {
    return static_cast<std::uint8_t>(std::lround(x + (y - x) * share));
  };
  return {mix(a.red, b.red), mix(a.green, b.green), mix(a.blue, b.blue)};
}
Color lighter(Color color, double share) {
  return mixed(color, {255, 255, 255}, share);
}
constexpr double kBackward = 0.3;  // so much lighter than forwards, where colours are not of kinds

// Differences fall into steps of 6.25 %, four to each side; slower is vermilion, faster blue.
constexpr std::int32_t kSteps = 4;
constexpr double kStep = 0.0625;
std::int32_t step_of(double error) {
  return std::clamp(static_cast<std::int32_t>(std::lround(error / kStep)), -kSteps, kSteps);
}
Color step_color(std::int32_t step) {
  constexpr Color kEqual{150, 150, 150}, kSlower{213, 94, 0}, kFaster{0, 114, 178};
  return mixed(kEqual, step > 0 ? kSlower : kFaster,
               static_cast<double>(std::abs(step)) / static_cast<double>(kSteps));
}
std::string step_name(std::int32_t step) {
  if (step == 0) return "equal (3 %)";
  std::string name = (step > 0 ? "+" : "-") + fixed_text(std::abs(step) * kStep * 100, 0) + " %";
  if (std::abs(step) == kSteps) name += " and more";
  return name;
}

bool has_stage(const TraceClass& c) {
  const OpClass op_class = traits(c.kind).op_class;
  return c.stage && (op_class == OpClass::Compute || op_class == OpClass::Transfer);
}

}  // namespace

Coloring::Coloring(const Trace& trace, ColorBy by, std::span<const std::int64_t> elsewhere)
    : trace_(&trace), by_(by), stages_(trace.rows.size()) {
  const auto n = static_cast<std::size_t>(trace.num_ops());
  for (std::size_t row = 0; row < stages_.size(); ++row) {
    std::vector<std::uint8_t> seen(trace.classes.size());
    std::vector<std::int32_t>& stages = stages_[row];
    for (auto i = static_cast<std::size_t>(trace.row_begin[row]);
         i < static_cast<std::size_t>(trace.row_begin[row + 1]); ++i) {
      std::uint8_t& known = seen[static_cast<std::size_t>(trace.op_class[i])];
      if (known != 0) continue;
      known = 1;
      const TraceClass& c = trace.class_of({static_cast<std::int32_t>(i)});
      if (traits(c.kind).op_class == OpClass::Compute && c.stage) stages.push_back(c.stage.value);
    }
    std::ranges::sort(stages);
    stages.erase(std::unique(stages.begin(), stages.end()), stages.end());
    most_chunks_ = std::max(most_chunks_, static_cast<std::int32_t>(stages.size()));
  }
  if (by == ColorBy::Kinds) return;
  classes_.assign(n, 0);
  const auto set = [&](const auto& class_of) {
    for (std::size_t row = 0; row < stages_.size(); ++row) {
      for (auto i = trace.row_begin[row]; i < trace.row_begin[row + 1]; ++i) {
        const OpId op{static_cast<std::int32_t>(i)};
        classes_[op.index()] = static_cast<Kind>(class_of(op, static_cast<std::int32_t>(row)));
      }
    }
  };
  const auto of_eight = [&](std::int32_t number) { return 1 + number % 8; };
  // "chunk 2"; of more than eight "chunk 2, 10", and so on; `name` says the first of them.
  const auto name_eight = [&](std::int32_t count, const auto& name, const auto& number) {
    for (std::int32_t i = 0; i < std::min(count, 8); ++i) {
      add(kHues[static_cast<std::size_t>(i)],
          name(i) + (i + 8 < count ? ", " + number(i + 8) : "") + (i + 16 < count ? " …" : ""),
          static_cast<char>('0' + i));
    }
  };
  const auto name_of = [&](std::int32_t row) { return row_name(trace, {row}); };
  const auto digits = [](std::int32_t number) { return std::to_string(number); };
  add(kNone, by == ColorBy::Difference ? "not in the other" : "neither", '-');
  switch (by) {
    case ColorBy::Kinds:
      break;
    case ColorBy::Chunk:
      name_eight(
          most_chunks_, [&](std::int32_t i) { return "chunk " + digits(i); }, digits);
      set([&](OpId op, std::int32_t) {
        return has_stage(trace.class_of(op)) ? of_eight(chunk_of(op)) : 0;
      });
      break;
    case ColorBy::Direction:
      by_direction();
      break;
    case ColorBy::Microbatch: {
      std::int32_t most = 0;
      for (const std::int32_t number : trace.microbatch) most = std::max(most, number + 1);
      name_eight(
          most, [&](std::int32_t i) { return "micro-batch " + digits(i); }, digits);
      set([&](OpId op, std::int32_t) {
        const std::int32_t number = trace.microbatch[op.index()];
        return number < 0 ? 0 : of_eight(number);
      });
      break;
    }
    case ColorBy::CostLevel:
      for (std::size_t level = 0; level < kCostLevelNames.size(); ++level) {
        constexpr std::array<std::size_t, 4> kHueOf{4, 3, 5, 2};  // from sure to unsure
        const std::string_view name = kCostLevelNames[level];
        add(kHues[kHueOf[level]], std::string(name), name[0]);
      }
      set([&](OpId op, std::int32_t) {
        const std::size_t level =
            trace.cost_level.empty() ? kCostLevelNames.size() : trace.cost_level[op.index()];
        return level < kCostLevelNames.size() ? static_cast<std::int32_t>(level) + 1 : 0;
      });
      break;
    case ColorBy::Rank:
      name_eight(trace.num_rows(), name_of, name_of);
      set([&](OpId, std::int32_t row) { return of_eight(row); });
      break;
    case ColorBy::Layer:
      by_layer();
      break;
    case ColorBy::Difference:
      for (std::int32_t step = -kSteps; step <= kSteps; ++step)
        add(step_color(step), step_name(step), step > 0 ? '+' : step < 0 ? '<' : '=');
      set([&](OpId op, std::int32_t) {
        const std::int64_t here = trace.end_ns[op.index()] - trace.start_ns[op.index()];
        const std::int64_t there = op.index() < elsewhere.size() ? elsewhere[op.index()] : -1;
        if (there < 0) return 0;
        const double error =
            there > 0 ? static_cast<double>(here) / static_cast<double>(there) - 1 : here > 0;
        return 1 + kSteps + step_of(error);
      });
      break;
  }
}

void Coloring::add(Color color, std::string name, char letter) {
  styles_.push_back({color, std::move(name), letter});
}

// Kinds of layers in the order in which bodies name them, seven at most; embedding and head have
// the eighth colour. A letter that another has is replaced by the next one of the word that nobody
// has.
void Coloring::by_layer() {
  constexpr std::string_view kEnds = "embedding, head";
  std::vector<std::string> words;
  const auto letter_of = [this](std::string_view word) {
    for (const char letter : word) {
      const char capital = letter >= 'a' && letter <= 'z' ? static_cast<char>(letter - 32) : letter;
      const bool free = std::ranges::none_of(
          styles_, [capital](const ClassStyle& style) { return style.letter == capital; });
      if (free && capital >= 'A' && capital <= 'Z') return capital;
    }
    return '+';
  };
  std::vector<Kind> of_body;
  for (const TraceBody& body : trace_->bodies) {
    std::string word =
        layer_word(body.name < 0 ? "" : trace_->strings[static_cast<std::size_t>(body.name)]);
    const bool end = word == "embedding" || word == "head";
    if (end) word = kEnds;
    auto known = std::ranges::find(words, word);
    if (known == words.end()) {
      const auto layers = words.size() - static_cast<std::size_t>(std::ranges::count(words, kEnds));
      if (!end && layers + 1 == kHues.size()) {
        of_body.push_back(0);
        continue;
      }
      const char letter = letter_of(word);
      add(end ? kHues.back() : kHues[layers], std::string(1, letter) + ": " + word, letter);
      words.push_back(std::move(word));
      known = words.end() - 1;
    }
    of_body.push_back(static_cast<Kind>(1 + (known - words.begin())));
  }
  stretches_.resize(trace_->classes.size());
  std::vector<Kind> of_class(trace_->classes.size());
  for (std::size_t c = 0; c < of_class.size() && !trace_->run_begin.empty(); ++c) {
    std::vector<std::int64_t> time(styles_.size());
    for (std::int32_t r = trace_->run_begin[c]; r < trace_->run_begin[c + 1]; ++r) {
      const TraceBodyRun& run = trace_->runs[static_cast<std::size_t>(r)];
      const auto body = static_cast<std::size_t>(run.body);
      const Stretch one{.of = of_body[body],
                        .time = run.count * time_of(*trace_, trace_->bodies[body])};
      time[one.of] += one.time;
      std::vector<Stretch>& all = stretches_[c];
      if (!all.empty() && all.back().of == one.of) {
        all.back().time += one.time;
      } else {
        all.push_back(one);
      }
    }
    of_class[c] = static_cast<Kind>(std::ranges::max_element(time) - time.begin());
  }
  for (std::size_t op = 0; op < classes_.size(); ++op) {
    classes_[op] = of_class[static_cast<std::size_t>(trace_->op_class[op])];
  }
}

std::vector<Coloring::Stripe> Coloring::stripes(OpId op) const {
  std::vector<Stripe> stripes;
  if (by_ != ColorBy::Layer) return stripes;
  const auto c = static_cast<std::size_t>(trace_->op_class[op.index()]);
  double sum = 0, before = 0;
  for (const Stretch& one : stretches_[c]) sum += static_cast<double>(one.time);
  if (sum == 0 || stretches_[c].size() < 2) return stripes;
  const bool backward = is_backward(trace_->class_of(op).kind);
  for (const Stretch& one : stretches_[c]) {
    before += static_cast<double>(one.time);
    const Color color = styles_[one.of].color;
    stripes.push_back({before / sum, backward ? lighter(color, kBackward) : color});
  }
  return stripes;
}

// Stages rise with the position where the next one lies on the next position, and fall where it
// lies on the one before.
void Coloring::by_direction() {
  add(kHues[0], "down the positions", 'D');
  add(kHues[5], "up the positions", 'U');
  const auto holds = [&](std::int32_t position, std::int32_t stage) {
    for (std::size_t row = 0; row < stages_.size(); ++row) {
      if (trace_->rows[row].position.value == position &&
          std::ranges::binary_search(stages_[row], stage)) {
        return true;
      }
    }
    return false;
  };
  for (std::size_t row = 0; row < stages_.size(); ++row) {
    const std::int32_t at = trace_->rows[row].position.value;
    std::vector<Kind> of_class(trace_->classes.size());
    for (std::size_t i = 0; i < of_class.size(); ++i) {
      const TraceClass& c = trace_->classes[i];
      if (!has_stage(c)) continue;
      const std::int32_t stage = c.stage.value;
      const bool down = holds(at + 1, stage + 1) || holds(at - 1, stage - 1);
      const bool up = holds(at - 1, stage + 1) || holds(at + 1, stage - 1);
      of_class[i] = down || !up ? 1 : 2;
    }
    for (auto i = static_cast<std::size_t>(trace_->row_begin[row]);
         i < static_cast<std::size_t>(trace_->row_begin[row + 1]); ++i) {
      classes_[i] = of_class[static_cast<std::size_t>(trace_->op_class[i])];
    }
  }
}

void Coloring::keep_only(std::span<const std::uint8_t> kept) {
  if (by_ == ColorBy::Kinds) {
    classes_.resize(kept.size());
    for (std::size_t i = 0; i < kept.size(); ++i)
      classes_[i] = kind_of(trace_->class_of({static_cast<std::int32_t>(i)}).kind);
  }
  for (std::size_t i = 0; i < kept.size(); ++i)
    if (kept[i] == 0) classes_[i] = kNotKept;
}

std::int32_t Coloring::chunk_of(OpId op) const {
  const std::vector<std::int32_t>& stages = stages_[trace_->row_of(op).index()];
  const auto found = std::ranges::lower_bound(stages, trace_->class_of(op).stage.value);
  return found == stages.end() ? 0 : static_cast<std::int32_t>(found - stages.begin());
}

KindStyle Coloring::style(Kind kind, Theme theme) const {
  if (kind == kNotKept) {
    const Color grey = mixed(palette(theme).lane, palette(theme).text, 0.14);
    return {.fill = grey, .ink = grey, .name = "not asked for"};
  }
  if (by_ == ColorBy::Kinds || is_idle(kind)) return style_of(kind, theme);
  if (kind >= styles_.size()) return {};  // no such class
  const ClassStyle& of = styles_[kind];
  return {.fill = of.color, .ink = of.color, .name = of.name};
}

// The lightest is still told from the background.
static constexpr double kLightest = 0.55;

Color Coloring::fill(OpId op, Kind kind, Theme theme) const {
  const Color color = style(kind, theme).fill;
  const TraceClass& c = trace_->class_of(op);
  if (by_ == ColorBy::Difference || kind == kNotKept) return color;
  if (by_ != ColorBy::Kinds) return is_backward(c.kind) ? lighter(color, kBackward) : color;
  if (!has_chunks() || !has_stage(c)) return shade(color, trace_->microbatch[op.index()]);
  return lighter(color, kLightest * chunk_of(op) / most_chunks_);
}

std::vector<KindStyle> Coloring::shades(Theme theme) const {
  std::vector<KindStyle> shades;
  if (by_ != ColorBy::Kinds || !has_chunks()) return shades;
  for (std::int32_t chunk = 0; chunk < most_chunks_; ++chunk) {
    const Color color =
        lighter(style_of(kind_of(OpKind::Forward), theme).fill, kLightest * chunk / most_chunks_);
    shades.push_back({.fill = color, .ink = color});
  }
  return shades;
}

}  // namespace rehearse::viz
