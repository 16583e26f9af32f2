// SPDX-License-Identifier: Apache-2.0
#include "viz/window/widgets/widgets.h"

#include <algorithm>
#include <array>
#include <cstdio>

#include "viz/picture/colors.h"
#include "viz/window/state/commands.h"

namespace rehearse::viz {
namespace {

ImVec4 color4(Color c, float alpha = 1) {
  return {static_cast<float>(c.red) / 255, static_cast<float>(c.green) / 255,
          static_cast<float>(c.blue) / 255, alpha};
}
Color between(Color a, Color b, double share) {
  const auto mix = [share](std::uint8_t x, std::uint8_t y) {
    return static_cast<std::uint8_t>(x + (y - x) * share);
  };
  return {mix(a.red, b.red), mix(a.green, b.green), mix(a.blue, b.blue)};
}

// A window of ours: it is where it is, and has nothing around.
void begin_area(const char* name, double x, double y, double width, double height, double scale,
                ImGuiWindowFlags flags = 0) {
  const auto pixels = [scale](double value) { return static_cast<float>(value * scale); };
  ImGui::SetNextWindowPos({pixels(x), pixels(y)});
  ImGui::SetNextWindowSize({pixels(width), pixels(height)});
  ImGui::PushStyleVar(ImGuiStyleVar_WindowPadding, {0, 0});
  ImGui::Begin(name, nullptr,
               ImGuiWindowFlags_NoDecoration | ImGuiWindowFlags_NoMove |
                   ImGuiWindowFlags_NoSavedSettings | ImGuiWindowFlags_NoBackground |
                   ImGuiWindowFlags_NoBringToFrontOnFocus | flags);
  ImGui::PopStyleVar();
}

// As much of a text as there is room for; what is cut ends with "…".
std::string cut_to(const std::string& text, float width) {
  const auto width_of = [](const std::string& of) { return ImGui::CalcTextSize(of.c_str()).x; };
  if (width_of(text) <= width) return text;
  constexpr std::string_view kRest = "…";
  std::string shown = text;
  do {  // one letter less, with the bytes behind its first
    while (!shown.empty() && (static_cast<unsigned char>(shown.back()) & 0xC0u) == 0x80u)
      shown.pop_back();
    if (!shown.empty()) shown.pop_back();
  } while (!shown.empty() && width_of(shown + std::string(kRest)) > width);
  return shown + std::string(kRest);
}

FilterPart part_of(Field field) {
  return static_cast<FilterPart>(static_cast<int>(field) - static_cast<int>(Field::Kinds));
}

}  // namespace

void Widgets::send(std::string_view name, std::string_view argument) {
  events_.push_back(command_event(name, argument));
}

bool Widgets::menu_open() {
  return ImGui::IsPopupOpen("", ImGuiPopupFlags_AnyPopupId | ImGuiPopupFlags_AnyPopupLevel);
}

void Widgets::style(const ViewState& state) {
  if (scale_ == state.scale() && dark_ == state.dark) return;
  scale_ = state.scale();
  dark_ = state.dark;
  const Palette& colors = palette(state.dark ? Theme::Dark : Theme::Light);
  ImGuiStyle& style = ImGui::GetStyle();
  style = ImGuiStyle();
  if (state.dark) {
    ImGui::StyleColorsDark();
  } else {
    ImGui::StyleColorsLight();
  }
  style.WindowBorderSize = 0;
  style.FrameRounding = style.PopupRounding = 3;
  style.FramePadding = {6, 3};
  style.CellPadding = {4, 1};
  style.ItemSpacing = {8, 4};
  style.ScrollbarSize = 10;
  style.ScaleAllSizes(static_cast<float>(scale_));
  style.FrameBorderSize = style.PopupBorderSize = 1;
  const auto set = [&style](ImGuiCol which, Color color, float alpha = 1) {
    style.Colors[which] = color4(color, alpha);
  };
  set(ImGuiCol_Text, colors.text);
  set(ImGuiCol_TextDisabled, between(colors.faint_text, colors.background, 0.25));
  set(ImGuiCol_PopupBg, colors.background, 0.98f);
  set(ImGuiCol_Border, colors.grid);
  set(ImGuiCol_FrameBg, colors.background);
  set(ImGuiCol_MenuBarBg, colors.background, 0);
  for (const ImGuiCol which : {ImGuiCol_Header, ImGuiCol_HeaderHovered, ImGuiCol_HeaderActive})
    set(which, colors.text, which == ImGuiCol_Header ? 0.16f : 0.11f);
  for (const ImGuiCol which : {ImGuiCol_Button, ImGuiCol_ButtonHovered, ImGuiCol_ButtonActive})
    set(which, colors.text, which == ImGuiCol_Button ? 0.08f : 0.16f);
  set(ImGuiCol_TableHeaderBg, colors.lane);
  set(ImGuiCol_TableBorderLight, colors.grid);
  set(ImGuiCol_TableBorderStrong, colors.grid);
  set(ImGuiCol_TableRowBg, colors.lane, 0);
  set(ImGuiCol_TableRowBgAlt, colors.text, 0.035f);
  set(ImGuiCol_ScrollbarBg, colors.lane);
  set(ImGuiCol_TextSelectedBg, colors.accent, 0.4f);
  set(ImGuiCol_CheckMark, colors.accent);
}

void Widgets::heats(const Session& session, const ViewState& state) {
  if (!ImGui::BeginMenu("Heat map of")) return;
  for (HeatOf of = 0; of < kNumHeats; ++of) {
    const bool possible = std::ranges::any_of(
        session.documents(), [of](const Document& one) { return one.heat().has(of); });
    if (!possible) continue;
    if (ImGui::MenuItem(std::string(heat_name(of)).c_str(), nullptr,
                        state.heats && state.heat == of)) {
      send("heat", heat_name(of));
    }
  }
  ImGui::EndMenu();
}

void Widgets::menus(const Session& session, const ViewState& state) {
  ImGui::PushStyleVar(ImGuiStyleVar_FrameBorderSize, 0);  // no line below them
  begin_area("menus", 2, 2, Geometry::kMenus, 28, scale_, ImGuiWindowFlags_MenuBar);
  if (ImGui::BeginMenuBar()) {
    for (std::size_t m = 1; m < kMenuNames.size(); ++m) {
      if (!ImGui::BeginMenu(std::string(kMenuNames[m]).c_str())) continue;
      for (const Command& one : commands()) {
        if (one.menu != static_cast<Menu>(m)) continue;
        const bool on = one.on != nullptr && one.on(state);
        if (ImGui::MenuItem(std::string(one.words).c_str(), chord_text(one.chord).c_str(), on,
                            is_possible(one, session, state))) {
          send(one.name);
        }
        if (one.name == "next_heat") heats(session, state);
        if (one.name != "color" || !ImGui::BeginMenu("Colour by")) continue;
        for (std::size_t by = 0; by < kNumColorings; ++by) {
          const bool here = state.color_by == static_cast<ColorBy>(by);
          const bool possible =
              static_cast<ColorBy>(by) != ColorBy::Difference || session.corresponds();
          if (ImGui::MenuItem(std::string(kColorByNames[by]).c_str(), nullptr, here, possible))
            send("color", kColorByNames[by]);
        }
        ImGui::EndMenu();
      }
      ImGui::EndMenu();
    }
    ImGui::EndMenuBar();
  }
  ImGui::End();
  ImGui::PopStyleVar();
}

// The line that one types into. A field that the state wants takes the letters.
void Widgets::fields(const Session& session, const ViewState& state, const Geometry& at) {
  if (state.field == Field::None && focused_ != Field::None) ImGui::SetWindowFocus(nullptr);
  const Field before = std::exchange(focused_, Field::None);
  if (at.fields_height == 0) return;
  const Palette& colors = palette(state.dark ? Theme::Dark : Theme::Light);
  begin_area("fields", 0, at.fields_y, state.width, at.fields_height, scale_);
  for (const FieldSpot& spot : at.fields) {
    const std::string name(field_name(spot.field));
    const std::string& text = text_of(state, spot.field);
    fonts_.want(text);
    const bool search = spot.field == Field::Search;
    const std::string fault =
        search ? std::string{} : filter_fault(session.at(0).trace(), part_of(spot.field), text);
    const auto x = static_cast<float>(spot.x * scale_), y = static_cast<float>(3 * scale_);
    ImGui::SetCursorPos({x - static_cast<float>(field_name_width(spot.field) * scale_),
                         y + static_cast<float>(4 * scale_)});
    ImGui::TextColored(color4(colors.faint_text), "%s", name.c_str());
    ImGui::SetCursorPos({x, y});
    ImGui::SetNextItemWidth(static_cast<float>(spot.width * scale_));
    if (state.field == spot.field && before != spot.field) ImGui::SetKeyboardFocusHere();
    const Color edge = !fault.empty()              ? Color{213, 94, 0}
                       : state.field == spot.field ? colors.accent
                                                   : colors.grid;
    ImGui::PushStyleColor(ImGuiCol_Border, color4(edge));
    std::array<char, 256> buffer{};
    text.copy(buffer.data(), buffer.size() - 1);
    const std::string_view hint =
        search ? "part of a name, as 2B5"
               : kFilterExamples[static_cast<std::size_t>(part_of(spot.field))];
    const bool changed = ImGui::InputTextWithHint(("##" + name).c_str(), std::string(hint).c_str(),
                                                  buffer.data(), buffer.size());
    ImGui::PopStyleColor();
    if (!fault.empty() && ImGui::IsItemHovered()) ImGui::SetTooltip("%s", fault.c_str());
    if (ImGui::IsItemActivated() && state.field != spot.field) send("edit", name);
    if (ImGui::IsItemActive()) focused_ = spot.field;
    if (changed) send("type", buffer.data());
  }
  const auto clear = at.fields.back().x + at.fields.back().width + 12;
  ImGui::SetCursorPos({static_cast<float>(clear * scale_), static_cast<float>(3 * scale_)});
  if (!state.filter.empty() && ImGui::Button("clear")) send("everything");
  ImGui::End();
}

// Dear ImGui says a frame after a field has the letters that it wants them.
bool Widgets::unsettled(const ViewState& state) const {
  return state.field != focused_ || ImGui::GetIO().WantTextInput != (state.field != Field::None);
}

void Widgets::sorted(const ViewState& state) {
  ImGuiTableSortSpecs* specs = ImGui::TableGetSortSpecs();
  if (specs == nullptr || !specs->SpecsDirty) return;
  specs->SpecsDirty = false;
  const Sort& by = state.sorts[static_cast<std::size_t>(state.table)];
  if (specs->SpecsCount == 0) {
    if (by.column >= 0) send("sort", "none");
    return;
  }
  const bool falling = specs->Specs[0].SortDirection == ImGuiSortDirection_Descending;
  const std::int32_t column = specs->Specs[0].ColumnIndex;
  if (by.column == column && by.falling == falling) return;
  send("sort", std::to_string(column) + (falling ? " falling" : " rising"));
}

void Widgets::lines(const ViewState& state, const Table& table) {
  const float height = ImGui::GetTextLineHeight();
  if (state.selected && !(state.selected == shown_)) {  // in sight, once
    const auto found = std::ranges::find(table.lines, state.selected, &TableLine::op);
    const auto line = static_cast<float>(found - table.lines.begin());
    const float step = height + 2 * ImGui::GetStyle().CellPadding.y,
                room = ImGui::GetWindowHeight();
    const bool seen =
        line * step >= ImGui::GetScrollY() && (line + 2) * step <= ImGui::GetScrollY() + room;
    if (found != table.lines.end() && !seen) ImGui::SetScrollY(line * step - room / 2);
  }
  shown_ = state.selected;
  ImDrawList& draw = *ImGui::GetWindowDrawList();
  ImGuiListClipper clipper;
  clipper.Begin(static_cast<int>(table.lines.size()));
  while (clipper.Step()) {
    for (int i = clipper.DisplayStart; i < clipper.DisplayEnd; ++i) {
      const TableLine& line = table.lines[static_cast<std::size_t>(i)];
      ImGui::TableNextRow();
      ImGui::PushID(i);
      for (std::size_t k = 0; k < line.cells.size(); ++k) {
        if (!ImGui::TableSetColumnIndex(static_cast<int>(k))) continue;
        const std::string& text = line.cells[k].text;
        fonts_.want(text);
        const ImVec2 at = ImGui::GetCursorScreenPos();
        const float width = ImGui::GetContentRegionAvail().x;
        if (k == 0) {
          if (ImGui::Selectable("##line", line.op && line.op == state.selected,
                                ImGuiSelectableFlags_SpanAllColumns, {0, height})) {
            send("line", std::to_string(i));
          }
          const auto mark = static_cast<float>(8 * scale_);
          const float top = at.y + (height - mark) / 2;
          draw.AddRectFilled({at.x, top}, {at.x + mark, top + mark},
                             ImGui::GetColorU32(color4(line.color)));
          ImGui::SameLine(0, 0);
          ImGui::SetCursorScreenPos({at.x + mark * 1.75f, at.y});
        } else if (table.columns[k].number) {
          ImGui::SetCursorPosX(ImGui::GetCursorPosX() +
                               std::max(0.0f, width - ImGui::CalcTextSize(text.c_str()).x));
        }
        const std::string shown = cut_to(text, ImGui::GetContentRegionAvail().x);
        if (shown != text) fonts_.want(shown);
        ImGui::TextUnformatted(shown.c_str());
        if (shown != text && ImGui::IsItemHovered()) ImGui::SetTooltip("%s", text.c_str());
        if (k + 1 < line.cells.size()) continue;
        for (const TableLine::Bar& bar : line.bars) {  // below a text thin
          const float bottom = at.y + height,
                      tall = text.empty() ? height * 0.8f : 2 * static_cast<float>(scale_);
          const float left = at.x + width * bar.begin;
          draw.AddRectFilled({left, bottom - tall},
                             {std::max(left + 1, at.x + width * bar.end), bottom},
                             ImGui::GetColorU32(color4(bar.color)));
        }
        if (line.histogram.empty()) continue;
        const float bin = width / static_cast<float>(line.histogram.size());
        for (std::size_t b = 0; b < line.histogram.size(); ++b) {
          if (line.histogram[b] <= 0) continue;
          const float tall = std::max(1.0f, height * line.histogram[b]);
          const float left = at.x + bin * static_cast<float>(b);
          draw.AddRectFilled({left, at.y + height - tall}, {left + bin * 0.9f, at.y + height},
                             ImGui::GetColorU32(color4(line.color)));
        }
      }
      ImGui::PopID();
    }
  }
}

void Widgets::table(const Session& session, const ViewState& state, const Geometry& at) {
  if (state.table == TableKind::None) return;
  const Table& table = tables_.of(session, state);
  const auto columns = static_cast<int>(table.columns.size());
  begin_area("table", at.table_x, at.table_y, at.table_width, at.table_height, scale_);
  const std::string id = "table" + std::to_string(static_cast<int>(state.table)) + "/" +
                         std::to_string(columns);  // each keeps the widths of its columns
  constexpr ImGuiTableFlags kFlags =
      ImGuiTableFlags_Sortable | ImGuiTableFlags_SortTristate | ImGuiTableFlags_ScrollY |
      ImGuiTableFlags_RowBg | ImGuiTableFlags_Resizable | ImGuiTableFlags_Reorderable |
      ImGuiTableFlags_Hideable | ImGuiTableFlags_BordersInnerV | ImGuiTableFlags_SizingStretchProp;
  if (columns > 0 && ImGui::BeginTable(id.c_str(), columns, kFlags)) {
    const Sort& by = state.sorts[static_cast<std::size_t>(state.table)];
    ImGui::TableSetupScrollFreeze(0, 1);
    const std::vector<double> widths =
        column_widths(table, at.table_width - ImGui::GetStyle().ScrollbarSize / scale_);
    for (int i = 0; i < columns; ++i) {
      const TableColumn& column = table.columns[static_cast<std::size_t>(i)];
      ImGuiTableColumnFlags flags = ImGuiTableColumnFlags_None;
      if (column.number) flags |= ImGuiTableColumnFlags_PreferSortDescending;
      if (by.column == i) flags |= ImGuiTableColumnFlags_DefaultSort;
      ImGui::TableSetupColumn(std::string(column.name).c_str(), flags,
                              static_cast<float>(widths[static_cast<std::size_t>(i)]));
    }
    ImGui::TableHeadersRow();
    sorted(state);
    lines(state, table);
    ImGui::EndTable();
  }
  ImGui::End();
}

std::vector<Event> Widgets::build(const Session& session, const ViewState& state) {
  events_.clear();
  style(state);
  const Geometry at = geometry(session, state);
  menus(session, state);
  fields(session, state, at);
  if (!state.help && !state.experts) table(session, state, at);  // those are above it
  return std::move(events_);
}

}  // namespace rehearse::viz
