// SPDX-License-Identifier: Apache-2.0
#include "viz/window/session.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <tuple>

#include "viz/window/geometry.h"

namespace rehearse::viz {
namespace {

// What a compute op does, whoever timed it.
using OpSignature = std::tuple<std::int32_t, OpKind, std::int32_t, std::int32_t, std::int32_t>;

OpSignature signature_of(const Trace& trace, std::int32_t row, OpId op) {
  const TraceClass& c = trace.class_of(op);
  return {row, c.kind, c.stage.value, trace.microbatch[op.index()],
          c.segment_begin | c.segment_end << 16};
}
bool has_signature(const Trace& trace, OpId op) {
  return trace.class_of(op).stage && trace.microbatch[op.index()] >= 0 &&
         traits(trace.class_of(op).kind).op_class == OpClass::Compute;
}

template <class Visit>
void for_each_signed(const Trace& trace, Visit visit) {
  for (std::int32_t row = 0; row < trace.num_rows(); ++row) {
    for (std::int64_t i = trace.row_begin[static_cast<std::size_t>(row)];
         i < trace.row_begin[static_cast<std::size_t>(row) + 1]; ++i) {
      const OpId op{static_cast<std::int32_t>(i)};
      if (has_signature(trace, op)) visit(signature_of(trace, row, op), op);
    }
  }
}

// Per trace and op, the op of the other that does the same; empty: no op has one. Among several (a
// profile of several steps) the first.
std::vector<std::vector<OpId>> matched(const Trace& a, const Trace& b) {
  std::map<OpSignature, OpId> known;
  for_each_signed(a,
                  [&](const OpSignature& signature, OpId op) { known.try_emplace(signature, op); });
  std::vector<std::vector<OpId>> out{std::vector<OpId>(a.start_ns.size()),
                                     std::vector<OpId>(b.start_ns.size())};
  bool any = false;
  for_each_signed(b, [&](const OpSignature& signature, OpId op) {
    const auto found = known.find(signature);
    if (found == known.end() || out[0][found->second.index()]) return;
    out[0][found->second.index()] = op;
    out[1][op.index()] = found->second;
    any = true;
  });
  return any ? std::move(out) : std::vector<std::vector<OpId>>{};
}

}  // namespace

Document::Document(Trace trace) : trace_(std::make_unique<Trace>(std::move(trace))) {
  if (trace_->idle.empty()) attribute_idle(*trace_);
  index_ = std::make_unique<TraceIndex>(*trace_);
}

void Document::compare_with(std::vector<std::int64_t> elsewhere) {
  elsewhere_ = std::move(elsewhere);
}

const Document::Colored& Document::colored(ColorBy by) const {
  std::unique_ptr<Colored>& known = colored_[static_cast<std::size_t>(by)];
  if (known == nullptr) {
    known = std::make_unique<Colored>(Colored{.coloring = Coloring(*trace_, by, elsewhere_)});
    if (!known->coloring.classes().empty())
      known->own = std::make_unique<TraceIndex>(*trace_, known->coloring.classes());
    known->index = known->own != nullptr ? known->own.get() : index_.get();
  }
  return *known;
}

const Causality& Document::causality() const {
  if (causality_ == nullptr) causality_ = std::make_unique<Causality>(*trace_);
  return *causality_;
}

const CriticalPath& Document::critical() const {
  if (critical_ == nullptr) critical_ = std::make_unique<CriticalPath>(critical_path(*trace_));
  return *critical_;
}

const std::vector<Arrow>& Document::critical_arrows() const {
  if (critical_arrows_ == nullptr) {
    critical_arrows_ = std::make_unique<std::vector<Arrow>>(
        path_arrows(*trace_, causality(), critical().ops));
  }
  return *critical_arrows_;
}

std::optional<WhatIf> Document::what_if(OpId op) const {
  constexpr std::int32_t kMostOps = 1 << 20;  // a tenth of a second
  if (trace_->num_ops() > kMostOps) return {};
  if (retiming_ == nullptr) retiming_ = std::make_unique<Retiming>(*trace_, causality());
  if (!retiming_->possible()) return {};
  if (what_if_.first != op) {
    what_if_ = {op,
                {.alone = retiming_->step_if(op, WhatIf::kFactor),
                 .alike = retiming_->step_if_all_like(op, WhatIf::kFactor)}};
  }
  return what_if_.second;
}

const std::vector<KindStatistics>& Document::kinds() const {
  if (kinds_ == nullptr)
    kinds_ = std::make_unique<std::vector<KindStatistics>>(statistics(*trace_, 48));
  return *kinds_;
}

const MemoryCurve& Document::memory(std::int32_t row) const {
  memory_.resize(trace_->rows.size());
  std::unique_ptr<MemoryCurve>& curve = memory_[static_cast<std::size_t>(row)];
  if (curve == nullptr) curve = std::make_unique<MemoryCurve>(*trace_, RankClass{row});
  return *curve;
}

const LinkCurve& Document::link(std::int32_t link) const {
  links_.resize(trace_->links.size());
  std::unique_ptr<LinkCurve>& curve = links_[static_cast<std::size_t>(link)];
  if (curve == nullptr)
    curve = std::make_unique<LinkCurve>(*trace_, static_cast<std::size_t>(link));
  return *curve;
}

const std::vector<std::int32_t>& Document::loaded_links() const {
  if (loaded_links_ == nullptr) {
    loaded_links_ = std::make_unique<std::vector<std::int32_t>>();
    for (std::int32_t i = 0; i < static_cast<std::int32_t>(trace_->links.size()); ++i) {
      if (link(i).loaded()) loaded_links_->push_back(i);
    }
  }
  return *loaded_links_;
}

const std::vector<ArenaBlock>& Document::arena(std::int32_t row) const {
  arenas_.resize(trace_->rows.size());
  std::unique_ptr<std::vector<ArenaBlock>>& blocks = arenas_[static_cast<std::size_t>(row)];
  if (blocks == nullptr)
    blocks = std::make_unique<std::vector<ArenaBlock>>(arena_map(*trace_, RankClass{row}));
  return *blocks;
}

const std::vector<OpId>& Document::hits(const std::string& text) const {
  if (hits_.first == text) return hits_.second;
  hits_ = {text, {}};
  for (OpId op{0}; op.value < trace_->num_ops() && !text.empty(); ++op.value) {
    if (hits_.second.size() == kMostHits) break;
    if (op_name(*trace_, op).find(text) != std::string::npos) hits_.second.push_back(op);
  }
  return hits_.second;
}

const std::vector<LegendEntry>& Document::memory_parts() const {
  if (memory_parts_ == nullptr)
    memory_parts_ = std::make_unique<std::vector<LegendEntry>>(memory_legend(*trace_));
  return *memory_parts_;
}

Session::Session(std::vector<Document> documents) : documents_(std::move(documents)) {
  const Trace& first = documents_[0].trace();
  for (const Document& document : documents_) {
    longest_step_ = std::max(longest_step_, document.trace().step().value);
  }
  if (compares()) {
    const Trace& second = documents_[1].trace();
    same_schedule_ = first.num_ops() == second.num_ops() && first.num_rows() == second.num_rows() &&
                     first.schedule_hash == second.schedule_hash && !first.schedule_hash.empty();
    if (first.num_rows() == second.num_rows() &&
        first.schedule_hash.empty() != second.schedule_hash.empty()) {
      counterparts_ = matched(first, second);
    }
    if (corresponds()) {
      std::vector<std::int64_t> elsewhere;
      for (OpId op{0}; op.value < second.num_ops(); ++op.value) {
        const OpId same = counterpart({1, op});
        elsewhere.push_back(
            same ? first.end_ns[same.index()] - first.start_ns[same.index()] : -1);
      }
      documents_[1].compare_with(std::move(elsewhere));
    }
  }
  std::int64_t first_backward = 0, last_forward = first.step().value;
  for (std::int32_t row = 0; row < first.num_rows(); ++row) {
    std::int64_t backward = std::numeric_limits<std::int64_t>::max(), forward = 0;
    for (auto i = static_cast<std::size_t>(first.row_begin[static_cast<std::size_t>(row)]);
         i < static_cast<std::size_t>(first.row_begin[static_cast<std::size_t>(row) + 1]); ++i) {
      const OpKind kind = first.class_of({static_cast<std::int32_t>(i)}).kind;
      if (is_backward(kind)) backward = std::min(backward, first.start_ns[i] - first.begin.value);
      if (kind == OpKind::Forward) forward = std::max(forward, first.end_ns[i] - first.begin.value);
    }
    if (backward == std::numeric_limits<std::int64_t>::max() || forward == 0) continue;
    first_backward = std::max(first_backward, backward);
    last_forward = std::min(last_forward, forward);
  }
  warmup_end_ = first_backward;
  cooldown_begin_ = std::max(last_forward, first_backward);
}

OpId Session::counterpart(OpRef ref) const {
  if (same_schedule_) return ref.op;
  return counterparts_.empty()
             ? OpId{}
             : counterparts_[static_cast<std::size_t>(ref.document)][ref.op.index()];
}

namespace {

constexpr double kZoom = 0.8, kLeastSpan = 20;

class Reducer {
 public:
  Reducer(const Session& session, ViewState state) : session_(session), state_(std::move(state)) {}

