// SPDX-License-Identifier: Apache-2.0
// The viewer's core behind functions that a page's script calls: packed traces in, events in, a
// list of drawing commands out. Compiled to WebAssembly for pages, and as it is for the test that
// both draw alike.
//
// A command is a tag and its words of 32 bits; numbers are floats, colours 0xAABBGGRR:
//   1 rectangle x y width height fill hatch ink outline      2 strip x y width height n, n colours
//   3 area fill base end n, n times x y                      4 line x1 y1 x2 y2 width colour
//   5 text x y anchor size colour width bytes, the bytes     6 bound x y width height   7 no bound
//   8 background colour scale: pixels per unit of all numbers above
#include <algorithm>
#include <cstring>
#include <memory>
#include <span>

#include "schedules/trace/trace_bytes.h"
#include "viz/page/pack.h"
#include "viz/picture/formats/png.h"
#include "viz/picture/letters/letters.h"
#include "viz/window/keys.h"
#include "viz/window/view/scene.h"

#if defined(__wasm__)
#include <cstdlib>
#define PAGE_FUNCTION(name) extern "C" __attribute__((export_name(#name)))
rehearse::MappedTrace::~MappedTrace() {}  // the page keeps its traces: no file is mapped
rehearse::viz::Letters* rehearse::viz::installed_letters() {  // the browser draws all letters
  return nullptr;
}
PAGE_FUNCTION(allocate) void* page_allocate(std::size_t bytes) {
  return std::aligned_alloc(64, (bytes + 63) / 64 * 64);
}
#else
#include <sys/mman.h>
#define PAGE_FUNCTION(name) extern "C"
PAGE_FUNCTION(allocate) void* page_allocate(std::size_t bytes) {  // a MappedTrace unmaps it
  void* memory = mmap(nullptr, std::max<std::size_t>(bytes, 1), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return memory == MAP_FAILED ? nullptr : memory;
}
#endif

namespace rehearse::viz {
namespace {

std::vector<Document> documents;  // before start()
std::optional<Waterfall> waterfall;
std::unique_ptr<Session> session;
ViewState state;
SceneCache cache;
std::vector<std::uint32_t> out;
std::string fault, copied;

std::uint32_t word(double value) {
  const auto number = static_cast<float>(value);
  std::uint32_t bits = 0;
  std::memcpy(&bits, &number, sizeof bits);
  return bits;
}
std::uint32_t word(Color color, std::uint32_t alpha = 255) {
  return alpha << 24 | std::uint32_t{color.blue} << 16 | std::uint32_t{color.green} << 8 |
         color.red;
}
std::uint32_t count(std::size_t n) {
  return static_cast<std::uint32_t>(n);
}
template <class... Words>
void put(Words... words) {
  (out.push_back(words), ...);
}

void put(const Rect& r) {
  put(1U, word(r.x), word(r.y), word(r.width), word(r.height), word(r.fill, r.alpha),
      static_cast<std::uint32_t>(r.hatch), word(r.ink), r.outlined ? word(r.outline) : 0U);
}

void put(const Text& t) {
  put(5U, word(t.x), word(t.y), static_cast<std::uint32_t>(t.anchor),
      static_cast<std::uint32_t>(t.size), word(t.color),
      word(static_cast<double>(text_width(t.text, t.size))), count(t.text.size()));
  const std::size_t at = out.size();
  out.resize(at + (t.text.size() + 3) / 4);
  if (!t.text.empty()) std::memcpy(out.data() + at, t.text.data(), t.text.size());
}

void put(const Scene& scene) {
  const bool bound = scene.clip_width > 0;
  if (bound) {
    put(6U, word(scene.clip_x), word(scene.clip_y), word(scene.clip_width),
        word(scene.clip_height));
  }
  for (const Rect& r : scene.plates) put(r);
  for (const Strip& s : scene.strips) {
    put(2U, word(s.x), word(s.y), word(s.width), word(s.height), count(s.colors.size()));
    out.insert(out.end(), s.colors.begin(), s.colors.end());
  }
  for (const Area& a : scene.areas) {
    put(3U, word(a.fill, a.alpha), word(a.base), word(a.end), count(a.x.size()));
    for (std::size_t i = 0; i < a.x.size(); ++i) put(word(a.x[i]), word(a.y[i]));
  }
  for (const Rect& r : scene.rects) put(r);
  for (const Line& l : scene.lines) {
    put(4U, word(l.x1), word(l.y1), word(l.x2), word(l.y2), word(l.width), word(l.color, l.alpha));
  }
  for (const Text& t : scene.texts) put(t);
  for (const Scene& layer : scene.layers) put(layer);
  if (bound) put(7U);
}

}  // namespace
}  // namespace rehearse::viz

using namespace rehearse;
using namespace rehearse::viz;

// One trace, or one after the other two, packed. The number of its ops; -1: see page_fault().
PAGE_FUNCTION(add_trace) std::int32_t page_add_trace(const std::byte* packed, std::size_t size) {
  const std::size_t bytes = unpacked_bytes({packed, size});
  auto* file = static_cast<std::byte*>(page_allocate(bytes));
  const Result<> unpacked = file == nullptr ? Result<>(Error{"the trace does not fit in memory"})
                                            : unpack_trace({packed, size}, {file, bytes});
  Result<Trace> trace = unpacked ? trace_of(MappedTrace(file, bytes), "trace") : unpacked.error();
  if (!trace) {
    fault = trace.error().message;
    return -1;
  }
  documents.emplace_back(std::move(trace).value());
  return documents.back().trace().num_ops();
}
PAGE_FUNCTION(fault) const char* page_fault() {
  return fault.c_str();
}

// The causes from the first step to the second, packed; what cannot be read is none.
PAGE_FUNCTION(add_causes) void page_add_causes(const char* packed, std::size_t size) {
  waterfall = unpack_waterfall({packed, size});
}

// REQUIRES: one or two traces were added.
PAGE_FUNCTION(start) void page_start(std::int32_t width, std::int32_t height) {
  session = std::make_unique<Session>(std::move(documents), std::move(waterfall));
  state = initial_state(*session, width, height);
}

// 1: the picture changed. `modifiers`: 1 shift, 2 control; `code`: the character of a text event.
PAGE_FUNCTION(event)
std::int32_t page_event(std::int32_t type, std::int32_t key, std::int32_t modifiers, double x,
                        double y, std::int32_t button, double seconds, std::uint32_t code) {
  Event event{.type = static_cast<Event::Type>(type),
              .key = static_cast<Key>(key),
              .shift = (modifiers & 1) != 0,
              .control = (modifiers & 2) != 0,
              .x = x,
              .y = y,
              .button = button,
              .seconds = seconds};
  if (code != 0 && code < 0x80) event.text = std::string(1, static_cast<char>(code));
  ViewState next = reduce(*session, state, event);
  const bool changed = !(next == state);
  state = std::move(next);
  return changed ? 1 : 0;
}
// The number that event() takes for a key by its name (viz/window/keys.h); 0: there is none.
PAGE_FUNCTION(key) std::int32_t page_key(const char* name, std::size_t size) {
  return static_cast<std::int32_t>(key_named({name, size}));
}
PAGE_FUNCTION(playing) std::int32_t page_playing() {
  return state.playing ? 1 : 0;
}
// 1, once: a person asked for a picture.
PAGE_FUNCTION(take_export) std::int32_t page_take_export() {
  return std::exchange(state.wants_export, false) ? 1 : 0;
}

// What was copied, once: so many bytes of text, and where they are.
PAGE_FUNCTION(clipboard_size) std::size_t page_clipboard_size() {
  return state.clipboard.size();
}
PAGE_FUNCTION(take_clipboard) const char* page_take_clipboard() {
  copied = std::exchange(state.clipboard, {});
  return copied.c_str();
}

PAGE_FUNCTION(commands) const std::uint32_t* page_commands() {
  out.clear();
  const Scene scene = view_scene(*session, state, cache);
  put(8U, word(scene.background), word(scene.scale));
  put(scene);
  return out.data();
}
PAGE_FUNCTION(num_words) std::size_t page_num_words() {
  return out.size();
}
// Width times height, 0xAABBGGRR: what `rehearse view --png` would draw. For tests.
PAGE_FUNCTION(pixels) const std::uint32_t* page_pixels() {
  out = rasterize(view_scene(*session, state, cache));
  return out.data();
}
// The ink of a hatch at a pixel, 0 to 255.
PAGE_FUNCTION(hatch)
std::uint32_t page_hatch(std::int32_t hatch, std::int32_t x, std::int32_t y) {
  return hatch_ink(static_cast<Hatch>(hatch), x, y);
}
