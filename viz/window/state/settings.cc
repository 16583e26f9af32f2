// SPDX-License-Identifier: Apache-2.0
#include "viz/window/state/settings.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include "schedules/base/json_reader.h"

namespace rehearse::viz {
namespace {

std::optional<std::int32_t> number_in(std::string_view text, std::int32_t least,
                                      std::int32_t most) {
  std::int32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value < least || value > most)
    return std::nullopt;
  return value;
}

// How one choice is read and written. Reading: false where the text is not understood.
struct Setting {
  std::string_view name;
  bool (*read)(ViewState& state, std::string_view text);
  std::string (*write)(const ViewState& state);
};

template <bool ViewState::*kSwitch>
bool read_switch(ViewState& state, std::string_view text) {
  state.*kSwitch = text == "yes";
  return text == "yes" || text == "no";
}
template <bool ViewState::*kSwitch>
std::string write_switch(const ViewState& state) {
  return state.*kSwitch ? "yes" : "no";
}
template <std::int32_t ViewState::*kSize, std::int32_t kLeast>
bool read_size(ViewState& state, std::string_view text) {
  constexpr std::int32_t kMost = 16'000;  // [px]
  const auto size = number_in(text, kLeast, kMost);
  if (size) state.*kSize = *size;
  return size.has_value();
}
template <std::int32_t ViewState::*kSize>
std::string write_size(const ViewState& state) {
  return std::to_string(state.*kSize);
}

bool read_text_percent(ViewState& state, std::string_view text) {
  const auto percent = number_in(text, 50, 400);
  if (percent) state.text_scale = *percent / 100.0;
  return percent.has_value();
}
std::string write_text_percent(const ViewState& state) {
  return std::to_string(std::lround(state.text_scale * 100));
}

// A difference is of two traces, and kept for no other.
bool read_color(ViewState& state, std::string_view text) {
  const auto found = std::ranges::find(kColorByNames, text);
  const auto by = static_cast<ColorBy>(found - kColorByNames.begin());
  if (found == kColorByNames.end() || by == ColorBy::Difference) return false;
  state.color_by = by;
  return true;
}
std::string write_color(const ViewState& state) {
  const ColorBy by = state.color_by == ColorBy::Difference ? ColorBy::Kinds : state.color_by;
  return std::string(kColorByNames[static_cast<std::size_t>(by)]);
}

bool read_heat(ViewState& state, std::string_view text) {
  for (HeatOf of = 0; of < kNumHeats; ++of) {
    if (heat_name(of) != text) continue;
    state.heat = of;
    return true;
  }
  return false;
}
std::string write_heat(const ViewState& state) {
  return std::string(heat_name(state.heat));
}

constexpr Setting kSettings[] = {
    {"width", read_size<&ViewState::pixel_width, 320>, write_size<&ViewState::pixel_width>},
    {"height", read_size<&ViewState::pixel_height, 240>, write_size<&ViewState::pixel_height>},
    {"text_percent", read_text_percent, write_text_percent},
    {"color_by", read_color, write_color},
    {"dark", read_switch<&ViewState::dark>, write_switch<&ViewState::dark>},
    {"wheel_zooms", read_switch<&ViewState::wheel_zooms>, write_switch<&ViewState::wheel_zooms>},
    {"causes", read_switch<&ViewState::causes>, write_switch<&ViewState::causes>},
    {"memory", read_switch<&ViewState::memory>, write_switch<&ViewState::memory>},
    {"links", read_switch<&ViewState::links>, write_switch<&ViewState::links>},
    {"streams", read_switch<&ViewState::streams>, write_switch<&ViewState::streams>},
    {"lags", read_switch<&ViewState::lags>, write_switch<&ViewState::lags>},
    {"heat", read_heat, write_heat},
};

const Setting* setting_named(std::string_view name) {
  const auto found = std::ranges::find(kSettings, name, &Setting::name);
  return found == std::end(kSettings) ? nullptr : found;
}

}  // namespace

Result<Settings> Settings::parse(std::string_view text, const std::string& path) {
  Settings settings;
  for (int line = 1; !text.empty(); ++line) {
    const std::size_t end = text.find('\n');
    const std::string_view content = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (content.empty()) continue;
    const std::size_t space = content.find(' ');
    const std::string_view name = content.substr(0, space);
    const std::string_view value =
        space == std::string_view::npos ? std::string_view{} : content.substr(space + 1);
    ViewState tried;
    const Setting* known = setting_named(name);
    if (name.empty() || value.empty() || (known != nullptr && !known->read(tried, value))) {
      return Error{path + ":" + std::to_string(line) + ": " + json_excerpt(std::string(content)) +
                   " is not understood"};
    }
    settings.lines_.emplace_back(name, value);
  }
  return settings;
}

void Settings::apply(ViewState& state) const {
  for (const auto& [name, value] : lines_) {
    if (const Setting* known = setting_named(name)) known->read(state, value);
  }
}

std::string Settings::text(const ViewState& state) const {
  std::string text;
  for (const Setting& one : kSettings)
    text.append(one.name).append(" ").append(one.write(state)).append("\n");
  for (const auto& [name, value] : lines_) {
    if (setting_named(name) == nullptr) text.append(name).append(" ").append(value).append("\n");
  }
  return text;
}

}  // namespace rehearse::viz