  ViewState apply(Event event) {
    const bool has_place = event.type == Event::Type::Move || event.type == Event::Type::Press ||
                           event.type == Event::Type::Release ||
                           event.type == Event::Type::DoubleClick;
    if (has_place) {
      event.x /= state_.scale();
      event.y /= state_.scale();
    }
    const PastView before{state_.begin, state_.end, state_.scroll};
    if (event.type == Event::Type::Key || event.type == Event::Type::Press) state_.notice.clear();
    handle(event);
    remember(event, before);
    return std::move(state_);
  }

 private:
  void handle(const Event& event) {
    switch (event.type) {
      case Event::Type::Key:
        key(event);
        break;
      case Event::Type::Text:
        // The key that opens the search is typed, too.
        if (state_.searching && !(state_.search.empty() && event.text == "/"))
          state_.search += event.text;
        break;
      case Event::Type::Move:
        move(event);
        break;
      case Event::Type::Press:
        press(event);
        break;
      case Event::Type::Release:
        release(event);
        break;
      case Event::Type::DoubleClick:
        double_click(event);
        break;
      case Event::Type::Wheel:
        wheel(event);
        break;
      case Event::Type::Resize:
        state_.pixel_width = std::max(320, static_cast<std::int32_t>(event.x));
        state_.pixel_height = std::max(240, static_cast<std::int32_t>(event.y));
        if (event.scale > 0) state_.content_scale = std::clamp(event.scale, 0.5, 4.0);
        fit_window();
        break;
      case Event::Type::Tick:
        tick(event.seconds);
        break;
    }
  }

