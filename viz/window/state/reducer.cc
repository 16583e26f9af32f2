// SPDX-License-Identifier: Apache-2.0
// How an event becomes a change, and what of the trace is in view.
#include "viz/window/state/reducer.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "viz/window/describe.h"
#include "viz/window/state/commands.h"

namespace rehearse::viz {

static constexpr double kLeastSpan = 20;  // [ns]

ViewState Reducer::apply(Event event) {
  using Type = Event::Type;
  if (event.type == Type::Move || event.type == Type::Press || event.type == Type::Release ||
      event.type == Type::DoubleClick) {
    event.x /= state.scale();
    event.y /= state.scale();
  }
  const PastView before{state.begin, state.end, state.scroll};
  if (event.type == Type::Key || event.type == Type::Press || event.type == Type::Command) {
    state.notice.clear();
    state.refused.clear();
  }
  handle(event);
  remember(event, before);
  return std::move(state);
}

void Reducer::handle(const Event& event) {
  switch (event.type) {
    case Event::Type::Key:
      if (field_key(event)) break;
      if (const Command* one = command_of(event.key, event.control, event.shift))
        one->perform(*this, {});
      break;
    case Event::Type::Text:
      type(event.text);
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
      state.pixel_width = std::max(320, static_cast<std::int32_t>(event.x));
      state.pixel_height = std::max(240, static_cast<std::int32_t>(event.y));
      if (event.scale > 0) state.content_scale = std::clamp(event.scale, 0.5, 4.0);
      fit_window();
      break;
    case Event::Type::Tick:
      tick(event.seconds);
      break;
    case Event::Type::Command:
      command(event);
      break;
  }
}

void Reducer::command(const Event& e) {
  const std::string_view text = e.text;
  const std::string_view name = text.substr(0, text.find(' '));
  std::string_view argument = text.substr(std::min(text.size(), name.size() + 1));
  const Command* one = command_named(name);
  if (one == nullptr) return refuse("there is no command " + std::string(name));
  if (one->argument.empty() && !argument.empty())
    return refuse(std::string(name) + " takes nothing, not " + std::string(argument));
  one->perform(*this, argument);
}

// A change of the view can be undone; many events of one gesture (a drag, turns of the wheel, one
// key again and again) are one change.
void Reducer::remember(const Event& event, const PastView& before) {
  constexpr std::size_t kMost = 100;
  if (event.type == Event::Type::Tick || event.type == Event::Type::Resize || undoing_) return;
  if (event.type == Event::Type::Press) state.last_change = -1;
  if (before.begin == state.begin && before.end == state.end) return;
  const std::int32_t change = event.type == Event::Type::Key
                                  ? 100 + static_cast<std::int32_t>(event.key)
                                  : static_cast<std::int32_t>(event.type);
  const bool goes_on = std::exchange(state.last_change, change) == change;
  if (goes_on && !state.past.empty()) return;
  state.future.clear();
  state.past.push_back(before);
  if (state.past.size() > kMost) state.past.erase(state.past.begin());
}
void Reducer::go_back(std::vector<PastView>& from, std::vector<PastView>& to) {
  undoing_ = true;
  if (from.empty()) return;
  to.push_back({state.begin, state.end, state.scroll});
  const PastView view = from.back();
  from.pop_back();
  state.begin = view.begin;
  state.end = view.end;
  scroll_to(view.scroll);
  state.last_change = -1;
}
void Reducer::undo() {
  go_back(state.past, state.future);
}
void Reducer::redo() {
  go_back(state.future, state.past);
}

void Reducer::show(double begin, double end) {
  const auto [first, last] = extent();
  const double whole = last - first;
  const double least = std::max(end - begin, kLeastSpan);
  const double most = std::min(least, whole * 4);
  const double middle = (begin + end) / 2;
  state.begin = std::clamp(middle - most / 2, first - whole * 2, first + whole * 2);
  state.end = state.begin + most;
}

void Reducer::zoom(double factor, double at) {
  const double begin = at - (at - state.begin) * factor, end = at + (state.end - at) * factor;
  const auto [first, last] = extent();
  if (end - begin < kLeastSpan || end - begin > (last - first) * 4) return;
  state.begin = begin;
  state.end = end;
}
void Reducer::zoom_in() {
  zoom(kZoom, focus());
}
void Reducer::zoom_out() {
  zoom(1 / kZoom, focus());
}

void Reducer::pan(double share) {
  const double by = span() * share;
  const auto [first, last] = extent();
  if (state.end + by < first || state.begin + by > last) return;
  state.begin += by;
  state.end += by;
}

void Reducer::zoom_ranks(double factor, double y) {
  constexpr double kFewest = 1e-6;
  const Geometry at = geometry(session, state);
  const HeatSpot* spot = &at.heats.front();
  for (const HeatSpot& one : at.heats) {
    if (y >= one.y) spot = &one;
  }
  const double span = state.heat_last - state.heat_first;
  const double share = std::clamp((y - spot->y) / spot->height, 0.0, 1.0);
  const auto ranks = static_cast<double>(session.at(spot->document).heat().ranks());
  const double next = std::clamp(span * factor, std::max(kFewest, 1 / ranks), 1.0);
  state.heat_first = std::clamp(state.heat_first + share * (span - next), 0.0, 1 - next);
  state.heat_last = state.heat_first + next;
}

void Reducer::scroll_ranks(double share) {
  const double span = state.heat_last - state.heat_first;
  state.heat_first = std::clamp(state.heat_first + share * span, 0.0, 1 - span);
  state.heat_last = state.heat_first + span;
}

// What some trace has; another one shows idle time then.
void Reducer::show_heat(HeatOf of) {
  state.heats = true;
  state.heat = of;
}

// The view stays where the first trace is.
void Reducer::align(Alignment alignment) {
  state.alignment = alignment;
  state.play.reset();
  state.playing = false;
  show(state.begin, state.end);
  state.notice = alignment_words(session, alignment);
}

void Reducer::scroll_to(double scroll) {
  if (state.heats) return;  // all of it is in sight
  const Geometry at = geometry(session, state);
  state.scroll =
      std::clamp(scroll, 0.0, std::max(0.0, at.content_height - (at.bottom - at.pin_bottom)));
}

double Reducer::focus() const {
  const Geometry at = geometry(session, state);
  if (at.over_lanes(state.mouse_x, state.mouse_y)) return at.time_at(state, state.mouse_x);
  return (state.begin + state.end) / 2;
}

void Reducer::fit_window() {
  const double scale = state.scale();
  state.width = std::max(320, static_cast<std::int32_t>(std::lround(state.pixel_width / scale)));
  state.height = std::max(240, static_cast<std::int32_t>(std::lround(state.pixel_height / scale)));
  scroll_to(state.scroll);
}

void Reducer::resize_text(int by) {
  static constexpr std::array kScales{0.75, 0.85, 1.0, 1.15, 1.3, 1.5, 1.75, 2.0, 2.5, 3.0};
  const auto here = std::ranges::min_element(
      kScales, {}, [this](double scale) { return std::fabs(scale - state.text_scale); });
  const auto next = std::clamp<std::ptrdiff_t>(here - kScales.begin() + by, 0,
                                               static_cast<std::ptrdiff_t>(kScales.size()) - 1);
  const double before = state.scale();
  state.text_scale = by == 0 ? 1 : kScales[static_cast<std::size_t>(next)];
  state.mouse_x *= before / state.scale();
  state.mouse_y *= before / state.scale();
  fit_window();
}

ViewState initial_state(const Session& session, std::int32_t width, std::int32_t height,
                        double scale) {
  ViewState state = reduce(session, {},
                           {.type = Event::Type::Resize,
                            .x = static_cast<double>(width),
                            .y = static_cast<double>(height),
                            .scale = scale});
  // Few rows are shown whole; of many ranks those that do the same are one row at first.
  constexpr std::int32_t kMostRows = 24;
  for (std::int32_t d = 0; d < static_cast<std::int32_t>(session.documents().size()); ++d) {
    const RankClasses& classes = session.classes(d);
    const std::int32_t rows = session.at(d).trace().num_rows();
    if (!classes.have_rows() || !classes.any() || rows <= kMostRows) continue;
    state.classes_folded.resize(session.num_rows());
    for (std::int32_t row = 0; row < rows; ++row) {
      if (classes.rows(row) > 1) state.classes_folded[session.class_number(d, row)] = 1;
    }
  }
  state = reduce(session, std::move(state), {.type = Event::Type::Key, .key = Key::Home});
  state.past.clear();  // there is nothing to go back to
  state.last_change = -1;
  return state;
}

ViewState reduce(const Session& session, ViewState state, const Event& event) {
  return Reducer(session, std::move(state)).apply(event);
}

}  // namespace rehearse::viz
