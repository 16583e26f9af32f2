// SPDX-License-Identifier: Apache-2.0
#include "viz/picture/formats/png.h"

#include <algorithm>
#include <array>

#ifdef REHEARSE_ZLIB
#include <zlib.h>
#endif

namespace rehearse::viz {
namespace {

std::array<std::uint32_t, 256> crc_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t n = 0; n < 256; ++n) {
    std::uint32_t c = n;
    for (int bit = 0; bit < 8; ++bit) c = (c & 1) != 0 ? 0xEDB88320u ^ (c >> 1) : c >> 1;
    table[n] = c;
  }
  return table;
}

std::uint32_t crc_of(std::string_view bytes) {
  static const std::array<std::uint32_t, 256> kTable = crc_table();
  std::uint32_t crc = 0xFFFFFFFFu;
  for (const char byte : bytes) {
    crc = kTable[(crc ^ static_cast<unsigned char>(byte)) & 255] ^ (crc >> 8);
  }
  return crc ^ 0xFFFFFFFFu;
}

void put_u32(std::string& out, std::uint32_t number) {  // most significant byte first
  for (int shift = 24; shift >= 0; shift -= 8) out += static_cast<char>((number >> shift) & 255);
}

void put_chunk(std::string& out, std::string_view type, std::string_view data) {
  put_u32(out, static_cast<std::uint32_t>(data.size()));
  const std::size_t begin = out.size();
  out.append(type).append(data);
  put_u32(out, crc_of(std::string_view(out).substr(begin)));
}

// A zlib stream (RFC 1950) of the bytes.
std::string zlib_stream(const std::string& bytes) {
#ifdef REHEARSE_ZLIB
  uLongf size = compressBound(static_cast<uLong>(bytes.size()));
  std::string out(size, '\0');
  compress2(reinterpret_cast<Bytef*>(out.data()), &size,
            reinterpret_cast<const Bytef*>(bytes.data()), static_cast<uLong>(bytes.size()), 6);
  out.resize(size);
  return out;
#else
  std::string out = "\x78\x01";
  std::uint32_t a = 1, b = 0;  // Adler-32
  for (std::size_t at = 0; at == 0 || at < bytes.size(); at += 65535) {
    const std::size_t size = std::min<std::size_t>(65535, bytes.size() - at);
    out += static_cast<char>(at + size >= bytes.size() ? 1 : 0);
    for (const std::size_t field : {size, ~size}) {
      out += static_cast<char>(field & 255);
      out += static_cast<char>((field >> 8) & 255);
    }
    out.append(bytes, at, size);
  }
  for (const char byte : bytes) {
    a = (a + static_cast<unsigned char>(byte)) % 65521;
    b = (b + a) % 65521;
  }
  put_u32(out, b << 16 | a);
  return out;
#endif
}

}  // namespace

std::string encode_png(std::int32_t width, std::int32_t height,
                       std::span<const std::uint32_t> pixels, bool with_alpha) {
  const std::size_t channels = with_alpha ? 4 : 3;
  const auto columns = static_cast<std::size_t>(width);
  std::string rows;
  rows.reserve(pixels.size() * channels + static_cast<std::size_t>(height));
  for (std::size_t i = 0; i < pixels.size(); ++i) {
    if (i % columns == 0) rows += '\0';  // filter: none
    for (std::size_t c = 0; c < channels; ++c) {
      rows += static_cast<char>((pixels[i] >> (8 * c)) & 255);
    }
  }
  std::string header;
  put_u32(header, static_cast<std::uint32_t>(width));
  put_u32(header, static_cast<std::uint32_t>(height));
  header += '\x08';                        // bits per channel
  header += with_alpha ? '\x06' : '\x02';  // RGBA or RGB
  header.append(3, '\0');                  // deflate, adaptive filters, not interlaced

  std::string out = "\x89PNG\r\n\x1a\n";
  put_chunk(out, "IHDR", header);
  put_chunk(out, "IDAT", zlib_stream(rows));
  put_chunk(out, "IEND", {});
  return out;
}

std::string png(const Scene& scene) {
  return encode_png(scene.pixel_width(), scene.pixel_height(), rasterize(scene), false);
}

}  // namespace rehearse::viz