  // A change of the view can be undone; many events of one gesture (a drag, turns of the wheel, one
  // key again and again) are one change.
  void remember(const Event& event, const PastView& before) {
    constexpr std::size_t kMost = 100;
    if (event.type == Event::Type::Tick || event.type == Event::Type::Resize || undoing_) return;
    if (event.type == Event::Type::Press) state_.last_change = -1;
    if (before.begin == state_.begin && before.end == state_.end) return;
    const std::int32_t change = event.type == Event::Type::Key
                                    ? 100 + static_cast<std::int32_t>(event.key)
                                    : static_cast<std::int32_t>(event.type);
    const bool goes_on = std::exchange(state_.last_change, change) == change;
    if (goes_on && !state_.past.empty()) return;
    state_.future.clear();
    state_.past.push_back(before);
    if (state_.past.size() > kMost) state_.past.erase(state_.past.begin());
  }
  void undo(std::vector<PastView>& from, std::vector<PastView>& to) {
    undoing_ = true;
    if (from.empty()) return;
    to.push_back({state_.begin, state_.end, state_.scroll});
    const PastView view = from.back();
    from.pop_back();
    state_.begin = view.begin;
    state_.end = view.end;
    scroll_to(view.scroll);
    state_.last_change = -1;
  }

  double step() const { return static_cast<double>(session_.longest_step()); }
  double span() const { return state_.end - state_.begin; }
  const Trace& trace() const { return session_.at(state_.selected.document).trace(); }

