// SPDX-License-Identifier: Apache-2.0
#include "viz/picture/formats/svg.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "schedules/base/utf8.h"
#include "viz/picture/formats/png.h"

namespace rehearse::viz {
namespace {

class Writer {
 public:
  Writer& operator<<(std::string_view text) {
    out_ += text;
    return *this;
  }
  // Two decimals at most: a hundredth of a pixel is not seen.
  Writer& operator<<(double number) {
    std::array<char, 32> digits;
    const auto hundredths = std::llround(number * 100);
    auto end = std::to_chars(digits.data(), digits.data() + digits.size(), hundredths / 100).ptr;
    if (hundredths < 0 && hundredths > -100) {
      digits[0] = '-';
      digits[1] = '0';
      end = digits.data() + 2;
    }
    out_.append(digits.data(), end);
    if (const auto rest = std::abs(hundredths % 100); rest != 0) {
      out_ += '.';
      out_ += static_cast<char>('0' + rest / 10);
      if (rest % 10 != 0) out_ += static_cast<char>('0' + rest % 10);
    }
    return *this;
  }
  Writer& operator<<(Color color) {
    static constexpr std::string_view kDigits = "0123456789abcdef";
    out_ += '#';
    for (const std::uint8_t c : {color.red, color.green, color.blue}) {
      out_ += kDigits[c >> 4];
      out_ += kDigits[c & 15];
    }
    return *this;
  }
  Writer& escaped(std::string_view text) {
    for (std::size_t length = 0; !text.empty();
         text.remove_prefix(std::max<std::size_t>(length, 1))) {
      length = utf8_length(text);
      if (length != 1) {  // what is no UTF-8 would make no XML
        out_ += length == 0 ? "\xEF\xBF\xBD" : text.substr(0, length);
        continue;
      }
      const char c = text[0];
      switch (c) {
        case '&':
          out_ += "&amp;";
          break;
        case '<':
          out_ += "&lt;";
          break;
        case '>':
          out_ += "&gt;";
          break;
        case '"':
          out_ += "&quot;";
          break;
        default:  // XML has no other control characters
          if (static_cast<unsigned char>(c) >= 32 || c == '\t' || c == '\n') out_ += c;
      }
    }
    return *this;
  }
  void reserve(std::size_t bytes) { out_.reserve(bytes); }
  std::string take() { return std::move(out_); }

