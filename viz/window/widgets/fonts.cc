// SPDX-License-Identifier: Apache-2.0
#include "viz/window/widgets/fonts.h"

#include <backends/imgui_impl_opengl3.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "viz/picture/letters/letters.h"

namespace rehearse::viz {
namespace {

// Height of a line and where its letters stand, at a scale of 1 [px].
constexpr std::array<double, 3> kLines{14, 17, 22}, kBases{11, 13, 17};
// What Dear ImGui of this version can be asked for.
constexpr std::uint32_t kLastCode = sizeof(ImWchar) == 2 ? 0xFFFF : 0x10FFFF;

struct Place {
  int rect = 0;
  const Letter* letter = nullptr;
};

}  // namespace

double Fonts::base(TextSize size) const {
  return std::round(kBases[static_cast<std::size_t>(size)] * scale_);
}

void Fonts::want(std::string_view text) {
  if (std::ranges::all_of(text, [](char c) { return static_cast<unsigned char>(c) < 0x80; }))
    return;
  while (!text.empty()) {
    const std::uint32_t code = next_code_point(text);
    if (code <= kLastCode && !codes_.contains(code)) missed_.insert(code);
  }
}

void Fonts::prepare(double scale) {
  if (codes_.empty()) {
    for (std::uint32_t code = 32; code < 127; ++code) codes_.insert(code);
    want("µ·×–…→");
  }
  if (scale == scale_ && missed_.empty()) return;
  scale_ = scale;
  codes_.merge(missed_);
  missed_.clear();
  make();
}

void Fonts::make() {
  ImFontAtlas& atlas = *ImGui::GetIO().Fonts;
  atlas.Clear();
  std::vector<Place> places;
  for (std::size_t i = 0; i < fonts_.size(); ++i) {
    const auto size = static_cast<TextSize>(i);
    ImFontConfig config;  // its own letters are those that all of ours replace
    config.SizePixels = static_cast<float>(std::round(kLines[i] * scale_));
    fonts_[i] = atlas.AddFontDefault(&config);
    for (const std::uint32_t code : codes_) {
      const Letter& letter = letter_of(code, size, scale_);
      const int rect = atlas.AddCustomRectFontGlyph(
          fonts_[i], static_cast<ImWchar>(code), std::max(1, letter.width),
          std::max(1, letter.height), static_cast<float>(letter.advance),
          {static_cast<float>(letter.left), static_cast<float>(base(size) - letter.top)});
      places.push_back({rect, &letter});
    }
  }
  atlas.Build();
  unsigned char* pixels = nullptr;
  int width = 0, height = 0;
  atlas.GetTexDataAsAlpha8(&pixels, &width, &height);
  for (const Place& place : places) {
    const ImFontAtlasCustomRect& rect = *atlas.GetCustomRectByIndex(place.rect);
    for (std::int32_t y = 0; y < place.letter->height; ++y) {
      std::copy_n(place.letter->coverage.begin() + y * place.letter->width, place.letter->width,
                  pixels + (rect.Y + y) * width + rect.X);
    }
  }
  ImGui_ImplOpenGL3_DestroyFontsTexture();
  ImGui_ImplOpenGL3_CreateFontsTexture();
  ImGui::GetIO().FontDefault = fonts_[static_cast<std::size_t>(TextSize::Small)];
}

}  // namespace rehearse::viz