  void show(double begin, double end) {
    const double least = std::max(end - begin, kLeastSpan);
    const double most = std::min(least, step() * 4);
    const double middle = (begin + end) / 2;
    state_.begin = std::clamp(middle - most / 2, -step() * 2, step() * 2);
    state_.end = state_.begin + most;
  }
  void zoom(double factor, double at) {
    const double begin = at - (at - state_.begin) * factor, end = at + (state_.end - at) * factor;
    if (end - begin < kLeastSpan || end - begin > step() * 4) return;
    state_.begin = begin;
    state_.end = end;
  }
  void pan(double share) {
    const double by = span() * share;
    if (state_.end + by < 0 || state_.begin + by > step()) return;
    state_.begin += by;
    state_.end += by;
  }
  // As many units as the window's pixels hold.
  void fit_window() {
    const double scale = state_.scale();
    state_.width = std::max(320, static_cast<std::int32_t>(std::lround(state_.pixel_width / scale)));
    state_.height =
        std::max(240, static_cast<std::int32_t>(std::lround(state_.pixel_height / scale)));
    scroll_to(state_.scroll);
  }
  // The text's size and that of all else; by 0: as the screen has it.
  void resize_text(int by) {
    static constexpr std::array kScales{0.75, 0.85, 1.0, 1.15, 1.3, 1.5, 1.75, 2.0, 2.5, 3.0};
    const auto here = std::ranges::min_element(kScales, {}, [this](double scale) {
      return std::fabs(scale - state_.text_scale);
    });
    const auto next = std::clamp<std::ptrdiff_t>(here - kScales.begin() + by, 0,
                                                 static_cast<std::ptrdiff_t>(kScales.size()) - 1);
    const double before = state_.scale();
    state_.text_scale = by == 0 ? 1 : kScales[static_cast<std::size_t>(next)];
    state_.mouse_x *= before / state_.scale();
    state_.mouse_y *= before / state_.scale();
    fit_window();
  }
  void scroll_to(double scroll) {
    const Geometry at = geometry(session_, state_);
    state_.scroll =
        std::clamp(scroll, 0.0, std::max(0.0, at.content_height - (at.bottom - at.top)));
  }
  // Where keys zoom: under the mouse if it is over the lanes, else the middle.
  double focus() const {
    const Geometry at = geometry(session_, state_);
    if (at.over_lanes(state_.mouse_x, state_.mouse_y)) return at.time_at(state_, state_.mouse_x);
    return (state_.begin + state_.end) / 2;
  }

  void select(OpRef op, bool reveal) {
    state_.selected = op;
    if (!op || !reveal) return;
    const auto [begin, end] = times(op);
    if (end < state_.begin || begin > state_.end) {
      const double half = std::max(span(), (end - begin) * 1.5) / 2, middle = (begin + end) / 2;
      show(middle - half, middle + half);
    }
    for (const RowSpot& row : geometry(session_, state_).rows) {
      if (row.document != op.document ||
          row.row != session_.at(op.document).trace().row_of(op.op).value) {
        continue;
      }
      const Geometry at = geometry(session_, state_);
      if (row.y < at.top) scroll_to(state_.scroll + row.y - at.top - 4);
      if (row.y + row.height > at.bottom)
        scroll_to(state_.scroll + row.y + row.height - at.bottom + 4);
      break;
    }
  }
  std::pair<double, double> times(OpRef op) const {
    const Trace& of = session_.at(op.document).trace();
    return {static_cast<double>(of.start_ns[op.op.index()] - of.begin.value),
            static_cast<double>(of.end_ns[op.op.index()] - of.begin.value)};
  }

