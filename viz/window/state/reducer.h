// SPDX-License-Identifier: Apache-2.0
// One event's change of a view, in the making. Internal to viz/window/state.
#pragma once

#include "viz/window/geometry.h"
#include "viz/window/session.h"

namespace rehearse::viz {

class Reducer {
 public:
  Reducer(const Session& of, ViewState from) : session(of), state(std::move(from)) {}
  ViewState apply(Event event);

  const Session& session;
  ViewState state;

  double step() const { return static_cast<double>(session.longest_step()); }
  double span() const { return state.end - state.begin; }
  std::pair<double, double> extent() const { return session.extent(state.alignment); }
  const Trace& trace() const { return session.at(state.selected.document).trace(); }
  void refuse(std::string why) { state.refused = std::move(why); }

  // The view (reducer.cc).
  void show(double begin, double end);
  void zoom(double factor, double at);
  void zoom_in();  // where the mouse is, or in the middle
  void zoom_out();
  void pan(double share);
  void scroll_to(double scroll);
  void undo();
  void redo();
  void zoom_ranks(double factor, double y);  // of the heat map
  void scroll_ranks(double share);           // of those in view
  void show_heat(HeatOf of);
  void align(Alignment alignment);
  void fit_window();         // as many units as the window's pixels hold
  void resize_text(int by);  // by 0: as the screen has it

  // What is selected (reduce_selection.cc).
  void select(OpRef op, bool reveal);
  std::pair<double, double> times(OpRef op) const;  // since the step's begin
  void focus_selected();
  void along_lane(int by);
  void to_feeder();  // what the selected op waited for that came last
  void to_fed();     // what waited for it and began first
  void find_next(int by);
  void escape();
  void color_by_next(int by);
  // Of the row under the mouse, else of the selected op; -1: neither.
  PinnedRow row_meant() const;
  void pin(PinnedRow row);
  bool has_class(PinnedRow row) const;  // other rows do what this one does
  void fold_class(PinnedRow row, bool folded);

  // Fields and tables (reduce_fields.cc).
  void edit(Field field);
  void open_table(TableKind table);  // or close it where it is open
  void sort_by(std::int32_t column);
  void activate(std::int32_t line);  // of the table that is open
  void scroll_table(std::int32_t by);
  void copy();

 private:
  void handle(const Event& event);
  void remember(const Event& event, const PastView& before);
  void go_back(std::vector<PastView>& from, std::vector<PastView>& to);
  double focus() const;
  void command(const Event& e);

  // Fields (reduce_fields.cc).
  bool field_key(const Event& e);
  void type(const std::string& text);
  bool press_below(const Geometry& at, const Event& e);
  bool press_field(const Geometry& at, const Event& e);

  // The mouse (reduce_mouse.cc).
  void wheel(const Event& e);
  void press(const Event& e);
  void press_name(const Geometry& at, const Event& e);
  OpRef op_in_heat(const Geometry& at, double x, double y) const;
  void fold(const RowSpot& row);
  void move_minimap(const Geometry& at, double x);
  void move(const Event& e);
  void release(const Event& e);
  void double_click(const Event& e);
  void tick(double seconds);

  static constexpr double kZoom = 0.8;  // of the span, with each step
  bool undoing_ = false;
};

}  // namespace rehearse::viz