 private:
  std::string out_;
};

std::string base64(std::string_view bytes) {
  static constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  out.reserve(bytes.size() * 4 / 3 + 4);
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::uint32_t group = 0;
    for (std::size_t k = 0; k < 3; ++k) {
      group = group << 8 | (i + k < bytes.size() ? static_cast<unsigned char>(bytes[i + k]) : 0u);
    }
    for (std::size_t k = 0; k < 4; ++k) {
      out += i + k <= bytes.size() ? kDigits[(group >> (18 - 6 * k)) & 63] : '=';
    }
  }
  return out;
}

// The pattern of a hatch in one ink; its id is made of both.
std::string pattern_id(Hatch hatch, Color ink) {
  Writer id;
  id << "h" << static_cast<double>(static_cast<int>(hatch)) << "-";
  std::string color = (Writer{} << ink).take();
  return id.take() + color.substr(1);
}

void define_pattern(Writer& out, Hatch hatch, Color ink) {
  const auto open = [&](double size) -> Writer& {
    return out << "<pattern id=\"" << pattern_id(hatch, ink)
               << "\" patternUnits=\"userSpaceOnUse\" width=\"" << size << "\" height=\"" << size
               << "\">";
  };
  const auto path = [&](std::string_view d, double width) {
    out << "<path d=\"" << d << "\" stroke=\"" << ink << "\" stroke-width=\"" << width
        << "\" fill=\"none\"/>";
  };
  constexpr std::string_view kSlash = "M-1,1 l2,-2 M0,8 l8,-8 M7,9 l2,-2";
  constexpr std::string_view kBackslash = "M-1,7 l2,2 M0,0 l8,8 M7,-1 l2,2";
  switch (hatch) {
    case Hatch::None:
      return;
    case Hatch::Slash:
      open(8);
      path(kSlash, 1.1);
      break;
    case Hatch::Backslash:
      open(8);
      path(kBackslash, 1.1);
      break;
    case Hatch::Dense:
      open(5);
      path("M-1,1 l2,-2 M0,5 l5,-5 M4,6 l2,-2", 1.1);
      break;
    case Hatch::Cross:
      open(8);
      path(kSlash, 1.1);
      path(kBackslash, 1.1);
      break;
    case Hatch::Dots:
      open(8) << "<path d=\"M0,0h2v2h-2z M0,4h2v2h-2z M4,2h2v2h-2z M4,6h2v2h-2z\" fill=\"" << ink
              << "\"/>";
      break;
    case Hatch::Horizontal:
      open(4);
      path("M0,.5 h4", 1);
      break;
    case Hatch::Vertical:
      open(4);
      path("M.5,0 v4", 1);
      break;
  }
  out << "</pattern>\n";
}

using Patterns = std::vector<std::pair<Hatch, Color>>;

void define_patterns(Writer& out, const Scene& scene, Patterns& defined) {
  for (const Rect& rect : scene.rects) {
    if (rect.hatch == Hatch::None) continue;
    const std::pair key{rect.hatch, rect.ink};
    bool known = false;
    for (const auto& other : defined) known = known || other == key;
    if (known) continue;
    defined.push_back(key);
    define_pattern(out, rect.hatch, rect.ink);
  }
  for (const Scene& layer : scene.layers) define_patterns(out, layer, defined);
}

void place(Writer& out, double x, double y, double width, double height) {
  out << " x=\"" << x << "\" y=\"" << y << "\" width=\"" << width << "\" height=\"" << height
      << "\"";
}

void draw(Writer& out, const Strip& strip) {
  out << "<image";
  place(out, strip.x, strip.y, strip.width, strip.height);
  out << " preserveAspectRatio=\"none\" style=\"image-rendering:pixelated\" "
         "xlink:href=\"data:image/png;base64,"
      << base64(encode_png(static_cast<std::int32_t>(strip.colors.size()), 1, strip.colors, true))
      << "\"/>\n";
}

void draw(Writer& out, const Area& area) {
  if (area.x.empty()) return;
  out << "<path d=\"M" << static_cast<double>(area.x[0]) << "," << static_cast<double>(area.base);
  for (std::size_t i = 0; i < area.x.size(); ++i) {
    const float right = i + 1 < area.x.size() ? area.x[i + 1] : area.end;
    out << "V" << static_cast<double>(area.y[i]) << "H" << static_cast<double>(right);
  }
  out << "V" << static_cast<double>(area.base) << "Z\" fill=\"" << area.fill << "\" fill-opacity=\""
      << area.alpha / 255.0 << "\"/>\n";
}

void draw(Writer& out, const Rect& rect) {
  if (rect.alpha != 0) {
    out << "<rect";
    place(out, rect.x, rect.y, rect.width, rect.height);
    out << " fill=\"" << rect.fill << "\"";
    if (rect.alpha != 255) out << " fill-opacity=\"" << rect.alpha / 255.0 << "\"";
    out << "/>\n";
  }
  if (rect.hatch != Hatch::None) {
    out << "<rect";
    place(out, rect.x, rect.y, rect.width, rect.height);
    out << " fill=\"url(#" << pattern_id(rect.hatch, rect.ink) << ")\"/>\n";
  }
  if (rect.outlined && rect.width > 1 && rect.height > 1) {
    out << "<rect";
    place(out, rect.x + 0.5, rect.y + 0.5, rect.width - 1, rect.height - 1);
    out << " fill=\"none\" stroke=\"" << rect.outline << "\"/>\n";
  }
}

void draw(Writer& out, const Line& line) {
  out << "<path d=\"M" << line.x1 << "," << line.y1 << "L" << line.x2 << "," << line.y2
      << "\" stroke=\"" << line.color << "\" stroke-width=\"" << line.width << "\"";
  if (line.alpha != 255) out << " stroke-opacity=\"" << line.alpha / 255.0 << "\"";
  out << "/>\n";
}

void draw(Writer& out, const Text& text) {
  static constexpr std::array<double, 3> kPixels{11, 13, 17};
  out << "<text x=\"" << text.x << "\" y=\"" << text.y << "\" font-size=\""
      << kPixels[static_cast<std::size_t>(text.size)] << "\"";
  if (text.size == TextSize::Title) out << " font-weight=\"bold\"";
  if (text.anchor != Anchor::Begin) {
    out << " text-anchor=\"" << (text.anchor == Anchor::Middle ? "middle" : "end") << "\"";
  }
  out << " fill=\"" << text.color << "\">";
  out.escaped(text.text) << "</text>\n";
}

void draw_all(Writer& out, const Scene& scene, int& clips) {
  const bool bound = scene.clip_width > 0;
  if (bound) {
    const double id = ++clips;
    out << "<clipPath id=\"c" << id << "\"><rect";
    place(out, scene.clip_x, scene.clip_y, scene.clip_width, scene.clip_height);
    out << "/></clipPath>\n<g clip-path=\"url(#c" << id << ")\">\n";
  }
  for (const Rect& plate : scene.plates) draw(out, plate);
  for (const Strip& strip : scene.strips) draw(out, strip);
  for (const Area& area : scene.areas) draw(out, area);
  for (const Rect& rect : scene.rects) draw(out, rect);
  for (const Line& line : scene.lines) draw(out, line);
  for (const Text& text : scene.texts) draw(out, text);
  if (bound) out << "</g>\n";
  for (const Scene& layer : scene.layers) draw_all(out, layer, clips);
}

}  // namespace

std::string svg(const Scene& scene) {
  Writer out;
  out.reserve(scene.rects.size() * 96 + scene.texts.size() * 96 + scene.strips.size() * 4096 +
              4096);
  const auto width = static_cast<double>(scene.width), height = static_cast<double>(scene.height);
  out << "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<svg xmlns=\"http://www.w3.org/2000/svg\" "
         "xmlns:xlink=\"http://www.w3.org/1999/xlink\" width=\""
      << width * scene.scale << "\" height=\"" << height * scene.scale << "\" viewBox=\"0 0 " << width << " " << height
      << "\" font-family=\"DejaVu Sans,Verdana,sans-serif\">\n<title>";
  out.escaped(scene.title) << "</title>\n";
  Patterns patterns;
  out << "<defs>\n";
  define_patterns(out, scene, patterns);
  out << "</defs>\n";
  draw(out, Rect{.width = width, .height = height, .fill = scene.background});
  int clips = 0;
  draw_all(out, scene, clips);
  out << "</svg>\n";
  return out.take();
}

}  // namespace rehearse::viz