  void key(const Event& e) {
    if (state_.searching && search_key(e.key)) return;
    static constexpr std::array kWithControl{Key::E, Key::Q, Key::Plus, Key::Minus, Key::Zero};
    if (e.control && std::ranges::find(kWithControl, e.key) == kWithControl.end()) return;
    switch (e.key) {
      case Key::Q:
        state_.wants_quit = e.control;
        break;
      case Key::U:
        if (e.shift) {
          undo(state_.future, state_.past);
        } else {
          undo(state_.past, state_.future);
        }
        break;
      case Key::W:
      case Key::Up:
        zoom(kZoom, focus());
        break;
      case Key::S:
      case Key::Down:
        zoom(1 / kZoom, focus());
        break;
      case Key::A:
      case Key::Left:
        pan(-0.2);
        break;
      case Key::D:
        if (e.shift) {
          const bool shown = state_.color_by == ColorBy::Difference;
          state_.color_by =
              !shown && session_.corresponds() ? ColorBy::Difference : ColorBy::Kinds;
        } else {
          pan(0.2);
        }
        break;
      case Key::Right:
        pan(0.2);
        break;
      case Key::Home:
        show(-step() * 0.005, step() * 1.005);
        break;
      case Key::One:
        show(0, static_cast<double>(std::max<std::int64_t>(1, session_.warmup_end())));
        break;
      case Key::Two:
        show(static_cast<double>(session_.warmup_end()),
             static_cast<double>(session_.cooldown_begin()));
        break;
      case Key::Three:
        show(static_cast<double>(session_.cooldown_begin()), step());
        break;
      case Key::F:
        focus_selected();
        break;
      case Key::M:
        if (state_.selected) state_.range = times(state_.selected);
        break;
      case Key::Comma:
        along_lane(-1);
        break;
      case Key::Period:
        along_lane(1);
        break;
      case Key::BracketLeft:
        select(feeder(), true);
        break;
      case Key::BracketRight:
        select(fed(), true);
        break;
      case Key::B:
        state_.causes = !state_.causes;
        break;
      case Key::C:
        state_.critical = !state_.critical;
        break;
      case Key::G:
        state_.memory = !state_.memory;
        scroll_to(state_.scroll);
        break;
      case Key::K:
        color_by_next(e.shift ? -1 : 1);
        break;
      case Key::L:
        state_.links = !state_.links;
        scroll_to(state_.scroll);
        break;
      case Key::H:
        state_.streams = !state_.streams;
        scroll_to(state_.scroll);
        break;
      case Key::T:
        state_.statistics = !state_.statistics;
        break;
      case Key::R:
        state_.experts = !state_.experts && !session_.at(0).trace().expert_shape.empty();
        break;
      case Key::O:
        state_.inside = !state_.inside && state_.selected;
        break;
      case Key::Plus:
        resize_text(1);
        break;
      case Key::Minus:
        resize_text(-1);
        break;
      case Key::Zero:
        resize_text(0);
        break;
      case Key::X:
        state_.dark = !state_.dark;
        break;
      case Key::V:
        state_.wheel_zooms = !state_.wheel_zooms;
        break;
      case Key::Slash:
        state_.searching = true;
        state_.search.clear();
        break;
      case Key::N:
        find_next(e.shift ? -1 : 1);
        break;
      case Key::Space:
        state_.playing = !state_.playing;
        if (state_.playing && (!state_.play || *state_.play >= step()))
          state_.play = std::max(0.0, state_.begin);
        break;
      case Key::Question:
        state_.help = !state_.help;
        break;
      case Key::Escape:
        escape();
        break;
      case Key::E:
        state_.wants_export = e.control;
        break;
      default:
        break;
    }
  }

  void color_by_next(int by) {
    constexpr auto kCount = static_cast<int>(kNumColorings);
    int next = static_cast<int>(state_.color_by);
    do {
      next = (next + by + kCount) % kCount;
    } while (static_cast<ColorBy>(next) == ColorBy::Difference && !session_.corresponds());
    state_.color_by = static_cast<ColorBy>(next);
  }

  bool search_key(Key key) {
    if (key == Key::Escape) {
      state_.searching = false;
    } else if (key == Key::Enter || key == Key::Down) {
      find_next(1);
    } else if (key == Key::Up) {
      find_next(-1);
    } else if (key == Key::Backspace) {
      while (!state_.search.empty()) {  // one code point
        const auto byte = static_cast<unsigned char>(state_.search.back());
        state_.search.pop_back();
        if ((byte & 0xC0) != 0x80) break;
      }
    }
    return true;  // letters are text while one types
  }

  void escape() {
    if (state_.help) {
      state_.help = false;
    } else if (state_.memory_at) {
      state_.memory_at.reset();
    } else if (state_.experts) {
      state_.experts = false;
    } else if (state_.statistics) {
      state_.statistics = false;
    } else if (state_.inside) {
      state_.inside = false;
    } else if (state_.range) {
      state_.range.reset();
    } else if (state_.play) {
      state_.play.reset();
      state_.playing = false;
    } else {
      state_.selected = {};
    }
  }

  // First so that it is in the middle, then so that it fills a third.
  void focus_selected() {
    if (!state_.selected) return;
    const auto [begin, end] = times(state_.selected);
    const double middle = (begin + end) / 2, half = span() / 2;
    const bool centred = std::fabs(middle - (state_.begin + state_.end) / 2) < span() * 0.02;
    if (centred) {
      show(middle - (end - begin) * 1.5, middle + (end - begin) * 1.5);
    } else {
      show(middle - half, middle + half);
    }
  }

  void along_lane(int by) {
    if (!state_.selected) return;
    const Trace& of = trace();
    const std::int32_t lane = of.lane_of(state_.selected.op);
    const auto row = static_cast<std::size_t>(of.row_of(state_.selected.op).value);
    for (std::int32_t op = state_.selected.op.value + by;
         op >= of.row_begin[row] && op < of.row_begin[row + 1]; op += by) {
      if (of.lane_of({op}) != lane) continue;
      select({state_.selected.document, {op}}, true);
      return;
    }
  }

  // What the selected op waited for that came last.
  OpRef feeder() const {
    if (!state_.selected) return {};
    const Causality& causes = session_.at(state_.selected.document).causality();
    OpRef best = state_.selected;
    std::int64_t latest = -1;
    causes.for_each_before(causes.node_of(state_.selected.op), [&](OpId op) {
      if (trace().end_ns[op.index()] > latest) {
        latest = trace().end_ns[op.index()];
        best.op = op;
      }
    });
    return best;
  }
  // What waited for the selected op and began first: the waits point backwards, so all are read.
  OpRef fed() const {
    if (!state_.selected) return {};
    const Causality& causes = session_.at(state_.selected.document).causality();
    const std::int32_t node = causes.node_of(state_.selected.op);
    OpRef best = state_.selected;
    std::int64_t earliest = std::numeric_limits<std::int64_t>::max();
    for (std::int32_t other = 0; other < causes.num_nodes(); ++other) {
      if (other == node) continue;
      causes.for_each_before(other, [&](OpId op) {
        const OpId first{causes.members(other)[0]};
        if (causes.node_of(op) != node || trace().start_ns[first.index()] >= earliest) return;
        earliest = trace().start_ns[first.index()];
        best.op = first;
      });
    }
    return best;
  }

  // The next hit behind the selected op, or before it; beyond the last comes the first.
  void find_next(int by) {
    const std::int32_t document = state_.selected ? state_.selected.document : 0;
    const std::vector<OpId>& hits = session_.at(document).hits(state_.search);
    if (hits.empty()) return;
    const OpId from = state_.selected.op;
    auto next = by > 0 ? std::ranges::upper_bound(hits, from) : std::ranges::lower_bound(hits, from);
    if (!from) next = by > 0 ? hits.begin() : hits.end();
    if (by < 0) next = next == hits.begin() ? hits.end() - 1 : next - 1;
    if (next == hits.end()) next = hits.begin();
    select({document, *next}, true);
  }

  void wheel(const Event& e) {
    if (e.control != state_.wheel_zooms) {
      const double at = focus();
      for (double step = std::fabs(e.y); step > 0; step -= 1) {
        const double factor = std::pow(e.y > 0 ? kZoom : 1 / kZoom, std::min(1.0, step));
        zoom(factor, at);
      }
    } else if (e.shift) {
      pan(-e.y * 0.1);
    } else {
      scroll_to(state_.scroll - e.y * 60);
      pan(e.x * -0.1);
    }
  }

  void press(const Event& e) {
    move_mouse(e);
    const Geometry at = geometry(session_, state_);
    state_.drag_x = e.x;
    state_.drag_y = e.y;
    state_.drag_begin = state_.begin;
    state_.drag_scroll = state_.scroll;
    state_.moved = false;
    if (e.y >= at.minimap_y && e.y < at.minimap_y + at.minimap_height && e.x >= at.left) {
      state_.drag = Drag::Minimap;
      move_minimap(at, e.x);
    } else if (e.y >= at.axis_y && e.y < at.top && e.x >= at.left) {
      state_.drag = Drag::Scrub;
      state_.play = std::clamp(at.time_at(state_, e.x), 0.0, step());
    } else if (at.over_lanes(e.x, e.y)) {
      state_.drag = e.button != 0 || e.shift ? Drag::Pan : Drag::Range;
    } else if (e.x < at.left && e.y >= at.top && e.y < at.bottom) {
      fold(at, e.y);
    }
  }

  void fold(const Geometry& at, double y) {
    for (const RowSpot& row : at.rows) {
      if (y < row.y || y >= row.y + row.height) continue;
      std::size_t index = static_cast<std::size_t>(row.row);
      if (row.document == 1) index += static_cast<std::size_t>(session_.at(0).trace().num_rows());
      state_.folded.resize(std::max(state_.folded.size(), index + 1));
      state_.folded[index] ^= 1;
      scroll_to(state_.scroll);
      return;
    }
  }

  void move_mouse(const Event& e) {
    state_.mouse_x = e.x;
    state_.mouse_y = e.y;
  }
  void move_minimap(const Geometry& at, double x) {
    const double time = (x - at.left) / at.width * step(), half = span() / 2;
    show(time - half, time + half);
  }

  void move(const Event& e) {
    move_mouse(e);
    if (state_.drag == Drag::None) return;
    constexpr double kStill = 3;  // [px]
    state_.moved = state_.moved || std::hypot(e.x - state_.drag_x, e.y - state_.drag_y) > kStill;
    const Geometry at = geometry(session_, state_);
    switch (state_.drag) {
      case Drag::Pan: {
        const double width = span();
        state_.begin = state_.drag_begin - (e.x - state_.drag_x) / at.width * width;
        state_.end = state_.begin + width;
        scroll_to(state_.drag_scroll - (e.y - state_.drag_y));
        break;
      }
      case Drag::Range:
        if (state_.moved) {
          const double a = at.time_at(state_, state_.drag_x),
                       b = at.time_at(state_, std::clamp(e.x, at.left, at.left + at.width));
          state_.range = std::minmax(a, b);
        }
        break;
      case Drag::Scrub:
        state_.play = std::clamp(at.time_at(state_, e.x), 0.0, step());
        break;
      case Drag::Minimap:
        move_minimap(at, e.x);
        break;
      case Drag::None:
        break;
    }
  }

  void release(const Event& e) {
    move(e);
    if (state_.drag == Drag::Range && !state_.moved) {
      const Geometry at = geometry(session_, state_);
      const Hit found = hit(session_, state_, at, e.x, e.y);
      select(found.op, false);
      if (found.memory != nullptr) {
        state_.memory_at = MemoryAt{
            found.memory->document, found.memory->row,
            static_cast<std::int64_t>(std::floor(at.time_at(state_, e.x)))};
      }
      // A click on a bubble selects the op that ends it.
      if (!found.op && found.idle >= 0) {
        const Trace& of = session_.at(found.lane->document).trace();
        select({found.lane->document, of.idle[static_cast<std::size_t>(found.idle)].op}, false);
      }
      state_.range.reset();
    }
    state_.drag = Drag::None;
  }

  void double_click(const Event& e) {
    const Geometry at = geometry(session_, state_);
    const Hit found = hit(session_, state_, at, e.x, e.y);
    if (!found.op) return;
    select(found.op, false);
    const auto [begin, end] = times(found.op);
    const double middle = (begin + end) / 2;
    show(middle - (end - begin) * 1.5, middle + (end - begin) * 1.5);
  }

  // The whole view in eight seconds.
  void tick(double seconds) {
    if (!state_.playing || !state_.play) return;
    state_.play = *state_.play + span() / 8 * seconds;
    if (*state_.play >= step()) {
      state_.play = step();
      state_.playing = false;
    }
    if (*state_.play > state_.end) {
      const double width = span();
      state_.begin = *state_.play;
      state_.end = state_.begin + width;
    }
  }

  const Session& session_;
  ViewState state_;
  bool undoing_ = false;
};

}  // namespace

ViewState initial_state(const Session& session, std::int32_t width, std::int32_t height,
                        double scale) {
  ViewState state = reduce(session, {},
                           {.type = Event::Type::Resize,
                            .x = static_cast<double>(width),
                            .y = static_cast<double>(height),
                            .scale = scale});
  state = reduce(session, std::move(state), {.type = Event::Type::Key, .key = Key::Home});
  state.past.clear();  // there is nothing to go back to
  state.last_change = -1;
  return state;
}

ViewState reduce(const Session& session, ViewState state, const Event& event) {
  return Reducer(session, std::move(state)).apply(event);
}

}  // namespace rehearse::viz
